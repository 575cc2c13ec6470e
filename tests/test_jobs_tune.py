"""Laws of tuning: public clients alone, the noise that the run will have, nothing in any ledger."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from blindsight import config
from blindsight.data.generated import GeneratedPopulation
from blindsight.data.population import Population
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.jobs import public as public_data
from blindsight.jobs import tables, tune
from blindsight.jobs.algorithm import make_privacy
from blindsight.jobs.run_data import with_listed_classes
from blindsight.jobs.tasks import TrainingTask
from blindsight.privacy import Privacy

RUN: dict[str, Any] = {
    "name": "tiny",
    "data": {"population": "private", "held_out": 0.2},
    "model": {"kind": "logistic", "inputs": "x"},
    "client": {"learning_rate": 0.5, "batch_size": 4},
    "server": {"optimizer": "nesterov", "momentum": 0.5},
    "privacy": {"cohort": 200, "rounds": 9, "noise_multiplier": 4.0, "delta": 1e-3, "clip": 0.5},
    "tune": {"cohort": 10, "rounds": 3, "client_learning_rate": [0.001, 0.5], "server_learning_rate": 1.0, "clip": 0.5},
}


def public(clients: int = 40) -> Population:
    """Clients whose label is the sign of what they have."""
    x = np.random.default_rng(0).normal(size=(4 * clients, 2)).astype(np.float32)
    return Population({"x": x, "label": (x[:, 0] > 0).astype(np.int32)}, sizes=[4] * clients, name="public")


def private(name: str, options: Any = None) -> Population:
    """Clients of whom nothing may be read but how many there are."""
    assert name == "private"
    draw: Any = lambda clients: pytest.fail("a private client was read")  # noqa: E731
    return GeneratedPopulation(draw, sizes=np.full(1000, 3), name="private")


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Models run a few times only: here compiling is what takes time, so it is kept short."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def unread(monkeypatch, tmp_path):
    """Private clients that cannot be read, and a ledger that must not come to be."""
    for module in (tables, public_data):
        monkeypatch.setattr(module, "source", private)
    monkeypatch.setenv("BLINDSIGHT_LEDGER", str(tmp_path / "ledger.db"))
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.rglob("*.db"))


def settings(**changes: Any) -> config.Config:
    return config.parse(RUN | changes)


def test_the_best_settings_are_found_on_public_clients_alone_and_written(tmp_path):
    seen = list[tuple[int, int]]()
    found = tune.run_tuning(
        settings(), "public", write=tmp_path / "x.toml", population=public(), progress=lambda *step: seen.append(step)
    )
    assert [row["client_learning_rate"] for row in found.rows] == [0.5, 0.001]
    assert found.rows[0]["accuracy"] > found.rows[1]["accuracy"]
    assert seen == [(0, 2), (1, 2), (2, 2)]
    again = config.load(tmp_path / "x.toml")
    assert again == dataclasses.replace(settings(), client=dataclasses.replace(settings().client, learning_rate=0.5))
    assert (tmp_path / "x.toml").read_text(encoding="utf-8").startswith("# Tuned on public, which is public")
    shown = json.loads(json.dumps(found.to_dict()))
    assert shown["best"] == {"client_learning_rate": 0.5, "server_learning_rate": 1.0, "momentum": 0.5, "clip": 0.5}


def used(monkeypatch, asked: config.Config) -> list[Any]:
    """The privacy of every combination that was trained."""
    seen = list[Any]()
    make = tune.make_algorithm
    monkeypatch.setattr(
        tune, "make_algorithm", lambda run, model, privacy: seen.append(privacy) or make(run, model, privacy)
    )
    tune.run_tuning(asked, "public", population=public())
    return seen


def test_noise_on_the_mean_is_that_of_the_run(monkeypatch):
    asked = settings(tune=RUN["tune"] | {"clip": [0.5, 0.1], "client_learning_rate": 0.5, "rounds": 1})
    for privacy in used(monkeypatch, asked):
        assert (privacy.cohort, privacy.population) == (10, 32)
        on_mean = privacy.noise_multiplier * privacy.clip / privacy.cohort
        assert on_mean == pytest.approx(4.0 * privacy.clip / 200)


def test_noise_that_follows_from_epsilon_is_solved_for_as_many_clients_as_will_train(monkeypatch):
    one = {"cohort": 10, "rounds": 1, "client_learning_rate": 0.5, "server_learning_rate": 1.0, "clip": 0.5}
    promise = {"cohort": 200, "rounds": 3, "epsilon": 3.0, "delta": 1e-3, "clip": 0.5, "participation": "full"}
    asked = settings(privacy=promise, tune=one)
    (counted,) = used(monkeypatch, asked)
    expected = make_privacy(asked, 800).noise_multiplier  # of 1,000 a fifth is held out
    assert expected is not None
    assert counted.noise_multiplier == pytest.approx(expected * 10 / 200, rel=1e-3)


def test_defaults_are_a_small_grid_around_the_run():
    asked = settings(tune={})
    tried = [tune._settings(variant) for variant in tune._combinations(asked)]
    assert len(tried) == 8
    assert tried[0] == {"client_learning_rate": 0.5, "server_learning_rate": 1.0, "momentum": 0.5, "clip": 0.5}
    assert {row["client_learning_rate"] for row in tried} == {0.5, 0.17}


def test_a_private_vocabulary_is_tuned_with_public_words(monkeypatch):
    words = Population({"text": np.array(["the cat sat.", "the dog ran."] * 30)}, sizes=[2] * 30, name="public")
    asked = config.parse(
        RUN
        | {
            "model": {"kind": "word_lm", "embedding": 2, "cells": 3},
            "text": {"vocabulary": "private", "vocabulary_size": 20, "length": 5},
            "tune": {"cohort": 5, "rounds": 1, "client_learning_rate": 0.5, "server_learning_rate": 1.0, "clip": 0.5},
        }
    )
    found = tune.run_tuning(asked, "public", population=words)
    assert found.metric == "recall_top1"
    assert found.config.text.vocabulary == "private"  # the run itself still releases its own


def test_the_clients_themselves_are_not_public():
    with pytest.raises(PrivacyError, match="are the protected clients"):
        tune.run_tuning(settings(), "private")


def test_too_few_public_clients_are_one_sentence():
    with pytest.raises(InvalidInput, match="too few clients"):
        tune.run_tuning(settings(), "public", population=public(2))


def test_the_command_prints_a_table_or_json_and_trains_nothing(monkeypatch, tmp_path, capsys):
    from blindsight.cli.train import train

    monkeypatch.setattr(tune, "_public", lambda config, name: public())
    asked = dataclasses.replace(settings(), tune=dataclasses.replace(settings().tune, client_learning_rate=(0.5,)))
    (tmp_path / "run.toml").write_text(config.as_toml(asked), encoding="utf-8")
    train(tmp_path / "run.toml", tune_on="public", as_json=True)
    assert json.loads(capsys.readouterr().out)["written"] == str(tmp_path / "run.tuned.toml")
    train(tmp_path / "run.toml", tune_on="public")
    out = capsys.readouterr().out
    assert "no privacy was spent" in out
    assert "run.tuned.toml" in out.replace("\n", "")
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["run.toml", "run.tuned.toml"]  # no run was begun


@pytest.mark.parametrize("unit", ["client", "example"])
def test_of_a_private_table_the_number_of_places_is_read_and_nothing_else(tmp_path, monkeypatch, unit):
    counts, noise = list[int](), Privacy(population=9, cohort=1, rounds=1, noise_multiplier=2.0)
    monkeypatch.setattr(tune, "make_privacy", lambda config, count, *_, **__: counts.append(count) or noise)
    asked = {"data": {"population": "private.csv", "options": {"client": "who"}, "held_out": 0.0}}
    asked |= {"privacy": {"cohort": 2, "rounds": 1, "epsilon": 1.0, "delta": 1e-3, "unit": unit}}
    for odd in ("c,1,0", "c,n/a,0", 'c,"1,0', "c,1e400,1.5", "c,"):
        (tmp_path / "private.csv").write_text(f"who,x,label\na,1,0\n{odd}\nb,2,1\nb,3,1\n", encoding="utf-8")
        assert tune._noise_of_the_run(settings(**asked), TrainingTask(public(), public(), None, {})) == 2.0
    assert counts == [{"client": 3, "example": 4}[unit]] * 5


def test_a_public_table_is_read_as_the_runs_own_is(tmp_path):
    types = {"region": "category:north,south", "label": "category:no,yes"}
    about = {"population": "private.csv", "options": {"client": "who"}, "types": types}
    (tmp_path / "public.csv").write_text("who,region,label\na,south,yes\nb,atlantis,no\nc,north,no\n", encoding="utf-8")
    asked = with_listed_classes(settings(data=about, model={"kind": "logistic", "inputs": "region"}))
    found = tune._public(asked, "public.csv")
    assert found.sizes.tolist() == [1, 0, 1]
    assert found.columns["region"].tolist() == [1, 0]
    assert found.classes == {"region": ("north", "south"), "label": ("no", "yes")}
    assert asked.model.classes == ("no", "yes")
