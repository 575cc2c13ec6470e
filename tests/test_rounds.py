"""Laws of training by rounds, in the training loop and at a party: keys, cohorts and divisors of every round.

Amplification by sampling and composition over rounds both need that a round's cohort and noise are independent of every
other round's. Sensitivity needs that sums are divided by a number that was known before anybody came.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from blindsight import keys, runs
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import Algorithm, dp_fedavg
from blindsight.algorithms.parties import generators
from blindsight.algorithms.parties.party import Shard
from blindsight.backends import Simulation
from blindsight.data.population import Population
from blindsight.mechanisms import GaussianMechanism
from blindsight.participation import TruncatedPoissonRounds
from blindsight.privacy import Privacy
from blindsight.training import Checkpointing, train

ROUNDS, CLIENTS, COHORT, DELTA = 4, 12, 6, 1e-5
KEY = keys.reproducible(5)
PRIVATE = Privacy(population=CLIENTS, cohort=COHORT, rounds=ROUNDS, noise_multiplier=4.0, clip=0.5)
WITHOUT_NOISE = Privacy.none(population=CLIENTS, cohort=COHORT, rounds=ROUNDS)


def one_each(privacy: Privacy) -> Algorithm:
    """Every client that is there adds exactly 1 to the only weight's sum, unless it is clipped."""

    def loss(model: Any, batch: Any, key: Any) -> Any:
        del batch, key
        return -jnp.sum(model)

    optimizers: dict[str, Any] = {"client_optimizer": optax.sgd(1.0), "server_optimizer": optax.sgd(1.0)}
    return dp_fedavg(jnp.zeros(1), loss, privacy, **optimizers, batch_size=1, sampler="float")


def in_training(algorithm: Algorithm, privacy: Privacy, folder: Path) -> Ledger:
    people = Population({"image": np.zeros((CLIENTS, 1), np.float32)}, sizes=[1] * CLIENTS, name="people")
    about: dict[str, Any] = {"population": "people", "delta": DELTA, "key": KEY}
    about["checkpointing"] = Checkpointing(every_rounds=3)
    about |= {"run": runs.begin(folder / "run", "rounds", {}), "ledger": Ledger(folder / "ledger.db")}
    train(algorithm, Simulation(people, dropout=0.5), privacy, **about)
    return about["ledger"]


def at_a_party(algorithm: Algorithm, privacy: Privacy, folder: Path) -> Ledger:
    examples, labels = np.zeros((CLIENTS, 1), np.float32), np.zeros(CLIENTS, np.int32)
    shard = Shard("people", examples, labels, 2, CLIENTS, Ledger(folder / "ledger.db"))
    generators.train_privately(shard, algorithm, privacy, key=KEY)
    return shard.ledger


Loop = Callable[[Algorithm, Privacy, Path], Ledger]
loops = pytest.mark.parametrize("loop", [in_training, at_a_party])


@dataclasses.dataclass
class Seen:
    """What the sampler, the backend, the algorithm and the mechanism were given, round by round."""

    cohort: list[bytes] = dataclasses.field(default_factory=list[bytes])
    clients: list[bytes] = dataclasses.field(default_factory=list[bytes])
    step: list[bytes] = dataclasses.field(default_factory=list[bytes])
    noise: list[bytes] = dataclasses.field(default_factory=list[bytes])
    present: list[int] = dataclasses.field(default_factory=list[int])
    weights: list[float] = dataclasses.field(default_factory=list[float])


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Spies on all four; at a party too, half of the clients drop out."""
    found, dropping = Seen(), lambda people: Simulation(people, dropout=0.5)
    draw, cohort, release = TruncatedPoissonRounds.draw, Simulation.cohort, GaussianMechanism.release

    def drawn(self: Any, *, key: keys.Key) -> Any:
        found.cohort.append(key.secret)
        return draw(self, key=key)

    def gathered(self: Any, clients: Any, *, n_expected: float, key: keys.Key) -> Any:
        found.clients.append(key.secret)
        there = cohort(self, clients, n_expected=n_expected, key=key)
        found.present.append(len(there.clients))
        return there

    def released(self: Any, total: Any, *, key: keys.Key, **more: Any) -> Any:
        found.noise.append(key.secret)
        return release(self, total, key=key, **more)

    monkeypatch.setattr(generators, "Simulation", dropping)
    monkeypatch.setattr(TruncatedPoissonRounds, "draw", drawn)
    monkeypatch.setattr(Simulation, "cohort", gathered)
    monkeypatch.setattr(GaussianMechanism, "release", released)
    return found


def watched(inner: Algorithm, seen: Seen) -> Algorithm:
    """The same algorithm, whose keys and weights are noted."""

    def step(state: Any, cohort: Any, *, key: keys.Key) -> Any:
        after, event = inner.step(state, cohort, key=key)
        seen.step.append(key.secret)
        seen.weights.append(float(after.params[0]))
        return after, event

    return dataclasses.replace(inner, step=step)


@loops
def test_every_round_has_keys_of_its_own(tmp_path, seen, loop: Loop):
    """With one key for two rounds the second has the cohort, or the noise, of the first, and hides nothing new."""
    loop(watched(one_each(PRIVATE), seen), PRIVATE, tmp_path)
    every = [*seen.cohort, *seen.clients, *seen.step, *seen.noise]
    assert len(set(seen.cohort)) == len(set(seen.clients)) == len(set(seen.step)) == len(set(seen.noise)) == ROUNDS
    assert len(set(every)) == 4 * ROUNDS


@loops
def test_sums_are_divided_by_the_expected_cohort_whoever_comes_and_whoever_drops_out(tmp_path, seen, loop: Loop):
    """A divisor that counts who came would make every sum depend on everybody, by more than the bound."""
    loop(watched(one_each(WITHOUT_NOISE), seen), WITHOUT_NOISE, tmp_path)
    assert len(seen.present) == ROUNDS
    steps = np.diff([0.0, *seen.weights])
    np.testing.assert_allclose(steps, np.array(seen.present) / COHORT, rtol=1e-6)


@loops
def test_all_rounds_are_paid_for_and_no_more_than_these(tmp_path, loop: Loop):
    longer = dataclasses.replace(PRIVATE, rounds=31)  # so that several rounds are paid for together
    ledger = loop(one_each(longer), longer, tmp_path)
    promised = longer.guarantee(delta=DELTA, release=one_each(longer).event).epsilon
    assert ledger.spent("people", DELTA).epsilon == pytest.approx(promised, rel=0.01)
