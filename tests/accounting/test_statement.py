"""Laws of the ledger's page: every number on it is the ledger's own, rounded against the spender."""

import io
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from blindsight.accounting import accountants
from blindsight.accounting.events import Gaussian, Relation, Repeated, Unit
from blindsight.accounting.guarantee import Guarantee, certify, round_up
from blindsight.accounting.ledger import Ledger, PopulationBudget
from blindsight.accounting.statement import Account, Statement, account
from blindsight.errors import InvalidInput

DELTA = 1e-5


def spent(epsilon: float) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=DELTA, accountant="PLD", participation="everyone", releases=1)


def printed(statement: Statement, width: int = 300) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(statement)
    return out.getvalue().splitlines()


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    """Two populations, one with a budget, one under replace and without."""
    book = Ledger(tmp_path / "ledger.db")
    book.set_budget("phones", epsilon=3.0, delta=DELTA, note="agreed")
    book.record(Repeated(Gaussian(60.0), 1200), population="phones", run="r1")
    book.record(Gaussian(9.0), population="tablets", relation=Relation.REPLACE, unit=Unit.EXAMPLE)
    return book


@pytest.mark.parametrize("width", [60, 80])
def test_long_names_go_on_in_the_next_line_and_numbers_are_never_cut(width: int, tmp_path: Path):
    book = Ledger(tmp_path / "ledger.db")
    names = [f"{letter}{'.'.join(str(number) for number in range(30))}" for letter in "ab"]  # that differ, cut or not
    for name in names:
        book.set_budget(name, epsilon=3.25, delta=DELTA)
        book.record(Repeated(Gaussian(60.0), 1200), population=name)
    heading, *rows = printed(Statement.of(book), width)
    rows = list(itertools.takewhile(lambda row: not row.startswith("Epsilon spent"), rows))
    assert "\u2026" not in "".join(rows)
    assert all(len(row) <= width for row in rows)
    said = "".join(row.split(" ")[0] for row in rows)
    assert said == "".join(names)
    for number in (
        round_up(account(book, names[0]).spent.epsilon),
        round_up(account(book, names[0]).adaptive_epsilon),
        "3.25",
        "1e-05",
    ):
        assert sum(number in row.split() for row in rows) == 2
    assert heading.startswith("population")


@given(epsilon=st.floats(0, 10), budget=st.floats(0, 10))
@settings(deadline=None, max_examples=200)
def test_what_is_left_is_never_more_than_is_left(epsilon: float, budget: float):
    state = Account("phones", spent(epsilon / 2), epsilon, PopulationBudget(budget, DELTA)).state
    if epsilon > budget:
        assert state == "overspent"
        return
    left = int(state.removesuffix(" % left"))
    assert 0 <= left <= 100
    assert left / 100 * budget <= (budget - epsilon) * (1 + 1e-9) + 1e-12
    assert (left + 1) / 100 * budget >= (budget - epsilon) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("epsilon", "budget", "state"),
    [
        (0.0, 4.0, "100 % left"), (1.0, 4.0, "75 % left"), (3.99, 4.0, "0 % left"), (4.0, 4.0, "0 % left"),
        (0.0, 0.0, "0 % left"), (0.1, 0.0, "overspent"), (0.0, 0.5, "100 % left"), (0.25, 0.5, "50 % left"),
    ],
)  # fmt: skip
def test_the_state_in_words(epsilon: float, budget: float, state: str):
    one = Account("phones", spent(epsilon / 2), epsilon, PopulationBudget(budget, DELTA))
    assert one.state == state
    assert str(one) == (
        f"phones: epsilon {round_up(epsilon)} of {budget:g} at delta {DELTA:g} spent "
        f"({round_up(epsilon / 2)} if all was planned in advance), {state}"
    )


def test_without_a_budget_there_is_nothing_left_or_overspent():
    one = Account("phones", spent(2.0), 2.5, None)
    assert (
        str(one) == f"phones: epsilon {round_up(2.5)} spent ({round_up(2.0)} if all was planned in advance), no budget"
    )
    assert one.to_dict()["budget"] is None


def test_every_population_is_stated_at_its_budgets_delta_or_at_the_one_asked_for(book: Ledger):
    phones, tablets = Statement.of(book, delta=1e-3).accounts
    assert (phones.population, tablets.population) == ("phones", "tablets")
    assert phones.spent == book.spent("phones", DELTA)
    assert tablets.spent == book.spent("tablets", 1e-3)
    assert tablets.spent.epsilon == accountants.epsilon(Gaussian(9.0), 1e-3, Relation.REPLACE).epsilon
    assert Statement.of(book).accounts[1].spent.delta == 1e-6
    assert account(book, "tablets") == Statement.of(book).accounts[1]
    assert (phones.budget, tablets.budget) == (PopulationBudget(3.0, DELTA), None)


def test_one_population_and_its_entries_where_asked_for(book: Ledger):
    assert Statement.of(book, population="tablets").accounts == Statement.of(book).accounts[1:]
    assert Statement.of(book).entries == ()
    assert Statement.of(book, with_entries=True).entries == tuple(book.entries())
    one = Statement.of(book, population="phones", with_entries=True)
    assert one.entries == tuple(book.entries("phones"))
    with pytest.raises(InvalidInput, match=r"no population 'laptops'; it has: phones, tablets"):
        Statement.of(book, population="laptops")
    with pytest.raises(InvalidInput, match="none yet"):
        Statement.of(Ledger(book.path.with_name("new.db")), population="phones")


def test_the_dictionary_holds_what_the_ledger_holds(book: Ledger):
    found = Statement.of(book, with_entries=True).to_dict()
    assert found["ledger"] == str(book.path)
    assert [one["spent"] for one in found["populations"]] == [
        book.spent("phones").to_dict(),
        book.spent("tablets", 1e-6).to_dict(),
    ]
    adaptive = [book.adaptive_epsilon("phones"), book.adaptive_epsilon("tablets", 1e-6)]
    assert [one["adaptive_epsilon"] for one in found["populations"]] == adaptive
    assert found["populations"][0]["budget"] == {"epsilon": 3.0, "delta": DELTA}
    assert [entry["hash"] for entry in found["entries"]] == [entry.hash for entry in book.entries()]


def test_the_page_shows_the_numbers_of_the_ledger(book: Ledger):
    heading, phones, tablets, legend, *lines = printed(Statement.of(book, with_entries=True))
    assert heading.split("  ")[0] == "population"
    guarantee = certify(Repeated(Gaussian(60.0), 1200), delta=DELTA)
    state = Statement.of(book).accounts[0].state
    assert phones.split() == [
        *("phones", round_up(book.adaptive_epsilon("phones")), round_up(guarantee.epsilon)),
        *("3", "1e-05", "1,200", "client,"),
        *Relation.ADD_OR_REMOVE.in_words.split(),
        *state.split(),
    ]
    numbers = [book.adaptive_epsilon("tablets", 1e-6), book.spent("tablets", 1e-6).epsilon]
    assert tablets.split()[:6] == ["tablets", *map(round_up, numbers), "-", "1e-06", "1"]
    assert tablets.endswith("no budget")
    assert "chosen after reading results" in legend
    for line, entry in zip(lines, book.entries(), strict=True):
        assert line.split()[:3] == [str(entry.number), entry.time, entry.hash[:12]]
        assert f"{entry.population}: {entry.kind} {entry.event}" in line
        assert line.rstrip().endswith(entry.run or entry.note or entry.event)


def test_an_empty_ledger_is_said_to_be_empty_and_names_are_no_markup(tmp_path: Path):
    book = Ledger(tmp_path / "[bold].db")
    assert printed(Statement.of(book)) == [f"{book.path} has no entries yet."]
    book.record(Gaussian(9.0), population="[red]phones", note="[dim]")
    _, row, _, line = printed(Statement.of(book, with_entries=True))
    assert row.startswith("[red]phones ")
    assert line.endswith("[dim]")
