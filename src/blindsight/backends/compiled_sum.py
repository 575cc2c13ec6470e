"""The compiled sum over a cohort: a loop over chunks of clients that are computed in parallel.

`chunks_of` and `edges_of` say on the host which clients a chunk has and how many chunks there are, and `sum_everywhere`
adds up what they contribute, on all devices of the mesh.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from blindsight import trees
from blindsight.backends.cohort import ClientUpdate, Examples, contribution, parts_of, parts_of_setting
from blindsight.trees import Tree

__all__ = ["AXIS", "COUNTS", "SumSettings", "chunk_size", "chunks_of", "edges_of", "frozen", "sum_everywhere"]

AXIS = "clients"
COUNTS = "clients", "not_finite", "clipped", "empty"  # of the clients in a sum


class SumSettings(NamedTuple):
    """The static arguments of a compiled sum."""

    client_update: ClientUpdate
    l2_bound: Any
    grid: Any
    uniform: int | None
    trips: int | None  # the number of chunks, if static: see below


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def sum_everywhere(
    mesh: Mesh,
    settings: SumSettings,
    capacities: tuple[int, ...],
    broadcast: Tree,
    columns: dict[str, jax.Array],
    chunks: jax.Array,
    edges: jax.Array,
    key: jax.Array,
) -> tuple[dict[str, Tree], dict[str, jax.Array]]:
    """The sums over the chunks of all devices, and counts of their clients.

    Args:
        mesh: The devices.
        settings: What clients compute, and how it is bounded.
        capacities: Numbers of examples to compile for, largest first.
        broadcast: What every client gets.
        columns: The examples.
        chunks: Clients by device, as `chunks_of` arranges them.
        edges: Where the chunks of each capacity begin, by device.
        key: Of the clients' own randomness.
    """

    def on_device(broadcast: Tree, columns: Any, chunks: jax.Array, edges: jax.Array, key: jax.Array) -> Any:
        return jax.lax.psum(_sum_chunks(settings, capacities, broadcast, columns, chunks[0], edges[0], key), AXIS)

    everywhere, divided = PartitionSpec(), PartitionSpec(AXIS)
    specs = (everywhere, everywhere, divided, divided, everywhere)
    # check_vma: loops carry sums that differ between devices, on purpose
    summed = jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=everywhere, check_vma=False)
    return summed(broadcast, columns, chunks, edges, key)


def _sum_chunks(
    settings: SumSettings,
    capacities: tuple[int, ...],
    broadcast: Tree,
    columns: dict[str, jax.Array],
    chunks: jax.Array,
    edges: Any,
    key: jax.Array,
) -> tuple[dict[str, Tree], dict[str, jax.Array]]:
    """The sum over all chunks; those between edges[b] and edges[b + 1] have clients of at most capacities[b]."""
    bounds, grid = _thawed(settings.l2_bound), _thawed(settings.grid)

    def on_client(capacity: int, client: dict[str, jax.Array]) -> tuple[Tree, dict[str, jax.Array]]:
        examples = Examples(columns, client["start"], client["count"], settings.uniform, capacity)
        update = settings.client_update(broadcast, examples, jax.random.fold_in(key, client["index"]))
        lengths = {name: trees.norm(part) for name, part in parts_of(update, bounds).items()}
        limits = parts_of_setting(bounds)
        finite = functools.reduce(jnp.logical_and, [jnp.isfinite(length) for length in lengths.values()])
        longer = functools.reduce(jnp.logical_or, [lengths[name] > limits[name] for name in lengths])
        odd = {"not_finite": ~finite, "clipped": finite & longer, "empty": client["count"] == 0}
        counts = {"clients": client["real"], **{name: flag & client["real"] for name, flag in odd.items()}}
        parts = contribution(update, bounds, grid)
        parts = jax.tree.map(lambda leaf: jnp.where(client["real"], leaf, jnp.zeros_like(leaf)), parts)
        return parts, {name: flag.astype(jnp.int32) for name, flag in counts.items()}

    @functools.partial(jax.jit, static_argnums=0, inline=True)  # traced once, for its shapes and the loop
    def on_chunk(capacity: int, number: jax.Array) -> Tree:
        index, start, count, real = jnp.moveaxis(jax.lax.dynamic_index_in_dim(chunks, number, keepdims=False), -1, 0)
        chunk = {"index": index, "start": start, "count": count, "real": real == 1}
        if len(index) == 1:
            return on_client(capacity, {name: column[0] for name, column in chunk.items()})
        stacked = jax.vmap(functools.partial(on_client, capacity))(chunk)
        return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), stacked)

    # a number of the loop's own type, which includes the mesh: another type would be traced again
    shapes = jax.eval_shape(functools.partial(on_chunk, capacities[0]), edges[0])
    total = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    if settings.trips is not None:
        # the host waits at every iteration of a loop of unknown length
        edges = (0, settings.trips)
    for bucket, capacity in enumerate(capacities):
        add_chunk = lambda number, sums, capacity=capacity: trees.add(sums, on_chunk(capacity, number))  # noqa: E731
        total = jax.lax.fori_loop(edges[bucket], edges[bucket + 1], add_chunk, total)
    return total


def chunk_size(cohort: int, n_expected: float, devices: int, most: int) -> int:
    """The size of chunks: as few as possible, nearly equal, and with few distinct sizes, because each is compiled.

    A cohort of fixed size fills them; Poisson cohorts larger than expected get chunks with some spare room.
    """
    usual = (n_expected if cohort <= n_expected else n_expected + 2 * math.sqrt(n_expected)) / devices
    return math.ceil(usual / math.ceil(usual / most))


def chunks_of(
    clients: np.ndarray, starts: np.ndarray, sizes: np.ndarray, n_expected: float, devices: int, chunk: int, most: int
) -> np.ndarray:
    """Index, start, count and 1 of every client, shape (devices, rows, chunk, 4); the last rows are padded with zeros.

    Chunks are assigned to the devices in turn, to balance the load. One array, because every transfer to an accelerator
    has a fixed cost.

    Args:
        clients: Their indices.
        starts: Where the examples of each begin.
        sizes: How many examples each has.
        n_expected: Expected clients of a cohort; there are rows for as many as are usual.
        devices: Number of devices.
        chunk: Clients in a chunk.
        most: Clients to have rows for, if they are more than usual.
    """
    usual = n_expected + 6 * math.sqrt(n_expected) + 1  # Poisson cohorts are larger once in 10^9
    rows = math.ceil(usual / (devices * chunk))
    while rows * devices * chunk < most:
        rows *= 2
    facts = np.zeros((rows * devices * chunk, 4), np.int32)
    facts[: len(clients)] = np.stack([clients, starts, sizes, np.ones_like(clients)], axis=1)
    return facts.reshape(rows, devices, chunk, 4).swapaxes(0, 1)


def edges_of(longest: np.ndarray, capacities: tuple[int, ...]) -> np.ndarray:
    """The positions in the sorted chunks where each capacity begins, and the end of the last one."""
    return np.array([*(int(np.sum(longest > capacity)) for capacity in capacities), len(longest)], np.int32)


def frozen(setting: Any) -> Any:
    """A setting as a static argument."""
    return tuple(sorted(setting.items())) if isinstance(setting, Mapping) else setting


def _thawed(setting: Any) -> Any:
    return dict(setting) if isinstance(setting, tuple) else setting
