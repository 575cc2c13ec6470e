"""The cohort as one compiled computation: a loop over chunks of clients that are computed in parallel.

On an accelerator a chunk holds as many clients as memory allows, each with its own copy of the model (`vmap`); on a CPU
stacking does not pay, so a chunk is one client. Nothing is padded to the longest client: a client's loop over its
batches ends with its own data, and a chunk's with its longest client, so clients are sorted by size, longest first. The
population stays on the accelerator if it fits; otherwise the cohort's examples are gathered on the host. With several
devices (accelerators, or CPU cores after `use_cores`), chunks are assigned to them in turn and sums are added.
"""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from blindsight.backends import placement
from blindsight.backends.cohort import Bounds, ClientUpdate, bounded_sums, check_cohort
from blindsight.backends.compiled_sum import AXIS, SumSettings, chunk_size, chunks_of, edges_of, frozen, sum_everywhere
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.trees import Tree

__all__ = ["SimulatedCohort", "Simulation", "capacities_of", "size_of_all"]

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
        self.mesh = Mesh(np.array(jax.local_devices()), (AXIS,))
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
    def is_resident(self) -> bool:
        """Whether the population fits on the devices; cached, because a generated one must draw to know its fields."""
        return placement.nbytes(self.population) <= placement.room()

    def cohort(self, clients: np.ndarray, *, n_expected: float, key: Key) -> "SimulatedCohort":
        """The cohort of the clients with these indices, without those that drop out."""
        check_cohort(clients, self.population)
        present = ~key.derive("dropout").stream().bernoulli(self.dropout, len(clients))
        return SimulatedCohort(self, clients[present], n_expected, key, int(np.sum(~present)))

    def halve_chunk(self, error: Exception) -> bool:
        """Whether a sum can be tried again after `error`, with half as many clients at once."""
        if "RESOURCE_EXHAUSTED" not in str(error) or self.chunk == 1:
            return False
        self.chunk //= 2
        return True

    def place(self, clients: np.ndarray) -> tuple[dict[str, jax.Array], np.ndarray]:
        """Columns on the devices that hold these clients' examples, and each client's offset."""
        if self._resident is None and self.is_resident:
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
        backend, most = self.backend, len(self.clients)
        broadcast = jax.device_put(broadcast, NamedSharding(backend.mesh, PartitionSpec()))
        while True:
            chunk = chunk_size(most, self.n_expected, backend.mesh.size, backend.chunk)
            columns, chunks, edges = self.placed(chunk, most)
            trips = None if backend.is_cpu or len(backend.capacities) > 1 else int(edges.max())
            settings = SumSettings(client_update, frozen(l2_bound), frozen(grid), backend.uniform, trips)
            try:
                sums = sum_everywhere(
                    backend.mesh, settings, backend.capacities, broadcast, columns, chunks, edges, self.key.jax()
                )
                break
            except jax.errors.JaxRuntimeError as error:
                if not backend.halve_chunk(error):
                    raise
        return placement.on_first(sums)

    def placed(self, chunk: int, most: int) -> tuple[dict[str, jax.Array], np.ndarray, np.ndarray]:
        """Columns with the clients' examples, and on every device its chunks, enough for `most` clients, and edges."""
        backend, devices = self.backend, self.backend.mesh.size
        sizes = backend.population.sizes[self.clients]
        longest_first = np.argsort(-sizes, kind="stable")
        clients, sizes = self.clients[longest_first], sizes[longest_first]
        columns, starts = backend.place(clients)
        chunks = chunks_of(clients + backend.first_client, starts, sizes, self.n_expected, devices, chunk, most)
        edges = np.stack([edges_of(sizes[::chunk][d::devices], backend.capacities) for d in range(devices)])
        return columns, chunks, edges


def size_of_all(sizes: np.ndarray) -> int | None:
    """The number of examples of every client, if it is the same for all."""
    return int(sizes[0]) if sizes[0] > 0 and np.all(sizes == sizes[0]) else None


def capacities_of(sizes: np.ndarray) -> tuple[int, ...]:
    """Numbers of examples to compile for, largest first: most clients should fit a small one."""
    capacities, median = [int(max(sizes.max(), 1))], np.median(sizes)
    while len(capacities) < 3 and capacities[-1] > _BUCKET * max(median, 1):
        capacities.append(max(capacities[-1] // _BUCKET, int(2 * median), 1))
    return tuple(capacities)
