"""Budgets: how much epsilon may be spent on one population, and how much is spent."""

import dataclasses
import math

from blindsight.accounting.guarantee import Guarantee
from blindsight.errors import InvalidInput

__all__ = ["Balance", "PopulationBudget", "delta_for"]


@dataclasses.dataclass(frozen=True)
class PopulationBudget:
    """The total epsilon that may be spent on one population, at a given delta."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise InvalidInput(f"a budget's epsilon must be a finite number >= 0, got {self.epsilon}")
        if not 0 < self.delta < 1:
            raise InvalidInput(
                f"a budget's delta must lie between 0 and 1, got {self.delta}; a common choice is population^-1.1"
            )


@dataclasses.dataclass(frozen=True)
class Balance:
    """A budget and what has been spent of it.

    `spent` holds for releases that were planned in advance. Budgets are compared with `adaptive_epsilon`, which also
    holds for adaptive choices: the smallest budget that would have allowed everything so far.
    """

    population: str
    budget: PopulationBudget
    spent: Guarantee
    adaptive_epsilon: float

    @property
    def overspent(self) -> bool:
        """Whether the budget was lowered below what is already spent; nothing more can be released."""
        return self.adaptive_epsilon > self.budget.epsilon

    @property
    def remaining(self) -> float:
        """Epsilon left, at least 0. Only a rough guide: the epsilons of several releases do not add up."""
        return max(0.0, self.budget.epsilon - self.adaptive_epsilon)


def delta_for(population: str, delta: float | None, budget: PopulationBudget | None) -> float:
    """`delta` if given, otherwise the budget's."""
    if delta is None and budget is None:
        raise InvalidInput(f"population {population!r} has no budget: give a delta at which to state its epsilon")
    chosen = budget.delta if delta is None and budget is not None else delta
    if chosen is None or not 0 < chosen < 1:
        raise InvalidInput(f"delta must lie between 0 and 1, got {chosen}; a common choice is population^-1.1")
    return chosen
