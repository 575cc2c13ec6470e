"""The client half: every statistic is read off a table of weights, and one proof bounds them all.

A client's weight is 1, shared equally by its examples, however many it has. An example puts its share into one cell of
a table: a bin, a category, "missing", for its slice. For a mean it is divided between two cells, `upper` and `lower`,
in the proportion in which the value divides the public range. So the weights h of a client are not negative and add up
to at most 1.

**What is sent** is M h for a public matrix M. By convexity its L2 norm is at most that of M's longest column, which is
the bound, whatever the client holds. M is chosen for what will be read (the matrix mechanism, Li et al. 2010):

=========  ================================================  ==========================================================
strategy   M                                                 for
=========  ================================================  ==========================================================
cells      identity; with more than four cells also a row    shares: the row measures the denominator, which as a sum
           that counts them all at half weight               of many cells would have the noise of all of them
plain      identity                                          cells that something else adds up
prefix     the square root of the matrix of prefix sums,     distribution functions: noise grows with the logarithm of
           rounded, and the identity for "missing"           the number of bins, not with its root (Fichtenberger,
                                                             Henzinger and Upadhyay 2022)
=========  ================================================  ==========================================================

Entries of M are whole multiples of 2^-10 and values of 2^-15 of their range, all sums are over int32, and the only
division comes last: clients that are computed together and one at a time agree bit for bit.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.backends import Batch
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Field, Schema
from blindsight.errors import InvalidInput
from blindsight.inspection.asking.items import Cross, Histogram, Item, Mean, Quantiles, Top
from blindsight.inspection.asking.question import NUMBERS, Ask

__all__ = ["HALF_STEP", "MEAN", "SLACK", "Axis", "FieldTable", "axis_of", "divided", "observe", "strategy"]
__all__ += ["tables_of"]

_UNIT = 2**10  # entries of a strategy are multiples of its inverse
_STEP = 2**15  # a value divides its range in multiples of its inverse
_EXAMPLES = 2**15  # first examples of a client that count: sums over more would overflow 32 bits
_FINE = 64  # minimum number of bins of a distribution function
_MOST_CELLS = 2048

SLACK = 1 + 2.0**-10
"""Factor that makes the bound longer than any vector: clipping a vector at the bound rounds differently in a batch."""

HALF_STEP = 1 / (2 * _STEP)
"""How far rounding moves a value, and so the mean of any values, as a share of the range."""

MEAN = ("upper", "lower")
Strategy = Literal["cells", "plain", "prefix"]


@dataclasses.dataclass(frozen=True)
class Axis:
    """The values of a field as cells: `names` of a category, or `edges` of the bins of a number."""

    names: tuple[str, ...] = ()
    edges: tuple[float, ...] = ()
    is_whole: bool = False
    group: int = 1  # cells that make one bin

    @property
    def bins(self) -> "Axis":
        """The bins as they were asked for."""
        return dataclasses.replace(self, edges=self.edges[:: self.group], group=1)

    @property
    def labels(self) -> tuple[str, ...]:
        """The cells in words; a bin of whole numbers has its first and its last."""
        if self.names:
            return self.names
        ends = itertools.pairwise(self.edges)
        if not self.is_whole:
            return tuple(f"{begin:g}–{end:g}" for begin, end in ends)
        return tuple(f"{begin:g}" if end - begin <= 1 else f"{begin:g}–{end - 1:g}" for begin, end in ends)

    @property
    def size(self) -> int:
        """The number of cells, without the one for missing values."""
        return len(self.names) or len(self.edges) - 1


@dataclasses.dataclass(frozen=True)
class FieldTable:
    """One part of the round: cells of `field` for each slice of `by`, and a cell for missing values in each."""

    name: str
    field: str
    by: str
    axis: Axis  # without cells if the mean is asked
    slices: tuple[str, ...]
    strategy: Strategy = "cells"
    sliced: Axis | None = None  # of a cross-tab: the cells of `by`, which are cells here and no slices

    @property
    def is_mean(self) -> bool:
        """Whether examples divide their weight between `upper` and `lower`."""
        return self.axis.size < 1

    @property
    def cells(self) -> int:
        """The cells of one slice; the last is for missing values, except in a cross-tab."""
        if self.sliced is not None:
            return self.axis.size * self.sliced.size
        return 1 + (len(MEAN) if self.is_mean else self.axis.size)

    @functools.cached_property
    def matrix(self) -> np.ndarray:
        """M for one slice."""
        return strategy(self.cells, "cells" if self.is_mean else self.strategy) / _UNIT

    @property
    def coordinates(self) -> int:
        """How many numbers are released."""
        return len(self.slices) * len(self.matrix)

    @property
    def bound(self) -> float:
        """The length of M's longest column; a little more for a plain table, in which vectors can be that long."""
        longest = float(np.sqrt(np.square(self.matrix).sum(axis=0).max()))
        return longest * SLACK if self.strategy == "plain" else longest

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """M h for every slice; zeros for a client without examples."""
        del key
        place, size = batch[f"cell of {self.name}"], len(self.slices) * self.cells
        counts = (masks[0] > 0) & (jnp.arange(place.shape[0], dtype=jnp.int32) < _EXAMPLES)
        at = jnp.where(counts & (place >= 0), place, size)
        total = jnp.maximum(jnp.sum(counts.astype(jnp.int32)), 1).astype(jnp.float32)
        cells = jnp.zeros(size, jnp.int32)
        if self.is_mean:
            value = batch[f"value of {self.name}"]
            cells = cells.at[at].add(value, mode="drop")
            lower = jnp.where((at < size) & (at % self.cells == 0), at + 1, size)  # the missing have no lower part
            return divided(cells.at[lower].add(_STEP - value, mode="drop"), total * _STEP)
        cells = cells.at[at].add(1, mode="drop").reshape(len(self.slices), self.cells)
        matrix = jnp.asarray(strategy(self.cells, self.strategy), jnp.int32)
        sums = jnp.matmul(cells, matrix.T, preferred_element_type=jnp.int32)
        return divided(sums.ravel(), total * _UNIT)


def divided(sums: jax.Array, by: jax.Array) -> jax.Array:
    """Whole numbers over one number, each rounded once: compiled, a division would be a product with the reciprocal."""
    return sums.astype(jnp.float32) / jax.lax.optimization_barrier(jnp.full(sums.shape, by))


@functools.cache
def strategy(cells: int, kind: Strategy) -> np.ndarray:
    """M for this number of cells, the last for missing values, in whole multiples of 2^-10."""
    if kind != "prefix":
        whole = np.eye(cells, dtype=np.int32) * _UNIT
        return (
            whole
            if kind == "plain" or cells <= 4
            else np.concatenate([whole, np.full((1, cells), _UNIT // 2, np.int32)])
        )
    bins = cells - 1
    column = np.cumprod([1.0, *(1 - 1 / (2 * k) for k in range(1, bins))])  # of (1 - x)^(-1/2)
    rounded = np.round(_UNIT * column).astype(np.int32)
    matrix = np.zeros((cells, cells), np.int32)
    for place in range(bins):
        matrix[place:bins, place] = rounded[: bins - place]
    matrix[bins, bins] = _UNIT
    return matrix


# --- which tables a question needs


def tables_of(question: Ask) -> tuple[FieldTable, ...]:
    """The tables of a question: statistics of the same field and slices share one; words have none."""
    fields, tables = question.schema.fields, dict[str, FieldTable]()
    for item in question.items:
        if isinstance(item, Top) and fields[item.field].kind == "text":
            continue
        table = _table(question, item)
        if table.cells * len(table.slices) > _MOST_CELLS:
            raise InvalidInput(f"{item.words} has more than {_MOST_CELLS:,} cells: ask for fewer bins or slices")
        if tables.setdefault(table.name, table) != table:
            raise InvalidInput(f"{item.words} has the name of another table: rename a field, or ask separately")
    return tuple(tables.values())


def _table(question: Ask, item: Item) -> FieldTable:
    fields = question.schema.fields
    if isinstance(item, Cross):
        axis, other = (axis_of(fields[name], item.bins) for name in (item.field, item.by))
        return FieldTable(f"{item.field} × {item.by}", item.field, item.by, axis, ("",), sliced=other)
    slices = axis_of(fields[item.by], 0).names if item.by else ("",)
    name = item.field + (f" by {item.by}" if item.by else "")
    if isinstance(item, Mean):
        return FieldTable(f"mean of {name}", item.field, item.by, Axis(), slices)
    alike = [one for one in question.items if (one.field, one.by) == (item.field, item.by)]
    bins = next((one.bins for one in alike if isinstance(one, Histogram)), 0)
    has_quantiles = any(isinstance(one, Quantiles) for one in alike)
    axis = axis_of(fields[item.field], bins, fine=_FINE if has_quantiles else 0)
    return FieldTable(name, item.field, item.by, axis, slices, "prefix" if has_quantiles else "cells")


def axis_of(field: Field, bins: int, *, fine: int = 0) -> Axis:
    """The cells of a field: all values of a category, `bins` of a number, each divided until there are `fine`.

    A text has one cell, for not being missing, and so has a number if no bins are asked for. Bins of whole numbers
    begin with whole numbers.
    """
    if field.kind == "category":
        return Axis(field.values)
    if field.kind == "truth":
        return Axis(("false", "true"))
    if field.kind not in NUMBERS or not (bins or fine):
        return Axis(("present",))
    low, high = field.range or (0.0, 1.0)
    bins = bins or fine
    parts = max(1, -(-fine // bins))
    if field.kind == "number":
        return Axis(edges=tuple(np.linspace(low, high, bins * parts + 1).tolist()), group=parts)
    low, high = math.floor(low), math.floor(high)
    wide = 1 if high - low < bins else -(-(high - low) // bins)
    step = -(-wide // parts)
    wide = step * -(-wide // step)
    count = high - low + 1 if wide == 1 else -(-(high - low) // wide)
    edges = [float(min(low + step * place, high + 1)) for place in range(count * wide // step + 1)]
    edges[-1] = high + 1.0  # the last bin holds the end of the range too
    return Axis(edges=tuple(edges), is_whole=True, group=wide // step)


# --- what a client derives from its examples


def observe(tables: Iterable[FieldTable], schema: Schema, population: Population) -> Population:
    """The cell of every example in each table, -1 for nowhere; a client looks at its own examples alone."""
    columns = dict[str, np.ndarray]()
    for table in tables:
        column, field = population.columns[table.field], schema.fields[table.field]
        code = _codes(column, field, table.axis)
        other = _codes(population.columns[table.by], schema.fields[table.by], _slices_of(table)) if table.by else None
        if table.is_mean:
            is_there = code >= 0
            columns[f"value of {table.name}"] = np.where(is_there, _values(column, field), _STEP).astype(np.int32)
            cell = np.where(is_there, 0, len(MEAN))
        else:
            cell = np.where(code >= 0, code, table.axis.size)
        if table.sliced is not None and other is not None:
            cell = np.where((code >= 0) & (other >= 0), code * table.sliced.size + other, -1)
        elif other is not None:
            cell = np.where(other >= 0, other * table.cells + cell, -1)
        columns[f"cell of {table.name}"] = cell.astype(np.int32)
    return population.replace(columns)


def _slices_of(table: FieldTable) -> Axis:
    return table.sliced if table.sliced is not None else Axis(table.slices)


def _codes(column: np.ndarray, field: Field, axis: Axis) -> np.ndarray:
    """The cell of every value, -1 if it is missing; numbers beyond the range are in the first or last bin."""
    if column.dtype == TEXT:
        return np.where(np.strings.str_len(np.strings.strip(column)) > 0, 0, -1)
    if field.kind in NUMBERS:
        numbers = column.astype(np.float64)
        inner = np.asarray(axis.edges[1:-1], np.float64)
        places = np.searchsorted(inner, np.nan_to_num(numbers), side="right") if len(inner) else np.zeros(len(column))
        return np.where(np.isfinite(numbers), places, -1).astype(np.int64)
    codes = column.astype(np.int64)
    return np.where((codes >= 0) & (codes < axis.size), codes, -1)


def _values(column: np.ndarray, field: Field) -> np.ndarray:
    """Where every number stands in its range, in whole steps."""
    low, high = field.range or (0.0, 1.0)
    inside = np.clip(np.nan_to_num(column.astype(np.float64)), low, high)
    return np.round((inside - low) / (high - low) * _STEP)
