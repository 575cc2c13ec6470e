"""Training on a fleet: the sums of a simulation, the cost that sites approved, and no more rounds than were paid."""

import dataclasses
import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
import pytest
from fleets import embedded, fleet_in_process

from blindsight import runs
from blindsight.accounting.assumptions import SITES_APART
from blindsight.accounting.events import Gaussian
from blindsight.accounting.ledger import Ledger
from blindsight.backends import Simulation
from blindsight.config import Config, parse
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.job import Job
from blindsight.fleet.noise_shares import NoiseShares, SiteNoise
from blindsight.fleet.site.settings import SiteSettings
from blindsight.fleet.summing import SiteSum
from blindsight.jobs.algorithm import make_algorithm
from blindsight.jobs.fleet_settings import on_terms, ready, task_of
from blindsight.jobs.fleet_training import train_on_fleet
from blindsight.jobs.language import public_vocabulary
from blindsight.jobs.site_questions import keys_of
from blindsight.jobs.site_training import OpenTraining
from blindsight.jobs.train import load_trained
from blindsight.keys import Key, reproducible
from blindsight.runs import open_run
from blindsight.training import Trained, train

SITES = {"north": 30, "south": 12, "west": 20}
TEN = {f"site-{number}": 4 + number % 4 for number in range(10)}


CLASSIFIER: dict[str, Any] = {
    "name": "small",
    "data": {"population": "tabular", "options": {"clients": 20, "seed": 99}},
    "model": {"kind": "logistic", "inputs": ["age"], "label": "label"},
    "client": {"batch_size": 8, "learning_rate": 0.1},
    "server": {"optimizer": "sgd", "learning_rate": 1.0},
    "privacy": {"epsilon": 5.0, "delta": 1e-5, "rounds": 3, "cohort": 20, "clip": 1.0},
}
GENERATOR = CLASSIFIER | {
    "data": {"population": "handwriting", "options": {"clients": 4, "seed": 99, "examples": [5, 6]}},
    "model": {"kind": "gan"},
    "gan": {"network": "compact", "channels": [2, 2, 2], "latents": 2, "fakes": 2, "generator_batch_size": 2},
    "server": {"optimizer": "adam", "learning_rate": 1e-3},
}
LANGUAGE = CLASSIFIER | {
    "data": {"population": "forum", "options": {"clients": 4, "seed": 99}},
    "model": {"kind": "word_lm", "embedding": 4, "cells": 5},
    "text": {"vocabulary": "forum", "vocabulary_size": 40, "length": 6},
}
OPTIONS: dict[str, dict[str, Any]] = {"handwriting": {"examples": (5, 6)}}


def config(seed: int | None = None, like: dict[str, Any] = CLASSIFIER, **privacy: object) -> Config:
    settings = like | {"privacy": like["privacy"] | privacy}
    return parse(settings if seed is None else settings | {"seed": seed})


def simulated(folder: Path, settings: Config, together: Population, terms: SiteNoise | None, key: Key) -> Trained:
    """The same run on one machine, with the mechanism of the fleet."""
    words = public_vocabulary(settings) if settings.model.is_language else None
    task = task_of(settings, together, None, words)
    privacy = on_terms(settings, together.size, terms)
    return train(
        make_algorithm(settings, task.model, privacy, sampler=terms),
        Simulation(task.clients),
        privacy,
        population="hospitals",
        delta=1e-5,
        key=key,
        run=runs.begin(folder / "simulation", "small", {}),
        ledger=Ledger(folder / "m.db"),
    )


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> Key:
    """The key of runs whose sites add no noise, which they would draw under keys of their own."""
    key = reproducible(7)
    monkeypatch.setattr(NoiseShares, "share", lambda self, size, place, key: np.zeros(size, np.int64))
    monkeypatch.setattr("blindsight.jobs.fleet_training.root_of", lambda *_: key)
    monkeypatch.setattr("blindsight.training.loop.Loop._facts", lambda self: None)
    return key


RUNS = [
    (CLASSIFIER, SITES),
    pytest.param(CLASSIFIER, TEN, marks=pytest.mark.slow),
    pytest.param(GENERATOR, SITES, marks=pytest.mark.slow),
    pytest.param(LANGUAGE, SITES, marks=pytest.mark.slow),
]


def check_same(ours: Any, theirs: Any) -> None:
    pairs = list(zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))
    assert pairs
    assert all(np.array_equal(one, other) for one, other in pairs)


@pytest.mark.parametrize(("settings", "sites"), RUNS)
def test_without_noise_a_fleet_trains_the_model_of_a_simulation_bit_for_bit(
    tmp_path: Path, without_noise: Key, settings: dict[str, Any], sites: dict[str, int]
):
    """Noise aside: cohorts, clients' own randomness, clipping, grid and order. What is left can be read back."""
    name = settings["data"]["population"]
    data, together = embedded(name, sites, **OPTIONS.get(name, {}))
    with fleet_in_process(tmp_path / "sites", data) as fleet:
        ours = train_on_fleet(config(7, settings), fleet, out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"))
        terms = fleet.terms()
    theirs = simulated(tmp_path, config(7, settings), together, terms, without_noise)
    assert ours.rounds == theirs.rounds == 3
    check_same(ours.model, theirs.model)
    assert any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(ours.model) if eqx.is_inexact_array(leaf))
    assert (tmp_path / "run/samples.png").exists() == (settings is GENERATOR)
    check_same(load_trained(tmp_path / "run").model, ours.model)


class Killed(BaseException):
    """What a kill looks like from inside: nothing after it runs."""


KILLED = [
    (CLASSIFIER, True),
    (CLASSIFIER, False),
    *(pytest.param(one, True, marks=pytest.mark.slow) for one in (GENERATOR, LANGUAGE)),
]


@pytest.mark.parametrize(("settings", "before_unmasking"), KILLED)
def test_a_killed_coordinator_resumes_to_the_same_model_and_both_ledgers_have_paid(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    without_noise: Key,
    settings: dict[str, Any],
    before_unmasking: bool,
):
    name = settings["data"]["population"]
    data, _ = embedded(name, SITES, **OPTIONS.get(name, {}))
    ledger, total, unmasked = Ledger(tmp_path / "l.db"), SiteSum.total, list[int]()

    def dying(self: SiteSum) -> tuple[np.ndarray, int]:
        unmasked.append(sum(one.kind == "release" for one in ledger.entries("hospitals")))
        if len(unmasked) == 2 and before_unmasking:
            raise Killed
        found = total(self)
        if len(unmasked) == 2:
            raise Killed
        return found

    with fleet_in_process(tmp_path / "sites", data) as fleet:
        with monkeypatch.context() as patch:
            patch.setattr(SiteSum, "total", dying)
            with pytest.raises(Killed):
                train_on_fleet(config(7, settings), fleet, out=tmp_path / "run", ledger=ledger)
        assert unmasked == [1, 2], "each round was in the ledger before it was unmasked"
        resumed = train_on_fleet(config(7, settings), fleet, out=tmp_path / "run", ledger=ledger)
        whole = train_on_fleet(config(7, settings), fleet, out=tmp_path / "whole", ledger=Ledger(tmp_path / "other.db"))
    check_same(resumed.model, whole.model)
    assert sum(one.kind == "release" for one in ledger.entries("hospitals")) >= 3
    for name in SITES:
        site = SiteSettings.read(tmp_path / "sites" / name / "SITE.toml")
        paid = [one for one in Ledger(site.ledger).entries(name) if one.kind == "release"]
        sums = sorted(len(path.read_bytes()) for path in (site.state / "jobs").glob("*/sums"))
        assert len(paid) == 2, "once for each run, however often it was begun"
        assert sums[0] == 3
        assert 4 <= sums[1] <= json.loads((tmp_path / "run/fleet.json").read_text())["content"]["sums"]


def test_a_fleet_trains_and_both_ledgers_have_paid(tmp_path: Path):
    data, _ = embedded("tabular", SITES)
    with fleet_in_process(tmp_path / "sites", data) as fleet:
        ledger = Ledger(tmp_path / "ledger.db")
        trained = train_on_fleet(config(), fleet, out=tmp_path / "run", ledger=ledger)
        assert trained.rounds == 3
        assert trained.guarantee.epsilon <= 5.0
        assert SITES_APART in trained.guarantee.assumptions
        assert any("share of the noise" in sentence for sentence in trained.guarantee.assumptions)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trained.model))
    job = open_run(tmp_path / "run").read("fleet.json")
    for name in SITES:
        settings = SiteSettings.read(tmp_path / "sites" / name / "SITE.toml")
        [paid] = [entry for entry in Ledger(settings.ledger).entries(name) if entry.kind == "release"]
        assert f"{job['content']['sums']} rounds" in paid.note
        assert len((settings.state / "jobs").glob("*/sums").__next__().read_bytes()) == 3


def test_a_site_where_nobody_has_the_last_class_trains_the_same_model(tmp_path: Path):
    """Classes that are numbers come from public data: a site that counted its own would refuse, and reveal them."""
    last = {"north": 4, "south": 2, "west": 4}
    public = tmp_path / "public.csv"
    public.write_text("client,age,label\n" + "".join(f"p{one},{one},{one}\n" for one in range(5)), encoding="utf-8")

    def prepare(place: Path) -> None:
        for name, highest in last.items():
            rows = "".join(f"{one},{one},{one % (highest + 1)}\n" for one in range(6))
            (place / name / "clients.csv").write_text(f"client,age,label\n{rows}", encoding="utf-8")

    data = {"population": str(public), "options": {"client": "client"}, "held_out": 0.0}
    data["types"] = {"age": "number:0:100", "label": "whole:0:4"}
    settings = parse(CLASSIFIER | {"data": data, "privacy": CLASSIFIER["privacy"] | {"cohort": 5}})
    with fleet_in_process(
        tmp_path / "sites", dict.fromkeys(last, (6, 'population = "clients.csv"')), prepare=prepare
    ) as fleet:
        trained = train_on_fleet(settings, fleet, out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"))
    assert trained.rounds == 3
    assert jax.tree.leaves(trained.model)[-1].shape == (5,)


@pytest.mark.parametrize(
    ("privacy", "word"),
    [({"participation": "fixed"}, "participation"), ({"unit": "example"}, "unit"), ({"sampler": "float"}, "sampler")],
)
def test_what_sites_cannot_vouch_for_is_refused_before_anything_is_sent(tmp_path: Path, privacy, word):
    data, _ = embedded("tabular", SITES)
    with fleet_in_process(tmp_path / "sites", data) as fleet, pytest.raises(InvalidInput, match=word):
        train_on_fleet(config(**privacy), fleet, out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"))
    assert not (tmp_path / "run").exists()


def open_training(folder: Path, pay: Any, *, clients: int = 3, sums: int = 2, cohort: int = 2) -> OpenTraining:
    """A run at site "a", which has a third of the clients, and no data."""
    job = Job(
        kind="training",
        run="r",
        content={"sums": sums},
        clients=dict.fromkeys("abc", clients // 3),
        noise="sites",
        fewest=3,
        colluding=1,
        epsilon=1.0,
        delta=1e-5,
    )
    population = types.SimpleNamespace(size=clients // 3)
    return OpenTraining(
        job=job,
        site="a",
        backend=cast(Any, types.SimpleNamespace(population=population)),
        privacy=on_terms(config(cohort=cohort), clients, job.site_noise),
        algorithm=cast(Any, types.SimpleNamespace(event=Gaussian(1.0, rounded=True))),
        folder=folder,
        pay=pay,
    )


def test_a_site_answers_no_more_sums_than_it_paid_for(tmp_path: Path):
    paid = list[str]()

    def pay(event: Any, note: str, *, is_again: bool = False, begin: Callable[[], None]) -> None:
        begin()
        paid.append(f"{event.count} {note}")

    training = open_training(tmp_path, pay)
    for _ in range(2):
        training._paid()
    with pytest.raises(Declined) as refused:
        training._paid()
    assert refused.value.code is Code.budget
    assert paid == ["2 2 rounds of training"]


# --- labels that are numbers


NUMBERED: dict[str, Any] = CLASSIFIER | {
    "data": {"population": "public.csv", "held_out": 0},
    "privacy": CLASSIFIER["privacy"] | {"rounds": 1},
}


def table(path: Path, seed: int, clients: int) -> str:
    """Clients with an age and a label from 0 to 2."""
    dice = np.random.default_rng(seed)
    rows = [f"c{n // 3},{dice.integers(20, 60)},{n % 3}" for n in range(3 * clients)]
    path.write_text("\n".join(["client,age,label", *rows, ""]), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("odd", [2, 7, -1])
def test_no_label_of_a_sites_client_decides_the_shape_of_its_part(odd: int):
    """A part of another shape is refused, and everybody would see which site has the label."""
    labels = np.array([0, 1, 1, odd], np.int32)
    clients = Population({"age": np.arange(4.0, dtype=np.float32), "label": labels}, sizes=[2, 2], name="a")
    job = Job(
        kind="training",
        run="r",
        content={"run": NUMBERED},
        clients={"a": 2, "b": 2, "c": 30},
        noise="sites",
        fewest=3,
        colluding=1,
        epsilon=5.0,
        delta=1e-5,
    )
    with pytest.raises(InvalidInput, match="classes are listed on a fleet"):
        ready(job, clients, None)
    listed = NUMBERED | {"model": NUMBERED["model"] | {"classes": 3}}
    assert ready(dataclasses.replace(job, content={"run": listed}), clients, None)[1].classes == 3


def test_numbers_of_classes_are_those_of_public_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    table(Path("public.csv"), 0, 20)
    data = {
        site: (clients, f'population = "{table(tmp_path / f"{site}.csv", clients, clients)}"')
        for site, clients in SITES.items()
    }
    with fleet_in_process(tmp_path / "sites", data) as fleet:
        trained = train_on_fleet(config(None, NUMBERED), fleet, out=tmp_path / "run", ledger=Ledger(tmp_path / "l.db"))
    assert trained.rounds == 1
    assert trained.model.output.bias.shape == (3,)
    check_same(load_trained(tmp_path / "run").model, trained.model)


def test_a_site_that_was_killed_while_it_paid_for_a_run_says_so_and_one_that_lost_its_count_does_not(tmp_path: Path):
    """Nothing was sent before the first sum was counted; without the count nobody knows how many were."""
    said = list[bool]()

    def pay(event: Any, note: str, *, is_again: bool = False, begin: Callable[[], None]) -> None:
        said.append(is_again)
        if len(said) > 2 and not is_again:
            raise Declined(Code.budget, "it was paid for before")
        if not is_again:
            begin()
        if len(said) == 1:
            raise Killed

    with pytest.raises(Killed):
        open_training(tmp_path, pay)._paid()
    training = open_training(tmp_path, pay)
    training._paid()
    assert said == [False, True]
    training._paid()
    (tmp_path / "sums").unlink()
    for _ in range(3):  # however often it is asked
        with pytest.raises(Declined):
            training._paid()
    assert said == [False, True, False, False, False]


def test_every_site_tosses_its_clients_coins_at_the_rate_of_the_whole_fleet(tmp_path: Path):
    clients, cohort, rounds = 3000, 300, 400
    training = open_training(tmp_path, None, clients=clients, cohort=cohort)
    head = {"client_key": reproducible(1).secret.hex()}
    drawn = [training._drawn(head, keys_of(training.job, head)) for _ in range(rounds)]
    counts = np.bincount(np.concatenate(drawn), minlength=clients // 3)
    rate = cohort / clients
    assert abs(counts.sum() - rate * counts.size * rounds) < 6 * np.sqrt(rate * (1 - rate) * counts.size * rounds)
    sizes = np.array([len(one) for one in drawn])
    assert 0.6 < sizes.var() / (rate * (1 - rate) * counts.size) < 1.5, "each client's coin is its own"
    assert abs(counts - rate * rounds).max() < 7 * np.sqrt(rate * (1 - rate) * rounds)
    assert len({tuple(one) for one in drawn}) == rounds, "although the coordinator sent the same key in each"
