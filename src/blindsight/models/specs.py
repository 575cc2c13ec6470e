"""What a server may ask of its clients' rows: which fields, of which kind, in which range, and which crosses.

A spec is data (JSON), so the same client program trains any model: it reads its own rows, encodes them by the spec into
features in [0, 1], and sends neither. The weights are in the order intercept, fields, crosses; within a field, its
coordinates in order; within a cross, the first field's coordinates slow and the second's fast.

    number      {"kind": "number", "low": 0, "high": 200}      (value - low) / (high - low), clamped to [0, 1]
    boolean     {"kind": "boolean"}                            0 or 1
    category    {"kind": "category", "categories": [...]}      one coordinate for each; what is not listed is all zeros
    ngrams      {"kind": "ngrams", "sizes": [2, 3],            1 in the bucket of every run of that many bytes of the
                 "buckets": 256}                               UTF-8 text: FNV-1a of 32 bits, modulo the buckets

`encode` refuses a row that it cannot place, which is right for whoever prepares data and wrong on a client: if a client
fell silent over a value, a server could ask for a response with one category left out and read the value off the
silence, noise or not. Clients go through `readable`, for which such a row does not exist.
"""

import dataclasses
import math
import numbers
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["Boolean", "Category", "Features", "Field", "Ngrams", "Number", "Response", "Rows", "fnv1a"]
__all__ += ["field_from_dict", "readable", "rows_from_sqlite"]

Rows = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
"""A client's rows: a mapping of columns, or a list of mappings."""


@dataclasses.dataclass(frozen=True)
class Number:
    """A number between `low` and `high`, scaled to [0, 1]; what lies outside counts as the nearer end."""

    kind: ClassVar[str] = "number"
    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_name(self.name)
        numeric = _is_number(self.low) and _is_number(self.high)
        if not (numeric and self.low < self.high and math.isfinite(float(self.high) - float(self.low))):
            raise InvalidInput(f"field {self.name!r} needs a low below its high, got {self.low!r} and {self.high!r}")
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
        """The values themselves, (rows,), between `low` and `high`."""
        _check_all(self, values, "a finite number")
        return np.clip(np.asarray(values, np.float64).reshape(-1), self.low, self.high)


@dataclasses.dataclass(frozen=True)
class Boolean:
    """True or false, 1 or 0."""

    kind: ClassVar[str] = "boolean"
    name: str

    def __post_init__(self) -> None:
        _check_name(self.name)

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
class Category:
    """One of `categories` (text; whole numbers are read as their digits); `drop_first` gives the first no weight."""

    kind: ClassVar[str] = "category"
    name: str
    categories: tuple[str, ...]
    drop_first: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "categories", tuple(self.categories))
        if not _is_flag(self.drop_first):
            raise InvalidInput(f"drop_first of {self.name!r} is true or false, got {self.drop_first!r}")
        if not all(_is_text(category) for category in self.categories):
            raise InvalidInput(f"the categories of {self.name!r} must be text, got {list(self.categories)}")
        if len(set(self.categories)) < max(len(self.categories), 1 + self.drop_first):
            raise InvalidInput(f"the categories of {self.name!r} must differ and leave one: {list(self.categories)}")

    @property
    def width(self) -> int:
        """One coordinate for each category that has a weight."""
        return len(self.categories) - self.drop_first

    def takes(self, value: Any) -> bool:
        """Whether it is text, a whole number or nothing; it need not be listed."""
        return value is None or isinstance(value, str) or _is_integral(value)

    def encode(self, values: Sequence[Any]) -> np.ndarray:
        """1 in the category's place, (rows, width); a value that is not listed is all zeros."""
        encoded = np.zeros((len(values), len(self.categories) + 1))
        encoded[np.arange(len(values)), self.indices(values)] = 1.0
        return encoded[:, self.drop_first : -1]

    def indices(self, values: Sequence[Any]) -> np.ndarray:
        """The place of each value among `categories`, (rows,); their number for a value that is not listed."""
        _check_all(self, values, "text or a whole number")
        places: dict[str | None, int] = {category: place for place, category in enumerate(self.categories)}
        return np.asarray([places.get(_as_category(value), len(places)) for value in values], np.int64)


@dataclasses.dataclass(frozen=True)
class Ngrams:
    """Which runs of `sizes` bytes a text contains, hashed into `buckets`: 1 or 0 each."""

    kind: ClassVar[str] = "ngrams"
    name: str
    sizes: tuple[int, ...]
    buckets: int

    def __post_init__(self) -> None:
        _check_name(self.name)
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
        """1 where the text has a run in that bucket, (rows, buckets)."""
        _check_all(self, values, "text")
        encoded = np.zeros((len(values), self.buckets))
        for row, value in enumerate(values):
            for size in self.sizes:
                encoded[row, fnv1a(_utf8(value), size) % np.uint32(self.buckets)] = 1.0
        return encoded


Field = Number | Boolean | Category | Ngrams
"""Any kind of field."""

_KINDS: dict[str, type[Field]] = {kind.kind: kind for kind in (Number, Boolean, Category, Ngrams)}


@dataclasses.dataclass(frozen=True)
class Features:
    """The fields that a model reads, and their `crosses`: products of two fields' coordinates.

    >>> spec = Features((Boolean("https"), Category("ending", ("com", "net"))), crosses=(("https", "ending"),))
    >>> spec.encode([{"https": True, "ending": "net"}, {"https": False, "ending": "org"}])
    array([[1., 1., 0., 1., 0., 1.],
           [1., 0., 0., 0., 0., 0.]])
    """

    fields: tuple[Field, ...]
    crosses: tuple[tuple[str, str], ...] = ()
    intercept: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        object.__setattr__(self, "crosses", tuple(tuple(pair) for pair in self.crosses))
        names = [field.name for field in self.fields]
        if len(set(names)) < len(names):
            raise InvalidInput(f"every field is named once, got {names}")
        for pair in self.crosses:
            if len(pair) != 2 or len(set(pair)) < 2 or not set(pair) <= set(names):
                raise InvalidInput(f"a cross is made of two different fields of {names}, got {list(pair)}")
        if not self.width:
            raise InvalidInput("a model needs an intercept or at least one field")

    @property
    def width(self) -> int:
        """The number of coordinates of an encoded row."""
        widths = {field.name: field.width for field in self.fields}
        return self.intercept + sum(widths.values()) + sum(widths[a] * widths[b] for a, b in self.crosses)

    def encode(self, rows: Rows) -> np.ndarray:
        """The rows as features in [0, 1], (rows, width) in float64; what cannot be placed is refused."""
        encoded = {field.name: field.encode(_column(rows, field.name)) for field in self.fields}
        count = len(next(iter(encoded.values()))) if encoded else _row_count(rows)
        if any(len(part) != count for part in encoded.values()):
            raise InvalidInput(f"all columns need the same number of rows, got {[len(p) for p in encoded.values()]}")
        crossed = [_crossed(encoded[a], encoded[b]) for a, b in self.crosses]
        return np.hstack([np.ones((count, int(self.intercept))), *encoded.values(), *crossed])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = [_to_dict(field) for field in self.fields]
        return {"intercept": self.intercept, "fields": fields, "crosses": [list(pair) for pair in self.crosses]}

    @classmethod
    def from_dict(cls, spec: Any) -> "Features":
        """The features that `to_dict` wrote; what this version does not know is refused."""
        values = _known(spec, "features", {"intercept", "fields", "crosses"})
        if not isinstance(values.get("intercept", True), bool):
            raise InvalidInput(f"the intercept of features is true or false, got {values['intercept']!r}")
        fields = tuple(field_from_dict(field) for field in _list(values.get("fields", []), "fields"))
        crosses = tuple(tuple(_list(pair, "a cross")) for pair in _list(values.get("crosses", []), "crosses"))
        return cls(fields, crosses, values.get("intercept", True))  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class Response:
    """What the model predicts: a boolean, a category or a number."""

    field: Boolean | Category | Number

    def __post_init__(self) -> None:
        if self.field.kind not in ("boolean", "category", "number"):
            raise InvalidInput(f"a response is a boolean, a category or a number, got {self.field!r}")
        if isinstance(self.field, Category) and (self.field.drop_first or len(self.field.categories) < 2):
            raise InvalidInput(f"the response {self.field.name!r} needs two categories or more, each of them kept")

    @property
    def classes(self) -> int:
        """How many values it has: the categories, 2 for a boolean, 0 for a number."""
        if isinstance(self.field, Category):
            return len(self.field.categories)
        return 2 if isinstance(self.field, Boolean) else 0

    def takes(self, value: Any) -> bool:
        """Whether it can be learnt from: of the right kind, and one of the categories where there are any."""
        if isinstance(self.field, Category):
            return self.field.takes(value) and _as_category(value) in self.field.categories
        return self.field.takes(value)

    def encode(self, rows: Rows, *, scaled: bool = True) -> np.ndarray:
        """The responses, (rows,): 0 or 1, the place of a category, or a number (`scaled` to [0, 1], or as it is)."""
        column = _column(rows, self.field.name)
        if isinstance(self.field, Category):
            places = self.field.indices(column)
            unlisted = np.flatnonzero(places == self.classes)
            if unlisted.size:
                row = int(unlisted[0])
                raise _refused(row, self.field.name, f"one of {list(self.field.categories)}", column[row])
            return places
        if isinstance(self.field, Boolean):
            return self.field.encode(column)[:, 0].astype(np.int64)
        return self.field.encode(column)[:, 0] if scaled else self.field.clamped(column)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return _to_dict(self.field)

    @classmethod
    def from_dict(cls, spec: Any) -> "Response":
        """The response that `to_dict` wrote."""
        return cls(field_from_dict(spec))  # pyright: ignore[reportArgumentType]


def field_from_dict(spec: Any) -> Field:
    """The field that a JSON object describes; a kind or key that this version does not know is refused."""
    kind = spec.get("kind") if isinstance(spec, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInput(f"a field has a kind, one of {', '.join(_KINDS)}, got {spec!r}")
    known = {field.name for field in dataclasses.fields(_KINDS[kind])}
    values = _known(spec, f"a field of kind {kind}", {"kind", *known})
    values.pop("kind")
    for key in ("categories", "sizes"):
        if key in values:
            values[key] = tuple(_list(values[key], key))
    try:
        return _KINDS[kind](**values)
    except TypeError as error:
        raise InvalidInput(f"the field {values.get('name')!r} of kind {kind} lacks something: {error}") from error


def readable(rows: Rows, features: Features, response: Response) -> dict[str, list[Any]]:
    """The columns of those rows that can be encoded; the others count as absent, whatever is wrong with them.

    Nothing that a value is makes this fail, a field that a row lacks included. A table of columns that lacks one, or
    whose columns differ in length, is refused: that is known without looking at a value.
    """
    wanted = [(field.name, field.takes) for field in features.fields] + [(response.field.name, response.takes)]
    columns = {name: list(_column_or_nothing(rows, name)) for name, _ in wanted}
    if len({len(column) for column in columns.values()}) > 1:
        raise InvalidInput("all columns need the same number of rows")
    count = len(columns[response.field.name])
    kept = [row for row in range(count) if all(takes(columns[name][row]) for name, takes in wanted)]
    return {name: [column[row] for row in kept] for name, column in columns.items()}


def rows_from_sqlite(path: str | Path, table: str, columns: Iterable[str]) -> dict[str, list[Any]]:
    """Those columns of a client's own SQLite table; the file is opened for reading only."""
    names = list(columns)
    quoted = [_identifier(name) for name in names]
    try:
        connection = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
        try:
            known = {row[1] for row in connection.execute(f"PRAGMA table_info({_identifier(table)})")}
            if missing := [name for name in names if name not in known]:  # SQLite reads an unknown "name" as text
                raise InvalidInput(f"table {table!r} of {path} has no column {missing[0]!r}: it has {sorted(known)}")
            found = connection.execute(f"SELECT {', '.join(quoted)} FROM {_identifier(table)}").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise InvalidInput(f"table {table!r} of {path} cannot be read: {error}") from error
    return {name: [row[place] for row in found] for place, name in enumerate(names)}


def fnv1a(text: bytes, size: int) -> np.ndarray:
    """The 32-bit FNV-1a hash of every run of `size` bytes, uint32.

    >>> fnv1a(b"foobar", 6)
    array([3214735720], dtype=uint32)
    """
    data = np.frombuffer(text, np.uint8).astype(np.uint32)
    count = max(len(data) - size + 1, 0)
    hashes = np.full(count, 2166136261, np.uint32)
    for place in range(size):
        hashes = (hashes ^ data[place : place + count]) * np.uint32(16777619)  # wraps at 32 bits, as it should
    return hashes


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates counts as U+FFFD, as in a browser
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _crossed(slow: np.ndarray, fast: np.ndarray) -> np.ndarray:
    return (slow[:, :, None] * fast[:, None, :]).reshape(len(slow), slow.shape[1] * fast.shape[1])


def _column(rows: Rows, name: str) -> Sequence[Any]:
    if isinstance(rows, Mapping):
        if name not in rows:
            raise InvalidInput(f"the rows have no field {name!r}: they have {sorted(rows)}")
        return rows[name]
    for row, values in enumerate(rows):
        if name not in values:
            raise InvalidInput(f"row {row} has no field {name!r}: it has {sorted(values)}")
    return [values[name] for values in rows]


class _Nothing:
    """Stands for a value that a row does not have: no field takes it."""


def _column_or_nothing(rows: Rows, name: str) -> Sequence[Any]:
    if isinstance(rows, Mapping):
        return _column(rows, name)
    return [row.get(name, _Nothing) if isinstance(row, Mapping) else _Nothing for row in rows]  # pyright: ignore[reportUnnecessaryIsInstance]


def _row_count(rows: Rows) -> int:
    return len(next(iter(rows.values()), ())) if isinstance(rows, Mapping) else len(rows)


def _to_dict(field: Field) -> dict[str, Any]:
    values = {"name": field.name, "kind": field.kind} | dataclasses.asdict(field)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _known(spec: Any, what: str, keys: set[str]) -> dict[str, Any]:
    if not isinstance(spec, dict):
        raise InvalidInput(f"{what} must be a JSON object, got {spec!r}")
    if unknown := sorted(set(spec) - keys, key=str):
        raise InvalidInput(f"{what} has no {unknown[0]!r}: it has {', '.join(sorted(keys))}")
    return dict(spec)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"{what} must be a list, got {value!r}")
    return list(value)


def _check_name(name: Any) -> None:
    if not _is_text(name) or not name or "\0" in name:
        raise InvalidInput(f"a field needs a name, got {name!r}")


def _identifier(name: str) -> str:
    _check_name(name)
    return '"' + name.replace('"', '""') + '"'


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_integral(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Integral)


def _as_category(value: Any) -> str | None:
    """The text to look up; a whole number that a browser would round is on no list."""
    if _is_integral(value):
        return str(int(value)) if -(2**53) < value < 2**53 else None
    return value


def _check_all(field: Field, values: Sequence[Any], wanted: str) -> None:
    for row, value in enumerate(values):
        if not field.takes(value):
            raise _refused(row, field.name, wanted, value)


def _refused(row: int, field: str, wanted: str, value: Any) -> InvalidInput:
    # the value itself stays out of the message: messages end up in logs
    return InvalidInput(f"row {row}, field {field!r} must be {wanted}; this one is not (type {type(value).__name__})")
