"""What can be asked of a field: small frozen values that go to JSON and back.

=============  ==============================================================================  ==================
item           answer                                                                          fields
=============  ==============================================================================  ==================
`Histogram`    share of every bin, or of every category                                        all but text
`Mean`         mean                                                                            numbers
`Quantiles`    quantiles at `levels`, and the distribution function they are read off          numbers
`Missing`      share of examples without a value                                               all
`Top`          the `k` most frequent categories, or the words that most clients use            category, text
`Cross`        share of every pair of values of two fields                                     all but text
=============  ==============================================================================  ==================

`by` names a category field: the same statistic for each of its values.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from blindsight.errors import InvalidInput

__all__ = ["Cross", "Histogram", "Item", "Mean", "Missing", "Quantiles", "Top", "item_from"]

_MOST_BINS, _MOST_WORDS = 256, 1000


@dataclasses.dataclass(frozen=True)
class Item:
    """One statistic of one field, for each value of the field `by` if there is one."""

    field: str
    by: str = ""

    statistic: ClassVar[str] = ""
    called: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not isinstance(self.field, str) or not isinstance(self.by, str) or not self.field:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"field and by must be names of fields, got {self.field!r} and {self.by!r}")
        if self.field in self.fields[1:]:
            raise InvalidInput(f"a field cannot be sliced by itself: slice {self.field!r} by another field")

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields that it reads."""
        return (self.field, *([self.by] if self.by else []))

    @property
    def words(self) -> str:
        """A short heading."""
        return f"{self.called or self.statistic} of {self.field}" + (f" by {self.by}" if self.by else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"statistic": self.statistic, **plain}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """The item that `to_dict` was called on."""
        given: dict[str, Any] = {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
        given.pop("statistic", None)
        return cls(**given)


@dataclasses.dataclass(frozen=True)
class Histogram(Item):
    """The share of every bin of a number, at most `bins` of equal width, or of every value of a category."""

    bins: int = 10

    statistic: ClassVar[str] = "histogram"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.bins <= _MOST_BINS:
            raise InvalidInput(f"a histogram must have 2 to {_MOST_BINS} bins, got {self.bins}")


@dataclasses.dataclass(frozen=True)
class Mean(Item):
    """The mean of a number, with values beyond its public range counted at the range's ends."""

    statistic: ClassVar[str] = "mean"


@dataclasses.dataclass(frozen=True)
class Quantiles(Item):
    """The quantiles of a number at `levels` between 0 and 1."""

    levels: tuple[float, ...] = (0.1, 0.25, 0.5, 0.75, 0.9)

    statistic: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "levels", tuple(self.levels))
        if not self.levels or not all(0 < level < 1 for level in self.levels):
            raise InvalidInput(f"the levels of quantiles must lie between 0 and 1, got {list(self.levels)}")


@dataclasses.dataclass(frozen=True)
class Missing(Item):
    """The share of examples without a value: empty, not a number, or not one of the category's values."""

    statistic: ClassVar[str] = "missing"
    called: ClassVar[str] = "missing values"


@dataclasses.dataclass(frozen=True)
class Top(Item):
    """The `k` most frequent values of a category, or at most `k` words that many clients use."""

    k: int = 10

    statistic: ClassVar[str] = "top"
    called: ClassVar[str] = "most frequent values"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.k <= _MOST_WORDS:
            raise InvalidInput(f"top must list 1 to {_MOST_WORDS} values, got {self.k}")


@dataclasses.dataclass(frozen=True)
class Cross(Item):
    """The share of every pair of values of `field` and `by`; numbers are divided into `bins`."""

    bins: int = 5

    statistic: ClassVar[str] = "cross"
    called: ClassVar[str] = "cross-tab"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.by:
            raise InvalidInput(f"a cross-tab needs two different fields: name another one besides {self.field!r}")
        if not 2 <= self.bins <= _MOST_BINS:
            raise InvalidInput(f"a cross-tab must have 2 to {_MOST_BINS} bins of a number, got {self.bins}")


_ITEMS: dict[str, type[Item]] = {kind.statistic: kind for kind in (Histogram, Mean, Quantiles, Missing, Top, Cross)}


def item_from(value: Mapping[str, Any]) -> Item:
    """The item that `to_dict` was called on, of any type."""
    if value.get("statistic") not in _ITEMS:
        raise InvalidInput(f"a statistic must be one of {', '.join(_ITEMS)}, got {value.get('statistic')!r}")
    return _ITEMS[value["statistic"]].from_dict(value)
