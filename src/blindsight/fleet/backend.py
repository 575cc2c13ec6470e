"""`Fleet` as a backend: `Cohort.sum` over sites that keep their data. Simulation and fleet differ in this alone.

A site computes its part from the job, the step and the public releases so far, never from code: what is passed to
`sum` here only says which numbers it has. With noise at the sites the sum that comes back is a `NoisedSum`, which a
release unmasks after it has been paid for. With noise of the coordinator it is a sum like a simulation's.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from blindsight.backends.cohort import Bounds, ClientUpdate, Examples, parts_of, parts_of_setting
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.fleet.job import Job
from blindsight.fleet.noise_shares import NoisedSum, NoiseShares
from blindsight.fleet.sites import Sites
from blindsight.fleet.summing import SiteSum
from blindsight.keys import Key
from blindsight.trees import BoundedSum, Tree

__all__ = ["NOISED_BY_COORDINATOR_BITS", "FleetBackend", "FleetCohort", "mechanisms_of"]

NOISED_BY_COORDINATOR_BITS = 64
"""The modulus of sums without noise: a simulation's grid is too fine for 32 bits."""


def mechanisms_of(job: Job, mechanisms: Mapping[str, Any]) -> dict[str, Any]:
    """The mechanisms of parts that are summed together, the same on both sides: the job says who adds the noise."""
    noise = job.site_noise
    if noise is None:
        return dict(mechanisms)
    shares = noise.mechanisms([one.noise_multiplier for one in mechanisms.values()])
    return dict(zip(mechanisms, shares, strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetBackend:
    """All clients of all sites, in one step of a job.

    Args:
        sites: The lines to the sites.
        job: The job that all sites have approved.
        step: What identifies the step to the sites, and `blobs` that go with it.
        blobs: Releases so far.
        like: A population without examples that has the fields which the update reads.
        mechanisms: The noise of each part; the empty name for an update without parts.
        noise_key: Key of the noise, if it is reproducible; by default derived from that of each cohort.
        progress: Called with the sites that have not answered yet.
        missed: Called after a sum with the sites that are not in it.
    """

    sites: Sites
    job: Job
    step: Mapping[str, Any]
    blobs: tuple[bytes, ...]
    like: Population
    mechanisms: Mapping[str, Any]
    noise_key: Key | None = None  # of a reproducible run, whose guarantee says so; otherwise sites alone know theirs
    progress: Callable[[set[str]], None] = lambda waiting: None
    missed: Callable[[Mapping[str, str]], None] = lambda sites: None

    def cohort(self, clients: np.ndarray, *, n_expected: float, key: Key) -> "FleetCohort":
        """The cohort of a round: every site draws its own clients, so that nobody else knows which."""
        return FleetCohort(self, clients, n_expected, key)


@dataclasses.dataclass(frozen=True)
class FleetCohort:
    """One round's clients, wherever they are."""

    backend: FleetBackend
    clients: np.ndarray
    n_expected: float
    key: Key
    simulation_only: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    def sum(self, client_update: ClientUpdate, broadcast: Tree, *, l2_bound: Bounds, grid: Any = None) -> Any:
        """As `Cohort.sum`, over all sites."""
        backend, bounds, steps = self.backend, parts_of_setting(l2_bound), parts_of_setting(grid)
        if any(steps.get(name) is None for name in bounds):
            raise InvalidInput("a fleet sums whole numbers only: use a mechanism with exact noise")
        parts = parts_of(self._shapes(client_update, broadcast), l2_bound)
        sizes = {
            name: sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(parts[name])) for name in sorted(bounds)
        }
        by_sites = [one for one in backend.mechanisms.values() if isinstance(one, NoiseShares)]
        bits = by_sites[0].modulus_bits if by_sites else NOISED_BY_COORDINATOR_BITS
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(broadcast)] if backend.step.get("has_model") else []
        summing = SiteSum(
            backend.sites,
            backend.job,
            {**backend.step, **self._drawn()},
            [*backend.blobs, *(leaf.tobytes() for leaf in leaves)],
            length=sum(sizes.values()),
            bits=bits,
            progress=backend.progress,
        )
        summing.collect()
        totals = _Totals(summing, sizes, backend.missed)
        sums = {
            name: self._bounded(totals, name, parts[name], bounds[name], steps[name], is_noised=bool(by_sites))
            for name in bounds
        }
        return sums if isinstance(l2_bound, Mapping) else sums[""]

    def _shapes(self, client_update: ClientUpdate, broadcast: Tree) -> Any:
        examples = Examples.of(self.backend.like.columns)
        return jax.eval_shape(client_update, broadcast, examples, jax.random.key(0))

    def _drawn(self) -> dict[str, Any]:
        """The clients' own randomness, which is no secret; in reproducible runs also noise and cohort, which are."""
        drawn: dict[str, Any] = {"n_expected": float(self.n_expected), "client_key": self.key.secret.hex()}
        noise = self.backend.noise_key or self.key.derive("site noise")
        if noise.is_reproducible:
            drawn |= {"noise_key": noise.secret.hex(), "cohort": self.clients.tolist()}
        return drawn

    def _bounded(
        self, totals: "_Totals", name: str, like: Any, l2_bound: float, step: float, *, is_noised: bool
    ) -> BoundedSum | NoisedSum:
        if is_noised:
            return NoisedSum(
                identity=f"{self.backend.job.run} {totals.number} {name}",
                unmasked=lambda: totals.part(name),
                like=like,
                l2_bound=l2_bound,
                n_expected=self.n_expected,
                grid=step,
            )
        numbers, place = totals.part(name)[0].view("<i8"), 0
        leaves, structure = jax.tree.flatten(like)
        values: list[Any] = []
        for leaf in leaves:
            end = place + int(np.prod(leaf.shape))
            values.append(numbers[place:end].reshape(leaf.shape))
            place = end
        tree = jax.tree.unflatten(structure, values)
        return BoundedSum(tree, l2_bound, self.n_expected, grid=step, known_finite=True)


class _Totals:
    """The parts of a sum, which are unmasked together when the first of them is read."""

    def __init__(self, summing: SiteSum, sizes: Mapping[str, int], missed: Callable[[Mapping[str, str]], None]) -> None:
        self._summing, self._missed = summing, missed
        self._ends = dict(zip(sizes, np.cumsum(list(sizes.values())).tolist(), strict=True))
        self._sizes = sizes
        self._read: tuple[np.ndarray, int] | None = None

    @property
    def number(self) -> int:
        """This attempt at the sum."""
        return self._summing.number

    def part(self, name: str) -> tuple[np.ndarray, int]:
        """The numbers of a part, and how many sites are in them."""
        if self._read is None:
            self._read = self._summing.total()
            self._missed(self._summing.missing)
        numbers, survivors = self._read
        return numbers[self._ends[name] - self._sizes[name] : self._ends[name]], survivors
