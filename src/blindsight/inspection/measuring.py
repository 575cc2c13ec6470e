"""One round that measures everything: every client sends a bounded vector for each part, and all are released together.

A part (moments, cues, votes) maps one client's examples and its masks, one row for each arm, to a vector with an L2
bound. Each part gets its own noise, part i at noise multiplier z / sqrt(share_i) with shares of the precision that add
up to 1, so that together they cost exactly one Gaussian release at z. That release is recorded in the ledger before any
noise is drawn.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.accounting.events import Event, Relation, from_json
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger, Payers, names_of
from blindsight.accounting.planning import solve_noise
from blindsight.backends import Backend, Batch, ClientUpdate, Examples
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.keys import Key
from blindsight.mechanisms import GaussianMechanism, gaussian
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.mechanisms.noise import Sampler
from blindsight.mechanisms.release import marked, noise_on
from blindsight.participation import full
from blindsight.selection import ASSUMED, FORMINGS, Arms, Forming

__all__ = [
    "Measured",
    "Measurement",
    "Part",
    "Priced",
    "PricedRelease",
    "client_update",
    "measure",
    "noise_for",
    "witness",
]


class Priced(Protocol):
    """Anything that takes a share of the precision."""

    @property
    def name(self) -> str:
        """Its name in the update and in reports."""
        ...

    @property
    def coordinates(self) -> int:
        """How many numbers are released."""
        ...


@dataclasses.dataclass(frozen=True)
class PricedRelease:
    """A release that takes a share of the precision before its part is there, or without one."""

    name: str
    coordinates: int


class Part(Priced, Protocol):
    """One part of a measurement; hashable, because the round is compiled once for each combination of parts."""

    @property
    def bound(self) -> float:
        """The L2 norm that no client's part exceeds, over all arms together."""
        ...

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """What one client sends; `batch` holds all its examples, `masks` has shape (arms, examples)."""
        ...


@dataclasses.dataclass(frozen=True)
class Measured:
    """A part as released: the noisy sum over clients, the standard deviation of its noise, and its epsilon alone."""

    sums: np.ndarray
    noise_std: float
    epsilon: float

    def to_dict(self, name: str) -> dict[str, Any]:
        """One row of a report's table of releases; the noise is that of a sum."""
        return {
            "what": name,
            "epsilon": self.epsilon,
            "noise_std": self.noise_std,
            "coordinates": int(self.sums.size),
        }


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Everything that one round released, and its guarantee."""

    parts: Mapping[str, Measured]
    arms: tuple[str, ...]
    clients: int
    event: Event
    guarantee: Guarantee

    def __getitem__(self, name: str) -> Measured:
        return self.parts[name]

    @property
    def releases(self) -> tuple[dict[str, Any], ...]:
        """The releases, part by part."""
        return tuple(part.to_dict(name) for name, part in self.parts.items())


def witness(ledger: Ledger, population: Payers) -> str:
    """The hash of the ledger's last entry for these clients: a ledger without it is not the one that was paid into."""
    return ledger.entries(names_of(population)[-1])[-1].hash


def noise_for(
    parts: Sequence[Priced],
    *,
    epsilon: float,
    delta: float,
    shares: Mapping[str, float] | None = None,
    sampler: Sampler = "exact",
) -> dict[str, GaussianMechanism]:
    """The mechanism of each part with the least noise at which all of them together are (epsilon, delta)-DP.

    `shares` says how the precision is divided (equally by default): a part with a quarter of it has twice the noise
    that it would have alone.
    """
    weights = _shares(parts, shares)
    noise = _solved(tuple(weights[part.name] for part in parts), epsilon, delta, sampler)
    return {part.name: gaussian(noise * weights[part.name] ** -0.5, sampler=sampler) for part in parts}


@functools.lru_cache(maxsize=64)
def _solved(weights: tuple[float, ...], epsilon: float, delta: float, sampler: Sampler) -> float:
    """The noise multiplier of everything together; a question is planned, foreseen and asked with the same one."""

    def event(noise: float) -> Event:
        return joint(*(gaussian(noise * weight**-0.5, sampler=sampler).planned_event for weight in weights))

    return solve_noise(event, epsilon=epsilon, delta=delta)


def measure(
    backend: Backend,
    arms: Arms,
    parts: Sequence[Part],
    mechanisms: Mapping[str, GaussianMechanism],
    *,
    clients: int,
    population: Payers,
    delta: float,
    ledger: Ledger,
    key: Key,
    forming: Forming = "zero_fill",
    run: str = "",
    note: str = "",
) -> Measurement:
    """Measure all parts on all clients in one round.

    **Guarantee**: the release costs `Measurement.event`, which is recorded before any noise is drawn. A budget that
    does not allow it refuses the round, and nothing is released.

    Args:
        backend: Answers for the clients.
        arms: Which of a client's examples count in which arm.
        parts: What each client sends.
        mechanisms: The noise of each part, by its name.
        clients: Number of clients of the backend, which is public: the whole population, or with
            `forming="eligible"` the clients of the arms (`Arms.eligible`).
        population: Their name in the ledger, or the names of all populations that they come from.
        delta: Delta of the guarantee.
        ledger: Records the release.
        key: What the noise descends from; a secret key draws new noise in every call.
        forming: How the arms' clients come together.
        run: The run, for the ledger.
        note: What was measured, for the ledger.
    """
    bounds = {part.name: float(part.bound) for part in parts}
    if set(bounds) != set(mechanisms) or len(bounds) < len(parts):
        raise InvalidInput(f"parts need distinct names and a mechanism each, got {sorted(bounds)} and {[*mechanisms]}")
    participation = full(clients)
    expected = {part.name: mechanisms[part.name].planned_event for part in parts}
    event = participation.event(marked(joint(*expected.values()), key))
    guarantee = certify(
        event,
        delta=delta,
        participation=f"full: all {clients:,}, {FORMINGS[forming]}",
        assumptions=(ASSUMED,) if forming == "eligible" else (),
    )
    epsilons = {name: certify(one, delta=delta).epsilon for name, one in expected.items()}
    cohort = backend.cohort(participation.draw(), n_expected=participation.n_expected, key=key.derive("clients"))
    grid = {name: mechanisms[name].grid(bound) for name, bound in bounds.items()}
    totals = cohort.sum(client_update(arms, tuple(parts)), jnp.zeros(()), l2_bound=bounds, grid=grid)
    for part in parts:
        size = totals[part.name].size
        if mechanisms[part.name].event(totals[part.name]) != expected[part.name] or size != part.coordinates:
            raise PrivacyError(f"{part.name} has {size} coordinates, but {part.coordinates} were to be paid for")
    noise_key = key.derive("noise").for_one_release()
    entry = ledger.record(
        event,
        population=population,
        unit=guarantee.unit,
        relation=Relation.ADD_OR_REMOVE,
        run=run,
        note=note,
        noise=noise_on(noise_key, {name: (mechanisms[name], total) for name, total in totals.items()}),
    )
    if (recorded := from_json(entry.event)) != event:  # the same noise was added to another sum before
        event, guarantee = recorded, certify(recorded, delta=delta, participation=guarantee.participation)
    measured: dict[str, Measured] = {}
    for name, total in totals.items():
        release = mechanisms[name].release(total, key=noise_key.derive(name))
        sums = np.asarray(release.value, np.float64) * total.n_expected
        measured[name] = Measured(sums, release.noise_std * total.n_expected, epsilons[name])
    return Measurement(measured, tuple(arms), clients, event, guarantee)


@functools.lru_cache(maxsize=32)
def client_update(arms: Arms, parts: tuple[Part, ...]) -> ClientUpdate:
    """The client half: all its examples in one batch, its masks, and the vector of each part."""

    def update(broadcast: Any, examples: Examples, key: jax.Array) -> dict[str, jax.Array]:
        del broadcast
        batch = examples.whole()
        masks = arms.masks(batch)
        keys = jax.random.split(key, len(parts))
        return {part.name: part.client_part(batch, masks, k) for part, k in zip(parts, keys, strict=True)}

    return update


def _shares(parts: Sequence[Priced], shares: Mapping[str, float] | None) -> dict[str, float]:
    names = [part.name for part in parts]
    given = dict(shares or dict.fromkeys(names, 1.0))
    if not names or set(given) != set(names) or len(set(names)) < len(names):
        raise InvalidInput(f"every part needs its own name and one share of the precision, got {given} for {names}")
    if not all(0 < share < math.inf for share in given.values()):
        raise InvalidInput(f"shares of the precision must be positive, got {given}")
    whole = math.fsum(given.values())
    return {name: share / whole for name, share in given.items()}
