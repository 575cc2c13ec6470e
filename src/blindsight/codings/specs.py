"""Feature specifications that a server sends to clients: fields, their types and ranges, and crosses.

A spec is data (JSON), so the same client program trains any model: it reads its own rows, encodes them by the spec into
features in [0, 1], and sends neither. The weights are in the order intercept, fields, crosses; within a field, its
coordinates in order; within a cross, row-major with the first field as rows. `fields` defines the types.

`encode` refuses a row that it cannot encode. That is right when preparing data and wrong on a client: if a value made a
client fall silent, a server could leave one category out of the response and infer the value from the silence, despite
the noise. Clients use `readable`, which skips such rows.
"""

import dataclasses
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.codings.fields import (
    AnyField,
    BooleanField,
    CategoryField,
    NgramField,
    NumberField,
    as_category,
    as_list,
    check_name,
    field_from_dict,
    field_to_dict,
    fnv1a,
    known_keys,
    refused,
)
from blindsight.errors import InvalidInput

__all__ = ["AnyField", "BooleanField", "CategoryField", "ClientRows", "FeatureSpec", "NgramField", "NumberField"]
__all__ += ["Response", "field_from_dict", "fnv1a", "readable", "rows_from_sqlite"]

ClientRows = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
"""A client's rows: a mapping of columns, or a list of mappings."""


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """A model's input fields, and their `crosses`: products of two fields' coordinates.

    >>> fields = BooleanField("https"), CategoryField("ending", ("com", "net"))
    >>> spec = FeatureSpec(fields, crosses=(("https", "ending"),))
    >>> spec.encode([{"https": True, "ending": "net"}, {"https": False, "ending": "org"}])
    array([[1., 1., 0., 1., 0., 1.],
           [1., 0., 0., 0., 0., 0.]])
    """

    fields: tuple[AnyField, ...]
    crosses: tuple[tuple[str, str], ...] = ()
    intercept: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        object.__setattr__(self, "crosses", tuple(tuple(pair) for pair in self.crosses))
        names = [field.name for field in self.fields]
        if len(set(names)) < len(names):
            raise InvalidInput(f"field names must be unique, got {names}")
        for pair in self.crosses:
            if len(pair) != 2 or len(set(pair)) < 2 or not set(pair) <= set(names):
                raise InvalidInput(f"a cross needs two different fields of {names}, got {list(pair)}")
        if not self.width:
            raise InvalidInput("a model needs an intercept or at least one field")

    @property
    def width(self) -> int:
        """Number of coordinates of an encoded row."""
        widths = {field.name: field.width for field in self.fields}
        return self.intercept + sum(widths.values()) + sum(widths[a] * widths[b] for a, b in self.crosses)

    def encode(self, rows: ClientRows) -> np.ndarray:
        """The rows as features in [0, 1], (rows, width) in float64; rows that cannot be encoded are refused."""
        encoded = {field.name: field.encode(_column(rows, field.name)) for field in self.fields}
        count = len(next(iter(encoded.values()))) if encoded else _row_count(rows)
        if any(len(part) != count for part in encoded.values()):
            raise InvalidInput(f"all columns need the same number of rows, got {[len(p) for p in encoded.values()]}")
        crossed = [_crossed(encoded[a], encoded[b]) for a, b in self.crosses]
        return np.hstack([np.ones((count, int(self.intercept))), *encoded.values(), *crossed])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = [field_to_dict(field) for field in self.fields]
        return {"intercept": self.intercept, "fields": fields, "crosses": [list(pair) for pair in self.crosses]}

    @classmethod
    def from_dict(cls, spec: Any) -> "FeatureSpec":
        """The features that `to_dict` wrote; anything unknown is refused."""
        values = known_keys(spec, "features", {"intercept", "fields", "crosses"})
        if not isinstance(values.get("intercept", True), bool):
            raise InvalidInput(f"the intercept must be true or false, got {values['intercept']!r}")
        fields = tuple(field_from_dict(field) for field in as_list(values.get("fields", []), "fields"))
        crosses = tuple(tuple(as_list(pair, "a cross")) for pair in as_list(values.get("crosses", []), "crosses"))
        return cls(fields, crosses, values.get("intercept", True))  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class Response:
    """The model's target: a boolean, a category or a number."""

    field: BooleanField | CategoryField | NumberField

    def __post_init__(self) -> None:
        if self.field.kind not in ("boolean", "category", "number"):
            raise InvalidInput(f"a response must be a boolean, a category or a number, got {self.field!r}")
        if isinstance(self.field, CategoryField) and (self.field.drop_first or len(self.field.categories) < 2):
            raise InvalidInput(f"the response {self.field.name!r} needs at least two categories and no drop_first")

    @property
    def classes(self) -> int:
        """Number of values: the categories, 2 for a boolean, 0 for a number."""
        if isinstance(self.field, CategoryField):
            return len(self.field.categories)
        return 2 if isinstance(self.field, BooleanField) else 0

    def takes(self, value: Any) -> bool:
        """Whether it is a valid target: of the right type, and one of the categories if there are any."""
        if isinstance(self.field, CategoryField):
            return self.field.takes(value) and as_category(value) in self.field.categories
        return self.field.takes(value)

    def encode(self, rows: ClientRows, *, scaled: bool = True) -> np.ndarray:
        """The responses, (rows,): 0 or 1, the index of a category, or a number (`scaled` to [0, 1], or unscaled)."""
        column = _column(rows, self.field.name)
        if isinstance(self.field, CategoryField):
            places = self.field.indices(column)
            unlisted = np.flatnonzero(places == self.classes)
            if unlisted.size:
                row = int(unlisted[0])
                raise refused(row, self.field.name, f"one of {list(self.field.categories)}", column[row])
            return places
        if isinstance(self.field, BooleanField):
            return self.field.encode(column)[:, 0].astype(np.int64)
        return self.field.encode(column)[:, 0] if scaled else self.field.clamped(column)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return field_to_dict(self.field)

    @classmethod
    def from_dict(cls, spec: Any) -> "Response":
        """The response that `to_dict` wrote."""
        return cls(field_from_dict(spec))  # pyright: ignore[reportArgumentType]


def readable(rows: ClientRows, features: FeatureSpec, response: Response) -> dict[str, list[Any]]:
    """The columns of the rows that can be encoded; all others count as absent.

    No value makes this fail, nor does a field missing from a row. A table that lacks a column, or has columns of
    different lengths, is refused: that does not depend on any value.
    """
    wanted = [(field.name, field.takes) for field in features.fields] + [(response.field.name, response.takes)]
    columns = {name: list(_column_or_nothing(rows, name)) for name, _ in wanted}
    if len({len(column) for column in columns.values()}) > 1:
        raise InvalidInput("all columns need the same number of rows")
    count = len(columns[response.field.name])
    kept = [row for row in range(count) if all(takes(columns[name][row]) for name, takes in wanted)]
    return {name: [column[row] for row in kept] for name, column in columns.items()}


def rows_from_sqlite(path: str | Path, table: str, columns: Iterable[str]) -> dict[str, list[Any]]:
    """These columns of a client's own SQLite table; the file is opened read-only.

    Text that is not UTF-8 counts as absent: SQLite's error message would quote it.
    """
    names = list(columns)
    quoted = [_identifier(name) for name in names]
    try:
        connection = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
        connection.text_factory = _text_or_nothing
        try:
            existing = {row[1] for row in connection.execute(f"PRAGMA table_info({_identifier(table)})")}
            if missing := [name for name in names if name not in existing]:  # SQLite reads an unknown "name" as text
                raise InvalidInput(f"table {table!r} of {path} has no column {missing[0]!r}: it has {sorted(existing)}")
            rows = connection.execute(f"SELECT {', '.join(quoted)} FROM {_identifier(table)}").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        kind = getattr(error, "sqlite_errorname", type(error).__name__)  # never the message, which may quote a value
        raise InvalidInput(f"table {table!r} of {path} cannot be read ({kind}): check the path and the file") from None
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _text_or_nothing(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def _crossed(slow: np.ndarray, fast: np.ndarray) -> np.ndarray:
    return (slow[:, :, None] * fast[:, None, :]).reshape(len(slow), slow.shape[1] * fast.shape[1])


def _column(rows: ClientRows, name: str) -> Sequence[Any]:
    if isinstance(rows, Mapping):
        if name not in rows:
            raise InvalidInput(f"the rows have no field {name!r}: they have {sorted(rows)}")
        return rows[name]
    for row, values in enumerate(rows):
        if name not in values:
            raise InvalidInput(f"row {row} has no field {name!r}: it has {sorted(values)}")
    return [values[name] for values in rows]


class _Nothing:
    """Placeholder for a value missing from a row: no field accepts it."""


def _column_or_nothing(rows: ClientRows, name: str) -> Sequence[Any]:
    if isinstance(rows, Mapping):
        return _column(rows, name)
    return [row.get(name, _Nothing) if isinstance(row, Mapping) else _Nothing for row in rows]  # pyright: ignore[reportUnnecessaryIsInstance]


def _row_count(rows: ClientRows) -> int:
    return len(next(iter(rows.values()), ())) if isinstance(rows, Mapping) else len(rows)


def _identifier(name: str) -> str:
    check_name(name)
    return '"' + name.replace('"', '""') + '"'
