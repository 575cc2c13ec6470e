"""The section types of a report, and how a report's sections are assembled."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, cast

from blindsight.errors import InvalidInput
from blindsight.inspection.asking.section import Statistics
from blindsight.inspection.bias.section import BiasSection
from blindsight.inspection.finding import Diagnosis, Finding
from blindsight.inspection.sections import Section
from blindsight.inspection.sections.detection import Detection
from blindsight.inspection.sections.evidence import Findings, VotesSection
from blindsight.inspection.sections.explanation import ExplanationSection
from blindsight.inspection.sections.privacy import Releases
from blindsight.inspection.sections.remarks import Notes
from blindsight.inspection.sections.samples import Samples
from blindsight.inspection.unknowns.section import UnknownsSection
from blindsight.samples.views import ArmView

__all__ = ["ALWAYS", "SECTIONS", "Parts", "assemble"]

SECTIONS: tuple[type[Section], ...] = (
    *(Statistics, BiasSection, ExplanationSection, Samples, VotesSection, UnknownsSection, Findings, Detection),
    *(Releases, Notes),
)
"""In the order of the page."""

ALWAYS: tuple[type[Section], ...] = (Samples, VotesSection, Findings, Releases, Notes)
"""Sections that every report has; all but the first may be empty."""


class Parts(TypedDict, total=False):
    """The contents of sections, by section key."""

    arms: Sequence[ArmView]
    findings: Sequence[Finding]
    diagnoses: Sequence[Diagnosis]
    releases: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    unknowns: UnknownsSection | None
    bias: BiasSection | None
    explanation: ExplanationSection | None
    detection: Detection | None
    statistics: Statistics | None


def assemble(stored: Sequence[Section], parts: Mapping[str, Any]) -> tuple[Section, ...]:
    """The sections in page order: `stored`, with those built from `parts` replacing stored ones of the same type."""
    sections = {section.key: section for section in stored}
    if unknown := {*sections, *parts} - {section_type.key for section_type in SECTIONS}:
        raise TypeError(f"a report has no section {', '.join(sorted(unknown))}")
    if len(sections) < len(stored):
        raise InvalidInput(f"a report has one section of each type, got {', '.join(one.key for one in stored)}")
    for section_type in SECTIONS:
        make = cast("Callable[[Any], Section]", section_type)
        part = parts.get(section_type.key, () if section_type in ALWAYS and section_type.key not in sections else None)
        if part is not None:
            sections[section_type.key] = part if isinstance(part, section_type) else make(tuple(part))
        elif section_type.key in parts:
            sections.pop(section_type.key, None)
    return tuple(sections[section_type.key] for section_type in SECTIONS if section_type.key in sections)
