"""Laws of runs with one seed: they repeat themselves, and two different ones never share their noise."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from blindsight import config
from blindsight.accounting.ledger import Ledger
from blindsight.data.population import Population
from blindsight.jobs import train as jobs

RUN: dict[str, Any] = {
    "name": "twice",
    "seed": 1,
    "data": {"population": "people", "held_out": 0.0},
    "model": {"kind": "logistic", "inputs": ["x"], "label": "label"},
    "client": {"batch_size": 4, "learning_rate": 0.1},
    "privacy": {
        "cohort": 30, "rounds": 2, "noise_multiplier": 5.0, "delta": 1e-3, "participation": "full", "clip": 0.1
    },
}  # fmt: skip


def people(odd: float = 0.0) -> Population:
    """Thirty clients; `odd` is the one number of the first client in which two populations differ."""
    x = np.linspace(-1, 1, 60, dtype=np.float32)
    x[0] += np.float32(odd)
    return Population({"x": x, "label": (np.arange(60) % 2).astype(np.int32)}, sizes=[2] * 30, name="people")


def trained(folder: Path, population: Population, **tables: Any) -> np.ndarray:
    asked = config.parse({**RUN, **tables})
    done = jobs.run_training(asked, out=folder, ledger=Ledger(folder.parent / "ledger.db"), population=population)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(done.model)])


def test_a_run_with_a_seed_repeats_itself(tmp_path):
    one, same = (trained(tmp_path / name, people()) for name in ("one", "same"))
    np.testing.assert_array_equal(one, same)


@pytest.mark.parametrize("changed", ["data", "learning rate"])
def test_two_runs_with_one_seed_do_not_share_their_noise(tmp_path, changed):
    first = trained(tmp_path / "first", people())
    if changed == "data":
        second = trained(tmp_path / "second", people(odd=0.5))
    else:
        second = trained(tmp_path / "second", people(), client={"batch_size": 4, "learning_rate": 0.05})
    fresh = 5.0 * 0.1 / 30  # the noise of one round in one coordinate; clients move a mean by 0.2 / 30 at most
    assert float(np.linalg.norm(first - second)) > fresh  # with shared noise it is below 2 * 0.2 / 30


def test_a_run_that_goes_on_with_other_data_pays_again(tmp_path):
    trained(tmp_path / "run", people(), training={"checkpoint_every": 1})
    ledger = Ledger(tmp_path / "ledger.db")
    before = len(ledger.entries("people"))
    for path in (tmp_path / "run").glob("checkpoint*"):  # as after a crash before the first checkpoint
        path.unlink()
    trained(tmp_path / "run", people(), training={"checkpoint_every": 1})
    assert len(ledger.entries("people")) == before  # the same release again
    for path in (tmp_path / "run").glob("checkpoint*"):
        path.unlink()
    trained(tmp_path / "run", people(odd=0.5), training={"checkpoint_every": 1})
    assert len(ledger.entries("people")) == 2 * before
