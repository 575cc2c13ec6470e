"""Pairs for the Bayesian accountant: a simulated backend that measures distances while it sums.

Triastcyn and Faltings 2022 (Algorithms 15:232, Section 2.4) add m random records to the batch, or remove them from it,
and recompute the gradient each time. Here the release is a sum of clipped parts divided by a fixed number, so the two
gradients of a pair differ by one clipped part divided by that number, whether its client was in the batch or not.
Nothing else needs to be computed, and one compiled call computes all m.

**No guarantee.** Distances are computed from private data without noise, and so is anything derived from them. They
exist only in a simulation, are marked as such, and no algorithm sees them. The sums are not affected.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np

from blindsight import trees
from blindsight.accounting.bayesian import BayesianConfig
from blindsight.backends import placement
from blindsight.backends.cohort import Bounds, ClientUpdate, Cohort, Examples
from blindsight.backends.simulation import Simulation
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.privacy import Privacy
from blindsight.trees import Tree

__all__ = ["Paired", "bayesian_config"]


def bayesian_config(
    privacy: Privacy,
    *,
    lambdas: tuple[int, ...] = BayesianConfig.lambdas,
    gamma: float = BayesianConfig.gamma,
    bound: Literal["eq6", "eq7"] = BayesianConfig.bound,
) -> BayesianConfig:
    """The settings of the Bayesian accountant for a run: rate, rounds, and noise in the units of the mean."""
    if privacy.participation != "poisson":
        raise InvalidInput(
            f"the Bayesian accountant needs poisson participation, not {privacy.participation}: remove [bayesian]"
        )
    if not privacy.noise_multiplier:
        raise InvalidInput("the Bayesian accountant needs noise: without noise there is nothing to estimate")
    distance = privacy.clip / privacy.cohort
    return BayesianConfig(
        rounds=privacy.rounds,
        rate=privacy.cohort / privacy.population,
        sigma=privacy.noise_multiplier * distance,
        lambdas=lambdas,
        gamma=gamma,
        bound=bound,
        distance_bound=distance,
    )


class Paired:
    """`backend` that also computes distances for `pairs` random clients after every sum, and passes them to `record`.

    `record` is that method of a `BayesianAccountant`, or a function that also logs the distances.
    """

    def __init__(self, backend: Simulation, *, pairs: int, record: Callable[[np.ndarray], None]) -> None:
        if not 2 <= pairs <= backend.population.size:
            raise InvalidInput(f"pairs must be between 2 and the {backend.population.size:,} clients, got {pairs}")
        self.backend, self.pairs, self.record = backend, pairs, record

    @property
    def fingerprint(self) -> str:
        """The fingerprint of `backend`: the pairs do not affect the clients' answers."""
        return self.backend.fingerprint

    def cohort(self, clients: np.ndarray, *, n_expected: float, key: Key) -> "PairedCohort":
        """The cohort of these clients."""
        return PairedCohort(self, self.backend.cohort(clients, n_expected=n_expected, key=key), n_expected, key)


@dataclasses.dataclass
class PairedCohort:
    """Sums like `inner`, and measures distances."""

    paired: Paired
    inner: Cohort
    n_expected: float
    key: Key
    _seen: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    @property
    def simulation_only(self) -> dict[str, Any]:
        """The counts of the inner cohort, plus the number of pairs and their largest distance."""
        return {**self.inner.simulation_only, **self._seen}

    def sum(self, client_update: ClientUpdate, broadcast: Tree, *, l2_bound: Bounds, grid: Any = None) -> Any:
        """As `Cohort.sum`."""
        if not isinstance(l2_bound, float | int):
            raise InvalidInput("the Bayesian accountant does not support adaptive clipping: use a fixed clip")
        lengths = self._lengths(client_update, broadcast, float(l2_bound))
        total = self.inner.sum(client_update, broadcast, l2_bound=l2_bound, grid=grid)
        distances = np.asarray(lengths, np.float64) / self.n_expected  # meanwhile an accelerator computes the sum
        self.paired.record(distances)
        self._seen = {"pairs": len(distances), "largest_distance": float(distances.max())}
        return total

    def _lengths(self, client_update: ClientUpdate, broadcast: Tree, bound: float) -> jax.Array:
        """The norms of m random clients' clipped parts: how far each of them moves the released sum."""
        backend, key = self.paired.backend, self.key.derive("pairs")
        clients = np.sort(key.derive("who").stream().subset(backend.population.size, self.paired.pairs))
        columns, starts = backend.place(clients)
        facts = np.stack([clients, starts, backend.population.sizes[clients]], axis=1).astype(np.int32)
        settings = client_update, bound, backend.uniform, backend.capacities[0], backend.chunk
        here = placement.on_first(columns)  # where the broadcast is
        return _lengths(settings, broadcast, here, facts, key.derive("updates").jax())


@functools.partial(jax.jit, static_argnums=(0,))
def _lengths(settings: Any, broadcast: Tree, columns: dict[str, jax.Array], facts: jax.Array, key: jax.Array) -> Any:
    """The norm of every client's part of the sum, after the clip."""
    client_update, bound, uniform, capacity, chunk = settings

    def on_client(fact: jax.Array) -> jax.Array:
        examples = Examples(columns, fact[1], fact[2], uniform, capacity)
        update = client_update(broadcast, examples, jax.random.fold_in(key, fact[0]))
        return trees.norm(trees.clip(update, bound))

    return jax.lax.map(on_client, facts, batch_size=chunk if chunk > 1 else None)
