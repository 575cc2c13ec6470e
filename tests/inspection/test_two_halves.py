"""The client half and the server half: what a simulation sums is what clients answer one by one, bit for bit."""

import contextlib
import dataclasses
import importlib
import json
import warnings
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flat import ask, ask_bias, ask_unknowns

from blindsight import asking, checkpoints, data, inspect, keys
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import latent_classes, moments
from blindsight.backends import Debug
from blindsight.data import Population, faults
from blindsight.data.missing import MISSING, UNLISTED
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Vocabulary
from blindsight.errors import BudgetExceeded
from blindsight.inspection import Inquiry, answer
from blindsight.inspection.answering import Round
from blindsight.inspection.session import release_of, server_half
from blindsight.inspection.tasks import TASKS, question_from
from blindsight.mechanisms import GaussianMechanism
from blindsight.progress import quiet
from blindsight.selection import Arms, everything
from blindsight.synthesizing import synthesize

KNOWN = Vocabulary(("the", "a", "and", "i", "to", "is", "it", "of", ".", ","))


def by_ink(images: np.ndarray) -> np.ndarray:
    """A model of ten classes, which looks at each image alone."""
    ink = images.reshape(len(images), -1).astype(np.float32).mean(axis=1) / 64
    return -np.square(ink[:, None] - np.arange(10, dtype=np.float32)[None] / 4)


def writers(seed: int, clients: int = 8) -> Population:
    return data.embedded("handwriting", clients=clients, seed=seed, examples=(11, 12))


def patients(seed: int) -> Population:
    return data.embedded("tabular", clients=8, seed=seed, examples=(7, 8))


GAPPED = ("age", "sex", "label")


def with_gaps(seed: int) -> Population:
    """People of whom some have no age, or a sex that is missing or on no list."""
    people = patients(seed)
    age, sex = people.columns["age"].astype(np.float64), people.columns["sex"].copy()
    age[::5], sex[1::5], sex[3::7] = np.nan, MISSING, UNLISTED
    return people.replace({**people.columns, "age": age, "sex": sex})


def by_age(rows: np.ndarray) -> np.ndarray:
    """A model that cannot read NaN."""
    return np.stack([rows.sum(axis=1), 60 - rows[:, 0]], axis=1)


def talk(seed: int, clients: int = 8) -> Population:
    return data.embedded("forum", clients=clients, seed=seed, examples=(12, 13))


RANGES = {"age": (0.0, 100.0), "hours": (0.0, 80.0)}
ITEMS = ["age", "hours", asking.Cross("sex", "label"), asking.Top("occupation", by="sex"), asking.Missing("education")]


def statistics(*, epsilon: float, delta: float, **about: Any) -> Any:
    schema = Schema({name: Field("number", *ends) for name, ends in RANGES.items()})
    session = inspect.Session(**about)
    return asking.ask(patients(0), ITEMS, epsilon=epsilon, delta=delta, by="sex", schema=schema, session=session)


def rows(*, epsilon: float, delta: float, **about: Any) -> Any:
    schema = Schema(inputs=("age", "hours", "sex", "education"))
    session = inspect.Session(**about)
    return synthesize(patients(0), epsilon=epsilon, delta=delta, schema=schema, ranges=RANGES, rows=9, session=session)


QUESTIONS: dict[str, Callable[..., Any]] = {
    "sanity of rows": lambda **about: ask(
        inspect.sanity, patients(0), inputs=("age", "hours", "sex"), ranges=RANGES, **about
    ),
    "mistakes in rows with gaps": lambda **about: ask(
        inspect.mistakes, with_gaps(0), reference=with_gaps(1), inputs=GAPPED, model=by_age, minimum=1, **about
    ),
    "mistakes": lambda **about: ask(inspect.mistakes, writers(0), model=by_ink, minimum=1, **about),
    "slices": lambda **about: ask(
        inspect.slices, faults.apply(writers(0), "invert:0.4"), model=by_ink, reference=writers(1), **about
    ),
    "labelling": lambda **about: ask(
        inspect.labelling, writers(0), model=by_ink, samples=10, **about | {"epsilon": 100.0}
    ),
    "ask": statistics,
    "synthesize": rows,
    "unknowns": lambda **about: ask_unknowns(talk(0), talk(2), vocabulary=KNOWN, **about),
    "bias of images": lambda **about: ask_bias(writers(0), reference=writers(1, 60), steps=0, **about),
    "bias of texts": lambda **about: ask_bias(
        talk(0), reference=talk(1, 60), inputs="text", vocabulary_size=100, **about
    ),
}


QUICK = ("mistakes in rows with gaps", "unknowns")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latent_classes, "_FITS", 1)
    monkeypatch.setattr(moments, "fit", lambda *a, fit=moments.fit, **k: fit(*a, **k | {"steps": 0}))


@dataclasses.dataclass
class Seen:
    """The rounds of a question with the clients that were asked, and the sums before noise."""

    rounds: list[tuple[Round, Population]]
    sums: list[np.ndarray]
    inquiries: list[Inquiry]


def spied(monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen, measure, release = Seen([], [], []), Inquiry.measure, GaussianMechanism.release

    def measured(self: Inquiry, one: Round) -> Any:
        seen.rounds.append((one, self.clients))
        seen.inquiries.append(self)
        return measure(self, one)

    def released(self: GaussianMechanism, total: Any, **more: Any) -> Any:
        seen.sums.append(np.asarray(total.value))
        return release(self, total, **more)

    monkeypatch.setattr(Inquiry, "measure", measured)
    monkeypatch.setattr(GaussianMechanism, "release", released)
    return seen


def about(folder: Path, **more: Any) -> dict[str, Any]:
    where = {"out": folder / "run", "ledger": Ledger(folder / "ledger.db"), "key": keys.reproducible(1)}
    return {"epsilon": 8.0, "delta": 1e-6, **where, **more}


def one_by_one(one: Round, clients: Population) -> dict[str, np.ndarray]:
    """Everybody's own answer, added up in plain Python."""
    total: dict[str, Any] = {part.name: 0 for part in one.parts}
    for client in range(clients.size):
        alone = clients.select(np.arange(clients.size) == client)
        for name, vector in answer(one, alone).items():
            assert vector.dtype == np.int32
            total[name] = total[name] + vector.astype(np.int64)
    return total


def test_what_clients_derive_is_derived_in_silence():
    """A warning on stderr would tell of one client's values; here it would be an error."""

    def loudly(clients: Population) -> Population:
        warnings.warn("somebody is infinitely old", stacklevel=1)
        return clients.replace({"age": np.array([1e300]).astype(np.float32)})

    arms, people = Arms({"everyone": everything()}), Population({"age": np.ones(1)}, sizes=[1], name="people")
    one = Round(name="one", schema=Schema({}), observe=loudly, derive=loudly, arms=arms, parts=(), mechanisms={})
    assert np.isinf(one.fields_of(one.observed(people)).columns["age"]).all()


EVERY_TASK = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in QUESTIONS]


@pytest.mark.parametrize("name", EVERY_TASK)
def test_a_simulation_sums_what_clients_answer_one_by_one_bit_for_bit(tmp_path, monkeypatch, name):
    seen = spied(monkeypatch)
    QUESTIONS[name](**about(tmp_path))
    assert seen.rounds
    expected = [pair for one, clients in seen.rounds for pair in sorted(one_by_one(one, clients).items())]
    for (part, total), simulated in zip(expected, seen.sums, strict=True):  # parts are released by name
        np.testing.assert_array_equal(simulated, total, err_msg=part)
        assert np.any(total) or part == "ratios"
    asked = seen.inquiries[0]
    assert rebuilt(asked, tmp_path / "run") == [shape_of(one) for one, _ in seen.rounds]
    assert server_half(asked.question).plan(asked.question, asked.public).rounds == len(seen.rounds)


def shape_of(one: Round) -> list[Any]:
    """What a round releases: its arms, its parts, their bounds and their noise."""
    parts = [
        (part.name, part.coordinates, part.bound, one.mechanisms[part.name].noise_multiplier) for part in one.parts
    ]
    return [one.name, one.forming, list(one.arms), parts]


def rebuilt(inquiry: Inquiry, folder: Path) -> list[list[Any]]:
    """The rounds as a site builds them: from the question, public inputs and the releases in the run's folder."""
    question = question_from(json.loads(json.dumps(inquiry.question.to_dict())))
    rounds, shapes = server_half(question).rounds(question, inquiry.public, quiet), list[list[Any]]()
    with contextlib.suppress(StopIteration):
        one = next(rounds)
        while path := checkpoints.newest(folder / "rounds" / one.name):
            shapes.append(shape_of(one))
            one = rounds.send(release_of(one, path, question.delta)[0])
    return shapes


@pytest.mark.parametrize("task", TASKS)
def test_the_server_half_of_every_task_has_the_same_three_functions(task):
    half = importlib.import_module(TASKS[task].server)
    assert {"plan", "rounds", "conduct"} <= set(half.__all__)
    assert list(signature(half.rounds).parameters) == ["question", "public", "progress"]
    assert list(signature(half.plan).parameters) == ["question", "public"]
    assert list(signature(half.conduct).parameters) == ["question", "inquiry"]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_the_debug_backend_answers_client_by_client_with_the_same_sums(tmp_path, monkeypatch, name):
    seen = spied(monkeypatch)
    first = QUESTIONS[name](**about(tmp_path / "one"))
    simulated = list(seen.sums)
    seen.sums.clear()
    second = QUESTIONS[name](**about(tmp_path / "two", backend=Debug))
    for one, other in zip(simulated, seen.sums, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [one.effect for one in first.findings] == [one.effect for one in second.findings]


@pytest.mark.parametrize("name", EVERY_TASK)
def test_a_spent_budget_refuses_every_task_alike_and_leaves_no_run(tmp_path, name):
    ledger = Ledger(tmp_path / "ledger.db")
    for population in ("forum", "handwriting", "handwriting with invert:0.4", "tabular"):
        ledger.set_budget(population, epsilon=0.05, delta=1e-6)
    with pytest.raises(BudgetExceeded) as refused:
        QUESTIONS[name](**about(tmp_path, ledger=ledger))
    assert refused.value.exit_code == 3
    assert not (tmp_path / "run" / "run.json").exists()  # a corrected question may be asked there
    assert all(entry.kind == "budget" for entry in ledger.entries())
