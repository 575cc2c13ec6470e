"""`bias` (T6): what does the population that a model serves have that its public training data lack?"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from blindsight.data.population import Population
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Case
from blindsight.errors import InvalidInput
from blindsight.inspection.question import Question
from blindsight.inspection.unknowns.models import WordTraining

__all__ = ["Bias", "Language", "in_public_classes"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Language:
    """How texts are compared: `case`, size of the public vocabulary, and optional outputs beyond counts.

    `discover` lists words that many clients use in unlikely sentences. `training` trains a second model on unlikely
    sentences and shows what it generates. Each takes its share of the epsilon.
    """

    case: Case = "lower"
    vocabulary_size: int = 10_000
    discover: bool = False
    training: WordTraining | None = None

    def __post_init__(self) -> None:
        if self.case not in ("lower", "keep"):
            raise InvalidInput(f"case must be lower or keep, got {self.case!r}")
        if self.vocabulary_size < 1:
            raise InvalidInput(f"a vocabulary needs at least one word, got {self.vocabulary_size}")


def _language(value: Mapping[str, Any]) -> Language:
    fields: dict[str, Any] = dict(value)
    fields["training"] = None if value["training"] is None else WordTraining(**value["training"])
    return Language(**fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bias(Question):
    """What do clients have that the reference lacks: classes, slices, styles, groups of images, sentences?

    `by` names a public field to divide by, with its `values` if it is text. `classes` lists the classes to compare, by
    default those of the reference. `steps` is the number of refinement steps of image generators.
    """

    by: str = ""
    values: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    language: Language = Language()
    steps: int = 200

    task: ClassVar[str] = "bias"
    server: ClassVar[str] = "blindsight.inspection.bias.task"
    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"language": _language}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.reference:
            raise InvalidInput("bias compares clients with public data: pass a reference, such as the training data")

    @property
    def title(self) -> str:
        return "What do the training data lack?"

    def sentence(self, name: str) -> str:
        return f"What does {name} have that the public data {self.reference.rpartition(' [')[0]} lack?"


def in_public_classes(schema: Schema, reference: Population) -> Schema:
    """The schema with the reference's classes: a loader may have derived the clients' list from their data."""
    fields = dict(schema.fields)
    for name in schema.classes:
        values = reference.classes.get(name, ())
        fields[name] = Field("category", values=values) if values else Field("whole")
    return dataclasses.replace(schema, fields=fields)
