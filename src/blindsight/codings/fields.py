"""Types of fields in clients' rows, each with its encoding into [0, 1]; `specs` combines them.

number      {"kind": "number", "low": 0, "high": 200}      (value - low) / (high - low), clamped to [0, 1]
boolean     {"kind": "boolean"}                            0 or 1
category    {"kind": "category", "categories": [...]}      one-hot; all zeros for unlisted values
ngrams      {"kind": "ngrams", "sizes": [2, 3],            1 in the bucket of every n-gram of bytes of the UTF-8
             "buckets": 256}                               text: 32-bit FNV-1a modulo the buckets
"""

import dataclasses
import math
import numbers
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["AnyField", "BooleanField", "CategoryField", "NgramField", "NumberField", "as_category", "as_list"]
__all__ += ["check_name", "field_from_dict", "field_to_dict", "fnv1a", "known_keys", "refused"]


@dataclasses.dataclass(frozen=True)
class NumberField:
    """A number between `low` and `high`, scaled to [0, 1]; values outside are clamped."""

    kind: ClassVar[str] = "number"
    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        check_name(self.name)
        numeric = _is_number(self.low) and _is_number(self.high)
        if not (numeric and self.low < self.high and math.isfinite(float(self.high) - float(self.low))):
            raise InvalidInput(f"field {self.name!r} needs low < high, got {self.low!r} and {self.high!r}")
        object.__setattr__(self, "low", float(self.low))  # 0 and 0.0 are the same task
        object.__setattr__(self, "high", float(self.high))

    @property
    def width(self) -> int:
        """One coordinate."""
        return 1

    def takes(self, value: Any) -> bool:
        """Whether it is a finite number."""
        return _is_number(value)

    def encode(self, values: Sequence[Any]) -> np.ndarray:
        """The scaled values, (rows, 1)."""
        return (self.clamped(values) - self.low)[:, None] / (self.high - self.low)

    def clamped(self, values: Sequence[Any]) -> np.ndarray:
        """The unscaled values, (rows,), clamped to between `low` and `high`."""
        _check_all(self, values, "a finite number")
        return np.clip(np.asarray(values, np.float64).reshape(-1), self.low, self.high)


@dataclasses.dataclass(frozen=True)
class BooleanField:
    """True or false, 1 or 0."""

    kind: ClassVar[str] = "boolean"
    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    @property
    def width(self) -> int:
        """One coordinate."""
        return 1

    def takes(self, value: Any) -> bool:
        """Whether it is true or false, 1 or 0."""
        return isinstance(value, bool | np.bool_) or (_is_number(value) and value in (0, 1))

    def encode(self, values: Sequence[Any]) -> np.ndarray:
        """0 or 1, (rows, 1)."""
        _check_all(self, values, "true or false (or 1 or 0)")
        return np.asarray(values, np.float64).reshape(-1, 1)


@dataclasses.dataclass(frozen=True)
class CategoryField:
    """One of `categories` (text; integers are read as their digits); `drop_first` gives the first no weight."""

    kind: ClassVar[str] = "category"
    name: str
    categories: tuple[str, ...]
    drop_first: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "categories", tuple(self.categories))
        if not _is_flag(self.drop_first):
            raise InvalidInput(f"drop_first of {self.name!r} must be true or false, got {self.drop_first!r}")
        if not all(_is_text(category) for category in self.categories):
            raise InvalidInput(f"the categories of {self.name!r} must be text, got {list(self.categories)}")
        if len(set(self.categories)) < max(len(self.categories), 1 + self.drop_first):
            raise InvalidInput(
                f"the categories of {self.name!r} must be distinct, with at least one left: {list(self.categories)}"
            )

    @property
    def width(self) -> int:
        """One coordinate for each category that has a weight."""
        return len(self.categories) - self.drop_first

    def takes(self, value: Any) -> bool:
        """Whether it is text, an integer or None; it need not be listed."""
        return value is None or isinstance(value, str) or _is_integral(value)

    def encode(self, values: Sequence[Any]) -> np.ndarray:
        """One-hot, (rows, width); all zeros for unlisted values."""
        encoded = np.zeros((len(values), len(self.categories) + 1))
        encoded[np.arange(len(values)), self.indices(values)] = 1.0
        return encoded[:, self.drop_first : -1]

    def indices(self, values: Sequence[Any]) -> np.ndarray:
        """The index of each value in `categories`, (rows,); their number for unlisted values."""
        _check_all(self, values, "text or a whole number")
        places: dict[str | None, int] = {category: place for place, category in enumerate(self.categories)}
        return np.asarray([places.get(as_category(value), len(places)) for value in values], np.int64)


@dataclasses.dataclass(frozen=True)
class NgramField:
    """Which n-grams of bytes a text contains, for n in `sizes`, hashed into `buckets`: 1 or 0 each."""

    kind: ClassVar[str] = "ngrams"
    name: str
    sizes: tuple[int, ...]
    buckets: int

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "sizes", tuple(self.sizes))
        if not self.sizes or not all(_is_whole(size, 1, 64) for size in self.sizes):
            raise InvalidInput(f"the sizes of {self.name!r} must be whole numbers from 1 to 64, got {list(self.sizes)}")
        if not _is_whole(self.buckets, 1, 1 << 20):
            raise InvalidInput(f"field {self.name!r} needs 1 to {1 << 20} buckets, got {self.buckets!r}")

    @property
    def width(self) -> int:
        """One coordinate for each bucket."""
        return self.buckets

    def takes(self, value: Any) -> bool:
        """Whether it is text."""
        return isinstance(value, str)

    def encode(self, values: Sequence[Any]) -> np.ndarray:
        """1 where the text has an n-gram in that bucket, (rows, buckets)."""
        _check_all(self, values, "text")
        encoded = np.zeros((len(values), self.buckets))
        for row, value in enumerate(values):
            for size in self.sizes:
                encoded[row, fnv1a(_utf8(value), size) % np.uint32(self.buckets)] = 1.0
        return encoded


AnyField = NumberField | BooleanField | CategoryField | NgramField
"""Any type of field."""

_KINDS: dict[str, type[AnyField]] = {kind.kind: kind for kind in (NumberField, BooleanField, CategoryField, NgramField)}


def field_from_dict(spec: Any) -> AnyField:
    """The field that a JSON object describes; unknown kinds and keys are refused."""
    kind = spec.get("kind") if isinstance(spec, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInput(f"a field needs a kind, one of {', '.join(_KINDS)}, got {spec!r}")
    keys = {field.name for field in dataclasses.fields(_KINDS[kind])}
    values = known_keys(spec, f"a field of kind {kind}", {"kind", *keys})
    values.pop("kind")
    for key in ("categories", "sizes"):
        if key in values:
            values[key] = tuple(as_list(values[key], key))
    try:
        return _KINDS[kind](**values)
    except TypeError as error:
        raise InvalidInput(f"the field {values.get('name')!r} of kind {kind} is incomplete: {error}") from error


def field_to_dict(field: AnyField) -> dict[str, Any]:
    """Plain values for JSON."""
    values = {"name": field.name, "kind": field.kind} | dataclasses.asdict(field)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def known_keys(spec: Any, what: str, keys: set[str]) -> dict[str, Any]:
    """The JSON object; any other keys than these are refused."""
    if not isinstance(spec, dict):
        raise InvalidInput(f"{what} must be a JSON object, got {spec!r}")
    if unknown := sorted(set(spec) - keys, key=str):
        raise InvalidInput(f"{what} has no {unknown[0]!r}: it has {', '.join(sorted(keys))}")
    return dict(spec)


def as_list(value: Any, what: str) -> list[Any]:
    """The JSON list; anything else is refused."""
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"{what} must be a list, got {value!r}")
    return list(value)


def fnv1a(text: bytes, size: int) -> np.ndarray:
    """The 32-bit FNV-1a hash of every n-gram of `size` bytes, uint32.

    >>> fnv1a(b"foobar", 6)
    array([3214735720], dtype=uint32)
    """
    data = np.frombuffer(text, np.uint8).astype(np.uint32)
    count = max(len(data) - size + 1, 0)
    hashes = np.full(count, 2166136261, np.uint32)
    for place in range(size):
        hashes = (hashes ^ data[place : place + count]) * np.uint32(16777619)  # wraps at 32 bits, as specified
    return hashes


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # an unpaired surrogate becomes U+FFFD, as in a browser
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def check_name(name: Any) -> None:
    """Refuse an invalid name of a field or column."""
    if not _is_text(name) or not name or "\0" in name:
        raise InvalidInput(f"a field needs a name, got {name!r}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_integral(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Integral)


def as_category(value: Any) -> str | None:
    """The text to look up; None for an integer that a browser would round."""
    if _is_integral(value):
        return str(int(value)) if -(2**53) < value < 2**53 else None
    return value


def _check_all(field: AnyField, values: Sequence[Any], wanted: str) -> None:
    for row, value in enumerate(values):
        if not field.takes(value):
            raise refused(row, field.name, wanted, value)


def refused(row: int, field: str, wanted: str, value: Any) -> InvalidInput:
    """The error for one value, with its location but not the value."""
    # the value itself stays out of the message: messages end up in logs
    return InvalidInput(f"row {row}, field {field!r} must be {wanted}; this one is not (type {type(value).__name__})")
