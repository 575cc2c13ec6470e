"""A reproducible run says so: in the ledger's entry, and in every guarantee made from it afterwards."""

import numpy as np
import pytest

from blindsight import keys, mechanisms, trees
from blindsight.accounting.events import Gaussian, Laplace, from_json
from blindsight.accounting.guarantee import certify
from blindsight.accounting.ledger import Ledger

SEED = "nobody who sees a release knows the seed"


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("reproducible", [False, True])
def test_the_seed_is_an_assumption_only_where_there_is_one(tmp_path, kind, reproducible):
    mechanism = mechanisms.gaussian(4.0) if kind == "gaussian" else mechanisms.laplace(4.0)
    order = 2 if kind == "gaussian" else 1
    total = trees.sum_clients(np.ones((5, 2), np.float32), 1.0, n_expected=5, order=order, grid=mechanism.step(1.0))
    key = (keys.reproducible(7) if reproducible else keys.root()).derive("noise", 0)
    ledger = Ledger(tmp_path / "ledger.db")
    release = mechanisms.publish(mechanism, total, key=key, ledger=ledger, population="p")
    written = from_json(ledger.entries()[0].event)
    assert isinstance(written, Gaussian | Laplace)
    assert written.reproducible is reproducible
    assert release.event == written
    assert any(SEED in words for words in ledger.spent("p", delta=1e-6).assumptions) is reproducible


def test_noise_is_secret_unless_said_otherwise_and_costs_the_same():
    for secret, known in (
        (Gaussian(2.0), Gaussian(2.0, reproducible=True)),
        (Laplace(2.0), Laplace(2.0, reproducible=True)),
    ):
        assert not secret.reproducible
        plain, seeded = certify(secret, delta=1e-6), certify(known, delta=1e-6)
        assert plain.epsilon == seeded.epsilon
        assert (
            {words for words in seeded.assumptions if words not in plain.assumptions}
            == {words for words in seeded.assumptions if SEED in words}
            != set()
        )
