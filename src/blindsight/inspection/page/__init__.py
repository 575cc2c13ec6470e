"""A report as one HTML file that opens offline: no request leaves it, and nothing in it runs but its own script.

`report.html` is the frame, `report.css` and `report.js` go into it whole, and the Content-Security-Policy admits just
these two by their hashes and pictures from the page itself. Every word that comes from outside is escaped.
"""

import base64
import hashlib
import string
from collections.abc import Callable
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from blindsight.inspection.page import bias, evidence, privacy, samples, unknowns

if TYPE_CHECKING:
    from blindsight.inspection.report import Report

__all__ = ["embed", "render"]

SECTIONS: tuple[Callable[["Report"], str], ...] = (
    evidence.verdict,
    bias.kinds,
    samples.pictures,
    samples.differences,
    samples.rows,
    unknowns.places,
    evidence.votes,
    unknowns.generated,
    unknowns.discovered,
    bias.texts,
    bias.shares,
    evidence.findings,
    evidence.next_steps,
    privacy.releases,
    evidence.notes,
)


def render(report: "Report") -> str:
    """The whole page."""
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return string.Template(_asset("report.html")).substitute(
        policy=policy,
        style=style,
        script=script,
        title=escape(report.title),
        task=escape(report.task),
        question=escape(report.question),
        created=escape(report.created),
        population=escape(privacy.population(report)),
        bar=privacy.bar(report),
        provenance=privacy.provenance(report),
        sections="\n".join(section(report) for section in SECTIONS),
    )


def embed(report: "Report") -> str:
    """The page in a frame of its own, for notebooks: neither can touch the other's style or script."""
    return (
        f'<iframe title="{escape(report.title)}" srcdoc="{escape(render(report))}" sandbox="allow-scripts" '
        'width="100%" height="760" style="border:1px solid #8884;border-radius:8px"></iframe>'
    )


def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
