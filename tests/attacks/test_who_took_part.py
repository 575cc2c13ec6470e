"""A run's folder and its progress bar say nothing about who took part in which round, or how many came."""

import contextlib
import dataclasses
import itertools
import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import training_child as child
from leaving import blind, files
from safetensors import safe_open

from blindsight import checkpoints, keys, participation, runs, training
from blindsight.accounting.ledger import Ledger
from blindsight.backends import Simulation
from blindsight.errors import InvalidInput
from blindsight.training import by_rounds

RULES: dict[str, Any] = {
    "poisson": participation.TruncatedPoissonRounds,
    "fixed": participation.FixedSizeRounds,
    "unproven": participation.Unproven,
}
FEW, MANY = np.array([1, 2]), np.array([0, 3, 4, 5, 7, 11])


@pytest.fixture(autouse=True)
def without_chance() -> Iterator[None]:
    with blind():
        yield


def run_of(folder: Path, cohort: np.ndarray, rule: str, rounds: int = 6) -> list[float]:
    """A run to which always the same clients come and that learns nothing from them; the speeds that it shows."""
    with pytest.MonkeyPatch.context() as patch:  # of its own: undone before the fixture that it patches over
        return _run_of(folder, cohort, rule, rounds, patch)


def _run_of(folder: Path, cohort: np.ndarray, rule: str, rounds: int, patch: pytest.MonkeyPatch) -> list[float]:
    settings = {"max_participations": 9} if rule == "unproven" else {}
    chosen = child.privacy(rounds, participation=rule, **settings)
    patch.setattr(RULES[rule], "draw", lambda self, **options: cohort)
    inner, speeds, clock = child.algorithm(chosen), list[float](), itertools.count()
    blind = dataclasses.replace(inner, step=lambda state, cohort, *, key: (state, inner.event))

    @contextlib.contextmanager
    def shown(*given: Any, **options: Any) -> Any:
        yield lambda loop: speeds.append(loop.clients_per_s)

    patch.setattr(by_rounds, "round_bar", shown)
    patch.setattr(time, "monotonic", lambda: float(next(clock)))
    about: dict[str, Any] = {"population": "people", "delta": 1e-5, "key": keys.reproducible(1)}
    about["checkpointing"] = training.Checkpointing(every_rounds=2)
    about |= {"run": runs.begin(folder / "run", "run", {}), "ledger": Ledger(folder / "ledger.db"), "progress": True}
    training.train(blind, Simulation(child.population()), chosen, **about)
    return speeds


@pytest.mark.parametrize("rule", RULES)
def test_no_file_of_a_run_depends_on_who_took_part(tmp_path, rule):
    for name, cohort in (("few", FEW), ("many", MANY)):
        (tmp_path / name).mkdir()
        run_of(tmp_path / name, cohort, rule)
    few, many = files(tmp_path / "few" / "run"), files(tmp_path / "many" / "run")
    assert few == many
    assert any(name.endswith(".safetensors") for name in few)
    assert (tmp_path / "few" / "run" / "secret").exists() == (rule == "unproven")


@pytest.mark.parametrize("rule", RULES)
def test_the_speed_that_is_shown_is_that_of_the_expected_cohort(tmp_path, rule):
    for name in ("few", "many"):
        (tmp_path / name).mkdir()
    few, many = (run_of(tmp_path / name, who, rule) for name, who in (("few", FEW), ("many", MANY)))
    assert few == many
    assert len(few) == 6


def test_counts_that_a_limit_needs_are_readable_by_their_owner_alone_and_named_in_the_promise(tmp_path):
    run_of(tmp_path, MANY, "unproven")
    secret = tmp_path / "run" / "secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in secret.iterdir()} == {0o600}
    promise = json.loads((tmp_path / "run" / "guarantee.json").read_text())
    assert any("'secret'" in words for words in promise["assumptions"])


def test_the_limit_holds_over_a_resume_and_a_run_without_its_counts_does_not_go_on(tmp_path):
    run_of(tmp_path, MANY, "unproven", rounds=4)
    newest = checkpoints.newest(tmp_path / "run" / "secret")
    assert newest is not None
    kept = checkpoints.load(newest, {"participated": np.zeros(12, np.int32)}).tree["participated"]
    assert kept.tolist() == [4 if client in MANY else 0 for client in range(12)]
    for file in (tmp_path / "run" / "secret").iterdir():
        file.unlink()
    with pytest.raises(InvalidInput, match="participated"):
        run_of(tmp_path, MANY, "unproven", rounds=6)


@pytest.mark.parametrize("rule", RULES)
def test_checkpoints_of_older_versions_are_resumed(tmp_path, rule):
    """They held everybody's counts beside the state."""
    run_of(tmp_path, MANY, rule, rounds=4)
    path = checkpoints.newest(tmp_path / "run")
    assert path is not None
    found = checkpoints.load(path, {"state": child.algorithm(child.privacy(4)).init()})
    old = {"state": found.tree["state"], "participated": np.full(12, 4, np.int32)}
    checkpoints.write(tmp_path / "run", 4, old, found.facts)
    for file in (tmp_path / "run" / "secret").glob("*"):
        file.unlink()
    assert len(run_of(tmp_path, MANY, rule, rounds=6)) == 2
    with safe_open(checkpoints.newest(tmp_path / "run"), framework="numpy") as file:
        assert not [name for name in file.keys() if "participated" in name]  # noqa: SIM118
