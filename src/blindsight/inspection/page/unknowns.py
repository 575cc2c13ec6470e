"""What the page shows of unknown words: where they stand, what they are like, and what models of them generate."""

from html import escape
from typing import TYPE_CHECKING

from blindsight.inspection.page import drawing, words

if TYPE_CHECKING:
    from blindsight.inspection.report import Report
    from blindsight.inspection.unknowns.section import Churn, Generated, Rate, Side, Unknowns

__all__ = ["discovered", "generated", "places"]

KEYS = ("arm-0", "arm-1")


def places(report: "Report") -> str:
    """Rates by position in the sentence, and what unknown words are like, before and after."""
    if (found := report.unknowns) is None:
        return ""
    rates = " and ".join(f"{_key(n, side.name)} {_rate(side.rate)} of words" for n, side in enumerate(found.sides))
    names = [name.removeprefix("position ") for name in found.places[:-1]] + ["later"]
    made = {side.name: side.generated.places[:-1] for side in found.sides if side.generated is not None}
    chart = drawing.grouped_bars(
        {side.name: side.places for side in found.sides},
        names,
        label="share of sentences with an unknown word at each position",
        dots=made,
    )
    dots = " Dots are what the word models generate." if made else ""
    traits = _bars("with", found.traits, [side.traits for side in found.sides])
    lengths = _bars("letters of the longest", found.lengths, [side.lengths for side in found.sides])
    return (
        '<section aria-labelledby="places"><h2 id="places">Where unknown words stand</h2>'
        f"<p>Unknown: {rates}. Below, the share of sentences with an unknown word at each position; whiskers hold at "
        f"95 %.{dots}</p>"
        f'<figure class="column"><figcaption>{_keys(found)}</figcaption><div class="scroll">{chart}</div></figure>'
        "</section>"
        '<section aria-labelledby="traits"><h2 id="traits">What they are like</h2>'
        "<p>Shares of sentences that have an unknown word of that kind.</p>"
        f'<div class="panels">{traits}{lengths}</div></section>'
    )


def generated(report: "Report") -> str:
    """The lists of generated words side by side, what changed between them, and phrases."""
    found = report.unknowns
    if found is None or found.churn is None:
        return ""
    fresh, lost = set(found.churn.new), set(found.churn.gone)
    lists, phrases = "", ""
    for number, (side, marked) in enumerate(zip(found.sides, (lost, fresh), strict=True)):
        if side.generated is not None:
            lists += _list(number, side, side.generated, marked)
            phrases += _phrases(number, side, side.generated)
    shares = _shares(found)
    return (
        '<section aria-labelledby="words"><h2 id="words">Unknown words as models spell them</h2>'
        "<p>Synthetic words from models of letters that read unknown words alone, with their exact joint probability "
        "in thousandths. What stands on one list only is marked.</p>"
        f'<div class="panels">{lists}</div>{_churn(found.churn)}{shares}</section>'
        '<section aria-labelledby="phrases"><h2 id="phrases">Phrases as models say them</h2>'
        "<p>Synthetic sentences from models of words, cut after ten; UNK stands for any unknown word.</p>"
        f'<div class="panels">{phrases}</div></section>'
    )


def discovered(report: "Report") -> str:
    """Words that many clients use and the vocabulary lacks, found without a model."""
    found = report.unknowns
    if found is None or all(side.discovered is None for side in found.sides):
        return ""
    figures = "".join(_discovered(number, side) for number, side in enumerate(found.sides))
    return (
        '<section aria-labelledby="discovered"><h2 id="discovered">Unknown words that many clients use</h2>'
        "<p>Discovered letter by letter in noisy histograms: real words, each with the noisy number of clients.</p>"
        f'<div class="panels">{figures}</div></section>'
    )


def _discovered(number: int, side: "Side") -> str:
    listed = side.discovered or ()
    largest = max((count for _, count in listed), default=1.0)
    rows = "".join(
        f"<tr><th scope=row>{escape(word)}</th><td>{drawing.bar(count, kind=KEYS[number], largest=largest)}</td>"
        f"<td class=number>{count:,.0f}</td></tr>"
        for word, count in listed
    )
    table = (
        f'<table class="votes words"><tbody>{rows}</tbody></table>'
        if listed
        else "<p>No word stands out of the noise.</p>"
    )
    return f'<figure class="column"><figcaption>{_key(number, side.name)}</figcaption>{table}</figure>'


def _key(number: int, name: str) -> str:
    return f'<b class="key {KEYS[number]}">{escape(name)}</b>'


def _stamped(number: int, name: str) -> str:
    return f'{_key(number, name)} <span class="stamp">synthetic</span>'


def _keys(found: "Unknowns") -> str:
    return " ".join(_key(number, side.name) for number, side in enumerate(found.sides))


def _rate(rate: "Rate") -> str:
    return f"{escape(_percent(rate.value))} <small>(95 %: {escape(words.span(rate.low, rate.high))})</small>"


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.2 else 1}f} %"


def _bars(title: str, names: tuple[str, ...], sides: "list[tuple[Rate, ...]]") -> str:
    largest = max([1e-9, *(rate.high for rates in sides for rate in rates)])
    rows: list[str] = []
    for place, name in enumerate(names):
        for number, rates in enumerate(sides):
            rate = rates[place]
            drawn = drawing.bar(rate.value, kind=KEYS[number], low=rate.low, high=rate.high, largest=largest)
            heading = f'<th scope=row rowspan="2">{escape(name)}</th>' if number == 0 else ""
            rows.append(f"<tr>{heading}<td>{drawn}</td><td class=number>{escape(_percent(rate.value))}</td></tr>")
    return (
        f'<figure class="column"><figcaption><span class=name>{escape(title)}</span></figcaption>'
        f'<table class="votes"><tbody>{"".join(rows)}</tbody></table></figure>'
    )


def _list(number: int, side: "Side", made: "Generated", marked: set[str]) -> str:
    largest = max(made.listed.probabilities, default=1.0)
    rows = "".join(
        f"<tr{' class=wins' if word in marked else ''}><th scope=row>{escape(word)}</th>"
        f"<td>{drawing.bar(chance, kind=KEYS[number] if word in marked else 'other', largest=largest)}</td>"
        f"<td class=number>{1000 * chance:.2f}</td></tr>"
        for word, chance in zip(made.listed.words, made.listed.probabilities, strict=True)
    )
    return (
        f'<figure class="column"><figcaption>{_stamped(number, side.name)}</figcaption>'
        f'<table class="votes words"><tbody>{rows}</tbody></table></figure>'
    )


def _churn(churn: "Churn") -> str:
    named = {"New": churn.new, "Gone": churn.gone, "Risen": churn.risen, "Fallen": churn.fallen}
    rows = "".join(f"<dt>{name}</dt><dd>{escape(', '.join(listed)) or '–'}</dd>" for name, listed in named.items())
    return f'<dl class="churn">{rows}</dl>'


def _shares(found: "Unknowns") -> str:
    """The share of generated words that have each trait."""
    made = [side.generated.traits for side in found.sides if side.generated is not None]
    rows = "".join(
        f"<tr><th scope=row>{escape(trait)}</th>"
        + "".join(f"<td class=number>{escape(_percent(traits[place]))}</td>" for traits in made)
        + "</tr>"
        for place, trait in enumerate(found.traits)
    )
    head = "".join(
        f"<th scope=col class=number>{_key(number, side.name)}</th>" for number, side in enumerate(found.sides)
    )
    return (
        '<div class="scroll"><table class="rows"><thead><tr><th scope=col>of generated words, with</th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _phrases(number: int, side: "Side", made: "Generated") -> str:
    items = "".join(f"<li>{_unknown(phrase)}</li>" for phrase in made.phrases)
    return (
        f'<figure class="column"><figcaption>{_stamped(number, side.name)}</figcaption>'
        f'<ul class="phrases">{items}</ul></figure>'
    )


def _unknown(phrase: str) -> str:
    return " ".join("<mark>UNK</mark>" if word == "UNK" else escape(word) for word in phrase.split())
