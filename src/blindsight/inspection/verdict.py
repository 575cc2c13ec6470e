"""The answer of an inspection in one sentence."""

import math
from collections.abc import Sequence
from typing import Literal

from blindsight.inspection.contrast.explained import UNKNOWN
from blindsight.inspection.finding import Diagnosis, Finding
from blindsight.inspection.sections import Facts
from blindsight.inspection.sections.evidence import is_difference
from blindsight.wording import percent

__all__ = ["Outcome", "heading", "outcome_of", "verdict_of"]

Outcome = Literal["fault", "difference", "nothing"]

FEW = 0.1  # share of an arm's clients below which votes may be for a fault that only resembles the cause
HEADINGS = {"fault": "Fault identified", "difference": "Difference detected", "nothing": "No fault identified"}
UNDETECTED = (
    "At best, depending on the test, a fault must affect {} of clients to be detected. A fault that moves a statistic "
    "less than it could must affect more clients; how many cannot be predicted without public data."
)
UNDETECTED_BY_TASK = {
    "bias": "Differences in share of less than {} may have gone undetected, depending on what is compared.",
    "unknowns": "Changes on fewer than {} of clients may have gone undetected, depending on the statistic.",
}


def outcome_of(report: Facts) -> Outcome:
    """Whether a fault was named, or the arms differ in a way that no candidate explains, or neither."""
    if report.named:
        return "fault"
    return "difference" if any(map(is_difference, report.findings)) else "nothing"


def verdict_of(report: Facts) -> str:
    """The largest named fault, else the clearest difference, else what could have gone undetected."""
    if report.outcome == "fault":
        beside = "" if report.explanation is not None else _beside(report.named[0], report.ranked)
        return report.named[0].statement + beside
    if report.outcome == "difference":
        if report.explanation is None:
            return report.ranked[0].statement
        if report.explanation.fault == UNKNOWN and report.explanation.unknown is not None:
            return report.explanation.statement  # it lists what changed
        return f"{report.explanation.statement} The clearest difference: {report.ranked[0].statement}"
    if report.detection is not None:
        return f"No difference detected. {report.detection.statement}"
    smallest = [one.smallest for one in report.findings if one.smallest is not None and math.isfinite(one.smallest)]
    if smallest:
        return "No difference detected. " + UNDETECTED_BY_TASK.get(report.task, UNDETECTED).format(_range(smallest))
    is_blind = any(one.kind in ("cue", "votes", "share") for one in report.findings)
    why = ", and none could be: an arm has too few clients at this epsilon" if is_blind else ""
    return f"No difference detected{why}."


def _range(limits: Sequence[float]) -> str:
    """From the easiest test to the hardest: no single one speaks for the others."""
    low, high = percent(min(limits), 2), percent(max(limits), 2)
    return low if low == high else f"{low} to {high}"


def heading(report: Facts) -> str:
    """The type of answer in a few words, shown above the verdict."""
    if report.answer and report.outcome == "nothing":
        return "Answer"
    if report.outcome == "difference" and report.explanation is not None:
        return "Unknown fault" if report.explanation.fault == UNKNOWN else "Fault identified; several candidates fit"
    unexplained = "; no candidate fault explains it" if report.outcome == "difference" and report.diagnoses else ""
    return HEADINGS[report.outcome] + unexplained


def _beside(diagnosis: Diagnosis, ranked: tuple[Finding, ...]) -> str:
    """The clearest difference, where few clients voted: the cause may not be among the candidates."""
    clearest = next((one for one in ranked if is_difference(one) and one.kind == "cue"), None)
    if clearest is None or diagnosis.share >= FEW:
        return ""
    return f" The clearest difference: {clearest.statement}"
