"""Synthetic examples for people to label (T5 of Augenstein et al. 2020), as a question."""

import dataclasses
from typing import ClassVar

import numpy as np

from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.question import Comparing
from blindsight.models.primary import Primary, gather
from blindsight.selection import Arms, everything

__all__ = ["Labelling"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labelling(Comparing):
    """At least `samples` examples of all clients, equally many of every class; `population` is the name in headings."""

    samples: int = 500
    population: str = ""

    task: ClassVar[str] = "labelling"
    server: ClassVar[str] = "blindsight.inspection.labelling.task"
    free: ClassVar[str] = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 1:
            raise InvalidInput(f"samples must be at least 1, got {self.samples}")
        for field in self.inputs:
            column = self.schema.fields[field]
            if column.kind in ("text", "truth") or (column.kind in ("number", "whole") and column.range is None):
                raise InvalidInput(
                    f"{field!r} of {self.population} cannot be sampled: labelling needs images, fields with named "
                    f"classes, or numbers with a public range (--type {field}=0:100)"
                )

    @property
    def title(self) -> str:
        return f"Examples of {self.population} to label"

    def sentence(self, name: str) -> str:
        return f"What do the data of {name} look like, so that people can label them?"

    @property
    def compared(self) -> Arms:
        return Arms({"everyone": everything()})

    def samples_of(self, classes: int) -> int:
        return -(-self.samples // max(classes, 1))

    @property
    def asks_for_votes(self) -> bool:
        return False

    def prepare(self, population: Population, model: Primary | None, reference: Population | None) -> Population:
        """The clients with labels: their own, or the model's predictions on each client's own examples."""
        label = self.schema.label
        if model is None or label in population.fields:
            return population
        predicted, _ = model.predict_by_client(gather(population.columns, self.inputs), population.sizes)
        labelled = population.replace({**population.columns, label: predicted})
        labelled.classes[label] = _class_names(self, model, population, reference)
        return labelled


def _class_names(
    question: Labelling, model: Primary, population: Population, reference: Population | None
) -> tuple[str, ...]:
    """The names of the classes that the model predicts: those of the reference, or numbers."""
    empty = {name: np.zeros((1, *shape), dtype) for name, (dtype, shape) in population.fields.items()}
    count = model.scores(gather(empty, question.inputs)).shape[1]  # public: the model's own
    names = () if reference is None else reference.classes.get(question.schema.label, ())
    return names if len(names) == count else tuple(map(str, range(count)))
