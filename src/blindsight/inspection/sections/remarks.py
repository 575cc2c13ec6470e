"""Sentences: next steps and notes."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rich.console import Console, RenderableType
from rich.markup import escape

from blindsight.inspection.sections import Facts

__all__ = ["NextSteps", "Notes"]


@dataclasses.dataclass(frozen=True)
class Notes:
    """Notes on how to read the report."""

    key: ClassVar[str] = "notes"
    template: ClassVar[str] = "sections/notes.html"
    notes: tuple[str, ...]

    def to_dict(self) -> list[str]:
        """Plain values for JSON."""
        return list(self.notes)

    @classmethod
    def from_dict(cls, value: Sequence[str]) -> "Notes":
        """The section that `to_dict` was called on."""
        return cls(tuple(value))

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """One line per note."""
        return (f"[dim]{escape(note)}[/]" for note in self.notes)

    def values(self, report: Facts) -> Mapping[str, object] | None:
        """A list."""
        return {"notes": self.notes} if self.notes else None


@dataclasses.dataclass(frozen=True)
class NextSteps:
    """The next steps; they follow from the rest of the report, so no report stores them."""

    key: ClassVar[str] = "next_steps"
    template: ClassVar[str] = "sections/next_steps.html"
    steps: tuple[str, ...]

    def to_dict(self) -> list[str]:
        """Plain values for JSON."""
        return list(self.steps)

    @classmethod
    def from_dict(cls, value: Sequence[str]) -> "NextSteps":
        """The section that `to_dict` was called on."""
        return cls(tuple(value))

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """Nothing: the terminal shows the answer only."""
        yield from ()

    def values(self, report: Facts) -> Mapping[str, Any] | None:
        """A numbered list."""
        return {"steps": self.steps} if self.steps else None
