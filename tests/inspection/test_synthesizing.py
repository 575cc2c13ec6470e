"""Synthetic rows: no client exceeds its bound, everything is paid for first, and rows have what clients' rows have."""

import functools
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.csv as csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight import inspect, keys
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import latent_classes
from blindsight.backends import Examples
from blindsight.data.population import Population
from blindsight.data.schema import Field, Schema
from blindsight.errors import BudgetExceeded, InvalidInput
from blindsight.inspection.asking.tables import observe
from blindsight.inspection.measuring import client_update
from blindsight.inspection.question import Public
from blindsight.inspection.report import Report
from blindsight.inspection.synthesizing.grouping import LEAST, groups_of
from blindsight.inspection.synthesizing.question import Synthesize
from blindsight.inspection.synthesizing.tables import GROUPS, PAIRS, Pairs, columns_of, size_of
from blindsight.inspection.synthesizing.task import plan, rounds
from blindsight.samples.synthetic_set import read_set
from blindsight.selection import Arms, everything
from blindsight.synthesizing import synthesize

SCHEMA = Schema(
    {
        "age": Field("whole", 0, 200),
        "pay": Field("number", -10, 30),
        "job": Field("category", values=tuple("abc")),
        "is_new": Field("truth"),
        "label": Field("category", values=("no", "yes")),
    },
    inputs=("age", "pay", "job", "is_new"),
)
NUMBERS = st.one_of(st.floats(allow_nan=True, allow_infinity=True, width=32), st.floats(-20, 120, width=32))
EXAMPLE = st.tuples(st.integers(-5, 250), NUMBERS, st.integers(-2, 4), st.booleans(), st.integers(-1, 2))


@pytest.fixture(scope="module", autouse=True)
def quick_fit() -> Iterator[None]:
    """One fit in place of ten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latent_classes, "_FITS", 1)
        yield


def question(**changes: Any) -> Synthesize:
    about: dict[str, Any] = {"schema": SCHEMA, "clients": 100, "epsilon": 1.0, "delta": 1e-6}
    return Synthesize(**about | changes)


@functools.cache
def some_pairs() -> Pairs:
    tables = columns_of(question())
    dice = np.random.default_rng(0)
    groups = [(*dice.integers(0, size_of(one) - 1, one.axis.size).tolist(), size_of(one) - 1) for one in tables]
    return Pairs(tables, tuple(groups), 2)


def people(clients: int = 400, seed: int = 0) -> Population:
    """Two rows on each client: job decides the label, age and pay rise together, nothing says anything about is_new."""
    dice = np.random.default_rng(seed)
    count = 2 * clients
    job, age = dice.integers(0, 3, count), dice.integers(20, 80, count)
    label = np.where(dice.random(count) < 0.9, job == 2, job != 2)
    columns = {
        "age": age.astype(np.int32),
        "pay": (age / 4 + dice.normal(size=count)).astype(np.float32),
        "job": job.astype(np.int32),
        "is_new": dice.random(count) < 0.5,
        "label": label.astype(np.int32),
    }
    classes = {"job": tuple("abc"), "label": ("no", "yes")}
    return Population(columns, sizes=np.full(clients, 2), classes=classes, name="staff")


def asked(folder: Path, clients: Population | None = None, **changes: Any) -> Report:
    about: dict[str, Any] = {
        "epsilon": 1.0,
        "schema": Schema(inputs=SCHEMA.inputs),
        "ranges": {"age": (0, 200), "pay": (-10, 30)},
        "rows": 2000,
    }
    session = inspect.Session(out=folder / "run", ledger=Ledger(folder / "ledger.db"), key=keys.reproducible(3))
    about |= {"session": session} | changes
    return synthesize(people() if clients is None else clients, **about)


@settings(max_examples=25, deadline=None)
@given(st.lists(EXAMPLE, min_size=4, max_size=4))
def test_no_client_sends_more_than_its_bound_whatever_it_holds(examples):
    columns = zip(*examples, strict=True)
    dtypes = (np.int32, np.float32, np.int32, np.bool_, np.int32)
    own = {name: np.array(values, dtype) for name, values, dtype in zip(SCHEMA.fields, columns, dtypes, strict=True)}
    pairs = some_pairs()
    seen = observe(pairs.tables, SCHEMA, Population(own, sizes=[len(examples)], name="one"))
    update = client_update(Arms({"everyone": everything()}), (*pairs.tables, pairs))
    sent = update(jnp.zeros(()), Examples.of(seen.columns), jax.random.key(0))
    for part in (*pairs.tables, pairs):
        vector = np.asarray(sent[part.name], np.float64)
        assert vector.shape == (part.coordinates,)
        assert np.linalg.norm(vector) <= part.bound * (1 + 1e-6)
        assert vector.min(initial=0) >= 0
    assert np.isclose(sent[PAIRS].sum(), math.comb(4, 2) * np.mean([0 <= one[4] <= 1 for one in examples]))


def test_pairs_are_the_naive_counts():
    clients = people(1)
    pairs = some_pairs()
    seen = observe(pairs.tables, SCHEMA, clients)
    (sent,) = client_update(Arms({"everyone": everything()}), (pairs,))(
        jnp.zeros(()), Examples.of(seen.columns), jax.random.key(0)
    ).values()
    expected = list[float]()
    codes = [seen.columns[f"cell of {table.name}"] % table.cells for table in pairs.tables]
    for label, (one, other) in itertools.product((0, 1), itertools.combinations(range(4), 2)):
        block = np.zeros((size_of(pairs.tables[one]), size_of(pairs.tables[other])))
        for row in range(2):
            if clients.columns["label"][row] == label:
                block[pairs.groups[one][codes[one][row]], pairs.groups[other][codes[other][row]]] += 0.5
        expected += block.ravel().tolist()
    np.testing.assert_array_equal(sent, expected)


def test_how_many_numbers_are_released_is_known_before_any_client_is_asked():
    parts = plan(question(), Public()).parts
    assert parts[-1].coordinates == some_pairs().coordinates
    one = next(rounds(question(), Public()))
    assert [part.name for part in one.parts] == list(SCHEMA.inputs)


def test_rows_are_paid_for_once_however_many_are_drawn(tmp_path):
    report = asked(tmp_path)
    ledger = Ledger(tmp_path / "ledger.db")
    assert 0.99 < report.guarantee.epsilon <= 1.0
    assert ledger.spent("staff", delta=1e-6).epsilon == pytest.approx(report.guarantee.epsilon, abs=1e-6)
    entries, first = len(ledger.entries("staff")), (tmp_path / "run" / "rows.csv").read_text()
    again = asked(tmp_path, rows=50)
    assert len(ledger.entries("staff")) == entries
    assert again.guarantee == report.guarantee
    assert len((tmp_path / "run" / "rows.csv").read_text().splitlines()) == 51
    asked(tmp_path)
    assert (tmp_path / "run" / "rows.csv").read_text() == first


def test_a_budget_refuses_before_anything_is_released(tmp_path):
    Ledger(tmp_path / "ledger.db").set_budget("staff", epsilon=0.1, delta=1e-6)
    with pytest.raises(BudgetExceeded):
        asked(tmp_path)
    assert not (tmp_path / "run" / "rows.csv").exists()


def test_rows_have_what_clients_rows_have(tmp_path):
    report = asked(tmp_path, people(3000), epsilon=20.0, rows=20_000)
    rows = csv.read_csv(tmp_path / "run" / "rows.csv").to_pydict()
    job, label = np.array(rows["job"]), np.array(rows["label"])
    assert np.mean(label[job == "c"] == "yes") == pytest.approx(0.9, abs=0.04)
    assert np.mean(label[job == "a"] == "yes") == pytest.approx(0.1, abs=0.04)
    assert np.corrcoef(rows["age"], rows["pay"])[0, 1] > 0.8
    assert np.mean(rows["is_new"]) == pytest.approx(0.5, abs=0.03)
    assert set(rows["job"]) == set("abc")
    assert min(rows["age"]) >= 0
    assert max(rows["age"]) <= 200
    assert all(isinstance(value, int) for value in rows["age"])
    (arm,) = report.arms
    assert arm.signal_to_noise is not None
    assert not arm.warning


@pytest.mark.slow  # the quality of rows, for which many are drawn
def test_values_are_missing_only_where_clients_lack_them(tmp_path):
    clients = people(2000)
    pay = np.where(np.arange(4000) % 4 == 0, np.nan, clients.columns["pay"]).astype(np.float32)
    asked(tmp_path, clients.replace({**clients.columns, "pay": pay}), epsilon=20.0, rows=8000)
    columns = read_set(tmp_path / "run").columns
    assert np.mean(np.isnan(columns["pay"])) == pytest.approx(0.25, abs=0.03)
    assert columns["age"].dtype.kind == "i"
    assert "" not in columns["job"].tolist()


def test_without_a_label_rows_have_none(tmp_path):
    clients = people(1000)
    bare = clients.replace({name: column for name, column in clients.columns.items() if name != "label"})
    asked(tmp_path, bare, epsilon=20.0)
    rows = csv.read_csv(tmp_path / "run" / "rows.csv").to_pydict()
    assert list(rows) == list(SCHEMA.inputs)
    assert np.corrcoef(rows["age"], rows["pay"])[0, 1] > 0.8


def test_few_clients_at_a_tiny_epsilon_are_said_to_show_noise(tmp_path):
    report = asked(tmp_path, people(40), epsilon=0.05, rows=100)
    assert "little but noise" in report.arms[0].warning
    assert "little but noise" in " ".join(str(report).split())
    assert "little but noise" in report.to_html()
    assert "little but noise" in json.loads((tmp_path / "run" / "report.json").read_text())["arms"][0]["warning"]
    assert "little but noise" in (tmp_path / "run" / "samples" / "README.md").read_text()


def test_a_dry_run_asks_nobody(tmp_path):
    session = inspect.Session(out=tmp_path / "run", ledger=Ledger(tmp_path / "ledger.db"), dry_run=True)
    report = asked(tmp_path, session=session)
    assert "would cost epsilon 1" in report.answer
    assert "noise of standard deviation" in " ".join(report.notes)
    assert not (tmp_path / "run").exists()
    assert not Ledger(tmp_path / "ledger.db").entries("staff")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ranges": {"age": (0, 200)}}, "'pay' needs a public range"),
        ({"ranges": {"age": (0, 200), "pay": (0, 1), "height": (0, 2)}}, "'height' has a range"),
        ({"schema": Schema(inputs=("age",)), "ranges": {"age": (0, 200)}}, "2 to 40 fields"),
        ({"schema": Schema(inputs=("age", "pay"), label="pay")}, "leave it out"),
        ({"schema": Schema(inputs=("job", "pay"), label="age")}, "category of at most 50"),
        ({"schema": Schema(inputs=("age", "height"))}, "no field 'height'"),
        ({"rows": 0}, "rows must be"),
    ],
)
def test_what_cannot_be_synthesised_is_refused_in_one_sentence(tmp_path, changes, words):
    with pytest.raises(InvalidInput, match=words):
        asked(tmp_path, **changes)


def test_values_that_noise_could_explain_are_merged_and_others_are_not():
    labels = np.array([[500.0, 100], [500, 101], [100, 500], [101, 499], [102, 500], [300, 300]] + [[300, 301]] * 10)
    grouped = functools.partial(groups_of, most=GROUPS, is_ordered=True)
    groups = grouped(labels, 20.0)
    assert groups[0] == groups[1] != groups[2] == groups[3] == groups[4] != groups[5]
    assert len(np.unique(groups)) == LEAST
    assert len(np.unique(grouped(labels, 1e-6))) >= 3
    assert np.all(np.diff(groups) >= 0)
    noisy = np.random.default_rng(0).normal(size=(64, 2))
    assert len(np.unique(grouped(noisy, 1.0))) == LEAST
    assert len(np.unique(grouped(np.ones((64, 1)), 1e-3))) == GROUPS


def test_categories_are_ordered_by_what_they_say_about_the_label():
    labels = np.array([[500.0, 100], [100, 500], [500, 99], [99, 500], [300, 300]])
    groups = groups_of(labels, 1.0, most=3, is_ordered=False)
    assert groups[0] == groups[2]
    assert groups[1] == groups[3]
    assert len({groups[0], groups[1], groups[4]}) == 3
