"""One client at a time in plain Python: slow, but errors name the client."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blindsight import trees
from blindsight.backends.cohort import Bounds, ClientUpdate, Examples, bounded_sums, check_cohort, contribution
from blindsight.data.population import Population
from blindsight.errors import BlindsightError
from blindsight.keys import Key
from blindsight.trees import Tree

__all__ = ["Debug"]


@dataclasses.dataclass(frozen=True)
class Debug:
    """Runs client updates uncompiled, so that `print` and a debugger work inside them."""

    population: Population

    @property
    def fingerprint(self) -> str:
        """Identifies everything that determines the clients' answers."""
        return self.population.fingerprint

    def cohort(self, clients: np.ndarray, *, n_expected: float, key: Key) -> "DebugCohort":
        """The cohort of these clients."""
        check_cohort(clients, self.population)
        return DebugCohort(self.population, clients, n_expected, key)


@dataclasses.dataclass(frozen=True)
class DebugCohort:
    """Sums over `clients`, one after the other."""

    population: Population
    clients: np.ndarray
    n_expected: float
    key: Key
    simulation_only: dict[str, int] = dataclasses.field(default_factory=dict)

    def sum(self, client_update: ClientUpdate, broadcast: Tree, *, l2_bound: Bounds, grid: Any = None) -> Any:
        """As `Cohort.sum`; names the first client that fails or has a non-finite update."""
        on_client = functools.partial(self._contribution, client_update, broadcast, l2_bound, grid)
        shapes = jax.eval_shape(lambda: on_client(0, is_plain=False))
        totals = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        for client in self.clients.tolist():
            totals = trees.add(totals, on_client(client, is_plain=True))
        return bounded_sums(totals, l2_bound, grid, self.n_expected)

    def _contribution(
        self, client_update: ClientUpdate, broadcast: Tree, l2_bound: Bounds, grid: Any, client: int, *, is_plain: bool
    ) -> Tree:
        columns = self.population[client]
        stage = "its examples"
        try:
            examples = Examples.of(columns)
            stage = "client_update"
            key = jax.random.fold_in(self.key.jax(), client)
            with jax.disable_jit(is_plain):  # clipping is ours, and faster compiled than one operation at a time
                update = client_update(broadcast, examples, key)
            stage = "clipping the update"
            return contribution(update, l2_bound, grid)
        except Exception as error:
            shapes = ", ".join(f"{field} {column.dtype}{list(column.shape)}" for field, column in columns.items())
            raise BlindsightError(
                f"client {str(self.population.ids[client])!r} failed in {stage} with {type(error).__name__}: {error} "
                f"(its examples: {shapes or 'none'})"
            ) from error
