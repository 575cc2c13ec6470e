"""A ledger as a page: every population's spending next to its budget, and the entries."""

import dataclasses
import math
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

from blindsight.accounting.chain import Entry
from blindsight.accounting.guarantee import Guarantee, round_up
from blindsight.accounting.ledger import Ledger, PopulationBudget
from blindsight.errors import InvalidInput

__all__ = ["Account", "Statement"]


@dataclasses.dataclass(frozen=True)
class Account:
    """One population: its spending and its budget, if set.

    `spent` holds for a plan fixed in advance. `adaptive_epsilon`, which is compared with the budget, also holds if each
    release was chosen after reading the earlier ones.
    """

    population: str
    spent: Guarantee
    adaptive_epsilon: float
    budget: PopulationBudget | None

    @property
    def state(self) -> str:
        """How much of the budget is left, in a word or two."""
        if self.budget is None:
            return "no budget"
        if self.adaptive_epsilon > self.budget.epsilon:
            return "overspent"
        share = self.adaptive_epsilon / self.budget.epsilon if self.budget.epsilon > 0 else 1.0
        return f"{math.floor(100 * (1 - share))} % left"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        budget = None if self.budget is None else dataclasses.asdict(self.budget)
        adaptive = self.adaptive_epsilon if math.isfinite(self.adaptive_epsilon) else "inf"
        fields = {"population": self.population, "spent": self.spent.to_dict(), "adaptive_epsilon": adaptive}
        return {**fields, "budget": budget, "state": self.state}

    def __str__(self) -> str:
        limit = "" if self.budget is None else f" of {self.budget.epsilon:g} at delta {self.budget.delta:g}"
        planned = f"{round_up(self.spent.epsilon)} if all was planned in advance"
        return f"{self.population}: epsilon {round_up(self.adaptive_epsilon)}{limit} spent ({planned}), {self.state}"


@dataclasses.dataclass(frozen=True)
class Statement:
    """The ledger at one moment, optionally with its `entries`."""

    path: str
    accounts: tuple[Account, ...]
    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(
        cls, ledger: Ledger, *, population: str | None = None, delta: float = 1e-6, with_entries: bool = False
    ) -> "Statement":
        """The statement of all populations, or of one; those without a budget are stated at `delta`."""
        if not 0 < delta < 1:
            raise InvalidInput(f"delta must lie between 0 and 1, got {delta:g}: try 1e-6")
        names = ledger.populations()
        if population is not None and population not in names:
            listed = ", ".join(names) or "none yet"
            raise InvalidInput(f"the ledger {ledger.path} has no population {population!r}; it has: {listed}")
        accounts = tuple(account(ledger, name, delta) for name in names if population in (None, name))
        return cls(str(ledger.path), accounts, tuple(ledger.entries(population)) if with_entries else ())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "ledger": self.path,
            "populations": [account.to_dict() for account in self.accounts],
            "entries": [dataclasses.asdict(entry) for entry in self.entries],
        }

    def _repr_html_(self) -> str:
        from blindsight import pages

        headings = ("population", "epsilon spent", "if planned", "budget", "delta", "releases", "")
        rows = [
            (
                one.population,
                round_up(one.adaptive_epsilon),
                round_up(one.spent.epsilon),
                "-" if one.budget is None else f"{one.budget.epsilon:g}",
                f"{one.spent.delta:.3g}",
                f"{one.spent.releases:,}",
                one.state,
            )
            for one in self.accounts
        ]
        return pages.card(self.path, rows, headings=headings, about="" if rows else "no entries yet")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.accounts:
            yield f"{escape(self.path)} has no entries yet."
            return
        table = Table(box=None, pad_edge=False)
        for column, justify in (
            ("population", "left"),
            ("epsilon spent", "right"),
            ("if planned", "right"),
            ("budget", "right"),
            ("delta", "right"),
            ("releases", "right"),
            ("per", "left"),
            ("", "left"),
        ):
            whole: Any = {"justify": justify, "no_wrap": justify == "right"}  # numbers never wrap, names do
            table.add_column(column, overflow="fold", min_width=len(column), **whole)
        for one in self.accounts:
            budget = "-" if one.budget is None else f"{one.budget.epsilon:g}"
            unit = f"{one.spent.unit}, {one.spent.relation.in_words}"
            numbers = (round_up(one.adaptive_epsilon), round_up(one.spent.epsilon), budget, f"{one.spent.delta:.3g}")
            cells = (one.population, *numbers)
            table.add_row(*map(escape, cells), f"{one.spent.releases:,}", unit, one.state)
        yield table
        yield (
            "[dim]Epsilon spent also holds for questions chosen after reading results; budgets "
            "are compared with it. If planned: assuming that all releases were fixed in advance.[/]"
        )
        for entry in self.entries:
            what = f"{entry.population}: {entry.kind} {entry.event}"
            extra = " ".join(part for part in (entry.run, entry.arm, entry.note) if part)
            yield f"[dim]{entry.number:>5}  {entry.time}  {entry.hash[:12]}[/]  {escape(what)}  [dim]{escape(extra)}[/]"


def account(ledger: Ledger, population: str, delta: float = 1e-6) -> Account:
    """What `population` has spent, at its budget's delta or, without a budget, at `delta`."""
    budget = ledger.budget(population)
    at = budget.delta if budget else delta
    return Account(population, ledger.spent(population, at), ledger.adaptive_epsilon(population, at), budget)
