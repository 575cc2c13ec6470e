"""What the page shows of a comparison with public data: kinds of samples, shares of both sides, words and phrases."""

from html import escape
from typing import TYPE_CHECKING

from blindsight.inspection.page import drawing, words
from blindsight.samples import gallery

if TYPE_CHECKING:
    from blindsight.inspection.bias.section import Compared, Kind
    from blindsight.inspection.report import Report

__all__ = ["kinds", "shares", "texts"]

TRAINING, SERVING = "arm-0", "arm-1"
QUIET = 12  # lines of one table without a difference, before the rest is folded
KEYS = f'<b class="key {SERVING}">serving</b> <b class="key {TRAINING}">training</b>'


def kinds(report: "Report") -> str:
    """What serving has more of: synthetic samples by kind, with the share that clients reported."""
    if report.bias is None or not report.bias.kinds:
        return ""
    figures = "".join(_kind(number, kind) for number, kind in enumerate(report.bias.kinds))
    return (
        '<section aria-labelledby="kinds"><h2 id="kinds">Kinds that are denser in serving, by the discriminator</h2>'
        "<p>Typical synthetic samples of each kind, those with the largest ratio of densities first. Above them the "
        "share of real pictures of that kind as the other half of the clients reported it, against public pictures; "
        "only that is tested. A kind that was not confirmed may be noise.</p>"
        f'<p>{KEYS}</p><div class="panels">{figures}</div></section>'
    )


def _kind(number: int, kind: "Kind") -> str:
    stamped = [gallery.png(gallery.stamped(image)) for image in kind.samples]
    alt = f"synthetic sample of kind {number + 1}"
    tiles = "".join(f"<li>{drawing.picture(one, alt=f'{alt}, {place}')}</li>" for place, one in enumerate(stamped))
    found = _CHIPS[kind.compared.verdict]
    return (
        f'<figure class="column"><figcaption><span class=name>Kind {escape(kind.compared.name)}</span> '
        f"<small>{found}</small>"
        f"</figcaption>{_table([kind.compared])}<ol class=tiles>{tiles}</ol></figure>"
    )


_CHIPS = {
    "more": "confirmed by clients",
    "less": "clients have less of it",
    "alike": "not confirmed by clients",
}


def shares(report: "Report") -> str:
    """Shares on both sides, what differs first."""
    if report.bias is None:
        return ""
    groups: dict[str, list[Compared]] = {}
    for one in report.bias.compared:
        if one.about != "kind":
            groups.setdefault(one.about, []).append(one)
    figures = "".join(_figure(about, lines) for about, lines in groups.items())
    return (
        '<section aria-labelledby="compared"><h2 id="compared">Serving and training side by side</h2>'
        f"<p>Shares of serving were released with noise; those of training are of {escape(report.bias.reference)}, "
        f"{report.bias.clients:,} public clients. Whiskers hold at 95 % and count the draw of clients on either side. "
        f'What differs is bold.</p><p>{KEYS}</p><div class="panels">{figures}</div></section>'
    )


def _figure(about: str, lines: "list[Compared]") -> str:
    ordered = sorted(lines, key=lambda one: one.verdict == "alike")
    first = max(QUIET, sum(one.verdict != "alike" for one in ordered))
    rest = ordered[first:]
    folded = f"<details><summary>{len(rest)} more</summary>{_table(rest)}</details>" if rest else ""
    titles = {"habit": "Habits: clients beyond nearly all of training", "region of pictures": "Pictures"}
    return (
        f'<figure class="column"><figcaption><span class=name>{escape(titles.get(about, about))}</span></figcaption>'
        f"{_table(ordered[:first])}{folded}</figure>"
    )


def _table(lines: "list[Compared]") -> str:
    largest = max([0.02, *(rate.high for one in lines for rate in (one.serving, one.training))])
    rows: list[str] = []
    for one in lines:
        wins = "" if one.verdict == "alike" else " class=wins"
        for place, (rate, key) in enumerate(((one.serving, SERVING), (one.training, TRAINING))):
            heading = f'<th scope=row rowspan="2">{escape(one.name)}</th>' if place == 0 else ""
            drawn = drawing.bar(rate.value, kind=key, low=rate.low, high=rate.high, largest=largest)
            shown = f"{escape(words.percent(rate.value))} <small>({words.span(rate.low, rate.high)})</small>"
            rows.append(f"<tr{wins}>{heading}<td>{drawn}</td><td class=number>{shown}</td></tr>")
    return f'<table class="votes"><tbody>{"".join(rows)}</tbody></table>'


def texts(report: "Report") -> str:
    """Words of unlikely sentences, and phrases of the model that was trained on them."""
    found = report.bias
    if found is None or (found.words is None and found.phrases is None):
        return ""
    figures = ""
    if found.words is not None:
        largest = max([1.0, *(word.clients for word in found.words)])
        rows = "".join(
            f"<tr><th scope=row>{escape(one.word)}</th>"
            f"<td>{drawing.bar(one.clients, kind=SERVING, largest=largest)}</td>"
            f"<td class=number>{one.clients:,.0f} <small>(as in training: {one.expected:,.0f})</small></td></tr>"
            for one in found.words
        )
        table = f'<table class="votes words"><tbody>{rows}</tbody></table>'
        figures += (
            "<figure class=column><figcaption><span class=name>Words that many clients use in them</span></figcaption>"
            f"{table if rows else '<p>No word stands out of the noise.</p>'}</figure>"
        )
    if found.phrases is not None:
        items = "".join(f"<li>{escape(phrase)}</li>" for phrase in found.phrases)
        figures += (
            "<figure class=column><figcaption><span class=name>As the second model says it</span> "
            f'<span class="stamp">synthetic</span></figcaption><ul class="phrases">{items}</ul></figure>'
        )
    return (
        '<section aria-labelledby="unlikely"><h2 id="unlikely">Sentences that the model of public text finds unlikely'
        "</h2><p>Words are discovered in noisy histograms, with the noisy number of clients; both are shown and not "
        f'tested.</p><div class="panels">{figures}</div></section>'
    )
