"""The client half: tables of single fields by label, then of all pairs of fields by label.

A client's weight is 1, shared equally by its examples. First every example puts its share into one cell of each field's
table (`asking.tables.FieldTable`). Cells are then merged into a few groups (`grouping`), computed from the release and
so public. Then every example puts its share into one cell for each pair of fields.

**The bound** of the pairs: an example's vector has a one for each pair and zeros elsewhere, so its norm is the root of
the number of pairs. A client sends the mean over its examples, which by convexity is no longer, or zeros. An example
whose label is missing or not public counts as one, but nowhere.
"""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.backends import Batch
from blindsight.data.schema import Field
from blindsight.errors import InvalidInput
from blindsight.inspection.asking.tables import SLACK, Axis, FieldTable, axis_of, divided
from blindsight.inspection.synthesizing.question import Synthesize

__all__ = ["GROUPS", "PAIRS", "Pairs", "columns_of", "size_of"]

GROUPS = 12  # of a field's values, at most, beside the one for missing values
PAIRS = "pairs"
_FINE = 64  # bins of a number, at most
_EXAMPLES = 2**15  # of one client that count, the first ones, as in `FieldTable`
_MOST_CELLS, _MOST_COORDINATES = 4096, 500_000


def columns_of(question: Synthesize) -> tuple[FieldTable, ...]:
    """The table of every field, with a cell for each value or bin and one for missing values, by label."""
    label = question.label or ""
    tables = list[FieldTable]()
    for name in question.inputs:
        table = FieldTable(
            name, name, label, _axis(question.schema.fields[name]), question.labels if label else ("",), "plain"
        )
        if table.coordinates > _MOST_CELLS:
            raise InvalidInput(f"{name!r} has more than {_MOST_CELLS:,} cells with all labels: give it fewer values")
        tables.append(table)
    if sum(map(len, _blocks(tuple(map(size_of, tables))))) * len(question.labels) > _MOST_COORDINATES:
        raise InvalidInput(f"all pairs have more than {_MOST_COORDINATES:,} cells: leave out fields or labels")
    return tuple(tables)


def _axis(field: Field) -> Axis:
    """At most 64 bins of equal width; the lowest of many whole numbers, often zero, has a separate bin."""
    axis = axis_of(field, _FINE)
    if field.kind != "whole" or axis.edges[1] - axis.edges[0] <= 1:
        return axis
    return dataclasses.replace(axis, edges=(axis.edges[0], axis.edges[0] + 1, *axis.edges[1:]))


def size_of(table: FieldTable) -> int:
    """How many groups a field may have, from public facts alone; the last is for missing values."""
    return min(GROUPS, table.axis.size) + 1


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Shares of examples in every pair of groups of two fields, by label.

    `groups` maps the cells of each table to groups; how many numbers are released depends on the tables alone.
    """

    tables: tuple[FieldTable, ...]
    groups: tuple[tuple[int, ...], ...]
    labels: int
    name: str = PAIRS

    @property
    def coordinates(self) -> int:
        """The cells of all pairs, for every label."""
        return self.labels * len(self.places)

    @property
    def bound(self) -> float:
        """One cell for each pair of fields, and a little more."""
        return math.sqrt(math.comb(len(self.tables), 2)) * SLACK

    @functools.cached_property
    def places(self) -> np.ndarray:
        """Where the cells of all pairs are in the matrix of groups by groups, flattened."""
        return np.concatenate(_blocks(tuple(map(size_of, self.tables))))

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """The mean over the client's examples; zeros for a client without any."""
        del key
        rows = [batch[f"cell of {table.name}"] for table in self.tables]
        counts = (masks[0] > 0) & (jnp.arange(rows[0].shape[0], dtype=jnp.int32) < _EXAMPLES)
        total = jnp.maximum(jnp.sum(counts.astype(jnp.int32)), 1).astype(jnp.float32)
        is_there = functools.reduce(jnp.logical_and, [counts, *(row >= 0 for row in rows)])
        label = jnp.where(is_there, rows[0] // self.tables[0].cells, self.labels)
        ones = jnp.concatenate([self._one(place, row) for place, row in enumerate(rows)], axis=1)
        sums = list[jax.Array]()
        for number in range(self.labels):
            of_label = ones * (label == number).astype(jnp.int32)[:, None]
            sums.append(jnp.matmul(of_label.T, ones, preferred_element_type=jnp.int32).ravel()[self.places])
        return divided(jnp.concatenate(sums), total)

    def _one(self, place: int, row: jax.Array) -> jax.Array:
        """A one in the group of each example's cell."""
        table, groups = self.tables[place], jnp.asarray(self.groups[place], jnp.int32)
        return jax.nn.one_hot(groups[jnp.maximum(row, 0) % table.cells], size_of(table), dtype=jnp.int32)


@functools.cache
def _blocks(sizes: tuple[int, ...]) -> list[np.ndarray]:
    """For every pair of fields, where its cells are in the flattened matrix of all groups by all groups."""
    begins = [0, *itertools.accumulate(sizes)]
    blocks = list[np.ndarray]()
    for first, second in itertools.combinations(range(len(sizes)), 2):
        rows = begins[first] + np.arange(sizes[first])
        columns = begins[second] + np.arange(sizes[second])
        blocks.append((rows[:, None] * begins[-1] + columns[None]).ravel())
    return blocks
