"""The report of an audit as one HTML file that opens offline: it asks for nothing, and no script runs in it.

`audit.html` is the frame and `audit.css` goes into it whole; the Content-Security-Policy admits that style by its hash
and nothing else. Every word that comes from outside is escaped.
"""

import base64
import hashlib
import string
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from blindsight.accounting.guarantee import round_down, round_up
from blindsight.audit.page import plots

if TYPE_CHECKING:
    from blindsight.audit.report import AuditReport

__all__ = ["render"]


def render(report: "AuditReport") -> str:
    """The whole page."""
    style = _asset("audit.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    return string.Template(_asset("audit.html")).substitute(
        policy=f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        style=style,
        run=escape(report.run),
        about=escape(f"{report.model} · {report.rounds:,} rounds"),
        outcome=report.outcome.replace(" ", "-"),
        verdict=escape(report.verdict),
        claim=escape(str(report.guarantee)),
        sections="\n".join(filter(None, (_bounds(report), _ranks(report), _canaries(report), _notes(report)))),
        created=escape(report.created),
    )


def _bounds(report: "AuditReport") -> str:
    if not report.bounds:
        return ""
    from blindsight.audit.report import KINDS

    rows = "".join(
        f"<tr><td>{escape(kind)}<small>{escape(KINDS[kind])}</small></td>"
        f"<td class=number>{bound.included:,} / {bound.canaries:,}</td>"
        f"<td class=number>{bound.correct:,} / {bound.guesses:,}</td>"
        f"<td class=number><b>{escape(round_down(bound.epsilon))}</b></td>"
        f"<td class=number>{escape(round_down(bound.most))}</td></tr>"
        for kind, bound in report.bounds.items()
    )
    claimed = round_up(report.guarantee.epsilon) if report.guarantee.is_private else "none"
    return (
        '<section aria-labelledby="bounds"><h2 id="bounds">What one run proves about epsilon</h2>'
        "<p>Each planted client was put in or left out by a fair coin. The auditor guessed which from the released "
        "model alone and then looked at the coins. So many right guesses would be a surprise, at "
        f"{100 * report.confidence:g} % confidence for all rows together, if epsilon were smaller than the bound.</p>"
        f"{plots.bounds(report)}"
        '<div class="scroll"><table class="sheet"><thead><tr><th scope=col>planted</th><th scope=col class=number>in / '
        "all</th><th scope=col class=number>right / guesses</th><th scope=col class=number>epsilon at least</th>"
        "<th scope=col class=number>could have shown</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
        f"<p>Claimed: {escape(claimed)}. A bound above the claim proves that the implementation or the claim is "
        "broken; one below it proves nothing: a better attack, or more canaries, might still show more.</p></section>"
    )


def _ranks(report: "AuditReport") -> str:
    if not report.canaries:
        return ""
    rows = "".join(
        f"<tr><td class=number>{row.clients}</td><td class=number>{row.copies}</td>"
        f"<td class=number>{row.times_seen:,.0f}</td>"
        f"<td>{', '.join(f'{rank:,}' for rank in row.ranks)}</td>"
        f"<td class=number>{row.extracted} / {len(row.ranks)}</td></tr>"
        for row in report.configurations
    )
    return (
        '<section aria-labelledby="ranks"><h2 id="ranks">What the model kept of the canaries</h2>'
        f"<p>Phrases of random words, planted as synthetic clients that take part in {100 * report.rate:.3g} % of the "
        f"rounds. Each is ranked, by the probability of its last words after its first {report.prefix}, among "
        f"{report.references:,} random ones. Rank 1 is memorised: no random phrase is as likely. Without memory ranks "
        "lie anywhere.</p>"
        f"{plots.ranks(report)}"
        '<div class="scroll"><table class="sheet"><thead><tr><th scope=col class=number>clients that share it</th>'
        "<th scope=col class=number>copies on each</th><th scope=col class=number>expected times seen</th>"
        f"<th scope=col>rank out of {report.references:,}</th>"
        f"<th scope=col class=number>found by beam search of width {report.width}</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _canaries(report: "AuditReport") -> str:
    if not report.canaries:
        return ""
    rows = "".join(
        f"<tr><td>{escape(one.phrase)}</td><td class=number>{one.clients}</td><td class=number>{one.copies}</td>"
        f"<td class=number>{one.rank:,}</td><td class=number>{one.exposure:.1f}</td>"
        f"<td>{'found' if one.extracted else ''}</td></tr>"
        for one in sorted(report.canaries, key=lambda one: one.rank)
    )
    return (
        '<section aria-labelledby="canaries"><h2 id="canaries">Canary by canary</h2>'
        "<p>Exposure is log<sub>2</sub> of the number of references less log<sub>2</sub> of the rank: how many bits of "
        "the secret the model gives away.</p>"
        '<div class="scroll"><table class="sheet"><thead><tr><th scope=col>phrase</th>'
        "<th scope=col class=number>clients</th><th scope=col class=number>copies</th>"
        "<th scope=col class=number>rank</th><th scope=col class=number>exposure, bits</th>"
        "<th scope=col>beam search</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _notes(report: "AuditReport") -> str:
    if not report.notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return f'<section aria-labelledby="notes"><h2 id="notes">Notes</h2><ul>{items}</ul></section>'


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
