"""The sections of a report: each knows its JSON, its terminal output and its template.

A new section is a class with the members of `Section`, a template in `pages/templates/sections/`, and an entry in
`registry.SECTIONS`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Protocol, Self

from rich.console import Console, RenderableType

from blindsight.accounting.guarantee import Guarantee
from blindsight.inspection.finding import Diagnosis, Finding
from blindsight.samples.views import ArmView

__all__ = ["Facts", "Section"]


class Explained(Protocol):
    """What explains the findings."""

    @property
    def fault(self) -> str: ...
    @property
    def statement(self) -> str: ...
    @property
    def unknown(self) -> object | None: ...


class Foreseen(Protocol):
    """What could have been found."""

    @property
    def statement(self) -> str: ...
    @property
    def is_blind(self) -> bool: ...


class Facts(Protocol):
    """What a section may read from its report."""

    @property
    def task(self) -> str:
        """The task of the question."""
        ...

    @property
    def outcome(self) -> Literal["fault", "difference", "nothing"]:
        """Whether a fault was named, a difference detected, or nothing."""
        ...

    @property
    def answer(self) -> str:
        """The answer in a sentence; empty where the verdict says it."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for everything released."""
        ...

    @property
    def coverage(self) -> tuple[str, ...]:
        """Sentences on what the guarantee covers and on the ledger's total over all runs."""
        ...

    @property
    def population(self) -> Mapping[str, Any]:
        """The name of the clients, their number, and the classes."""
        ...

    @property
    def arms(self) -> tuple[ArmView, ...]:
        """The arms, with their samples."""
        ...

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All tests."""
        ...

    @property
    def ranked(self) -> tuple[Finding, ...]:
        """The findings, the clearest difference first."""
        ...

    @property
    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """The fault that each arm voted for."""
        ...

    @property
    def named(self) -> tuple[Diagnosis, ...]:
        """The diagnoses that name a fault."""
        ...

    @property
    def explanation(self) -> Explained | None:
        """The faults that would explain the release, if that was asked."""
        ...

    @property
    def detection(self) -> Foreseen | None:
        """What would have been detected, if public data can tell."""
        ...

    def class_name(self, label: int) -> str:
        """The name of a class by its number."""
        ...


class Section(Protocol):
    """One part of a report; `key` names it in the JSON, `template` is its file."""

    key: ClassVar[str]
    template: ClassVar[str]

    def to_dict(self) -> Any:
        """Plain values for JSON, from which `from_dict` makes the same section."""
        ...

    @classmethod
    def from_dict(cls, value: Any) -> Self:
        """The section that `to_dict` was called on."""
        ...

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """The lines shown in the terminal."""
        ...

    def values(self, report: Facts) -> Mapping[str, object] | None:
        """The values for the template; None if there is nothing to show."""
        ...
