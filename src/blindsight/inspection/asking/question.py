"""`ask`: statistics of fields, by slice, as a question."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from blindsight.data.schema import Field, Schema
from blindsight.data.text import Case
from blindsight.errors import InvalidInput
from blindsight.inspection.asking.items import (
    Cross,
    Histogram,
    Item,
    Mean,
    Missing,
    Quantiles,
    Top,
    item_from,
)
from blindsight.inspection.question import Question

__all__ = ["Ask", "usual_items"]

NUMBERS, CODED = ("number", "whole"), ("category", "truth")
_FITS: dict[type[Item], tuple[str, ...]] = {
    Histogram: (*NUMBERS, *CODED),
    Mean: NUMBERS,
    Quantiles: NUMBERS,
    Missing: (*NUMBERS, *CODED, "text"),
    Top: ("category", "truth", "text"),
    Cross: (*NUMBERS, *CODED),
}


def _items(value: Sequence[Mapping[str, Any]]) -> tuple[Item, ...]:
    return tuple(map(item_from, value))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask(Question):
    """Statistics that all share one epsilon; what fields hold is in the schema, which is public.

    `vocabulary` is the digest of public words that a list of words leaves out, `words` their number. A client's first
    `most` other words count.
    """

    items: tuple[Item, ...]
    vocabulary: str = ""
    words: int = 0
    case: Case = "lower"
    most: int = 100

    task: ClassVar[str] = "ask"
    server: ClassVar[str] = "blindsight.inspection.asking.task"
    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"items": _items}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.items or len(set(self.items)) < len(self.items):
            raise InvalidInput("ask for at least one statistic, and for each only once")
        if self.case not in ("lower", "keep"):
            raise InvalidInput(f"case must be lower or keep, got {self.case!r}")
        if not 1 <= self.most <= 10_000:
            raise InvalidInput(f"most, the number of words counted per client, must be 1 to 10,000, got {self.most}")
        for item in self.items:
            self._check(item)
        shapes = [(type(item), item.field, item.by) for item in self.items]
        if len(set(shapes)) < len(shapes):
            raise InvalidInput("ask for each statistic of a field only once, with one number of bins or set of levels")

    def _check(self, item: Item) -> None:
        for name in item.fields:
            if name not in self.schema.fields:
                raise InvalidInput(f"there is no field {name!r}: choose from {', '.join(self.schema.fields)}")
        field = self.schema.fields[item.field]
        if field.kind not in _FITS[type(item)]:
            raise InvalidInput(
                f"{item.words} cannot be asked: {item.field!r} is of kind {field.kind}, and {item.statistic} "
                f"needs {', '.join(_FITS[type(item)])}"
            )
        if isinstance(item, Top) and field.kind == "text" and item.by:
            raise InvalidInput(f"words are listed for all clients together: leave out by={item.by!r}")
        if isinstance(item, Cross):
            check_range(item.by, self.schema.fields[item.by], _FITS[Cross])
        elif item.by and self.schema.fields[item.by].kind not in CODED:
            raise InvalidInput(f"slices need a category with public values, and {item.by!r} is not one")
        if not isinstance(item, Missing):
            check_range(item.field, field, _FITS[type(item)])

    @property
    def title(self) -> str:
        return "Statistics of data that nobody may look at"

    def sentence(self, name: str) -> str:
        return f"Asked of {name}: {', '.join(item.words for item in self.items)}."


def check_range(name: str, field: Field, kinds: Sequence[str]) -> None:
    """Refuse a kind that does not fit, and a number without a public range."""
    if field.kind not in kinds:
        raise InvalidInput(f"{name!r} is of kind {field.kind}, and the question needs {', '.join(kinds)}")
    if field.kind in NUMBERS and field.range is None:
        raise InvalidInput(f"{name!r} needs a public range, which clients cannot provide: --type {name}=0:100")


def usual_items(schema: Schema, name: str, by: str = "") -> tuple[Item, ...]:
    """The usual statistics of a field, by its kind; words are never sliced."""
    if name not in schema.fields:
        raise InvalidInput(f"there is no field {name!r}: choose from {', '.join(schema.fields)}")
    kind = schema.fields[name].kind
    by = "" if by == name else by
    if kind in NUMBERS:
        return Mean(name, by), Quantiles(name, by), Histogram(name, by), Missing(name, by)
    if kind in CODED:
        return Histogram(name, by), Missing(name, by)
    if kind == "text":
        return (Top(name),)
    raise InvalidInput(f"{name!r} is an image: ask for fields of numbers, categories or text")
