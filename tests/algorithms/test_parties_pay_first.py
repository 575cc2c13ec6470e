"""With a spent budget no generator, voter or mechanism of a party draws noise or makes anything of the data.

What is released before it is paid for is out by the time that the budget refuses it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

from blindsight.accounting.events import Gaussian
from blindsight.algorithms import Algorithm, dp_fedavg
from blindsight.algorithms.parties.generators import GivenGenerator, OneShot, TrainedPrivately
from blindsight.algorithms.parties.party import PartySession, VotingParty
from blindsight.algorithms.parties.voters import GivenModel, OnRawData, OnSynthetic, PrivateLinear, PrivateNetwork
from blindsight.backends import Simulation
from blindsight.codings import features
from blindsight.errors import BudgetExceeded
from blindsight.mechanisms import GaussianMechanism
from blindsight.models.classifiers import Logistic, cross_entropy
from blindsight.privacy import Privacy

EXAMPLES = 40
PRICE = Gaussian(0.5)
PRIVACY = Privacy(population=EXAMPLES, cohort=10, rounds=2, noise_multiplier=0.5, clip=1.0)


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.integers(0, 256, (EXAMPLES, 8, 8)).astype(np.uint8), random.integers(0, 2, EXAMPLES)


def network(privacy: Privacy) -> Algorithm:
    optimizers: dict[str, Any] = {"client_optimizer": optax.sgd(0.01), "server_optimizer": optax.sgd(1.0)}
    return dp_fedavg(Logistic((8, 8), 2, key=jax.random.key(0)), cross_entropy(), privacy, **optimizers, batch_size=1)


Tell = Callable[[str], None]
GENERATORS: dict[str, Callable[[Tell], Any]] = {
    "one shot": lambda tell: OneShot(features=features.images((8, 8), frequencies=4), noise_multiplier=0.5, steps=0),
    "trained": lambda tell: TrainedPrivately(make=network, draw=lambda *_: data(), privacy=PRIVACY),
    "given": lambda tell: GivenGenerator(draw=lambda *_: (tell("draw"), data())[1], event=PRICE),
}
VOTERS: dict[str, Callable[[Tell], Any]] = {
    "linear": lambda tell: PrivateLinear(noise_multiplier=0.5, steps=3),
    "network": lambda tell: PrivateNetwork(make=network, privacy=PRIVACY),
    "given": lambda tell: GivenModel(model=lambda x: (tell("predict"), np.zeros(len(x), int))[1], event=PRICE),
    "raw data": lambda tell: OnRawData(estimator=lambda x, y: (tell("fit"), lambda x: np.zeros(len(x), int))[1]),
}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made of the data, noise and cohorts included."""
    found, release, cohort = list[str](), GaussianMechanism.release, Simulation.cohort
    monkeypatch.setattr(GaussianMechanism, "release", lambda *a, **k: (found.append("noise"), release(*a, **k))[1])
    monkeypatch.setattr(Simulation, "cohort", lambda *a, **k: (found.append("cohort"), cohort(*a, **k))[1])
    return found


def session(folder: Path, **roles: Any) -> PartySession:
    """A party at work on a ledger of its own, whose free parts cost next to nothing."""
    made = GivenGenerator(draw=lambda *_: data(), event=Gaussian(1e4))
    free: dict[str, Any] = {"generator": made, "voter": OnSynthetic(estimator=None)}
    about: dict[str, Any] = {"name": "clinic", "classes": ("no", "yes"), "shape": (8, 8), "examples": EXAMPLES}
    return PartySession(VotingParty(data=data, ledger=folder / "ledger.db", **about, **free | roles))


def spend(of: PartySession) -> list[Any]:
    of.shard.ledger.set_budget("clinic", epsilon=0.1, delta=1e-5)
    return of.shard.ledger.entries()


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_that_cannot_pay_makes_nothing(tmp_path, told, name):
    of = session(tmp_path, generator=GENERATORS[name](told.append))
    before = spend(of)
    with pytest.raises(BudgetExceeded):
        of.samples(4)
    assert told == []
    assert of.shard.ledger.entries() == before


@pytest.mark.parametrize("name", VOTERS)
def test_a_voter_that_cannot_pay_learns_nothing(tmp_path, told, name):
    of = session(tmp_path, voter=VOTERS[name](told.append))
    of.samples(4)
    before = spend(of)
    with pytest.raises(BudgetExceeded):
        of.votes(data()[0][:3], cost=PRICE, unprotected=False)
    assert told == []
    assert of.shard.ledger.entries() == before
