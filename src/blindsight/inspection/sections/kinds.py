"""All kinds of sections that a report can hold, and a report's sections from what they are made of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, cast

from blindsight.errors import InvalidInput
from blindsight.inspection.bias.section import Bias
from blindsight.inspection.contrast.findings import Diagnosis, Finding
from blindsight.inspection.sections import Section
from blindsight.inspection.sections.evidence import Findings, Votes
from blindsight.inspection.sections.privacy import Releases
from blindsight.inspection.sections.remarks import Notes
from blindsight.inspection.sections.samples import Samples
from blindsight.inspection.unknowns.section import Unknowns
from blindsight.samples.views import ArmView

__all__ = ["ALWAYS", "KINDS", "Parts", "assemble"]

KINDS: tuple[type[Section], ...] = (Bias, Samples, Votes, Unknowns, Findings, Releases, Notes)
"""In the order of the page."""

ALWAYS: tuple[type[Section], ...] = (Samples, Votes, Findings, Releases, Notes)
"""Those that every report has; all but the first may be empty."""


class Parts(TypedDict, total=False):
    """What sections are made of, by their key."""

    arms: Sequence[ArmView]
    findings: Sequence[Finding]
    diagnoses: Sequence[Diagnosis]
    releases: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    unknowns: Unknowns | None
    bias: Bias | None


def assemble(stored: Sequence[Section], parts: Mapping[str, Any]) -> tuple[Section, ...]:
    """`stored` and what `parts` make, which replace those of their kind; in the order of the page."""
    sections = {section.key: section for section in stored}
    if unknown := {*sections, *parts} - {kind.key for kind in KINDS}:
        raise TypeError(f"a report has no section {', '.join(sorted(unknown))}")
    if len(sections) < len(stored):
        raise InvalidInput(f"a report has one section of each kind, got {', '.join(one.key for one in stored)}")
    for kind in KINDS:
        make = cast("Callable[[Any], Section]", kind)
        part = parts.get(kind.key, () if kind in ALWAYS and kind.key not in sections else None)
        if part is not None:
            sections[kind.key] = part if isinstance(part, kind) else make(tuple(part))
        elif kind.key in parts:
            sections.pop(kind.key, None)
    return tuple(sections[kind.key] for kind in KINDS if kind.key in sections)
