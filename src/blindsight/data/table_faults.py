"""Faults of tables: of numbers, of fields with named classes, and of whole rows.

A function on one field takes its affected values. A function on rows takes all columns of the affected rows and the
client that each row belongs to, and returns the columns that it changed.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.data.damage import Damage, FieldFacts, as_pixels
from blindsight.errors import InvalidInput

__all__ = ["TABLE_FAULTS", "UNITS"]

UNITS = (1000.0, 100.0, 10.0, 60.0, 24.0, 12.0, 2.54, 2.2046, 3.2808)
"""Factors between units in use: thousands, per cent, tenths, minutes, hours, months, inches, pounds, feet.

Factors below 2 are left out: too many other causes shift a distribution that little.
"""

SENTINELS = (-1.0, 0.0, 99.0, 999.0, 9999.0)
"""Codes that stand for missing values."""


# --- labels


def _label_swap(label: np.ndarray, a: int, b: int) -> np.ndarray:
    return np.where(label == a, b, np.where(label == b, a, label)).astype(label.dtype)


def _lost_category(label: np.ndarray, which: int, instead: int) -> np.ndarray:
    return np.where(label == which, instead, label).astype(label.dtype)


# --- numbers


def _unit_change(number: np.ndarray, factor: float) -> np.ndarray:
    return _number(number, number * factor, f"multiplied by {factor:g}")


def _unit_restore(number: np.ndarray, factor: float) -> np.ndarray:
    if number.dtype.kind != "f" and factor != round(factor):
        raise InvalidInput(f"unit_change cannot be undone: integers were rounded after multiplication by {factor:g}")
    return _number(number, number / factor, f"divided by {factor:g}")


def _missing_fill(number: np.ndarray, value: float) -> np.ndarray:
    return _number(number, np.full(number.shape, float(value)), f"filled with {value:g}")


def _time_shift(number: np.ndarray, add: float, wrap: float) -> np.ndarray:
    moved = number.astype(np.float64) + add
    return _number(number, np.mod(moved, wrap) if wrap else moved, f"shifted by {add:g}")


def _decimal_comma(number: np.ndarray) -> np.ndarray:
    """Fractions lose their comma; whole numbers of four digits and more are cut at the separator of thousands."""
    if number.dtype.kind != "f":
        return np.where(np.abs(number) >= 1000, np.trunc(number / 1000), number).astype(number.dtype)
    finite = np.isfinite(number)
    spelled = [f"{value:.4f}".rstrip("0").replace(".", "") for value in number[finite].tolist()]
    values = number.astype(np.float64)
    values[finite] = [float(digits or 0) for digits in spelled]
    return _number(number, values, "without their comma")


def _field_cut(number: np.ndarray, digits: int) -> np.ndarray:
    if digits < 1:
        raise InvalidInput(f"field_cut keeps at least one digit, got {digits}")
    size = np.abs(np.where(np.isfinite(number), number, 0.0).astype(np.float64))
    length = np.floor(np.log10(np.maximum(size, 1.0))) + 1
    cut = np.trunc(number / 10.0 ** np.maximum(length - digits, 0))
    return np.where(length > digits, cut, number).astype(number.dtype)


def _number(number: np.ndarray, values: np.ndarray, what: str) -> np.ndarray:
    """The values in the field's dtype; raises if they do not fit."""
    if number.dtype.kind != "f" and values.size:
        room, exact = np.iinfo(number.dtype), 2**53  # beyond it, float64 skips integers
        if values.min() < max(room.min, -exact) or values.max() > min(room.max, exact):
            raise InvalidInput(f"a field of {number.dtype} cannot hold its values {what}: choose another value")
    return as_pixels(number, values)


# --- rows


def _column_swap(
    rows: Mapping[str, np.ndarray], owner: np.ndarray, a: str | None, b: str | None
) -> dict[str, np.ndarray]:
    numbers = [name for name, column in rows.items() if column.ndim == 1 and column.dtype.kind in "iuf"]
    pairs = [pair for pair in itertools.combinations(numbers, 2) if rows[pair[0]].dtype == rows[pair[1]].dtype]
    if a is None and b is None and pairs:
        a, b = pairs[0]
    if a is None or b is None or a == b or a not in rows or b not in rows or rows[a].dtype != rows[b].dtype:
        raise InvalidInput(f"column_swap needs two fields of the same type, got a={a} and b={b}")
    return {a: rows[b].copy(), b: rows[a].copy()}


def _repeated_rows(rows: Mapping[str, np.ndarray], owner: np.ndarray) -> dict[str, np.ndarray]:
    """Every second row of a client becomes a copy of the one before."""
    first = np.searchsorted(owner, owner)  # rows of a client are neighbours
    place = np.arange(len(owner)) - first
    source = np.arange(len(owner)) - place % 2
    return {field: column[source] for field, column in rows.items()}


# --- parameters to look for


def _factors(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Sequence[str]:
    """Factors of 100 and 1000 in both directions; integers that were divided cannot be recovered."""
    factors = (1000.0, 0.001, 100.0, 0.01) if dtype.kind == "f" else (1000.0, 100.0)
    return [f"factor={factor:g}" for factor in factors]


def _shifts_in_time(field: FieldFacts) -> Sequence[str]:
    """Hours of the day and days of the week by their range, years by theirs."""
    low, high = field.ends or (0.0, 0.0)
    if low == 0 and high in (23, 24, 6, 7):
        wrap = 24 if high > 7 else 7
        return [f"add={add}:wrap={wrap}" for add in range(-wrap // 2 + 1, wrap // 2 + 1) if add]
    return ("add=-1900", "add=-2000", "add=-1") if 1900 <= low < high <= 2100 else ()


def _swaps(fields: Mapping[str, FieldFacts]) -> Sequence[str]:
    numbers = [name for name, field in fields.items() if field.kind == "number"]
    pairs = itertools.combinations(numbers, 2)
    return [f"a={a}:b={b}" for a, b in pairs if fields[a].dtype == fields[b].dtype]


def _categories(field: FieldFacts) -> Sequence[str]:
    first = field.classes[0] if field.classes else ""
    others = [f"which={name}:instead={first}" for name in field.classes[1:]]
    return [*others, *(f"which={first}:instead={name}" for name in field.classes[1:2])]


TABLE_FAULTS: dict[str, Damage] = {
    "label_swap": Damage(
        "label",
        "two classes, a and b, change places; by default the first two",
        _label_swap,
        _label_swap,
        parameters={"a": None, "b": None},
        suspects=lambda dtype, shape: ("",),
    ),
    "lost_category": Damage(
        "label",
        "class which=A is recorded as instead=B; by default the first as the second",
        _lost_category,
        lost="which examples had the class is gone",
        parameters={"which": None, "instead": None},
        variants=_categories,
    ),
    "unit_change": Damage(
        "number",
        "multiplied by a factor: grams for kilograms, milliseconds for seconds",
        _unit_change,
        _unit_restore,
        parameters={"factor": 1000.0},
        suspects=_factors,
        graded=("factor",),
        variants=lambda field: [f"factor={factor:g}" for unit in UNITS for factor in (unit, 1 / unit)],
    ),
    "missing_fill": Damage(
        "number",
        "replaced by the value that stands for missing",
        _missing_fill,
        lost="the true values are gone",
        parameters={"value": -1.0},
        variants=lambda field: [f"value={value:g}" for value in SENTINELS],
    ),
    "time_shift": Damage(
        "number",
        "a constant is added: another time zone (wrap=24 for hours of the day), another epoch",
        _time_shift,
        lambda number, add, wrap: _time_shift(number, -add, wrap),
        parameters={"add": 1.0, "wrap": 0.0},
        variants=_shifts_in_time,
    ),
    "decimal_comma": Damage(
        "number",
        "read in the wrong locale: 3,14 becomes 314, and 1.234 becomes 1",
        _decimal_comma,
        lost="where the comma stood is gone",
        variants=lambda field: ("",),
    ),
    "field_cut": Damage(
        "number",
        "only the first digits fit into the field",
        _field_cut,
        lost="the digits that were cut off are gone",
        parameters={"digits": 1},
        variants=lambda field: ("", "digits=2"),
    ),
    "column_swap": Damage(
        "row",
        "two numbers of the same type, a and b, change places; by default the first two",
        _column_swap,
        _column_swap,
        parameters={"a": None, "b": None},
        variants=_swaps,
    ),
    "repeated_rows": Damage(
        "row",
        "every second row is a copy of the one before",
        _repeated_rows,
        lost="the rows that were overwritten are gone",
        variants=lambda fields: ("",),
        varies=True,
    ),
}
"""Every fault of tables by name."""
