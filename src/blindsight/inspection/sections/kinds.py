"""All kinds of sections that a report can hold, and a report's sections from what they are made of."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, cast

from blindsight.inspection.bias.section import Bias
from blindsight.inspection.contrast.findings import Diagnosis, Finding
from blindsight.inspection.sections import Section
from blindsight.inspection.sections.evidence import Findings, Votes
from blindsight.inspection.sections.privacy import Releases
from blindsight.inspection.sections.remarks import Notes
from blindsight.inspection.sections.samples import Samples
from blindsight.inspection.unknowns.section import Unknowns
from blindsight.samples.views import ArmView

__all__ = ["KINDS", "Parts", "assemble"]

KINDS: tuple[type[Section], ...] = (Bias, Samples, Votes, Unknowns, Findings, Releases, Notes)
"""In the order of the page."""

ALWAYS = (Samples, Votes, Findings, Releases, Notes)
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


def assemble(stored: Iterable[Section], parts: Mapping[str, Any]) -> tuple[Section, ...]:
    """`stored` and what `parts` make, which replace those of their kind; in the order of the page."""
    if unknown := set(parts) - {kind.key for kind in KINDS}:
        raise TypeError(f"no section of a report is made of {', '.join(sorted(unknown))}")
    sections = {section.key: section for section in stored}
    for kind in KINDS:
        make = cast("Callable[[Any], Section]", kind)
        part = parts.get(kind.key)
        if part is not None:
            sections[kind.key] = part if isinstance(part, kind) else make(tuple(part))
        elif kind.key in parts:
            sections.pop(kind.key, None)
        if kind in ALWAYS and kind.key not in sections:
            sections[kind.key] = make(())
    order = {kind.key: place for place, kind in enumerate(KINDS)}
    return tuple(sorted(sections.values(), key=lambda one: order.get(one.key, len(order))))
