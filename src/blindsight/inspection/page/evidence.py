"""What the page concludes: the verdict, the votes behind it, the findings, what to do next, and notes."""

from html import escape
from typing import TYPE_CHECKING

from blindsight.accounting.guarantee import round_up
from blindsight.inspection.page import drawing, words

if TYPE_CHECKING:
    from blindsight.inspection.contrast.findings import Diagnosis, Finding
    from blindsight.inspection.report import Report

__all__ = ["findings", "next_steps", "notes", "verdict", "votes"]

OUTCOMES = {
    "fault": "A fault was named",
    "difference": "A difference was found",
    "nothing": "Nothing was found",
}


def verdict(report: "Report") -> str:
    """The answer, large."""
    unexplained = "; no candidate explains it" if report.outcome == "difference" and report.diagnoses else ""
    heading = "The answer" if report.answer and report.outcome == "nothing" else OUTCOMES[report.outcome]
    return (
        f'<section class="verdict {report.outcome}" aria-label="Verdict">'
        f"<p>{heading}{unexplained}</p><h2>{words.unbroken(report.verdict)}</h2>{_shares(report)}</section>"
    )


def _shares(report: "Report") -> str:
    """How many of the clients are in each arm, as far as that was released."""
    parts: list[str] = []
    for number, arm in enumerate(report.arms):
        if arm.share is None:
            continue
        low, high = arm.share_low, arm.share_high
        spread = f" (95 %: {words.span(low, high)})" if low is not None and high is not None else ""
        clients = f"{words.percent(arm.share)} of clients{spread}"
        key = f'<b class="key arm-{number % 6}">{escape(arm.name)}</b>'
        parts.append(f"<li>{key} <span class=nobr>{escape(clients)}</span></li>")
    return f'<ul class="shares">{"".join(parts)}</ul>' if parts else ""


def votes(report: "Report") -> str:
    """Who voted for which fault, arm by arm."""
    if not report.diagnoses:
        return ""
    title, about = "What repairs the model", "on its own examples and voted for the one that helped its model most"
    if report.unknowns is not None:
        title = "What makes the words known again"
        about = "on its own sentences and voted for the one that makes most new unknown words known"
    return (
        f'<section aria-labelledby="votes"><h2 id="votes">{title}</h2>'
        f"<p>Each client undid every candidate {about}. Shares are noisy: a small one may come out below zero.</p>"
        f'<div class="panels">{"".join(_tally(report, one) for one in report.diagnoses)}</div></section>'
    )


def _tally(report: "Report", one: "Diagnosis") -> str:
    names = [arm.name for arm in report.arms]
    key = f"arm-{names.index(one.arm) % 6}" if one.arm in names else "other"
    known = {f.name: (f.low, f.high) for f in report.findings if f.kind == "votes" and set(f.arms) == {one.arm}}
    intervals = known | {one.fault: (one.low, one.high)}
    largest = max([*one.tally.values(), *(high for _, high in intervals.values()), 1e-9])
    rows: list[str] = []
    for name, share in sorted(one.tally.items(), key=lambda pair: -pair[1]):
        low, high = intervals.get(name, (None, None))
        wins = name == one.fault
        drawn = drawing.bar(share, kind=key if wins else "other", low=low, high=high, largest=largest)
        spread = f" <small>({words.span(low, high)})</small>" if low is not None and high is not None else ""
        rows.append(
            f"<tr{' class=wins' if wins else ''}><th scope=row>{escape(name)}</th><td>{drawn}</td>"
            f"<td class=number>{escape(words.percent(share))}{spread}</td></tr>"
        )
    return (
        f'<figure class="column"><figcaption><b class="key {key}">{escape(one.arm)}</b>{words.unbroken(one.statement)}'
        f'</figcaption><table class="votes"><tbody>{"".join(rows)}</tbody></table></figure>'
    )


def findings(report: "Report") -> str:
    """All findings: what was found at once, the rest on a click."""
    if not report.findings:
        return ""
    ranked = report.ranked
    limits = {
        kind: max([max(abs(one.low), abs(one.high)) for one in ranked if one.kind == kind])
        for kind in {one.kind for one in ranked}
    }
    found = "".join(_row(one, limits[one.kind]) for one in ranked if one.verdict == "found")
    quiet = [one for one in ranked if one.verdict != "found"]
    rest = "".join(_row(one, limits[one.kind]) for one in quiet)
    folded = (
        f"<details{'' if found else ' open'}><summary>{len(quiet)} looked for and not found</summary>"
        f"{_table(rest)}</details>"
    )
    return (
        '<section aria-labelledby="findings"><h2 id="findings">Findings</h2>'
        f"<p>{len(ranked) - len(quiet)} of {len(ranked)} found. Tests are made on the released sums, whose noise is "
        "known, never on samples; intervals hold at 95 %, and p-values are corrected for their number (Holm).</p>"
        f"{_table(found) if found else ''}{folded if quiet else ''}</section>"
    )


def _table(rows: str) -> str:
    return (
        '<table class="stacked findings"><thead><tr><th scope=col>finding</th><th scope=col>effect</th>'
        "<th scope=col>verdict</th><th scope=col class=number>epsilon, alone</th>"
        f"<th scope=col class=number>could not have seen less than</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(one: "Finding", limit: float) -> str:
    found = one.verdict == "found"
    p_value = "" if one.p_value is None else f"<small>p {_p(one.p_value)}</small>"
    smallest = "–" if one.smallest is None else words.percent(one.smallest)
    smallest += " of clients" if one.smallest is not None and one.kind != "share" else ""
    about = ", ".join([one.kind, " – ".join(dict.fromkeys(one.arms))])
    return (
        f'<tr class="{"found" if found else "quiet"}"><td><b>{escape(one.name)}</b> <small>{escape(about)}</small><br>'
        f"{words.unbroken(one.statement)}</td>"
        f'<td data-label="effect">{drawing.interval(one.effect, one.low, one.high, limit=limit, found=found)}'
        f"<span class=nobr>{escape(words.signed(one.effect))} <small>({escape(words.signed(one.low))} to "
        f"{escape(words.signed(one.high))})</small></span></td>"
        f'<td data-label="verdict"><span class="chip">{"● found" if found else "○ not found"}</span>{p_value}</td>'
        f'<td data-label="epsilon, alone" class=number>{escape(round_up(one.epsilon))}</td>'
        f'<td data-label="could not have seen less than" class=number>{escape(smallest)}</td></tr>'
    )


def _p(value: float) -> str:
    return "&lt; 0.0001" if value < 1e-4 else f"= {value:.2g}"


def next_steps(report: "Report") -> str:
    """What to do with the answer."""
    steps = "".join(f"<li>{words.prose(step)}</li>" for step in report.next_steps)
    return f'<section aria-labelledby="next"><h2 id="next">What to do next</h2><ol class="next">{steps}</ol></section>'


def notes(report: "Report") -> str:
    """What else should be known."""
    if not report.notes:
        return ""
    items = "".join(f"<li>{words.prose(note)}</li>" for note in report.notes)
    return f'<section aria-labelledby="notes"><h2 id="notes">Notes</h2><ul>{items}</ul></section>'
