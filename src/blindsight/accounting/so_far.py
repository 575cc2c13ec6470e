"""What a ledger said of a population at one moment: it stands beside the guarantee of every single run.

A run's guarantee covers the run's own releases. Someone who has seen the reports of several runs has seen all of their
releases, and what these amount to together only the ledger knows. So a report quotes it, with the time: it is true of
what was recorded until then, and the next release makes it old.
"""

import dataclasses
import datetime
import math
from collections.abc import Mapping
from typing import Any

from blindsight.accounting.guarantee import round_up
from blindsight.accounting.ledger import Ledger, Payers, names_of
from blindsight.errors import PrivacyError

__all__ = ["SpentSoFar", "spent_so_far"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpentSoFar:
    """All releases about `population` by all runs until `time`; an infinite epsilon where none can be stated."""

    population: str
    epsilon: float
    delta: float
    releases: int
    time: str
    budget: float | None = None

    def __str__(self) -> str:
        amount = f"epsilon {round_up(self.epsilon)}" if self.epsilon < math.inf else "no finite epsilon"
        allowed = "" if self.budget is None else f", of a budget of {self.budget:g}"
        releases = f"{self.releases:,} release{'' if self.releases == 1 else 's'}"
        return (
            f"All runs on {self.population} combined: {amount} at delta {self.delta:.3g} for {releases}{allowed}, "
            f"according to the ledger at {self.time}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite epsilon becomes the string `"inf"`."""
        return dataclasses.asdict(self) | ({"epsilon": "inf"} if self.epsilon == math.inf else {})

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "SpentSoFar":
        """What `to_dict` was called on."""
        fields: dict[str, Any] = {**value, "epsilon": float(value["epsilon"])}
        return cls(**fields)


def spent_so_far(ledger: Ledger, population: Payers, delta: float) -> tuple[SpentSoFar, ...]:
    """What the ledger says now of each population, at `delta`, or at its budget's delta where it has a budget."""
    return tuple(_of(ledger, name, delta) for name in names_of(population))


def _of(ledger: Ledger, name: str, delta: float) -> SpentSoFar:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    budget = ledger.budget(name)
    at = delta if budget is None else budget.delta
    try:
        spent = ledger.spent(name, at)
        epsilon, releases = spent.epsilon, spent.releases
    except PrivacyError:  # no bound is known: whatever was released stands, and nothing finite may be said of it
        epsilon, releases = math.inf, sum(entry.kind == "release" for entry in ledger.entries(name))
    return SpentSoFar(
        population=name,
        epsilon=epsilon,
        delta=at,
        releases=releases,
        time=now,
        budget=None if budget is None else budget.epsilon,
    )
