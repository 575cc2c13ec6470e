"""Laws of the training loop: what a crash, a resume, a spent budget and a careless algorithm can do to a guarantee."""

import dataclasses
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import training_child as child

from blindsight import checkpoints, keys, round_bar, runs
from blindsight.accounting import accountants, composition
from blindsight.accounting import filter as filters
from blindsight.accounting.composition import Split
from blindsight.accounting.events import Gaussian, from_json
from blindsight.accounting.guarantee import Guarantee, round_up
from blindsight.accounting.ledger import Ledger
from blindsight.backends import Simulation
from blindsight.errors import BudgetExceeded, InvalidInput, LedgerTampered, PrivacyError
from blindsight.training import Checkpointing, Evaluation, RunTerms, loop, train
from blindsight.training.loop import Loop

CHILD = Path(child.__file__)


def paid_rounds(ledger: Ledger) -> int:
    """How many rounds the ledger has been paid for."""
    events: list[Any] = [from_json(entry.event) for entry in ledger.entries() if entry.kind == "release"]
    return sum(event.count for event in events)


def released(folder: Path) -> list[str]:
    """A digest for every release that was ever made, in order; a line cut off by a kill was not finished."""
    return (folder / "released").read_text().split("\n")[:-1] if (folder / "released").exists() else []


def begin(folder: Path, rounds: int = 12, seed: int | None = 7, **settings: Any):
    folder.mkdir(exist_ok=True)
    return child.go(folder, rounds, seed, **settings)


class Killed(BaseException):
    """What a kill looks like from inside: nothing after it runs."""


def stopping(after: int):
    """A backend that dies after it has made `after` cohorts."""
    inner, asked = Simulation(child.population()), [0]

    class Dying:
        fingerprint = inner.fingerprint

        def cohort(self, clients, **settings):
            asked[0] += 1
            if asked[0] > after:
                raise Killed
            return inner.cohort(clients, **settings)

    return Dying()


def interrupted(folder: Path, after: int, rounds: int = 12, seed: int | None = 7, **settings: Any) -> None:
    """A run that dies in round `after` of this attempt."""
    folder.mkdir(exist_ok=True)
    chosen = child.privacy(rounds)
    key = keys.root() if seed is None else keys.reproducible(seed)
    about: dict[str, Any] = {"population": child.POPULATION, "delta": 1e-5, "key": key}
    about["checkpointing"] = Checkpointing(every_rounds=5)
    about |= {"run": runs.begin(folder / "run", "killed", {}), "ledger": Ledger(folder / "ledger.db")}
    algorithm = child.noting(child.algorithm(chosen), folder / "released")
    with pytest.raises(Killed):
        train(algorithm, stopping(after), chosen, **{**about, **settings})


def test_a_reproducible_run_is_the_same_bit_for_bit(tmp_path: Path):
    first, second, other = (begin(tmp_path / name, seed=seed) for name, seed in (("a", 7), ("b", 7), ("c", 8)))
    assert np.array_equal(first.model, second.model)
    assert not np.array_equal(first.model, other.model)


def keys_of(folder: Path, people: Any = None, rounds: int = 2, start: float = 0.0, **more: Any) -> list[bytes]:
    """The keys that the noise of each round comes from, in a run that learns nothing."""
    everyone: dict[str, Any] = {"participation": "full", "cohort": 12}  # whose epsilon is quickly found
    chosen, drawn = child.privacy(rounds, **everyone | more.get("privacy", {})), list[bytes]()
    inner = child.algorithm(chosen)

    def step(state: Any, cohort: Any, *, key: keys.Key) -> Any:
        drawn.append(key.secret)
        return state, inner.event

    begin = lambda: inner.init()._replace(params=np.full(4, start, np.float32))  # noqa: E731
    backend = Simulation(people or child.population(), dropout=more.get("dropout", 0.0))
    about: dict[str, Any] = {"population": more.get("name", "people"), "delta": 1e-5}
    about["key"] = more.get("key", keys.reproducible(7))
    about |= {"run": runs.begin(folder, "run", more.get("settings", {})), "ledger": Ledger(folder / "ledger.db")}
    train(dataclasses.replace(inner, step=step, init=begin), backend, chosen, **about)
    return drawn


def test_one_reproducible_key_draws_other_noise_for_other_data_and_other_settings(tmp_path: Path):
    """Two sums with the same noise would give their difference away."""
    one = keys_of(tmp_path / "one")
    assert keys_of(tmp_path / "same") == one
    assert keys_of(tmp_path / "more rounds", rounds=3)[:2] == one
    x = child.population().columns["x"].copy()
    x[-1, -1] += 1e-6
    others: list[dict[str, Any]] = [{"people": child.population().replace({"x": x})}, {"privacy": {"clip": 0.25}}]
    others += [
        {"privacy": {"participation": "poisson", "cohort": 5}},
        {"start": 1e-6},
        {"dropout": 0.5},
        {"settings": {"learning_rate": 0.3}},
        {"name": "others"},
    ]
    every = [one, *(keys_of(tmp_path / str(number), **other) for number, other in enumerate(others))]
    assert len({key for drawn in every for key in drawn}) == 2 * len(every)


def test_one_secret_key_draws_other_noise_for_every_run(tmp_path: Path):
    """Other data, the same data again, a run that is resumed for more rounds: no ledger could tell shared noise."""
    x = child.population().columns["x"].copy()
    x[-1, -1] += 1e-6
    asked: list[dict[str, Any]] = [{}, {"people": child.population().replace({"x": x})}, {}]
    key = keys.root()
    drawn = [secret for turn, one in enumerate(asked) for secret in keys_of(tmp_path / str(turn), key=key, **one)]
    drawn += keys_of(tmp_path / "0", rounds=3, key=key)
    assert len(set(drawn)) == len(drawn) == 7


def test_training_by_hand_needs_no_run_key_or_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLINDSIGHT_LEDGER", str(tmp_path / "ledger.db"))
    chosen = child.privacy(3)
    first, second = (
        train(child.algorithm(chosen), Simulation(child.population()), chosen, population="people", delta=1e-5)
        for _ in range(2)
    )
    assert first.path != second.path
    assert not np.array_equal(first.model, second.model)  # the key is secret, and so is its noise
    assert paid_rounds(Ledger()) == 6
    assert Guarantee.from_dict(runs.open_run(first.path).read("guarantee.json")) == first.guarantee


def test_a_reproducible_key_is_refused_without_the_settings_that_bind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Two runs without settings, alike but for a learning rate, would draw the same noise: it would cancel out."""
    monkeypatch.chdir(tmp_path)
    chosen, ledger = child.privacy(3), Ledger(tmp_path / "ledger.db")
    asked: dict[str, Any] = {"population": "people", "delta": 1e-5, "key": keys.reproducible(7), "ledger": ledger}
    with pytest.raises(InvalidInput, match="could share their noise"):
        train(child.algorithm(chosen), Simulation(child.population()), chosen, **asked)
    assert not list(tmp_path.iterdir())  # no run, no payment


def test_a_secret_run_never_repeats(tmp_path: Path):
    first, second = (begin(tmp_path / name, seed=None) for name in "ab")
    assert not np.array_equal(first.model, second.model)
    assert "reproducible" not in str(first.guarantee.assumptions)


@pytest.mark.parametrize("after", [0, 5, 11])
def test_a_reproducible_run_resumes_to_the_same_bits_and_pays_once(tmp_path: Path, after: int):
    whole = begin(tmp_path / "whole")
    interrupted(tmp_path / "cut", after)
    resumed = begin(tmp_path / "cut")
    assert np.array_equal(whole.model, resumed.model)
    assert paid_rounds(Ledger(tmp_path / "cut" / "ledger.db")) == 12
    rows = [row["round"] for row in runs.open_run(tmp_path / "cut" / "run").rows("metrics.jsonl")]
    assert rows == list(range(1, 13))
    clips = [
        [row["clip"] for row in runs.open_run(tmp_path / n / "run").rows("metrics.jsonl")] for n in ("whole", "cut")
    ]
    assert clips[0] == clips[1]


def test_a_secret_run_pays_again_for_what_it_repeats(tmp_path: Path):
    interrupted(tmp_path, 8, rounds=30, seed=None)  # the checkpoint is at 6, two more rounds were released and are lost
    assert len(released(tmp_path)) == 8
    begin(tmp_path, rounds=30, seed=None)
    made = released(tmp_path)
    assert len(made) == len(set(made)) == 8 + 24
    assert paid_rounds(Ledger(tmp_path / "ledger.db")) >= 32


def test_a_reproducible_run_pays_again_on_other_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """There its sums are rounded otherwise, so that the rounds it repeats are other releases."""
    interrupted(tmp_path, 8, rounds=30)
    monkeypatch.setattr(loop, "machine", lambda: "16 other devices")
    begin(tmp_path, rounds=30)
    assert paid_rounds(Ledger(tmp_path / "ledger.db")) >= 6 + 3 + 24


def test_rounds_are_paid_for_before_the_first_of_them_begins(tmp_path: Path):
    interrupted(tmp_path, 0, rounds=100)
    assert paid_rounds(Ledger(tmp_path / "ledger.db")) == 5
    assert released(tmp_path) == []


@pytest.mark.parametrize("rounds", [7, 20])
def test_a_run_of_few_rounds_that_is_killed_does_not_start_again(tmp_path: Path, rounds: int):
    """Whatever the interval says: most of what was paid for and computed is kept."""
    rarely = Checkpointing(every_rounds=50)
    interrupted(tmp_path, rounds - 2, rounds=rounds, seed=None, checkpointing=rarely)
    begin(tmp_path, rounds=rounds, seed=None, checkpointing=rarely)
    assert len(released(tmp_path)) <= rounds + max(1, rounds // 10) - 1
    assert paid_rounds(Ledger(tmp_path / "ledger.db")) <= rounds + 2 * max(1, rounds // 10)


def test_a_deleted_run_that_is_begun_again_pays_again(tmp_path: Path):
    """It may have other settings that the ledger cannot see, so it is another run, whatever its name and seed."""
    begin(tmp_path)
    shutil.rmtree(tmp_path / "run")
    begin(tmp_path)
    assert paid_rounds(Ledger(tmp_path / "ledger.db")) == 24


def test_a_run_can_be_made_longer(tmp_path: Path):
    begin(tmp_path / "a", rounds=7)
    longer, whole = begin(tmp_path / "a", rounds=12), begin(tmp_path / "b", rounds=12)
    assert np.array_equal(longer.model, whole.model)
    assert longer.guarantee.releases == 12
    assert paid_rounds(Ledger(tmp_path / "a" / "ledger.db")) == 12


def test_a_finished_run_is_not_trained_again(tmp_path: Path):
    first = begin(tmp_path)
    count = len(released(tmp_path))
    again = begin(tmp_path)
    assert len(released(tmp_path)) == count
    assert np.array_equal(first.model, again.model)
    assert again.guarantee == first.guarantee


def test_a_run_stops_when_the_budget_is_spent_and_not_a_round_later(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger.db")
    eight = child.privacy(8)
    rounds = eight.sampling.event(dataclasses.replace(child.algorithm(eight).event, reproducible=True), 8)
    affordable = filters.spent(filters.cost(rounds, eight.relation), 1e-5) * (1 + 1e-9)
    ledger.set_budget(child.POPULATION, epsilon=affordable, delta=1e-5)
    trained = begin(tmp_path)
    assert (trained.stopped, trained.rounds, trained.guarantee.releases) == ("budget", 8, 8)
    assert len(released(tmp_path)) == paid_rounds(ledger) == 8
    assert json.loads((tmp_path / "run" / "result.json").read_text())["stopped"] == "budget"
    assert ledger.spent(child.POPULATION).epsilon < ledger.adaptive_epsilon(child.POPULATION) <= affordable
    again = begin(tmp_path)
    assert (again.rounds, again.stopped) == (8, "budget")
    assert paid_rounds(ledger) == 8


def test_a_budget_for_not_even_one_round_is_refused(tmp_path: Path):
    Ledger(tmp_path / "ledger.db").set_budget(child.POPULATION, epsilon=0.001, delta=1e-5)
    with pytest.raises(PrivacyError, match="not even one round fits"):
        begin(tmp_path)
    assert released(tmp_path) == []


def test_a_step_that_releases_something_else_than_was_paid_for_is_refused(tmp_path: Path):
    chosen = child.privacy(3)
    honest: Any = child.algorithm(chosen)

    def careless(state, cohort, *, key):
        after, event = honest.step(state, cohort, key=key)
        return after, dataclasses.replace(event, noise_multiplier=event.noise_multiplier / 2)

    with pytest.raises(PrivacyError, match="was paid for"):
        train(
            dataclasses.replace(honest, step=careless),
            Simulation(child.population()),
            chosen,
            population="p",
            delta=1e-5,
            key=keys.root(),
            run=runs.begin(tmp_path / "run", "careless", {}),
            ledger=Ledger(tmp_path / "ledger.db"),
        )


@pytest.mark.parametrize(
    "change", [{"noise_multiplier": 2.0}, {"clip": 1.0}, {"cohort": 5}, {"participation": "full", "cohort": 12}]
)
def test_a_run_is_not_resumed_with_another_promise(tmp_path: Path, change):
    begin(tmp_path, rounds=5)
    chosen = child.privacy(12, **change)
    about: dict[str, Any] = {"population": child.POPULATION, "delta": 1e-5, "key": keys.reproducible(7)}
    with pytest.raises(InvalidInput, match="started with other privacy settings"):
        train(
            child.algorithm(chosen),
            Simulation(child.population()),
            chosen,
            run=runs.open_run(tmp_path / "run"),
            ledger=Ledger(tmp_path / "ledger.db"),
            **about,
        )


def test_a_secret_run_is_not_resumed_as_a_reproducible_one(tmp_path: Path):
    begin(tmp_path, rounds=5, seed=None)
    with pytest.raises(InvalidInput, match="another type of key"):
        begin(tmp_path, rounds=9, seed=7)


def test_a_ledger_that_lost_the_runs_payments_is_noticed(tmp_path: Path):
    interrupted(tmp_path, 7)
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    with pytest.raises(LedgerTampered):
        begin(tmp_path)


def test_no_client_is_in_more_unproven_rounds_than_its_limit(tmp_path: Path):
    """The counts survive a crash, and the whole run is paid for at once: at most 3 rounds for each client."""
    chosen = child.privacy(9, participation="unproven", max_participations=3)
    seen = np.zeros(12, int)
    inner = Simulation(child.population())

    class Counting:
        def __init__(self, dies_after: int):
            self.left = dies_after

        def cohort(self, clients, **settings):
            if self.left == 0:
                raise Killed
            self.left -= 1
            seen[clients] += 1
            return inner.cohort(clients, **settings)

    run, ledger = runs.begin(tmp_path / "run", "unproven", {}), Ledger(tmp_path / "ledger.db")
    about: dict[str, Any] = {"population": "p", "delta": 1e-5, "key": keys.reproducible(1), "run": run}
    always = Checkpointing(every_seconds=1e-9)
    with pytest.raises(Killed):
        train(child.algorithm(chosen), Counting(4), chosen, ledger=ledger, checkpointing=always, **about)
    train(child.algorithm(chosen), Counting(100), chosen, ledger=ledger, **about)
    assert seen.max() == 3
    assert paid_rounds(ledger) == 3


def test_a_budget_too_small_for_an_unproven_run_is_refused_whole(tmp_path: Path):
    chosen = child.privacy(9, participation="unproven", max_participations=3)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("p", epsilon=0.5, delta=1e-5)
    with pytest.raises(BudgetExceeded):
        train(
            child.algorithm(chosen), Simulation(child.population()), chosen, population="p", delta=1e-5,
            key=keys.root(), run=runs.begin(tmp_path / "run", "unproven", {}), ledger=ledger,
        )  # fmt: skip


def test_the_guarantee_is_on_disk_before_the_first_round(tmp_path: Path):
    interrupted(tmp_path, 0)
    promised = json.loads((tmp_path / "run" / "guarantee.json").read_text())
    assert promised["releases"] == 12
    assert any("reproducible" in words for words in promised["assumptions"])


def test_the_bar_shows_a_bound_at_once_and_no_round_waits_for_a_tighter_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    bounds, inner = list[int](), accountants.epsilon
    monkeypatch.setattr(accountants, "epsilon", lambda *given: (bounds.append(1), inner(*given))[1])
    monkeypatch.setattr(round_bar, "_UPDATE_S", 0.0)
    composition._epsilon.cache_clear()
    begin(tmp_path / "silent")
    without_bar = len(bounds)
    bounds.clear()
    composition._epsilon.cache_clear()
    trained = begin(tmp_path / "shown", progress=True)
    assert 0 < len(bounds) <= without_bar
    shown = capsys.readouterr().err
    assert f"epsilon {round_up(trained.guarantee.epsilon)}" in shown


@pytest.mark.parametrize("rounds", [1, 5, 11])
def test_the_bound_that_the_bar_shows_is_not_below_the_guarantee(tmp_path: Path, rounds: int):
    chosen = child.privacy(12)
    run, ledger = runs.begin(tmp_path / "run", "bar", {}), Ledger(tmp_path / "ledger.db")
    begun: Any = Loop(
        child.algorithm(chosen), Simulation(child.population()), chosen, child.POPULATION, 1e-5,
        keys.reproducible(7), run, ledger, RunTerms(),
    )  # fmt: skip
    begun.round = rounds
    assert begun.epsilon_so_far() >= begun.guarantee().epsilon > 0


def test_a_checkpoint_names_the_head_of_the_ledger(tmp_path: Path):
    begin(tmp_path)
    path = checkpoints.newest(tmp_path / "run")
    assert path is not None
    state = {"state": child.algorithm(child.privacy(12)).init()}
    facts = checkpoints.load(path, state).facts
    assert facts["ledger"] == Ledger(tmp_path / "ledger.db").entries()[-1].hash
    assert facts["round"] == 12


def test_what_was_read_off_the_data_is_marked(tmp_path: Path):
    size = lambda model: {"size": float(np.sum(np.abs(model)))}  # noqa: E731
    trained = begin(tmp_path, evaluation=Evaluation(function=size, every=4))
    rows = runs.open_run(tmp_path / "run").rows("metrics.jsonl")
    assert [row["round"] for row in rows if "size" in row["simulation_only"]] == [4, 8, 12]
    assert all(set(row) == {"round", "clip", "simulation_only"} for row in rows)
    assert trained.simulation_only == {"size": rows[-1]["simulation_only"]["size"]}


def test_half_of_the_clients_drop_out_and_the_run_completes(tmp_path: Path):
    chosen = child.privacy(6)
    trained = train(
        child.algorithm(chosen), Simulation(child.population(), dropout=0.5), chosen, population="p", delta=1e-5,
        key=keys.reproducible(3), run=runs.begin(tmp_path / "run", "dropout", {}), ledger=Ledger(tmp_path / "l.db"),
    )  # fmt: skip
    rows = runs.open_run(trained.path).rows("metrics.jsonl")
    assert sum(row["simulation_only"]["dropped_out"] for row in rows) > 5
    assert trained.guarantee.releases == 6


@pytest.mark.parametrize("wrong", [{"every_rounds": 0}, {"every_seconds": 0.0}, {"every_seconds": float("nan")}])
def test_a_checkpoint_interval_that_makes_no_sense_is_refused(wrong: dict[str, Any]):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Checkpointing(**wrong)


def test_an_evaluation_interval_that_makes_no_sense_is_refused():
    with pytest.raises(InvalidInput, match="every must be 0"):
        Evaluation(function=lambda model: {}, every=-1)


def test_the_terms_of_a_run_are_in_its_ledger_and_its_guarantee(tmp_path: Path):
    """Arms of one split are paid for in parallel; what came before and what is assumed is within the promise."""
    split, earlier = Split("accuracy", "accuracy < 0.9", ("failing", "healthy")), Gaussian(1.0)
    chosen, ledger = child.privacy(3), Ledger(tmp_path / "ledger.db")
    about: dict[str, Any] = {"population": "p", "delta": 1e-5, "key": keys.root(), "ledger": ledger}
    trained = list[Any]()
    for arm in split.arms:
        terms = RunTerms(split=split, arm=arm, before=[earlier], assumptions=["nobody is in both"])
        run = runs.begin(tmp_path / arm, arm, {})
        backend = Simulation(child.population())
        trained.append(train(child.algorithm(chosen), backend, chosen, run=run, terms=terms, **about))
    paid = [(entry.split, entry.arm) for entry in ledger.entries("p") if entry.kind == "release"]
    assert list(dict.fromkeys(paid)) == [(split.to_json(), arm) for arm in split.arms]
    release = child.algorithm(chosen).event
    alone = chosen.guarantee(delta=1e-5, release=release)
    assert ledger.spent("p", 1e-5).epsilon == pytest.approx(alone.epsilon)  # of one arm
    for result in trained:
        assert result.guarantee == chosen.guarantee(
            delta=1e-5, release=release, before=[earlier], assumptions=["nobody is in both"]
        )
        assert result.guarantee.epsilon > alone.epsilon
        assert "nobody is in both" in result.guarantee.assumptions


def test_the_event_of_a_round_is_gaussian():
    assert isinstance(child.algorithm(child.privacy(1)).event, Gaussian)


def kill_and_resume(
    folder: Path, kills: int, rounds: int, seed: int | None, chance: random.Random, *, finish: bool = True
) -> int:
    """Starts the run again and again in real processes, SIGKILLs each at a random point, then lets one finish."""
    killed = 0
    folder.mkdir()
    command = [sys.executable, str(CHILD), str(folder), str(rounds), "-" if seed is None else str(seed)]
    while finish or killed < kills:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if killed < kills:
                until, target = time.monotonic() + chance.uniform(0.0, 6.0), len(released(folder)) + chance.randrange(4)
                while process.poll() is None and time.monotonic() < until and len(released(folder)) < target:
                    time.sleep(0.002)
                time.sleep(chance.uniform(0, 0.02))
                process.kill()
                killed += 1
            if process.stdout.read() == "finished\n":
                return killed
            assert process.wait() in (0, -signal.SIGKILL)
    return killed


def check_kills(tmp_path: Path, kills: int, rounds: int) -> None:
    chance = random.Random(kills)
    kill_and_resume(tmp_path / "whole", 0, rounds, 7, chance)  # in a process too, whose devices are the same
    kill_and_resume(tmp_path / "same", kills // 2, rounds, 7, chance)
    assert (tmp_path / "same" / "final").read_bytes() == (tmp_path / "whole" / "final").read_bytes()
    same = Ledger(tmp_path / "same" / "ledger.db")
    same.verify().raise_if_broken()
    assert set(released(tmp_path / "same")) == set(released(tmp_path / "whole"))  # repeated, never different
    assert paid_rounds(same) == rounds
    check_secret_kills(tmp_path, kills - kills // 2, rounds, chance)


def check_secret_kills(tmp_path: Path, kills: int, rounds: int, chance: random.Random, *, finish: bool = True) -> None:
    kill_and_resume(tmp_path / "secret", kills, rounds, None, chance, finish=finish)
    secret = Ledger(tmp_path / "secret" / "ledger.db")
    secret.verify().raise_if_broken()
    assert len(set(released(tmp_path / "secret"))) <= paid_rounds(secret)


def test_the_ledger_of_killed_runs_is_never_short(tmp_path: Path):
    check_secret_kills(tmp_path, kills=2, rounds=11, chance=random.Random(2), finish=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_kills(tmp_path: Path):
    check_kills(tmp_path, kills=50, rounds=101)
