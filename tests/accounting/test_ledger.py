"""Laws of the ledger: what it counts, what it refuses, and what its chain finds."""

import dataclasses
import datetime
import hashlib
import itertools
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blindsight
from blindsight.accounting import accountants, chain, composition, ledger
from blindsight.accounting import filter as filters
from blindsight.accounting.chain import GENESIS, Entry
from blindsight.accounting.composition import Share
from blindsight.accounting.events import (
    Composed,
    Event,
    FixedSize,
    Gaussian,
    Laplace,
    NonPrivate,
    Poisson,
    PureDP,
    Relation,
    Repeated,
    TruncatedPoisson,
    Unit,
    flatten,
    to_json,
)
from blindsight.accounting.ledger import Ledger, PopulationBudget, Split, verify_export
from blindsight.accounting.spending import Spending
from blindsight.errors import (
    BlindsightError,
    BudgetExceeded,
    InvalidInput,
    LedgerCorrupted,
    LedgerTampered,
    RelationMismatch,
    UnknownEvent,
)

DELTA = 1e-6
ACCURACY = Split("accuracy", "accuracy of model 3f1c < 0.882 / >= 0.939", ("failing", "healthy"))
SMALL = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(SMALL, max_examples=150)
CHILD = Path(__file__).with_name("ledger_child.py")
EVENTS = [Gaussian(20.0), Gaussian(7.5), Laplace(30.0), PureDP(0.05), Repeated(Gaussian(20.0), 3)]


def epsilon(*events: Event, relation: Relation = Relation.ADD_OR_REMOVE, delta: float = DELTA) -> float:
    return accountants.epsilon(Composed(events), delta, relation).epsilon


def budget_for(*events: Event, delta: float = DELTA) -> float:
    """The smallest epsilon of a budget for `events`."""
    return filters.spent(filters.cost(Composed(events), Relation.ADD_OR_REMOVE), delta)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory where there is such a place: what is tested here is not the speed of the disk."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
def tmp_path(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.db")


# --- where it is, and what reading does


def test_the_path_is_the_argument_or_the_environment_or_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLINDSIGHT_LEDGER", "elsewhere.db")
    assert Ledger("here.db").path == tmp_path / "here.db"
    assert Ledger().path == tmp_path / "elsewhere.db"
    monkeypatch.setenv("BLINDSIGHT_LEDGER", "")
    assert Ledger().path == tmp_path / ".blindsight" / "ledger.db"
    Ledger().record(Gaussian(1.0), population="phones")
    assert [path.name for path in (tmp_path / ".blindsight").iterdir()] == ["ledger.db"]


def test_a_missing_ledger_reads_as_empty_and_reading_creates_nothing(tmp_path: Path):
    with Ledger(tmp_path / "no" / "ledger.db") as book:
        assert book.entries() == [] == book.populations() == list(book.export())
        assert book.budget("phones") is None is book.balance("phones")
        assert book.spent("phones", DELTA).epsilon == 0
        assert book.verify() == chain.Verification(ok=True, entries=0, head=GENESIS)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_waits_for_any_time_that_can_be_counted_and_no_other(tmp_path: Path):
    most = 2**31 / 1000  # milliseconds are counted in 32 bits
    for wait in (0, 0.0, 1.5, most - 1):
        assert Ledger(tmp_path / "l.db", timeout_s=wait).record(Gaussian(1.0), population="phones").number
    for wait in (-1e-3, -5, most, 1e300, math.inf, math.nan):
        with pytest.raises(InvalidInput, match="timeout_s"):
            Ledger(tmp_path / "l.db", timeout_s=wait)


def test_reading_and_writing_leave_the_file_alone_in_its_folder(book: Ledger):
    book.record(Gaussian(1.0), population="phones")
    before = book.path.read_bytes()
    for read in (book.entries, book.verify, lambda: book.spent("phones", DELTA)):
        read()
    assert book.path.read_bytes() == before
    assert list(book.path.parent.iterdir()) == [book.path]


def test_the_file_says_what_it_is_and_is_as_durable_as_promised(book: Ledger):
    book.record(Gaussian(1.0), population="phones")
    with closing(sqlite3.connect(book.path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert db.execute("PRAGMA application_id").fetchone() == (int.from_bytes(b"BLND"),)
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
    with book._file.connected(writing=True) as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_triggers_refuse_to_change_remove_replace_or_slip_in_entries(book: Ledger):
    for _ in range(3):
        book.record(Gaussian(1.0), population="phones")
    statements = (
        "UPDATE entries SET note = 'x' WHERE number = 2",
        "DELETE FROM entries WHERE number = 3",
        "INSERT OR REPLACE INTO entries SELECT 2, time, kind, population, unit, relation, event, run, 'x', split, arm, "
        "previous, hash FROM entries WHERE number = 2",
        "INSERT INTO entries SELECT 9, time, kind, population, unit, relation, event, run, note, split, arm, previous, "
        "hash FROM entries WHERE number = 2",
        "DELETE FROM head",
        "UPDATE head SET count = 2",
    )
    with closing(sqlite3.connect(book.path)) as db:
        for statement in statements:
            with pytest.raises(sqlite3.IntegrityError, match=r"only appended|only grows"):
                db.execute(statement)
    assert book.verify().ok


# --- an entry


def test_an_entry_says_everything_and_times_are_utc(book: Ledger):
    entry = book.record(
        Repeated(Gaussian(2.0), 3), population="phones", run="r1", note="first\nsecond", split=ACCURACY, arm="failing"
    )
    assert book.entries() == [entry]
    assert (entry.number, entry.kind, entry.population, entry.previous) == (1, "release", "phones", GENESIS)
    assert (entry.unit, entry.relation, entry.run, entry.arm) == ("client", "add_or_remove", "r1", "failing")
    assert json.loads(entry.split) == {"arms": ["failing", "healthy"], "name": ACCURACY.name, "rule": ACCURACY.rule}
    assert entry.event == to_json(Repeated(Gaussian(2.0), 3))
    assert datetime.datetime.fromisoformat(entry.time).utcoffset() == datetime.timedelta(0)
    assert book.record(Gaussian(2.0), population="tablets").previous == entry.hash
    assert book.populations() == ["phones", "tablets"]
    assert [entry.population for entry in book.entries("tablets")] == ["tablets"]


@SMALL
@given(
    population=st.text(min_size=1).map(lambda name: unicodedata.normalize("NFC", name).strip()),
    run=st.text(),
    note=st.text(),
)
def test_names_of_any_script_come_back_as_they_went_in_or_are_refused(
    tmp_path: Path, population: str, run: str, note: str
):
    book = Ledger(tempfile.mkdtemp(dir=tmp_path) + "/l.db")
    try:
        entry = book.record(Gaussian(9.0), population=population, run=run, note=note)
    except InvalidInput:
        assert not population or not population.isprintable()
        return
    assert (entry.population, entry.run, entry.note) == (population, run, note)
    assert book.entries(population) == [entry]
    assert book.verify().ok
    assert verify_export(book.export()).ok


@pytest.mark.parametrize("name", ["", " ", " phones", "phones ", "pho\nnes", "pho\0nes", "pho\u200bnes", "\ud800"])
def test_a_population_that_looks_like_another_or_like_none_is_refused(book: Ledger, name: str):
    for call in (
        lambda: book.record(Gaussian(1.0), population=name),
        lambda: book.set_budget(name, epsilon=1.0, delta=DELTA),
        lambda: book.spent(name, DELTA),
    ):
        with pytest.raises(InvalidInput):
            call()


def test_one_name_in_two_encodings_is_one_population_and_quotes_are_just_signs(book: Ledger):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    book.set_budget(composed, epsilon=budget_for(Gaussian(1.0)), delta=DELTA)
    book.record(Gaussian(1.0), population=decomposed)
    with pytest.raises(BudgetExceeded):
        book.record(Gaussian(1.0), population=composed)
    odd = "'; DROP TABLE entries; --"
    book.record(Gaussian(1.0), population=odd)
    assert len(book.entries(odd)) == 1
    assert book.verify().ok


# --- what is counted


@SMALL
@given(st.lists(st.sampled_from(EVENTS), max_size=8))
def test_spent_is_what_the_accountant_says_of_the_list(tmp_path: Path, events: list[Event]):
    book = Ledger(tempfile.mkdtemp(dir=tmp_path) + "/l.db")
    for i, event in enumerate(events):
        book.record(event, population="phones", run=f"run {i % 3}")
        book.record(Gaussian(0.1), population="others")
    spent = book.spent("phones", DELTA)
    assert spent.epsilon == pytest.approx(epsilon(*events), rel=1e-9)
    assert spent.releases == sum(3 if isinstance(event, Repeated) else 1 for event in events)
    assert (spent.unit, spent.relation, spent.delta) == (Unit.CLIENT, Relation.ADD_OR_REMOVE, DELTA)


def test_a_sampled_event_and_replace_are_composed_like_anywhere_else(book: Ledger):
    rounds = Repeated(Poisson(0.01, Gaussian(1.0)), 50)
    book.record(rounds, population="phones")
    book.record(rounds, population="phones")
    assert book.spent("phones", DELTA).epsilon == pytest.approx(epsilon(rounds, rounds))
    fixed = Repeated(FixedSize(1000, 10, Gaussian(4.0)), 10)
    book.record(fixed, population="tablets", relation=Relation.REPLACE)
    assert book.spent("tablets", DELTA).epsilon == pytest.approx(epsilon(fixed, relation=Relation.REPLACE))


@SMALL
@given(
    st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(["", "failing", "healthy"])), min_size=1, max_size=12),
    st.floats(0.0, 2.0),
)
def test_no_sequence_of_releases_exceeds_the_budget_and_every_granted_one_is_counted(
    tmp_path: Path, requests: list[tuple[Event, str]], allowed: float
):
    book = Ledger(tempfile.mkdtemp(dir=tmp_path) + "/l.db")
    book.set_budget("phones", epsilon=allowed, delta=DELTA)
    granted: list[str] = []
    for i, (event, arm) in enumerate(requests):
        with suppress(BudgetExceeded):
            granted.append(
                book.record(event, population="phones", run=str(i), split=ACCURACY if arm else None, arm=arm).run
            )
        balance = book.balance("phones")
        assert balance is not None
        assert balance.spent.epsilon <= balance.adaptive_epsilon <= allowed
        assert not balance.overspent
    assert [entry.run for entry in book.entries() if entry.kind == "release"] == granted


@pytest.mark.parametrize("releases", [1, 7, 40])
def test_a_budget_for_exactly_n_releases_grants_exactly_n(book: Ledger, releases: int):
    book.set_budget("phones", epsilon=budget_for(Repeated(Gaussian(30.0), releases)), delta=DELTA)
    for _ in range(releases):
        book.record(Gaussian(30.0), population="phones")
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            book.record(Gaussian(30.0), population="phones")
    assert book.spent("phones").releases == releases


def test_a_planned_run_is_recorded_ahead_and_takes_the_whole_budget(book: Ledger):
    plan = Repeated(Poisson(0.01, Gaussian(1.0)), 100)
    book.set_budget("phones", epsilon=budget_for(plan), delta=DELTA)
    book.record(plan, population="phones", run="training")
    assert book.spent("phones").releases == 100
    with pytest.raises(BudgetExceeded) as refusal:
        book.record(Poisson(0.01, Gaussian(1.0)), population="phones")
    for word in ("'phones'", "from epsilon", " to ", "at delta 1e-06", "budget of", "do not use the value"):
        assert word in str(refusal.value)
    assert len(book.entries()) == 2


def test_a_check_reads_what_is_new_and_nothing_else(book: Ledger, monkeypatch: pytest.MonkeyPatch):
    """However long the ledger is: so many checks cost as many times one."""
    read: list[int] = []
    real = ledger._shares

    def counting(*where: Any) -> list[Share]:
        found = real(*where)
        read.append(sum(share.times for share in found))
        return found

    monkeypatch.setattr(ledger, "_shares", counting)
    book.set_budget("phones", epsilon=50.0, delta=DELTA)
    for i in range(30):
        book.record(Gaussian(100.0 + i), population="phones")
        book.record(Gaussian(100.0), population="tablets")
    assert sum(read) == 2 * 29  # each entry once; the last two were not needed yet
    assert book.adaptive_epsilon("phones") == pytest.approx(Ledger(book.path).adaptive_epsilon("phones"), rel=1e-9)


def test_a_ledger_put_back_to_an_older_state_is_counted_anew(book: Ledger, tmp_path: Path):
    book.record(Gaussian(3.0), population="phones")
    shutil.copy(book.path, tmp_path / "copy")
    book.record(Gaussian(1.0), population="phones")
    both = book.adaptive_epsilon("phones", DELTA)
    shutil.copy(tmp_path / "copy", book.path)
    assert book.adaptive_epsilon("phones", DELTA) == epsilon(Gaussian(3.0)) < both
    book.record(Gaussian(2.0), population="phones")
    assert book.adaptive_epsilon("phones", DELTA) == pytest.approx(budget_for(Gaussian(3.0), Gaussian(2.0)))


def test_what_one_more_release_would_cost_is_what_it_costs(book):
    for number, noise in enumerate((3.0, 2.0, 4.0)):
        foreseen = book.adaptive_epsilon("phones", DELTA, more=Gaussian(noise))
        assert len(book.entries()) == number
        book.record(Gaussian(noise), population="phones")
        assert foreseen == pytest.approx(book.adaptive_epsilon("phones", DELTA))


def test_an_adaptive_choice_of_releases_is_named_as_an_assumption(book: Ledger):
    assert not any("earlier results" in words for words in book.spent("phones", DELTA).assumptions)
    book.record(Gaussian(1.0), population="phones")
    assert not any("earlier results" in words for words in book.spent("phones", DELTA).assumptions)
    book.record(Gaussian(1.0), population="phones")
    assert any("earlier results" in words for words in book.spent("phones", DELTA).assumptions)


# --- budgets


def test_the_newest_budget_counts_and_a_lower_one_stops_everything(book: Ledger):
    assert not book.set_budget("phones", epsilon=5.0, delta=DELTA).overspent
    book.record(Gaussian(2.0), population="phones")
    balance = book.set_budget("phones", epsilon=1.0, delta=1e-5, note="too much")
    assert balance.overspent
    assert balance.remaining == 0
    assert balance == book.balance("phones")
    assert balance.budget == book.budget("phones") == PopulationBudget(1.0, 1e-5)
    with pytest.raises(BudgetExceeded):
        book.record(Gaussian(1e6), population="phones")
    assert not book.set_budget("phones", epsilon=9.0, delta=DELTA).overspent
    book.record(Gaussian(2.0), population="phones")
    assert [entry.kind for entry in book.entries()] == ["budget", "release", "budget", "budget", "release"]
    assert book.verify().ok


@pytest.mark.parametrize(
    ("allowed", "delta"),
    [(math.nan, DELTA), (math.inf, DELTA), (-1.0, DELTA), (1.0, math.nan), (1.0, 0.0), (1.0, 1.0), (1.0, -0.1)],
)
def test_a_budget_that_is_no_bound_is_refused(book: Ledger, allowed: float, delta: float):
    with pytest.raises(InvalidInput):
        book.set_budget("phones", epsilon=allowed, delta=delta)
    assert book.entries() == []


def test_a_budget_that_is_spent_to_the_last_is_not_overspent_and_one_of_zero_allows_nothing(book: Ledger):
    book.record(Gaussian(9.0), population="phones")
    exactly = book.adaptive_epsilon("phones", DELTA)
    balance = book.set_budget("phones", epsilon=exactly, delta=DELTA)
    assert (balance.overspent, balance.remaining) == (False, 0.0)
    assert book.set_budget("phones", epsilon=exactly * (1 - 1e-9), delta=DELTA).overspent
    assert not book.set_budget("tablets", epsilon=0.0, delta=DELTA).overspent
    with pytest.raises(BudgetExceeded):
        book.record(Gaussian(9.0), population="tablets")


def test_without_a_budget_delta_must_be_said(book: Ledger):
    book.record(Gaussian(1.0), population="phones")
    with pytest.raises(InvalidInput, match="delta"):
        book.spent("phones")
    with pytest.raises(InvalidInput):
        book.spent("phones", 0.0)


def test_a_release_without_protection_is_counted_as_such_and_no_budget_allows_it(book: Ledger):
    book.record(NonPrivate(), population="open")
    assert book.spent("open", DELTA).epsilon == math.inf
    book.set_budget("phones", epsilon=1e300, delta=DELTA)
    with pytest.raises(BudgetExceeded):
        book.record(NonPrivate(), population="phones")


# --- refusals


def test_units_and_relations_do_not_mix(book: Ledger):
    book.record(Gaussian(1.0), population="phones")
    for unit, relation in ((Unit.EXAMPLE, Relation.ADD_OR_REMOVE), (Unit.CLIENT, Relation.REPLACE)):
        with pytest.raises(RelationMismatch, match="per client under add_or_remove"):
            book.record(Gaussian(1.0), population="phones", unit=unit, relation=relation)
        name = f"{unit} {relation}"
        book.record(Gaussian(1.0), population=name, unit=unit, relation=relation)
        with pytest.raises(RelationMismatch, match=f"per {unit} under {relation}"):
            book.record(Gaussian(1.0), population=name)
        assert len(book.entries(name)) == 1
    assert len(book.entries("phones")) == 1


def test_what_no_accountant_can_bound_is_refused_with_or_without_a_budget(book: Ledger):
    book.set_budget("tablets", epsilon=5.0, delta=DELTA)
    for population in ("phones", "tablets"):
        with pytest.raises(RelationMismatch):
            book.record(FixedSize(100, 10, Gaussian(1.0)), population=population)
        with pytest.raises(UnknownEvent):
            book.record(Poisson(0.1, PureDP(1.0)), population=population)
    assert book.entries("phones") == []
    assert len(book.entries("tablets")) == 1


def test_noise_on_a_coarse_grid_has_an_epsilon_at_any_delta(book: Ledger):
    """Its distance from ideal noise is too large for privacy losses, and nothing to Renyi divergences."""
    coarse = Gaussian(2.0, kl_slack=1e-9)
    book.record(coarse, population="phones")
    for delta in (1e-2, 1e-6, 1e-12):
        ideal = epsilon(Gaussian(2.0), delta=delta)
        assert ideal <= book.spent("phones", delta).epsilon <= 1.2 * ideal


def test_a_loss_beyond_floating_point_is_refused(book: Ledger, monkeypatch: pytest.MonkeyPatch):
    def overflowing(*_: Any) -> None:
        raise OverflowError("math range error")

    monkeypatch.setattr(accountants, "epsilon", overflowing)
    with pytest.raises(UnknownEvent, match="beyond what can be computed"):
        book.record(Gaussian(17.0), population="phones")
    monkeypatch.undo()
    assert book.entries() == []


def test_an_event_that_cannot_stand_beside_the_earlier_ones_is_refused(book: Ledger, monkeypatch: pytest.MonkeyPatch):
    fixed, truncated = FixedSize(100, 10, Gaussian(5.0)), TruncatedPoisson(100, 0.1, 5, Gaussian(5.0))
    inner = accountants.epsilon

    def never_both(event: Event, *given: Any) -> accountants.Bound:
        if len({type(leaf) for leaf in flatten(event)}) > 1:
            raise UnknownEvent("no accountant can bound these together")
        return inner(event, *given)

    monkeypatch.setattr(accountants, "epsilon", never_both)
    composition._epsilon.cache_clear()
    for population, first, second in (("phones", fixed, truncated), ("tablets", truncated, fixed)):
        book.record(first, population=population, relation=Relation.REPLACE)
        with pytest.raises(UnknownEvent):
            book.record(second, population=population, relation=Relation.REPLACE)
        assert math.isfinite(book.spent(population, DELTA).epsilon)


def test_rounds_of_fixed_size_and_with_a_limit_add_up(book: Ledger):
    alone = list[float]()
    for event in (FixedSize(100, 10, Gaussian(5.0)), TruncatedPoisson(100, 0.1, 5, Gaussian(5.0))):
        book.record(event, population="phones", relation=Relation.REPLACE)
        alone.append(accountants.epsilon(event, DELTA, Relation.REPLACE).epsilon)
    assert max(alone) < book.spent("phones", DELTA).epsilon < 2 * sum(alone)


def test_entries_of_different_relations_have_no_common_guarantee():
    shares = [Share(Gaussian(3.0), Unit.CLIENT, relation) for relation in Relation]
    with pytest.raises(RelationMismatch):
        composition.certified(shares, DELTA)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Repeated(Gaussian(1.0), 0),
        lambda: Composed(()),
        lambda: Repeated(Gaussian(1.0), 10**400),
        lambda: Repeated(Gaussian(1.0), 2**63),
        lambda: Repeated(Gaussian(1.0), 2.5),  # pyright: ignore[reportArgumentType]
        lambda: Repeated(Repeated(Gaussian(1.0), 2**40), 2**40),
        lambda: PureDP(math.inf),
        lambda: Gaussian(np.float32(1.0)),  # pyright: ignore[reportArgumentType]
        lambda: "gaussian",
        lambda: None,
    ],
)
def test_what_counts_nothing_or_too_much_or_is_no_event_is_refused(book: Ledger, make: Callable[[], Any]):
    with pytest.raises(BlindsightError):
        book.record(make(), population="phones")
    assert book.entries() == []


def test_a_huge_count_is_counted(book: Ledger):
    book.record(Repeated(Gaussian(1e6), 10**12), population="phones")
    assert book.spent("phones", DELTA).epsilon == pytest.approx(epsilon(Gaussian(1.0)))
    book.set_budget("tablets", epsilon=10.0, delta=DELTA)
    with pytest.raises(BudgetExceeded):
        book.record(Repeated(Gaussian(1.0), 2**62), population="tablets")


def test_a_deeply_nested_event_is_an_error_not_a_crash(book: Ledger):
    event: Event = Gaussian(1.0)
    for _ in range(3000):
        event = Repeated(event, 1)
    with pytest.raises(InvalidInput):
        book.record(event, population="phones")


@pytest.mark.parametrize(("field", "value"), [("unit", "user"), ("relation", "swap"), ("note", "\udcff"), ("run", 3)])
def test_other_fields_that_make_no_sense_are_refused(book: Ledger, field: str, value: Any):
    with pytest.raises(InvalidInput):
        book.record(Gaussian(1.0), population="phones", **{field: value})
    assert book.entries() == []


# --- arms


def record_arms(book: Ledger, failing: Event, healthy: Event, relation: Relation = Relation.ADD_OR_REMOVE) -> float:
    for arm, event in (("failing", failing), ("healthy", healthy)):
        book.record(event, population="phones", relation=relation, split=ACCURACY, arm=arm)
    return book.spent("phones", DELTA).epsilon


def test_arms_cost_the_maximum_under_add_or_remove(book: Ledger):
    book.record(Gaussian(9.0), population="phones")
    spent = record_arms(book, Gaussian(3.0), Repeated(Laplace(8.0), 2))
    assert spent == pytest.approx(
        max(epsilon(Gaussian(9.0), Gaussian(3.0)), epsilon(Gaussian(9.0), Repeated(Laplace(8.0), 2)))
    )
    guarantee = book.spent("phones", DELTA)
    assert guarantee.releases == 4
    assert any(ACCURACY.rule in words for words in guarantee.assumptions)


def test_arms_cost_the_sum_under_replace(book: Ledger):
    spent = record_arms(book, Gaussian(3.0), Gaussian(4.0), Relation.REPLACE)
    assert spent == pytest.approx(epsilon(Gaussian(3.0), Gaussian(4.0), relation=Relation.REPLACE))


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(ACCURACY, rule="accuracy of model 77aa < 0.5"),
        dataclasses.replace(ACCURACY, name="accuracy again"),
        dataclasses.replace(ACCURACY, arms=("failing", "healthy", "between")),
    ],
)
def test_arms_of_splits_that_differ_in_anything_are_composed_in_sequence(book: Ledger, other: Split):
    book.record(Gaussian(3.0), population="phones", split=ACCURACY, arm="failing")
    book.record(Gaussian(4.0), population="phones", split=other, arm="healthy")
    assert book.spent("phones", DELTA).epsilon == pytest.approx(epsilon(Gaussian(3.0), Gaussian(4.0)))


def test_an_arm_without_its_split_is_refused(book: Ledger):
    for split, arm in ((ACCURACY, "between"), (ACCURACY, ""), (None, "failing")):
        with pytest.raises(InvalidInput, match="name both, or neither"):
            book.record(Gaussian(1.0), population="phones", split=split, arm=arm)


def test_arms_of_clients_do_not_protect_examples(book: Ledger):
    with pytest.raises(RelationMismatch, match="unit='client'"):
        book.record(Gaussian(1.0), population="phones", unit=Unit.EXAMPLE, split=ACCURACY, arm="failing")


def test_arms_of_examples_would_be_composed_in_sequence_if_an_older_ledger_had_them():
    shares = [
        Share(Gaussian(z), Unit.EXAMPLE, Relation.ADD_OR_REMOVE, ACCURACY.to_json(), arm)
        for z, arm in ((3.0, "failing"), (4.0, "healthy"))
    ]
    assert composition.certified(shares, DELTA).epsilon == pytest.approx(epsilon(Gaussian(3.0), Gaussian(4.0)))


@pytest.mark.parametrize(
    "arms", [(), ("one",), ("one", "one"), ("one", ""), ("one", 2), *(("one", sign) for sign in "\ud800\udbff\udfff")]
)
def test_a_split_needs_two_named_arms(arms: Any):
    with pytest.raises(InvalidInput):
        Split("name", "rule", arms)
    with pytest.raises(InvalidInput):
        Split("", "rule", ("one", "two"))


def test_a_budget_is_enforced_on_the_costliest_arms(book: Ledger):
    book.set_budget("phones", epsilon=budget_for(Gaussian(3.0), Gaussian(3.0)), delta=DELTA)
    book.record(Gaussian(3.0), population="phones")
    record_arms(book, Gaussian(3.0), Gaussian(3.0))
    for arm in ("failing", "healthy"):
        with pytest.raises(BudgetExceeded):
            book.record(Gaussian(50.0), population="phones", split=ACCURACY, arm=arm)


def test_the_promise_rests_on_what_every_arm_rests_on(tmp_path):
    """The dearest arm has the number, but the clients of the cheaper one are promised it too."""
    book = Ledger(tmp_path / "ledger.db")
    book.record(Gaussian(1.0, kl_slack=1e-18), population="phones", split=ACCURACY, arm="failing")
    book.record(Gaussian(4.0), population="phones", split=ACCURACY, arm="healthy")  # ideal noise is assumed here alone
    assert any("noise is ideal" in sentence for sentence in book.spent("phones", delta=1e-6).assumptions)


@SMALL
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3), st.sampled_from("abc")), min_size=1, max_size=14))
def test_parallel_composition_is_the_maximum_over_every_choice_of_arms(entries: list[tuple[int, int, str]]):
    """A naive twin: every client is in one arm of each split; sum what it is exposed to; take the worst."""
    splits = [None, *(Split(f"s{i}", "rule", ("a", "b", "c")) for i in range(3))]
    shares = [
        Share(
            Gaussian(float(z)),
            Unit.CLIENT,
            Relation.ADD_OR_REMOVE,
            split.to_json() if split else "",
            arm if split else "",
        )
        for z, which, arm in entries
        for split in [splits[which]]
    ]
    worlds = [
        [Gaussian(float(z)) for z, which, arm in entries if which == 0 or arm == choice[which - 1]]
        for choice in itertools.product("abc", repeat=3)
    ]
    assert composition.certified(shares, DELTA).epsilon == pytest.approx(max(epsilon(*world) for world in worlds))
    spending = Spending()
    for share in shares:
        after = spending.with_more(share)
        spending.add(share)
        assert np.array_equal(spending.total, after)
    assert filters.spent(spending.total, DELTA) == pytest.approx(max(budget_for(*world) for world in worlds))


def test_too_many_combinations_are_composed_in_sequence_which_is_never_less():
    shares: list[Share] = []
    for i in range(8):
        split = Split(f"s{i}", "rule", ("a", "b")).to_json()
        shares.append(Share(Gaussian(10.0 + i), Unit.CLIENT, Relation.ADD_OR_REMOVE, split, "a"))
        shares.append(Share(Gaussian(30.0 + i), Unit.CLIENT, Relation.ADD_OR_REMOVE, split, "b"))
    assert len(composition._worlds(shares)) == 64
    parallel = epsilon(*(Gaussian(10.0 + i) for i in range(8)))
    two_in_sequence = epsilon(*(Gaussian(10.0 + i) for i in range(8)), Gaussian(36.0), Gaussian(37.0))
    assert parallel < composition.certified(shares, DELTA).epsilon == pytest.approx(two_in_sequence)


# --- the chain


@pytest.fixture(scope="module")
def written(folder: Path) -> Path:
    book = Ledger(folder / "written.db")
    book.set_budget("phones", epsilon=50.0, delta=DELTA)
    for i in range(4):
        book.record(Gaussian(5.0 + i), population="phones", run=f"r{i}", split=ACCURACY, arm=ACCURACY.arms[i % 2])
    book.record(Gaussian(5.0), population="tablets", note="x")
    return book.path


@pytest.fixture(scope="module")
def before(written: Path) -> list[Entry]:
    return Ledger(written).entries()


@pytest.fixture
def tamper(written: Path, tmp_path: Path) -> Callable[..., Ledger]:
    """A copy of the ledger, stripped of triggers and constraints, after some SQL."""
    counter = itertools.count()

    def change(*statements: str | tuple[str, tuple[Any, ...]]) -> Ledger:
        path = tmp_path / f"{next(counter)}.db"
        shutil.copy(written, path)
        with closing(sqlite3.connect(path)) as db:
            for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                db.execute(f"DROP TRIGGER {trigger}")
            for table in ("entries", "head"):
                db.execute(f"CREATE TABLE loose AS SELECT * FROM {table}")
                db.execute(f"DROP TABLE {table}")
                db.execute(f"ALTER TABLE loose RENAME TO {table}")
            for statement, *values in ((step,) if isinstance(step, str) else step for step in statements):
                db.execute(statement, *values)
            db.commit()
        return Ledger(path)

    return change


COUNT = 6
NUMBERS = st.integers(1, COUNT)
FIELDS = [field.name for field in dataclasses.fields(Entry)]


def test_an_untouched_ledger_verifies_and_lost_triggers_are_noticed(written: Path, tamper: Callable[..., Ledger]):
    result = Ledger(written).verify()
    assert result.ok
    assert result.entries == COUNT
    assert result.head == Ledger(written).entries()[-1].hash
    assert result.raise_if_broken() is result
    assert str(result).startswith("6 entries, all as written")
    loose = tamper()
    assert not loose.verify().ok
    assert "triggers" in loose.verify().problem
    with pytest.raises(LedgerTampered, match="triggers"):
        loose.record(Gaussian(5.0), population="phones")


@pytest.mark.parametrize("number", range(6))
def test_the_loss_of_any_one_rule_is_noticed(book: Ledger, number: int):
    book.record(Gaussian(900.0), population="phones")
    with closing(sqlite3.connect(book.path)) as db:
        rules = db.execute("SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'index') ORDER BY name")
        db.execute("DROP {} {}".format(*rules.fetchall()[number]))
    assert not book.verify().ok
    with pytest.raises(LedgerTampered, match="triggers"):
        book.record(Gaussian(900.0), population="phones")


def test_an_index_that_disagrees_with_the_entries_is_noticed(book: Ledger):
    """What is spent is read from the index: here it holds an entry that the table no longer has."""
    kept, _ = (book.record(Gaussian(900.0), population="phones") for _ in range(2))
    with closing(sqlite3.connect(book.path)) as db:
        schema = db.execute("SELECT * FROM sqlite_master ORDER BY rowid").fetchall()
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_master WHERE type IN ('trigger', 'index')")
        db.commit()
    with closing(sqlite3.connect(book.path)) as db:
        db.execute("DELETE FROM entries WHERE number = 2")
        db.execute("UPDATE head SET count = 1, hash = ?", (kept.hash,))
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_master")
        db.executemany("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", schema)
        db.commit()
    assert book.entries() == [kept]
    with pytest.raises(LedgerCorrupted, match="the file is damaged"):
        book.verify()


@MANY
@given(
    number=NUMBERS,
    field=st.sampled_from(FIELDS),
    value=st.one_of(st.text(), st.binary(), st.none(), st.integers(-9, 99), st.floats(allow_nan=False)),
)
def test_every_edit_of_any_field_is_found(
    tamper: Callable[..., Ledger], before: list[Entry], number: int, field: str, value: Any
):
    book = tamper((f"UPDATE entries SET {field} = ? WHERE number = ?", (value, number)))
    if book.entries() == before:
        return
    result = book.verify()
    assert not result.ok
    assert result.broken == number if field != "number" else result.broken is not None and result.broken <= number
    assert f"entry {result.broken}" in result.problem
    with pytest.raises(LedgerTampered, match=f"entry {result.broken}"):
        result.raise_if_broken()


@MANY
@given(number=NUMBERS, field=st.sampled_from(FIELDS[1:-2]), value=st.text())
def test_an_edit_that_repairs_its_own_hash_is_found_one_entry_later(
    tamper: Callable[..., Ledger], before: list[Entry], number: int, field: str, value: str
):
    forged = chain.seal(dataclasses.replace(before[number - 1], **{field: value}))
    if forged == before[number - 1]:
        return
    result = tamper(
        (f"UPDATE entries SET {field} = ?, hash = ? WHERE number = ?", (value, forged.hash, number))
    ).verify()
    assert not result.ok
    assert result.broken == min(number + 1, COUNT)


@pytest.mark.parametrize("number", range(1, COUNT + 1))
def test_every_removal_is_found(tamper: Callable[..., Ledger], number: int):
    assert tamper(f"DELETE FROM entries WHERE number = {number}").verify().broken == number
    assert tamper(f"DELETE FROM entries WHERE number >= {number}").verify().broken == number
    assert tamper(f"DELETE FROM entries WHERE number <= {number}").verify().broken == 1
    closed_up = tamper(
        f"DELETE FROM entries WHERE number = {number}",
        f"UPDATE entries SET number = number - 1 WHERE number > {number}",
    )
    assert closed_up.verify().broken == number


@pytest.mark.parametrize(("one", "two"), list(itertools.combinations(range(1, COUNT + 1), 2)))
def test_every_swap_is_found(tamper: Callable[..., Ledger], one: int, two: int):
    swapped = (
        f"UPDATE entries SET number = CASE number WHEN {one} THEN {two} ELSE {one} END WHERE number IN ({one}, {two})"
    )
    assert tamper(swapped).verify().broken == one


@pytest.mark.parametrize("number", range(1, COUNT + 1))
def test_every_doubled_or_inserted_entry_is_found(tamper: Callable[..., Ledger], before: list[Entry], number: int):
    doubled = f"INSERT INTO entries SELECT * FROM entries WHERE number = {number}"
    assert tamper(doubled).verify().broken == number + 1
    at_the_end = f"INSERT INTO entries SELECT {COUNT + 1}, {', '.join(FIELDS[1:])} FROM entries WHERE number = {number}"
    assert tamper(at_the_end).verify().broken == COUNT + 1
    shifted = f"UPDATE entries SET number = number + 1 WHERE number >= {number}"
    forged = chain.seal(dataclasses.replace(before[number - 1], note="forged"))
    slipped_in = (f"INSERT INTO entries VALUES ({', '.join('?' * len(FIELDS))})", tuple(vars(forged).values()))
    assert tamper(shifted, slipped_in).verify().broken == number + 1
    appended = chain.seal(dataclasses.replace(before[-1], number=COUNT + 1, previous=before[-1].hash))
    unannounced = (slipped_in[0], tuple(vars(appended).values()))
    assert tamper(unannounced).verify().broken == COUNT + 1


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM head",
        "INSERT INTO head SELECT * FROM head",
        "UPDATE head SET count = 5",
        "UPDATE head SET count = 7",
        "UPDATE head SET count = 'many'",
        "UPDATE head SET hash = upper(hash)",
        "UPDATE head SET hash = NULL",
    ],
)
def test_a_changed_record_of_the_end_is_found(tamper: Callable[..., Ledger], statement: str):
    result = tamper(statement).verify()
    assert not result.ok
    assert "triggers" not in result.problem


@pytest.mark.parametrize("number", range(2, COUNT))
def test_what_is_broken_is_said_with_the_right_numbers(tamper: Callable[..., Ledger], before: list[Entry], number: int):
    def problem(*statements: Any) -> str:
        return tamper(*statements).verify().problem

    assert problem(f"DELETE FROM entries WHERE number = {number}") == f"entry {number} was removed"
    doubled = f"INSERT INTO entries SELECT * FROM entries WHERE number = {number}"
    assert f"an entry numbered {number} was inserted or duplicated before it" in problem(doubled)
    assert "an entry numbered 'x' was inserted" in problem(f"UPDATE entries SET number = 'x' WHERE number >= {number}")
    cut = problem(f"DELETE FROM entries WHERE number > {number}")
    assert cut == f"entry {number + 1} was removed: the chain should have {COUNT}"
    forged = chain.seal(dataclasses.replace(before[number - 1], note="forged"))
    replaced = (f"UPDATE entries SET note = 'forged', hash = '{forged.hash}' WHERE number = {number}",)
    assert f"entry {number + 1} does not follow from entry {number}:" in problem(*replaced)


def test_a_changed_end_is_said_with_the_right_numbers(tamper: Callable[..., Ledger]):
    gone = tamper("DELETE FROM head").verify()
    assert gone.broken == COUNT
    assert gone.problem == f"the record of where the chain ends, after {COUNT} entries, was removed"
    for change in ("hash = 'x'", f"count = {COUNT - 1}"):
        other = tamper(f"UPDATE head SET {change}").verify()
        assert other.broken == COUNT
        assert other.problem.startswith(f"entry {COUNT} is not the one the chain ended with")


@pytest.mark.parametrize(("count", "words"), [(0, "0 entries,"), (1, "1 entry,"), (2, "2 entries,"), (1000, "1,000 ")])
def test_a_sound_chain_says_how_long_it_is(count: int, words: str):
    assert str(chain.Verification(ok=True, entries=count, head=GENESIS)).startswith(words)


def test_anyone_can_compute_the_hashes_anew(before: list[Entry]):
    previous = GENESIS
    for entry in before:
        fields = {name: value for name, value in dataclasses.asdict(entry).items() if name != "hash"}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        assert (entry.previous, entry.hash) == (previous, hashlib.sha256(text.encode()).hexdigest())
        previous = entry.hash


def test_the_chain_begins_with_something_that_no_entry_hashes_to():
    assert len(GENESIS) == len(chain.digest(Entry(1, *[""] * 11)))
    assert set(GENESIS) == {"0"}


def test_a_number_left_out_is_found_even_if_every_hash_is_right(before: list[Entry]):
    skipping = chain.seal(dataclasses.replace(before[1], number=3))
    for entries in ([before[0], skipping], [chain.seal(dataclasses.replace(before[0], number=0))]):
        result = chain.verify_chain(entries, head=(len(entries), entries[-1].hash))
        assert result.broken == len(entries)


def rewritten(path: Path, entries: list[Entry]) -> Ledger:
    """What a hostile operator who knows everything does: a new ledger in place of the old, every hash right."""
    path.unlink(missing_ok=True)
    book = Ledger(path)
    with book._file.connected(writing=True) as db:
        previous = GENESIS
        for number, entry in enumerate(entries, start=1):
            sealed = chain.seal(dataclasses.replace(entry, number=number, previous=previous))
            ledger.ledger_file.insert(db, sealed)
            previous = sealed.hash
    return book


def test_a_chain_rewritten_as_a_whole_is_found_by_a_witness_only(tmp_path: Path, before: list[Entry]):
    witness = before[3].hash
    for entries in (before[:3], before[:2] + before[3:], [dataclasses.replace(before[0], note="x"), *before[1:]], []):
        forged = rewritten(tmp_path / "forged.db", entries)
        assert forged.verify().ok
        result = forged.verify(witness)
        assert not result.ok
        assert witness in result.problem
        assert result.broken is None
    honest = rewritten(tmp_path / "honest.db", before)
    assert honest.verify(witness).ok
    assert honest.verify(f" {witness.upper()}\n").ok
    assert honest.verify(GENESIS).ok


def test_another_ledger_is_told_apart_by_the_witness(tmp_path: Path):
    one, other = Ledger(tmp_path / "one.db"), Ledger(tmp_path / "other.db")
    witness = one.record(Gaussian(1.0), population="phones").hash
    other.record(Gaussian(1.0), population="phones")
    assert one.verify(witness).ok
    assert not other.verify(witness).ok


def test_an_edited_budget_or_newest_entry_stops_recording_at_once(book: Ledger):
    book.set_budget("phones", epsilon=0.1, delta=DELTA)
    book.record(Gaussian(900.0), population="tablets")
    edit(book, "UPDATE entries SET event = replace(event, '0.1', '9.9') WHERE kind = 'budget'")
    with pytest.raises(LedgerTampered, match="entry 1 was edited"):
        book.record(Gaussian(1.0), population="phones")
    edit(book, "UPDATE entries SET note = 'x' WHERE number = 2")
    with pytest.raises(LedgerTampered, match="entry 2 was edited"):
        book.record(Gaussian(1.0), population="tablets")


def test_removed_newest_entries_stop_recording_at_once(book: Ledger):
    for _ in range(3):
        book.record(Gaussian(900.0), population="phones")
    edit(book, "DELETE FROM entries WHERE number = 3")
    with pytest.raises(LedgerTampered, match="newest entries"):
        book.record(Gaussian(900.0), population="phones")
    assert book.verify().broken == 3


def test_a_newest_entry_replaced_by_a_sound_one_stops_recording_at_once(book: Ledger):
    """Whichever of the two hashes is the larger."""
    last = [book.record(Gaussian(900.0), population="phones") for _ in range(2)][-1]
    forgeries = [chain.seal(dataclasses.replace(last, note=str(i))) for i in range(100)]
    for forged in (min(forgeries, key=lambda entry: entry.hash), max(forgeries, key=lambda entry: entry.hash)):
        edit(book, f"UPDATE entries SET note = '{forged.note}', hash = '{forged.hash}' WHERE number = 2")
        with pytest.raises(LedgerTampered, match="newest entries were removed or replaced"):
            book.record(Gaussian(900.0), population="phones")


@pytest.mark.parametrize("event", ["{}", "null", '{"epsilon":1.0}', '{"delta":1e-06,"epsilon":-1.0}'])
def test_a_budget_entry_that_is_no_budget_stops_everything(book: Ledger, event: str):
    book.record(Gaussian(900.0), population="phones")
    book.set_budget("phones", epsilon=1.0, delta=DELTA)
    forged = chain.seal(dataclasses.replace(book.entries()[-1], event=event))
    edit(book, f"UPDATE entries SET event = '{event}', hash = '{forged.hash}' WHERE number = 2")
    for call in (lambda: book.record(Gaussian(900.0), population="phones"), lambda: book.budget("phones")):
        with pytest.raises(LedgerTampered, match="entry 2 is not a budget"):
            call()


def edit(book: Ledger, statement: str) -> None:
    """What the triggers forbid, with the triggers put back afterwards."""
    with closing(sqlite3.connect(book.path)) as db:
        triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.execute(statement)
        for _, sql in triggers:
            db.execute(sql)
        db.commit()


def test_a_trigger_that_swallows_entries_is_refused(book: Ledger):
    book.record(Gaussian(900.0), population="phones")
    with closing(sqlite3.connect(book.path)) as db:
        db.execute("CREATE TRIGGER swallow BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(LedgerTampered, match="triggers"):
        book.record(Gaussian(900.0), population="phones")


def test_a_clock_set_back_changes_nothing(book: Ledger, monkeypatch: pytest.MonkeyPatch):
    class Backwards(datetime.datetime):
        days = itertools.count()

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return datetime.datetime(2030, 1, 1, tzinfo=tz) - datetime.timedelta(days=next(cls.days))

    monkeypatch.setattr(ledger.datetime, "datetime", Backwards)
    entries = [book.record(Gaussian(9.0), population="phones") for _ in range(3)]
    assert entries[0].time > entries[1].time > entries[2].time
    assert book.entries() == entries
    assert book.verify().ok


# --- export


def test_an_export_verifies_and_says_the_same_as_the_ledger(written: Path, before: list[Entry]):
    lines = list(Ledger(written).export())
    assert [chain.from_line(line) for line in lines] == before
    assert verify_export(lines) == Ledger(written).verify() == verify_export([f"{line}\r\n" for line in [*lines, ""]])
    assert verify_export([]).ok
    assert verify_export(lines[:-1]).ok
    assert not verify_export(lines[:-1], witness=before[-1].hash).ok


@MANY
@given(number=NUMBERS, data=st.data())
def test_every_change_of_an_exported_line_is_found(written: Path, number: int, data: st.DataObject):
    lines = list(Ledger(written).export())
    line = lines[number - 1]
    at = data.draw(st.integers(0, len(line) - 1))
    lines[number - 1] = line[:at] + data.draw(st.characters(exclude_characters=line[at])) + line[at + 1 :]
    result = verify_export(lines)
    assert not result.ok
    assert result.broken in (number, number + 1)


@pytest.mark.parametrize("number", range(1, COUNT + 1))
def test_a_line_removed_moved_doubled_or_spoilt_is_found(written: Path, number: int):
    lines = list(Ledger(written).export())
    line = lines.pop(number - 1)
    assert verify_export(lines).broken == (number if number < COUNT else None)
    for at in (position for position in range(COUNT) if position != number - 1):
        assert verify_export([*lines[:at], line, *lines[at:]]).broken == min(at, number - 1) + 1
    lines.insert(number - 1, line)
    assert verify_export([*lines[:number], line, *lines[number:]]).broken == number + 1
    twice = line.replace('"note":', '"note":"what a reader sees","note":')
    for spoilt in ("nonsense", "[]", "{}", "[" * 100_000, line.replace(",", ", "), twice):
        result = verify_export([*lines[: number - 1], spoilt, *lines[number:]])
        assert result.broken == number
        assert result.entries == number - 1
    edited = [line.replace("phones", "others") for line in lines]
    assert verify_export([*edited, "nonsense"]).broken == 1


# --- races


def room_for(path: Path, releases: int) -> Path:
    budget = budget_for(Repeated(Gaussian(1000.0), releases))
    Ledger(path).set_budget("phones", epsilon=budget, delta=DELTA)
    return path


@pytest.fixture(scope="module")
def races(folder: Path) -> dict[Path, list[int]]:
    """How many releases each process was granted in some races, all run by one child to save its imports."""
    if not hasattr(os, "fork"):
        pytest.skip("this platform has no fork")
    jobs = [(room_for(folder / f"{n}-for-one-{i}.db", 1), n, 1) for n in (2, 4) for i in range(8)]
    jobs += [(room_for(folder / "for-many.db", 57), 4, 25)]
    jobs += [(folder / f"new-{i}" / "deep" / "l.db", 4, 2) for i in range(10)]
    environment = os.environ | {
        "PYTHONPATH": str(Path(next(iter(blindsight.__path__))).parent),
        "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
        "OMP_NUM_THREADS": "1",
    }
    call = [sys.executable, str(CHILD), "race", json.dumps({"jobs": [(str(path), *rest) for path, *rest in jobs]})]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return {path: won for (path, *_), won in zip(jobs, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("processes", [2, 4])
def test_of_processes_that_race_for_the_last_release_exactly_one_wins(races: dict[Path, list[int]], processes: int):
    results = {path: won for path, won in races.items() if path.name.startswith(f"{processes}-for-one")}
    assert len(results) == 8
    assert all(sorted(won) == [0] * (processes - 1) + [1] for won in results.values())
    assert all(Ledger(path).verify().raise_if_broken().entries == 2 for path in results)


def test_processes_that_race_for_many_releases_get_exactly_as_many_as_fit(races: dict[Path, list[int]]):
    [(path, won)] = [(path, won) for path, won in races.items() if path.name == "for-many.db"]
    assert sum(won) == 57
    assert sorted(won)[-2] > 0
    assert Ledger(path).verify().raise_if_broken().entries == 58


def test_processes_that_race_to_create_the_ledger_all_write_into_one(races: dict[Path, list[int]]):
    results = {path: won for path, won in races.items() if path.parent.name == "deep"}
    assert list(results.values()) == [[2] * 4] * 10
    assert all(Ledger(path).verify().raise_if_broken().entries == 8 for path in results)
    assert all([found.name for found in path.parent.iterdir()] == ["l.db"] for path in results)
