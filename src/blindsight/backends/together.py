"""The cohorts of several rounds, for one compiled program: every round finds its clients in arrays prepared before.

They are drawn and divided into chunks like cohorts that are summed one by one, and the sum is the same computation.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from blindsight.backends.cohort import Bounds, ClientUpdate, bounded_sums
from blindsight.backends.compiled_sum import SumSettings, chunk_size, frozen, sum_everywhere
from blindsight.backends.simulation import SimulatedCohort, Simulation
from blindsight.participation import Participation
from blindsight.trees import Tree

__all__ = ["PlannedCohort", "Shared", "Together", "together"]


class Shared(NamedTuple):
    """What all cohorts of a run share, fixed when their program is compiled; each has at most `most` clients."""

    mesh: Mesh
    capacities: tuple[int, ...]
    uniform: int | None
    n_expected: float
    most: int

    @classmethod
    def of(cls, backend: Simulation, sampling: Participation) -> "Shared":
        """What cohorts of these clients share that are drawn in this way."""
        return cls(backend.mesh, backend.capacities, backend.uniform, sampling.n_expected, sampling.limit)


class Together(NamedTuple):
    """Cohorts of several rounds: the columns of all clients, and chunks, edges and a key for each round."""

    columns: Mapping[str, jax.Array]
    chunks: Any
    edges: Any
    keys: Any

    def cohort(self, number: Any, shared: Shared) -> "PlannedCohort":
        """The cohort of round `number`, which may be traced."""
        rows = [jax.lax.dynamic_index_in_dim(jnp.asarray(rows), number, keepdims=False) for rows in self[1:]]
        return PlannedCohort(shared, Together(self.columns, *rows))


def together(cohorts: Sequence[SimulatedCohort], shared: Shared, room: int) -> Together:
    """The cohorts, followed by empty ones up to `room`: arrays of the same shapes for every block."""
    chunk = chunk_size(shared.most, shared.n_expected, shared.mesh.size, cohorts[0].backend.chunk)
    largest = max(len(cohort.clients) for cohort in cohorts)
    placed = [cohort.placed(chunk, largest) for cohort in cohorts]

    def rows(values: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([values, np.zeros((room - len(values), *values[0].shape), values[0].dtype)])

    chunks, edges = rows([chunks for _, chunks, _ in placed]), rows([edges for _, _, edges in placed])
    return Together(placed[0][0], chunks, edges, rows([cohort.key.jax_words() for cohort in cohorts]))


@dataclasses.dataclass
class PlannedCohort:
    """Stands for the cohort of any round while their step is traced."""

    shared: Shared
    own: Together
    counts: dict[str, jax.Array] = dataclasses.field(default_factory=dict[str, jax.Array])

    def sum(self, client_update: ClientUpdate, broadcast: Tree, *, l2_bound: Bounds, grid: Any = None) -> Any:
        """As `Cohort.sum`."""
        mesh, capacities, uniform, n_expected, _ = self.shared
        settings = SumSettings(client_update, frozen(l2_bound), frozen(grid), uniform, self._trips())
        key = jax.random.wrap_key_data(self.own.keys, impl="threefry2x32")
        columns, chunks, edges, _ = self.own
        totals, self.counts = sum_everywhere(mesh, settings, capacities, broadcast, columns, chunks, edges, key)
        return bounded_sums(totals, l2_bound, grid, n_expected)

    def _trips(self) -> int | None:
        """The number of chunks, if an accelerator has the same in every round."""
        devices, _, chunk, _ = self.own.chunks.shape
        is_fixed = len(self.shared.capacities) == 1 and self.shared.most <= self.shared.n_expected
        return -(-self.shared.most // (devices * chunk)) if is_fixed and jax.default_backend() != "cpu" else None
