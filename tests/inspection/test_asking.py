"""Statistics: no client exceeds its bound, readings are the naive numbers, intervals hold all at once, all is paid."""

import dataclasses
import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight import data, inspect, keys, trees
from blindsight.accounting.assumptions import CLASSES_LISTED, TYPES_READ_OFF
from blindsight.accounting.events import Thresholded
from blindsight.accounting.guarantee import certify
from blindsight.accounting.ledger import Ledger
from blindsight.asking import Cross, Histogram, Mean, Missing, Quantiles, Top, ask
from blindsight.backends import Examples, Simulation
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Vocabulary
from blindsight.errors import BudgetExceeded, InvalidInput
from blindsight.inspection.asking import intervals as of_ratios
from blindsight.inspection.asking import reading, tables
from blindsight.inspection.asking.intervals import Forms, critical, intervals
from blindsight.inspection.asking.question import Ask, usual_items
from blindsight.inspection.asking.section import Statistic
from blindsight.inspection.asking.task import plan
from blindsight.inspection.measuring import Measured, client_update
from blindsight.inspection.question import Public
from blindsight.inspection.report import Report
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.selection import Arms, everything

SCHEMA = Schema(
    {
        "age": Field("whole", 0, 99),
        "pay": Field("number", -10, 30),
        "sex": Field("category", values=("female", "male")),
        "job": Field("category", values=tuple("abcdefgh")),
        "is_new": Field("truth"),
        "text": Field("text"),
    }
)
ITEMS = (
    Mean("age", by="sex"),
    Quantiles("age", by="sex"),
    Histogram("age", by="sex"),
    Missing("age", by="sex"),
    Mean("pay"),
    Histogram("job"),
    Missing("job"),
    Top("job", by="is_new", k=3),
    Cross("sex", "pay"),
    Missing("text"),
)
NUMBERS = st.one_of(st.floats(allow_nan=True, allow_infinity=True, width=32), st.floats(-20, 120, width=32))
ROWS = st.tuples(
    NUMBERS, NUMBERS, st.integers(-2, 3), st.integers(-1, 9), st.booleans(), st.sampled_from(["", " ", "x"])
)


def question(items: Any = ITEMS, **changes: Any) -> Ask:
    about: dict[str, Any] = {"schema": SCHEMA, "clients": 100, "epsilon": 1.0, "delta": 1e-6, "items": tuple(items)}
    return Ask(**about | changes)


def people(rows: list[list[tuple[Any, ...]]]) -> Population:
    """Clients with these rows."""
    columns = list(zip(*(row for own in rows for row in own), strict=True)) or [()] * 6
    kinds: list[Any] = [np.float32, np.float32, np.int32, np.int32, np.bool_, TEXT]
    arrays = {name: np.array(column, kind) for name, column, kind in zip(SCHEMA.fields, columns, kinds, strict=True)}
    return Population(arrays, sizes=[len(own) for own in rows], name="people", classes=SCHEMA.classes)


def some(clients: int = 60, seed: int = 0) -> Population:
    dice, rows = np.random.default_rng(seed), list[list[tuple[Any, ...]]]()
    for _ in range(clients):
        sex, count = int(dice.integers(2)), int(dice.integers(0, 12))
        own = [
            (
                float(dice.integers(15, 70)) if dice.random() < 0.9 else np.nan,
                dice.normal(10 - 5 * sex, 12),
                sex if dice.random() < 0.8 else int(dice.integers(3)),
                int(dice.integers(-1, 8)),
                bool(dice.random() < 0.3),
                dice.choice(["", "a text"]),
            )
            for _ in range(count)
        ]
        rows.append(own)
    return people(rows)


def vectors(asked: Ask, clients: Population) -> dict[str, np.ndarray]:
    """What each client sends, one at a time, before it is clipped; compiled once if all have equally many examples."""
    parts = tables.tables_of(asked)
    seen = tables.observe(parts, asked.schema, clients)
    sent = [compiled(parts)(Examples.of(seen.select([client]).columns)) for client in range(clients.size)]
    return {part.name: np.stack([np.asarray(one[part.name], np.float64) for one in sent]) for part in parts}


@functools.cache
def compiled(parts: tuple[tables.FieldTable, ...]) -> Any:
    update = client_update(Arms({"everyone": everything()}), parts)
    return jax.jit(lambda examples: update(jnp.zeros(()), examples, jax.random.key(0)))


def simulated(asked: Ask, clients: Population) -> dict[str, np.ndarray]:
    """The sums that a simulation gives, without noise."""
    parts = tables.tables_of(asked)
    backend = Simulation(tables.observe(parts, asked.schema, clients))
    cohort = backend.cohort(np.arange(clients.size), n_expected=clients.size, key=keys.reproducible(0))
    update, bounds = client_update(Arms({"everyone": everything()}), parts), {one.name: one.bound for one in parts}
    return {name: np.asarray(one.value) for name, one in cohort.sum(update, jnp.zeros(()), l2_bound=bounds).items()}


def twin(asked: Ask, clients: Population) -> dict[str, np.ndarray]:
    """The sums of all tables, naively: every client's histogram over its number of examples, times the matrix."""
    parts = tables.tables_of(asked)
    seen = tables.observe(parts, asked.schema, clients)
    owner, sizes = np.repeat(np.arange(clients.size), clients.sizes), np.maximum(clients.sizes, 1)
    found = dict[str, np.ndarray]()
    for part in parts:
        cell, weights = seen.columns[f"cell of {part.name}"], np.zeros((len(part.slices), part.cells))
        value = seen.columns[f"value of {part.name}"] / 2**15 if part.is_mean else np.ones(len(cell))
        for row in np.flatnonzero(cell >= 0):
            place, inside = divmod(int(cell[row]), part.cells)
            weights[place, inside] += value[row] / sizes[owner[row]]
            if part.is_mean and inside == 0:
                weights[place, 1] += (1 - value[row]) / sizes[owner[row]]
        found[part.name] = (weights @ part.matrix.T).ravel()
    return found


def noiseless(asked: Ask, clients: Population) -> list[Statistic]:
    measured = {name: Measured(sums, 1e-9, 1.0) for name, sums in twin(asked, clients).items()}
    return reading.read(asked, measured)[0]


# --- the client half


@settings(deadline=None, max_examples=15)
@given(st.lists(ROWS, min_size=4, max_size=4))
def test_no_client_exceeds_its_bound_whatever_it_holds(rows):
    asked = question()
    bounds = {part.name: part.bound for part in tables.tables_of(asked)}
    for name, sent in vectors(asked, people([rows])).items():
        assert np.all(np.isfinite(sent))
        assert np.linalg.norm(sent) <= bounds[name] * (1 + 1e-6)


def test_the_bound_is_reached_so_none_smaller_would_do():
    asked = question()
    worst = [[(0.0, 30.0, code, 0, new, "x")] for code in (0, 1) for new in (False, True)]
    sent = vectors(asked, people(worst))
    for part in tables.tables_of(asked):
        assert np.linalg.norm(sent[part.name], axis=1).max() == pytest.approx(part.bound, rel=1e-6)
        assert np.asarray(trees.clip(sent[part.name][0], part.bound)) == pytest.approx(sent[part.name][0], rel=1e-4)


def test_what_clients_send_adds_up_to_the_naive_sums():
    asked, clients = question(), some(40)
    expected = twin(asked, clients)
    for name, total in simulated(asked, clients).items():
        np.testing.assert_allclose(total, expected[name], rtol=1e-4, atol=1e-4)


def test_shares_are_rounded_once_compiled_or_not():
    """By a reciprocal twice, and not everywhere: a simulation on several cores would not sum what clients answer."""
    sums, by = np.arange(5000, dtype=np.int32), np.float32(7 * 2**10)
    for divide in (tables.divided, jax.jit(tables.divided)):
        np.testing.assert_array_equal(divide(jnp.asarray(sums), jnp.asarray(by)), sums.astype(np.float32) / by)


def test_a_client_counts_once_however_many_examples_it_has():
    row, other = (30.0, 1.0, 0, 2, True, "x"), (50.0, 9.0, 1, 3, False, "")
    once, often = vectors(question(), people([[row, other]])), vectors(question(), people([[row, other] * 9]))
    for name, sent in once.items():
        np.testing.assert_array_equal(sent, often[name])
    assert not any(np.any(sent) for sent in vectors(question(), people([[]])).values())


# --- the server half


def test_without_noise_readings_are_the_naive_numbers():
    clients = some(60)
    asked = question(clients=clients.size)
    found = {(one.statistic, one.field): one for one in noiseless(asked, clients)}
    columns, weight = clients.columns, np.repeat(1 / np.maximum(clients.sizes, 1), clients.sizes)
    age, has_age = columns["age"], np.isfinite(columns["age"])
    for sex, name in enumerate(("female", "male")):
        mine = (columns["sex"] == sex) & has_age
        rows = {row.name: row for group in found["mean", "age"].groups if name in group.name for row in group.rows}
        assert rows["mean"].value == pytest.approx(np.average(age[mine], weights=weight[mine]), abs=0.01)
        [missing] = next(group for group in found["missing", "age"].groups if group.name == f"sex: {name}").rows
        own = columns["sex"] == sex
        assert missing.value == pytest.approx(weight[own & ~has_age].sum() / weight[own].sum(), abs=1e-6)
        order = np.argsort(age[mine])
        reached = np.cumsum(weight[mine][order]) / weight[mine].sum()
        quantiles = next(group for group in found["quantiles", "age"].groups if group.name == f"sex: {name}")
        for level, row in zip((0.1, 0.25, 0.5, 0.75, 0.9), quantiles.rows, strict=True):
            true = age[mine][order][np.searchsorted(reached, level)]
            assert row.low <= true <= row.high <= row.low + 4
    bins = next(group.rows for group in found["histogram", "age"].groups if group.name == "sex: male")
    mine = (columns["sex"] == 1) & has_age
    naive = np.histogram(age[mine], np.arange(0, 101, 10), weights=weight[mine])[0] / weight[mine].sum()
    np.testing.assert_allclose([row.value for row in bins], naive, atol=1e-6)
    assert [row.name for row in bins][:2] == ["0–9", "10–19"]
    cross = found["cross", "sex"]
    both = (columns["sex"] >= 0) & (columns["sex"] < 2)
    pay = np.clip(columns["pay"], -10, 30)
    cells = np.histogram2d(
        columns["sex"][both], pay[both], [[-0.5, 0.5, 1.5], np.linspace(-10, 30, 6)], weights=weight[both]
    )[0]
    np.testing.assert_allclose(
        [[row.value for row in group.rows] for group in cross.groups], cells / cells.sum(), atol=1e-6
    )


def covered(asked: Ask, clients: Population, runs: int, *, wrong: float = 1.0, std: float = 1.0) -> float:
    """How often all intervals hold at once, if the noise is `wrong` times what readers are told."""
    sums, dice = twin(asked, clients), np.random.default_rng(1)
    truth = noiseless(asked, clients)
    held = 0
    for _ in range(runs):
        measured = {
            name: Measured(one + wrong * std * dice.normal(size=one.shape), std, 1.0) for name, one in sums.items()
        }
        found = reading.read(asked, measured)[0]
        pairs = [
            (row, true)
            for one, exact in zip(found, truth, strict=True)
            for group, known in zip(one.groups, exact.groups, strict=True)
            for row, true in zip((*group.rows, *group.curve), (*known.rows, *known.curve), strict=True)
            if one.statistic != "top"
        ]
        held += all(row.low - 1e-4 <= true.high and true.low <= row.high + 1e-4 for row, true in pairs)
    return held / runs


SMALL = (Mean("pay"), Histogram("job"), Missing("job"))


def test_intervals_hold_all_at_once_as_often_as_they_say(monkeypatch):
    monkeypatch.setattr(of_ratios, "_DRAWS", 2**13)
    clients = some(150)
    asked = question(SMALL, clients=clients.size)
    assert 0.91 <= covered(asked, clients, 400) <= 0.985
    assert covered(asked, clients, 100, wrong=1.4) < 0.85


@pytest.mark.slow
@pytest.mark.parametrize("std", [0.5, 4.0])
def test_coverage_over_a_thousand_runs_is_95_percent(std):
    clients = some(300)
    low, high = (0.935, 0.965)  # two standard deviations of a thousand runs on either side
    assert low <= covered(question(SMALL, clients=clients.size), clients, 1000, std=std) <= high


@pytest.mark.slow
def test_of_many_shares_that_are_zero_intervals_hold_more_often_and_never_less(monkeypatch):
    monkeypatch.setattr(of_ratios, "_DRAWS", 2**13)
    clients, items = some(300), tuple(one for one in ITEMS if not isinstance(one, Top))
    asked = question(items, clients=clients.size)
    assert covered(asked, clients, 300, std=2.0) >= 0.93
    assert covered(asked, clients, 100, std=2.0, wrong=1.5) < 0.85


def test_every_interval_contains_its_estimate_and_only_possible_values():
    asked, dice = question(), np.random.default_rng(3)
    for std in (0.1, 5.0, 1000.0):
        noisy = {n: Measured(s + std * dice.normal(size=s.shape), std, 1.0) for n, s in twin(asked, some(40)).items()}
        for one in reading.read(asked, noisy)[0]:
            ends = {"age": (0, 99), "pay": (-10, 30)}[one.field] if one.unit == "number" else (0, 1)
            for group in one.groups:
                curve = [(row.low, row.value, row.high) for row in group.curve]
                assert curve == sorted(curve)
                for row in (*group.rows, *group.curve):
                    assert row.low <= row.value <= row.high
                for row in group.rows:
                    assert ends[0] <= row.low <= row.high <= ends[1]


def test_the_mean_of_values_that_everybody_rounds_alike_is_in_its_interval():
    """Noise does not cover it where clients are many."""
    alike = people([[(20.0, 0.0, 0, 0, False, "")]] * 4)
    [mean] = noiseless(question([Mean("age")], clients=4), alike)
    assert mean.groups[0].rows[0].value != 20
    assert 20.01 > mean.groups[0].rows[0].high > 20 > mean.groups[0].rows[0].low > 19.99


def test_if_nobody_may_have_a_value_the_interval_is_everything():
    asked = question([Mean("age"), Histogram("job")])
    empty = {part.name: Measured(np.zeros(part.coordinates), 1.0, 1.0) for part in tables.tables_of(asked)}
    mean, jobs = reading.read(asked, empty)[0]
    assert mean.groups[0].rows[0][2:] == (0, 99)
    assert all(row[2:] == (0, 1) for row in jobs.groups[0].rows)


def test_one_number_has_the_usual_interval_and_many_a_wider_one():
    one = Forms(np.array([50.0, 50.0]), 1.0, np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]]))
    assert critical([one]) == pytest.approx(1.96, abs=0.03)
    assert critical([one] * 20) == pytest.approx(3.02, abs=0.05)
    [found] = intervals(one, 1.96)
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.sqrt(0.5) / 100, rel=0.02)  # the delta method
    wide = Forms(np.zeros(900), 1.0, np.eye(900), np.ones((900, 900)))  # too many to draw
    assert critical([wide]) == pytest.approx(4.03, abs=0.05)


# --- the whole of it


def texts(clients: int = 60) -> Population:
    said = [f"we met zorg and own{n}" if n % 4 else "we saw zorg" for n in range(clients)]
    return Population({"text": np.array(said, TEXT)}, sizes=np.ones(clients, int), name="texts")


def test_the_ledger_has_what_the_report_claims_and_the_same_question_again_costs_nothing(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    session = inspect.Session(out=tmp_path / "run", ledger=book)
    asked: Any = {"epsilon": 2.0, "schema": Schema({"pay": SCHEMA.fields["pay"]}), "session": session}
    report = ask(some(40), [Mean("pay"), Histogram("job")], **asked)
    assert 1.99 < report.guarantee.epsilon <= 2.0
    assert book.spent("people", delta=1e-6).epsilon == report.guarantee.epsilon
    spent = book.spent("people", delta=1e-6)
    again = ask(some(40), [Mean("pay"), Histogram("job")], **asked)
    assert again.statistics == report.statistics
    assert book.spent("people", delta=1e-6) == spent
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))).statistics == report.statistics
    assert "Mean of pay" in str(report)
    assert CLASSES_LISTED in report.guarantee.assumptions  # the values of `job`
    assert "Distribution of job" in report.to_html()
    book.set_budget("people", epsilon=2.1, delta=1e-6)
    with pytest.raises(BudgetExceeded):
        ask(some(40), [Missing("job")], epsilon=1.0, session=inspect.Session(out=tmp_path / "other", ledger=book))


@pytest.mark.parametrize("types", [None, {"pay": "number:-10:30"}])
def test_types_that_were_read_off_values_are_an_assumption(tmp_path, types):
    """One client's value can decide what type a loader gives a column, and the type shows in what is released."""
    frame = {"client": ["ann", "bob", "cid"], "pay": [1, 2, 3]}
    session = inspect.Session(out=tmp_path / "run", ledger=tmp_path / "ledger.db", even_if_blind=True)
    clients = data.table(frame, types=types)
    for one in (clients, clients.select([0, 1]), clients.keep(clients.columns["pay"] > 1), clients.replace({})):
        assert one.types_read_off is (types is None)
    report = ask(clients, [Mean("pay")], epsilon=8, ranges={"pay": (-10, 30)}, session=session)
    assert (TYPES_READ_OFF in report.guarantee.assumptions) is (types is None)


def test_words_and_numbers_share_one_promise_and_words_are_real(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    session = inspect.Session(out=tmp_path / "run", ledger=book)
    known = Vocabulary(("we", "and"))
    asked: Any = {"epsilon": 20.0, "vocabulary": known, "session": session}
    report = ask(texts(), [Top("text"), Missing("text")], **asked)
    assert report.statistics is not None
    words, missing = report.statistics
    assert {row.name for row in words.groups[0].rows} >= {"zorg"}
    assert all(row.name in "met saw zorg" for row in words.groups[0].rows)
    [zorg] = [row for row in words.groups[0].rows if row.name == "zorg"]
    assert zorg.low <= 45 / 3**0.5 + 15 / 2**0.5 <= zorg.high
    assert missing.groups[0].rows[0].high < 0.5
    assert report.guarantee.epsilon <= 20.0
    assert book.spent("texts", delta=1e-6).epsilon == pytest.approx(report.guarantee.epsilon, rel=1e-9)
    assert any("trusted" in sentence for sentence in report.guarantee.assumptions)
    assert CLASSES_LISTED not in report.guarantee.assumptions
    spent = book.spent("texts", delta=1e-6)
    again = ask(texts(), [Top("text"), Missing("text")], **asked)
    assert again.statistics == report.statistics
    assert book.spent("texts", delta=1e-6) == spent


def test_a_dry_run_says_what_it_costs_and_how_wide_intervals_would_be(tmp_path):
    session = inspect.Session(out=tmp_path / "run", ledger=Ledger(tmp_path / "ledger.db"), dry_run=True)
    about: Any = {"epsilon": 2.0, "schema": Schema({"pay": SCHEMA.fields["pay"]}), "session": session}
    report = ask(some(40), ["pay", "text"], **about)
    assert 1.99 < report.guarantee.epsilon <= 2.0
    assert any("Mean of pay: about ±" in note for note in report.notes)
    assert any("words of text" in str(release["what"]) for release in report.releases)
    assert not (tmp_path / "run").exists()


def test_all_parts_together_cost_the_question_and_no_more():
    asked = question((*ITEMS, Top("text")))
    planned = plan(asked, Public())
    whole = joint(*(planned.mechanisms[part.name].planned_event for part in planned.parts))
    assert planned.chance > 0
    spent = certify(Thresholded(planned.chance, whole), delta=asked.delta).epsilon
    assert 0.999 * asked.epsilon < spent <= asked.epsilon


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([], "at least one statistic"),
        ([Mean("age"), Mean("age")], "only once"),
        ([Histogram("age"), Histogram("age", bins=5)], "only once"),
        ([Mean("weight")], "no field 'weight'"),
        ([Mean("job")], "is of kind category"),
        ([Mean("age", by="pay")], "slices need a category"),
        ([Top("text", by="sex")], "all clients together"),
        ([Cross("job", "text")], "is of kind text"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(items, words):
    with pytest.raises(InvalidInput, match=words):
        question(items)


def test_a_number_without_a_public_range_is_refused_and_a_field_has_its_usual_statistics():
    bare = Schema({**SCHEMA.fields, "age": Field("whole")})
    with pytest.raises(InvalidInput, match="--type age=0:100"):
        question([Mean("age")], schema=bare)
    assert question([Missing("age")], schema=bare)
    assert [item.statistic for item in usual_items(SCHEMA, "age", "sex")] == [
        "mean",
        "quantiles",
        "histogram",
        "missing",
    ]
    assert usual_items(SCHEMA, "sex", "sex") == (Histogram("sex"), Missing("sex"))
    assert usual_items(SCHEMA, "text", "sex") == (Top("text"),)
    with pytest.raises(InvalidInput, match="by itself"):
        Cross("sex", "sex")


@pytest.mark.parametrize(
    ("name", "field", "words"),
    [
        ("text", Field("number", 0, 1), "holds text, and the schema says number"),
        ("age", Field("text"), "holds number, and the schema says text"),
        ("sex", Field("category", values=("male", "female")), "the schema says category"),
        ("weight", Field("number", 0, 1), "no field 'weight'"),
    ],
)
def test_a_schema_that_cannot_be_true_of_a_column_is_refused_without_reading_it(name, field, words):
    with pytest.raises(InvalidInput, match=words):
        ask(some(5), [Missing(name)], epsilon=1.0, schema=Schema({name: field}))


def test_reproducible_answers_are_the_same_and_say_so(tmp_path):
    def once(folder: str) -> Report:
        about: Any = {"ledger": Ledger(tmp_path / folder / "ledger.db"), "key": keys.reproducible(7)}
        return ask(some(20), [Histogram("job")], epsilon=1.0, session=inspect.Session(out=tmp_path / folder, **about))

    first, second = once("one"), once("two")
    assert first.statistics == second.statistics
    assert any("seed" in sentence for sentence in first.guarantee.assumptions)
    assert dataclasses.asdict(first.guarantee) == dataclasses.asdict(second.guarantee)


def test_tables_that_would_be_taken_for_each_other_or_are_too_large_are_refused():
    twins = Schema({**SCHEMA.fields, "age by sex": Field("number", 0, 1)})
    with pytest.raises(InvalidInput, match="the name of another table"):
        tables.tables_of(question([Histogram("age", by="sex"), Histogram("age by sex")], schema=twins))
    with pytest.raises(InvalidInput, match="more than 2,048 cells"):
        tables.tables_of(question([Cross("age", "pay", bins=100)]))


@pytest.mark.parametrize(
    ("field", "bins", "fine", "labels", "cells"),
    [
        (Field("whole", 0, 100), 10, 64, ("0–9", "90–100"), 50),
        (Field("whole", 0, 120), 10, 0, ("0–11", "108–120"), 10),
        (Field("whole", 0, 1), 10, 64, ("0", "1"), 2),
        (Field("whole", -3, 100_000), 7, 0, ("-3–14283", "85719–100000"), 7),
        (Field("whole", 0, 94), 10, 64, ("0–9", "90–94"), 50),
        (Field("number", 0, 1), 4, 64, ("0–0.25", "0.75–1"), 64),
    ],
)
def test_bins_cover_the_range_and_have_readable_ends(field, bins, fine, labels, cells):
    axis = tables.axis_of(field, bins, fine=fine)
    assert (axis.bins.labels[0], axis.bins.labels[-1]) == labels
    assert axis.size == cells == axis.bins.size * axis.group
    assert axis.edges[0] == field.low
    assert axis.edges[-1] == (field.high or 0) + (field.kind == "whole")
    assert list(axis.edges) == sorted(axis.edges)


def test_every_field_has_a_list_of_its_own_whatever_it_is_called(tmp_path):
    """A list that is taken for another's was paid for and never read, or is read and was never paid for."""
    names = ("a b", "a-b", "a/b", "../b")
    columns = {name: np.array([f"word{place}"] * 300, dtype=TEXT) for place, name in enumerate(names)}
    clients, ledger = Population(columns, sizes=[1] * 300, name="talk"), Ledger(tmp_path / "ledger.db")
    items = [Top(name) for name in names]
    for _ in range(2):  # released, then read again
        session = inspect.Session(out=tmp_path / "run", ledger=ledger)
        report = ask(clients, items, epsilon=8.0, session=session)
        assert report.statistics is not None
        listed = [[row.name for row in one.groups[0].rows] for one in report.statistics]
        assert listed == [[f"word{place}"] for place in range(len(names))]
        assert len([one for one in ledger.entries("talk") if one.kind == "release"]) == len(names)


def test_a_run_that_was_refused_after_a_list_of_words_keeps_its_question(tmp_path):
    """Another question in its folder would read that list as its own, be it about other people."""
    first, other = (
        Population({one: np.array([f"{one}word"] * size, dtype=TEXT) for one in "ab"}, sizes=[1] * size, name=name)
        for name, size in (("first", 300), ("other", 301))
    )
    ledger, out = Ledger(tmp_path / "ledger.db"), tmp_path / "run"
    ledger.set_budget("first", epsilon=0.8, delta=1e-5)  # enough for one of two lists
    with pytest.raises(BudgetExceeded):
        ask(first, [Top("a"), Top("b")], epsilon=1.0, session=inspect.Session(out=out, ledger=ledger))
    with pytest.raises(InvalidInput, match="a run with other settings"):
        ask(other, [Top("b")], epsilon=2.0, session=inspect.Session(out=out, ledger=ledger))
    assert ledger.entries("other") == []
    ledger.set_budget("first", epsilon=2.0, delta=1e-5)
    report = ask(first, [Top("a"), Top("b")], epsilon=1.0, session=inspect.Session(out=out, ledger=ledger))
    assert report.statistics is not None
    assert [[row.name for row in one.groups[0].rows] for one in report.statistics] == [["aword"], ["bword"]]
    assert len([one for one in ledger.entries("first") if one.kind == "release"]) == 2
