"""The cohort as one compiled computation: a loop over chunks of clients that are computed in parallel.

On an accelerator a chunk holds as many clients as memory allows, each with its own copy of the model (`vmap`); on a CPU
stacking does not pay, so a chunk is one client. Nothing is padded to the longest client: a client's loop over its
batches ends with its own data, and a chunk's with its longest client, so clients are sorted by size, longest first. The
population stays on the accelerator if it fits; otherwise the cohort's examples are gathered on the host. With several
devices (accelerators, or CPU cores after `use_cores`), chunks are assigned to them in turn and sums are added.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from blindsight import trees
from blindsight.backends import placement
from blindsight.backends.cohort import (
    Bounds,
    ClientUpdate,
    Examples,
    bounded_sums,
    check_cohort,
    contribution,
    parts_of,
    parts_of_setting,
)
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.trees import Tree

__all__ = ["SimulatedCohort", "Simulation", "capacities_of", "size_of_all"]

_AXIS = "clients"
_LARGEST_CHUNK = 128
_BUCKET = 8  # clients with this many times fewer examples get shorter shuffles


class Simulation:
    """Clients simulated on this machine, up to `chunk` at a time; each drops out with probability `dropout`."""

    def __init__(self, population: Population, *, chunk: int | None = None, dropout: float = 0.0) -> None:
        if chunk is not None and not chunk >= 1:
            raise InvalidInput(f"chunk, the number of clients computed at once, must be at least 1, got {chunk}")
        if not 0 <= dropout <= 1:
            raise InvalidInput(f"dropout must be a probability, got {dropout}")
        placement.keep_compiled_code()
        placement.make_room_for_programs()
        self.population, self.dropout = population, dropout
        self.is_cpu = jax.default_backend() == "cpu"
        self.chunk = chunk or (1 if self.is_cpu else _LARGEST_CHUNK)
        self.capacities = capacities_of(population.sizes)
        self.first_client = 0  # of a larger population, if this is a part of it: a client's key depends on its number
        self.mesh = Mesh(np.array(jax.local_devices()), (_AXIS,))
        self._resident: dict[str, jax.Array] | None = None
        self._rows_on_host = 0

    @property
    def fingerprint(self) -> str:
        """Identifies everything that determines the clients' answers: a reproducible key is bound to it."""
        return self.population.fingerprint + (f", of whom {self.dropout} drop out" if self.dropout else "")

    @functools.cached_property
    def uniform(self) -> int | None:
        """The number of examples of every client, if it is the same for all."""
        return size_of_all(self.population.sizes)

    @functools.cached_property
    def _fits(self) -> bool:
        """Whether the population fits on the devices; cached, because a generated one must draw to know its fields."""
        return placement.nbytes(self.population) <= placement.room()

    def cohort(self, clients: np.ndarray, *, n_expected: float, key: Key) -> "SimulatedCohort":
        """The cohort of the clients with these indices, without those that drop out."""
        check_cohort(clients, self.population)
        present = ~key.derive("dropout").stream().bernoulli(self.dropout, len(clients))
        return SimulatedCohort(self, clients[present], n_expected, key, int(np.sum(~present)))

    def place(self, clients: np.ndarray) -> tuple[dict[str, jax.Array], np.ndarray]:
        """Columns on the devices that hold these clients' examples, and each client's offset."""
        if self._resident is None and self._fits:
            columns = placement.numbers(self.population.columns)
            self._resident = placement.on_all(columns, self.population.n_examples, self.mesh)
        if self._resident is not None:
            return self._resident, self.population.offsets[clients]
        sizes = self.population.sizes[clients]
        if sizes.sum() > self._rows_on_host:  # a compiled shape is reused if it is long enough
            self._rows_on_host = int(1.2 * sizes.sum())
        columns = placement.numbers(self.population.examples(clients))
        return placement.on_all(columns, self._rows_on_host, self.mesh), np.cumsum(sizes) - sizes


@dataclasses.dataclass
class SimulatedCohort:
    """Sums over `clients` in compiled chunks."""

    backend: Simulation
    clients: np.ndarray
    n_expected: float
    key: Key
    dropped: int
    _counts: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    @property
    def simulation_only(self) -> dict[str, Any]:
        """Counts of clients in the last sum, and of those with anomalies; `int()` waits for the result."""
        return {"dropped_out": self.dropped, **self._counts}

    def sum(self, client_update: ClientUpdate, broadcast: Tree, *, l2_bound: Bounds, grid: Any = None) -> Any:
        """As `Cohort.sum`."""
        totals, self._counts = self.totals(client_update, broadcast, l2_bound=l2_bound, grid=grid)
        return bounded_sums(totals, l2_bound, grid, self.n_expected)

    def totals(self, client_update: ClientUpdate, broadcast: Tree, *, l2_bound: Bounds, grid: Any) -> Any:
        """The sums of the contributions, and the counts of clients: this host's part of a sum over several."""
        sizes = self.backend.population.sizes[self.clients]
        longest_first = np.argsort(-sizes, kind="stable")
        clients, sizes = self.clients[longest_first], sizes[longest_first]
        columns, starts = self.backend.place(clients)
        backend, devices = self.backend, self.backend.mesh.size
        broadcast = jax.device_put(broadcast, NamedSharding(backend.mesh, PartitionSpec()))
        while True:
            chunk = _chunk_size(len(clients), self.n_expected, devices, backend.chunk)
            chunks = _chunks(clients + backend.first_client, starts, sizes, self.n_expected, devices, chunk)
            edges = np.stack([_edges(sizes[::chunk][d::devices], backend.capacities) for d in range(devices)])
            trips = None if backend.is_cpu or len(backend.capacities) > 1 else int(edges.max())
            settings = _Settings(client_update, _freeze(l2_bound), _freeze(grid), backend.uniform, trips)
            try:
                sums = _sum_everywhere(
                    backend.mesh, settings, backend.capacities, broadcast, columns, chunks, edges, self.key.jax()
                )
                break
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error) or backend.chunk == 1:
                    raise
                backend.chunk //= 2
        return placement.on_first(sums)


class _Settings(NamedTuple):
    """The static arguments of a compiled sum."""

    client_update: ClientUpdate
    l2_bound: Any
    grid: Any
    uniform: int | None
    trips: int | None  # the number of chunks, if static: see below


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _sum_everywhere(
    mesh: Mesh,
    settings: "_Settings",
    capacities: tuple[int, ...],
    broadcast: Tree,
    columns: dict[str, jax.Array],
    chunks: jax.Array,
    edges: jax.Array,
    key: jax.Array,
) -> tuple[dict[str, Tree], dict[str, jax.Array]]:
    """The sum over the chunks of all devices; chunks and edges are split by device, the rest is shared."""

    def on_device(broadcast: Tree, columns: Any, chunks: jax.Array, edges: jax.Array, key: jax.Array) -> Any:
        return jax.lax.psum(_sum_chunks(settings, capacities, broadcast, columns, chunks[0], edges[0], key), _AXIS)

    everywhere, divided = PartitionSpec(), PartitionSpec(_AXIS)
    specs = (everywhere, everywhere, divided, divided, everywhere)
    # check_vma: loops carry sums that differ between devices, on purpose
    summed = jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=everywhere, check_vma=False)
    return summed(broadcast, columns, chunks, edges, key)


def _sum_chunks(
    settings: _Settings,
    capacities: tuple[int, ...],
    broadcast: Tree,
    columns: dict[str, jax.Array],
    chunks: jax.Array,
    edges: Any,
    key: jax.Array,
) -> tuple[dict[str, Tree], dict[str, jax.Array]]:
    """The sum over all chunks; those between edges[b] and edges[b + 1] have clients of at most capacities[b]."""
    bounds, grid = _thaw(settings.l2_bound), _thaw(settings.grid)

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


def _chunk_size(cohort: int, n_expected: float, devices: int, most: int) -> int:
    """The size of chunks: as few as possible, nearly equal, and with few distinct sizes, because each is compiled.

    A cohort of fixed size fills them; Poisson cohorts larger than expected get chunks with some spare room.
    """
    usual = (n_expected if cohort <= n_expected else n_expected + 2 * math.sqrt(n_expected)) / devices
    return math.ceil(usual / math.ceil(usual / most))


def _chunks(
    clients: np.ndarray, starts: np.ndarray, sizes: np.ndarray, n_expected: float, devices: int, chunk: int
) -> np.ndarray:
    """Index, start, count and 1 of every client, shape (devices, rows, chunk, 4); the last rows are padded with zeros.

    Chunks are assigned to the devices in turn, to balance the load. One array, because every transfer to an accelerator
    has a fixed cost.
    """
    usual = n_expected + 6 * math.sqrt(n_expected) + 1  # Poisson cohorts are larger once in 10^9
    rows = math.ceil(usual / (devices * chunk))
    while rows * devices * chunk < len(clients):
        rows *= 2
    facts = np.zeros((rows * devices * chunk, 4), np.int32)
    facts[: len(clients)] = np.stack([clients, starts, sizes, np.ones_like(clients)], axis=1)
    return facts.reshape(rows, devices, chunk, 4).swapaxes(0, 1)


def _edges(longest: np.ndarray, capacities: tuple[int, ...]) -> np.ndarray:
    """The positions in the sorted chunks where each capacity begins, and the end of the last one."""
    return np.array([*(int(np.sum(longest > capacity)) for capacity in capacities), len(longest)], np.int32)


def size_of_all(sizes: np.ndarray) -> int | None:
    """The number of examples of every client, if it is the same for all."""
    return int(sizes[0]) if sizes[0] > 0 and np.all(sizes == sizes[0]) else None


def capacities_of(sizes: np.ndarray) -> tuple[int, ...]:
    """Numbers of examples to compile for, largest first: most clients should fit a small one."""
    capacities, median = [int(max(sizes.max(), 1))], np.median(sizes)
    while len(capacities) < 3 and capacities[-1] > _BUCKET * max(median, 1):
        capacities.append(max(capacities[-1] // _BUCKET, int(2 * median), 1))
    return tuple(capacities)


def _freeze(setting: Any) -> Any:
    return tuple(sorted(setting.items())) if isinstance(setting, Mapping) else setting


def _thaw(setting: Any) -> Any:
    return dict(setting) if isinstance(setting, tuple) else setting
