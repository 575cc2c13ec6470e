"""A population's total spending at one moment, reported next to the guarantee of every run.

A run's guarantee covers the run's own releases. Someone who has seen the reports of several runs has seen all of their
releases, and only the ledger knows their combined cost. So a report quotes it, with the time: it covers everything
recorded until then, and the next release makes it outdated.
"""

import dataclasses
import datetime
import math
from collections.abc import Mapping
from typing import Any

from blindsight.accounting.events import Event
from blindsight.accounting.guarantee import round_up
from blindsight.accounting.ledger import Ledger, Payers, names_of
from blindsight.errors import PrivacyError

__all__ = ["SpentSoFar", "spent_afterwards", "spent_so_far"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpentSoFar:
    """The cost of all releases about `population` by all runs until `time`; infinite if no epsilon can be stated.

    It holds if questions were chosen after reading earlier answers, and budgets are compared with it. `planned` is the
    cost if all of them had been planned in advance. `after` is the cost after a question that is only rehearsed, and
    `refused` why the ledger would not allow it.
    """

    population: str
    epsilon: float
    delta: float
    releases: int
    time: str
    planned: float | None = None
    budget: float | None = None
    after: float | None = None
    refused: str = ""

    def __str__(self) -> str:
        amount = f"epsilon {round_up(self.epsilon)}" if self.epsilon < math.inf else "no finite epsilon"
        if self.planned is not None and round_up(self.planned) != round_up(self.epsilon) and self.epsilon < math.inf:
            amount += f" ({round_up(self.planned)} if planned in advance)"
        allowed = "" if self.budget is None else f", of a budget of {self.budget:g}"
        releases = f"{self.releases:,} release{'' if self.releases == 1 else 's'}"
        after = math.inf if self.after is None else self.after
        then = f" After this question: epsilon {round_up(after)}." if after < math.inf else ""
        then += f" The ledger would refuse it: {self.refused}." if self.refused else ""
        return (
            f"All runs on {self.population} combined: {amount} at delta {self.delta:.3g} for {releases}{allowed}, "
            f"according to the ledger at {self.time}.{then}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite epsilon becomes the string `"inf"`."""
        plain = dataclasses.asdict(self)
        plain |= {name: "inf" for name in ("epsilon", "planned", "after") if plain[name] == math.inf}
        return plain if self.after is not None else {k: v for k, v in plain.items() if k not in ("after", "refused")}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "SpentSoFar":
        """The inverse of `to_dict`."""
        fields: dict[str, Any] = {**value, "epsilon": float(value["epsilon"])}
        fields |= {name: float(value[name]) for name in ("planned", "after") if value.get(name) is not None}
        return cls(**fields)


def spent_so_far(ledger: Ledger, population: Payers, delta: float) -> tuple[SpentSoFar, ...]:
    """The current spending of each population, at `delta`, or at its budget's delta if it has a budget."""
    return tuple(_of(ledger, name, delta) for name in names_of(population))


def spent_afterwards(ledger: Ledger, population: Payers, event: Event, delta: float) -> tuple[SpentSoFar, ...]:
    """The same, with the spending of each population after `event`, which is not recorded."""
    now = spent_so_far(ledger, population, delta)
    then = [_foreseen(ledger, event, one) for one in now]
    return tuple(
        dataclasses.replace(one, after=after, refused=refused) for one, (after, refused) in zip(now, then, strict=True)
    )


def _foreseen(ledger: Ledger, event: Event, one: SpentSoFar) -> tuple[float, str]:
    try:
        _, refused = ledger.foresee(event, one.population, one.delta)
        return ledger.adaptive_epsilon(one.population, one.delta, more=event), refused
    except PrivacyError as error:
        return math.inf, str(error)


def _of(ledger: Ledger, name: str, delta: float) -> SpentSoFar:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    budget = ledger.budget(name)
    at = delta if budget is None else budget.delta
    try:
        spent = ledger.spent(name, at)
        epsilon, planned, releases = ledger.adaptive_epsilon(name, at), spent.epsilon, spent.releases
    except PrivacyError:  # no bound is known, so nothing finite may be stated
        epsilon = planned = math.inf
        releases = sum(entry.kind == "release" for entry in ledger.entries(name))
    return SpentSoFar(
        population=name,
        epsilon=epsilon,
        delta=at,
        releases=releases,
        time=now,
        planned=planned,
        budget=None if budget is None else budget.epsilon,
    )
