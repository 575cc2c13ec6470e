"""`Cohort`: its `sum` is the only operation across clients; and `Examples`, the data one client's update sees."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from blindsight import trees
from blindsight.backends import placement
from blindsight.data.population import Population
from blindsight.errors import InvalidInput, UnboundedContribution
from blindsight.keys import Key
from blindsight.trees import BoundedSum, Tree

__all__ = ["Backend", "Batch", "Bounds", "ClientUpdate", "Cohort", "Examples", "bounded_sums", "check_cohort"]

Bounds = float | Mapping[str, float]
"""One L2 bound for the whole update, or one for each named part of it."""


class Cohort(Protocol):
    """The clients of one round. Only bounded sums come out of it."""

    @property
    def simulation_only(self) -> dict[str, Any]:
        """Counts of empty, clipped, refused and dropped-out clients in the last sum; empty in deployment."""
        ...

    def sum(self, client_update: "ClientUpdate", broadcast: Tree, *, l2_bound: Bounds, grid: Any = None) -> Any:
        """The `BoundedSum` of `client_update(broadcast, examples, key)` over the clients, each clipped to `l2_bound`.

        An update in named parts has one bound for each (a mapping), and the result is a `BoundedSum` for each. With
        `grid` (a step, or one for each part) contributions are rounded to it and the sum is exact. A client that drops
        out or has a non-finite update contributes zero.
        """
        ...


class Backend(Protocol):
    """Turns client indices into a `Cohort`.

    A backend that holds the data also has a `fingerprint` of them; training binds reproducible keys to it.
    """

    def cohort(self, clients: np.ndarray, *, n_expected: float, key: Key) -> Cohort:
        """The cohort of these clients; their own randomness is derived from `key`."""
        ...


@functools.partial(jax.tree_util.register_dataclass, data_fields=["fields", "weight"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch of examples; `weight` is 1 for examples and 0 for padding."""

    fields: dict[str, jax.Array]
    weight: jax.Array

    def __getitem__(self, field: str) -> jax.Array:
        if field not in self.fields:
            raise InvalidInput(f"clients have no numeric field {field!r}: they have {', '.join(self.fields)}")
        return self.fields[field]

    def mean(self, values: jax.Array) -> jax.Array:
        """The mean of one value per example over the batch's real examples; 0 if there are none."""
        return jnp.sum(values * self.weight) / jnp.maximum(jnp.sum(self.weight), 1.0)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["columns", "start", "count"], meta_fields=["size", "capacity"]
)
@dataclasses.dataclass(frozen=True)
class Examples:
    """One client's examples. In a simulation `columns` may hold all clients', so read them only through these methods.

    `size` is a plain number if all clients have the same number of examples: loops then have a fixed length.
    """

    columns: dict[str, jax.Array]
    start: jax.Array
    count: jax.Array
    size: int | None
    capacity: int

    @classmethod
    def of(cls, columns: Mapping[str, np.ndarray]) -> "Examples":
        """The examples of a client with data stored separately."""
        sizes = {len(column) for column in columns.values()}
        if len(sizes) != 1:
            raise InvalidInput(f"all fields of a client must have the same number of examples, got {sorted(sizes)}")
        (size,) = sizes
        numbers = placement.numbers(columns)
        if size == 0:  # examples of weight 0 still need a row
            numbers = {field: np.zeros((1, *column.shape[1:]), column.dtype) for field, column in numbers.items()}
        kept = {field: jnp.asarray(column) for field, column in numbers.items()}
        return cls(kept, jnp.zeros((), jnp.int32), jnp.full((), size, jnp.int32), None, size)

    def batches(self, batch_size: int) -> int | jax.Array:
        """The number of batches."""
        return -(-(self.count if self.size is None else self.size) // batch_size)

    def order(self, batch_size: int, *, key: jax.Array | None) -> jax.Array:
        """The client's own positions, shuffled with `key`, then padding for the last batch."""
        places = jnp.arange(-(-max(self.capacity, 1) // batch_size) * batch_size, dtype=jnp.int32)
        if key is None:
            return places
        # equal bits only make ties; positions beyond the client's own go last
        bits = jnp.where(places < self.count, jax.random.bits(key, places.shape, jnp.uint32) >> 1, jnp.uint32(1 << 31))
        return jnp.argsort(bits).astype(jnp.int32)

    def batch(self, order: jax.Array, number: int | jax.Array, batch_size: int) -> Batch:
        """Batch `number` of `order`."""
        first = jnp.asarray(number, jnp.int32) * batch_size
        places = jax.lax.dynamic_slice(order, (first,), (batch_size,))
        if self.size is not None and self.size % batch_size == 0:
            weight = jnp.ones(batch_size, jnp.float32)
        else:
            weight = (first + jnp.arange(batch_size, dtype=jnp.int32) < self.count).astype(jnp.float32)
            places = jnp.minimum(
                places, jnp.maximum(self.count - 1, 0)
            )  # never another client's, not even with weight 0
        rows = self.start + places
        return Batch({field: jnp.take(column, rows, axis=0) for field, column in self.columns.items()}, weight)

    def whole(self) -> Batch:
        """All of the client's examples as one batch, in their own order."""
        size = max(self.capacity, 1)
        return self.batch(self.order(size, key=None), 0, size)


ClientUpdate = Callable[[Tree, Examples, jax.Array], Tree]
"""A client's computation: (broadcast, its examples, its key) to its update."""

_LARGEST_BOUND = 2.0**64
_LIMB = 12  # bits in the low half of an integer that is summed in two halves
_LARGEST_COHORT = 1 << 18  # halves are summed in 32 bits, which hold twice as many without overflow


def check_cohort(clients: np.ndarray, population: Population) -> None:
    """Refuse a cohort that is too large to be summed exactly, or has clients that the population lacks."""
    if len(clients) > _LARGEST_COHORT:
        raise InvalidInput(f"a cohort may have at most {_LARGEST_COHORT:,} clients: expect fewer")  # how many is secret
    if len(clients) and not (clients.min() >= 0 and clients.max() < population.size):
        raise InvalidInput(
            f"a client was sampled whom {population.name} does not have: it has {population.size:,} clients, so set "
            "population in Privacy to that, or the guarantee is wrong"
        )


def parts_of(update: Tree, bounds: Bounds) -> dict[str, Tree]:
    """The update as a mapping of named parts, each with a bound."""
    if not isinstance(bounds, Mapping):
        return {"": update}
    if not isinstance(update, Mapping) or set(update) != set(bounds):
        raise InvalidInput(f"l2_bound names the parts {sorted(bounds)}, but the update has different ones")
    return dict(update)


def contribution(update: Tree, bounds: Bounds, grid: Any) -> dict[str, Tree]:
    """One client's contribution to the sums: every part clipped, and on a grid split into two halves of few bits each.

    A client's integers go up to 2^24, and accelerators sum in 32 bits: split into halves of 12 bits, half a million
    clients fit without overflow.
    """
    limits, steps = parts_of_setting(bounds), parts_of_setting(grid)

    def bounded(name: str, part: Tree) -> Tree:
        if steps.get(name) is None:
            return trees.clip(part, limits[name])
        whole = trees.to_grid(part, limits[name], steps[name])
        return {
            "high": jax.tree.map(lambda leaf: leaf >> _LIMB, whole),
            "low": jax.tree.map(lambda leaf: leaf & (2**_LIMB - 1), whole),
        }

    return {name: bounded(name, part) for name, part in parts_of(update, bounds).items()}


def bounded_sums(totals: Mapping[str, Tree], bounds: Bounds, grid: Any, n_expected: float) -> Any:
    """The sums of contributions with their bounds, as returned by `Cohort.sum`."""
    limits, steps = parts_of_setting(bounds), parts_of_setting(grid)

    sums: dict[str, BoundedSum] = {}
    for name, total in totals.items():
        step = steps.get(name)
        value = total if step is None else _joined(total["high"], total["low"])
        if not limits[name] <= _LARGEST_BOUND:
            raise UnboundedContribution(f"an L2 bound of {limits[name]} bounds nothing: choose a finite clip")
        # clipped contributions are finite, and so is the sum of this many of them below that bound
        sums[name] = BoundedSum(value, limits[name], n_expected, grid=step, known_finite=True)
    return sums if isinstance(bounds, Mapping) else sums[""]


def _joined(high: Tree, low: Tree) -> Tree:
    """The 64-bit sums of two halves; on an accelerator, if they are there, in one launch."""
    leaves = jax.tree.leaves(high)
    is_compiled = any(isinstance(leaf, Tracer) for leaf in leaves)
    is_there = jax.default_backend() != "cpu" and all(isinstance(leaf, jax.Array) for leaf in leaves)
    if not (is_compiled or is_there):
        return jax.tree.map(_sum_of_halves, jax.tree.map(np.asarray, high), jax.tree.map(np.asarray, low))
    with jax.enable_x64(True):
        return _joined_on_device(high, low)


@jax.jit
def _joined_on_device(high: Tree, low: Tree) -> Tree:
    return jax.tree.map(_sum_of_halves, high, low)


def _sum_of_halves(high: Any, low: Any) -> Any:
    return (high.astype(np.int64) << _LIMB) + low.astype(np.int64)


def parts_of_setting(setting: Any) -> dict[str, Any]:
    """A setting for the whole update, or one for each part, as a mapping."""
    return dict(setting) if isinstance(setting, Mapping) else {"": setting}
