"""`synthesize`: rows of a table, as a question."""

import dataclasses
from typing import ClassVar

from blindsight.errors import InvalidInput
from blindsight.inspection.question import Question

__all__ = ["Synthesize"]

NUMBERS, CODED = ("number", "whole"), ("category", "truth")
MOST_FIELDS, MOST_LABELS = 40, 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synthesize(Question):
    """`rows` synthetic rows with the schema's inputs and its label; how they are drawn costs nothing."""

    rows: int = 10_000

    task: ClassVar[str] = "synthesize"
    free: ClassVar[str] = "rows"
    server: ClassVar[str] = "blindsight.inspection.synthesizing.task"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.rows <= 10_000_000:
            raise InvalidInput(f"rows must be 1 to 10,000,000, got {self.rows}")
        if not 2 <= len(self.inputs) <= MOST_FIELDS:
            raise InvalidInput(
                f"synthetic rows need 2 to {MOST_FIELDS} fields beside the label, got {len(self.inputs)}: name them"
            )
        for name in self.inputs:
            self._check(name)
        if self.label is None:
            return
        if self.label in self.inputs:
            raise InvalidInput(f"{self.label!r} is the label: leave it out of the other fields")
        if self.schema.fields[self.label].kind not in CODED or len(self.labels) > MOST_LABELS:
            raise InvalidInput(
                f"the label {self.label!r} must be a category of at most {MOST_LABELS} public values: "
                f"--type {self.label}=category:yes,no"
            )

    def _check(self, name: str) -> None:
        field = self.schema.fields[name]
        if field.kind not in (*NUMBERS, *CODED):
            raise InvalidInput(f"{name!r} is of kind {field.kind}: rows can have numbers and categories; leave it out")
        if field.kind in NUMBERS and field.range is None:
            raise InvalidInput(f"{name!r} needs a public range, which clients cannot provide: --type {name}=0:100")

    @property
    def labels(self) -> tuple[str, ...]:
        """The public names of the label's values; one without a name if there is no label."""
        if self.label is None:
            return ("",)
        field = self.schema.fields[self.label]
        return field.values if field.kind == "category" else ("false", "true")

    @property
    def title(self) -> str:
        return "Synthetic rows of data that nobody may look at"

    def sentence(self, name: str) -> str:
        of = ", ".join(self.inputs)
        return f"What do rows of {name} look like: {of}{f', with {self.label}' if self.label else ''}?"
