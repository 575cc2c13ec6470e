"""Changes of tables' numbers that are not in the library of faults, field by field.

A detection limit covers anything that may happen to a field, not only known faults: every number is
moved by one public standard deviation, and every two numbers change places.
"""

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from blindsight.data.population import Population
from blindsight.inspection.contrast.planted import Change

__all__ = ["MOVED", "centre", "in_dtype", "numbers_of", "probes"]

MOVED = "{} moved by one standard deviation"
SWAPPED = "{} and {} swapped"
_MOST_PAIRS = 15  # of columns; more of them resemble each other


def numbers_of(population: Population, inputs: Sequence[str]) -> list[str]:
    """The inputs that are single numbers."""
    fields = {name: population.fields[name] for name in inputs if name in population.fields}
    return [
        name
        for name, (dtype, shape) in fields.items()
        if dtype.kind in "iuf" and not shape and name not in population.classes
    ]


def probes(reference: Population, inputs: Sequence[str]) -> dict[str, Change]:
    """The changes by name; of swaps, those of the columns that are most alike, which are the hardest to see."""
    numbers = numbers_of(reference, inputs)
    centres = {name: centre(reference, name) for name in numbers}
    changes: dict[str, Change] = {
        MOVED.format(name): functools.partial(_moved, field=name, by=centres[name][1])
        for name in numbers
        if centres[name][1] > 0
    }
    pairs = sorted(itertools.combinations(numbers, 2), key=lambda pair: _distance(*(centres[one] for one in pair)))
    for one, other in pairs[:_MOST_PAIRS]:
        changes[SWAPPED.format(one, other)] = functools.partial(_swapped, fields=(one, other))
    return changes


def centre(reference: Population, field: str) -> tuple[float, float]:
    """The mean and the standard deviation of a field in public data."""
    values = reference.columns[field].astype(np.float64)
    values = values[np.isfinite(values)]
    return (float(values.mean()), float(values.std())) if len(values) else (0.0, 0.0)


def _distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    """How far two columns lie apart, in units of their spread."""
    return abs(one[0] - other[0]) / max(one[1] + other[1], 1e-9)


def _moved(population: Population, *, field: str, by: float) -> Population:
    column = population.columns[field]
    return population.replace({**population.columns, field: in_dtype(column.astype(np.float64) + by, column.dtype)})


def _swapped(population: Population, *, fields: tuple[str, str]) -> Population:
    one, other = (population.columns[field] for field in fields)
    swapped = {fields[0]: in_dtype(other, one.dtype), fields[1]: in_dtype(one, other.dtype)}
    return population.replace({**population.columns, **swapped})


def in_dtype(values: np.ndarray, dtype: np.dtype[np.generic]) -> np.ndarray:
    """The values as the field stores them, cut where it has no room."""
    if dtype.kind not in "iu":
        return values.astype(dtype)
    room = np.iinfo(np.dtype(dtype.str))
    return np.clip(np.rint(np.nan_to_num(values.astype(np.float64))), room.min, room.max).astype(dtype)
