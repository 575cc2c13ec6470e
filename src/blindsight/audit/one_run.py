"""A lower bound on epsilon from one run: Steinke, Nasr and Jagielski 2023, *Privacy Auditing with One (1) Training Run*
(arXiv:2305.08846).

Each of m canaries is included in the data by its own fair coin. Afterwards the auditor scores all m on the release,
guesses "in" for the highest and "out" for the lowest scores, abstains on the rest, and compares with the coins. If the
release is (epsilon, delta)-DP, no rule guesses much better than randomised response: with r guesses the number of
correct ones is dominated by Binomial(r, e^epsilon / (1 + e^epsilon)), up to a term in delta (their Theorem 5.2; the
p-value is that of their Section 5.2 and Appendix D). An epsilon under which that many correct guesses are too unlikely
is refuted; the largest refuted epsilon is the bound.

The bound tests the implementation as it ran, and is one-sided: above the claimed epsilon it proves a bug, below it
proves nothing. With m canaries it cannot exceed about ln(m / ln(1 / (1 - confidence))), whatever the bug.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import optimize, special

from blindsight.errors import InvalidInput

__all__ = ["LowerBound", "guess_numbers", "largest_refuted", "lower_bound", "p_value"]

_LARGEST_EPSILON = 50.0  # q = 1 in double precision long before


@dataclasses.dataclass(frozen=True)
class LowerBound:
    """At `confidence`, epsilon is at least `epsilon` at `delta`: `correct` of `guesses` guesses were correct."""

    epsilon: float
    delta: float
    confidence: float
    canaries: int
    included: int
    guesses: int
    correct: int
    most: float  # the bound if all guesses had been correct: the largest that this many canaries can show

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


def p_value(correct: int, guesses: int, canaries: int, *, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of at least `correct` of `guesses`, if the release is (epsilon, delta)-DP.

    >>> round(p_value(95, 100, 1000, epsilon=1.0, delta=1e-6), 8)
    6.64e-05
    """
    if not 0 <= correct <= guesses <= canaries:
        raise InvalidInput(f"need correct <= guesses <= canaries, got {correct}, {guesses} and {canaries}")
    if not (epsilon >= 0 and 0 <= delta <= 1):
        raise InvalidInput(f"epsilon must be 0 or more and delta between 0 and 1, got {epsilon} and {delta}")
    fewer = np.arange(correct + 1)
    at_least = _at_least(correct - fewer, guesses, float(special.expit(epsilon)))
    # a failure of probability delta can flip one guess, so i of them are paid for i times
    nearly = (at_least[1:] - at_least[0]) / fewer[1:]
    return min(1.0, float(at_least[0]) + 2 * canaries * delta * float(np.max(nearly, initial=0.0)))


def _at_least(counts: np.ndarray, trials: int, probability: float) -> np.ndarray:
    """P[Binomial(trials, probability) >= count] for each of the counts."""
    some = np.maximum(counts, 1)
    return np.where(counts < 1, 1.0, special.betainc(some, trials - some + 1, probability))


def largest_refuted(correct: int, guesses: int, canaries: int, *, delta: float, significance: float) -> float:
    """The largest epsilon refuted by this many correct guesses at `significance`; 0 if there is none."""

    def excess(epsilon: float) -> float:
        return p_value(correct, guesses, canaries, epsilon=epsilon, delta=delta) - significance

    if excess(0.0) > 0:
        return 0.0
    if excess(_LARGEST_EPSILON) <= 0:  # no guess was made that could have been wrong
        return 0.0 if guesses == 0 else _LARGEST_EPSILON
    root = float(optimize.brentq(excess, 0.0, _LARGEST_EPSILON, xtol=1e-9))  # pyright: ignore[reportArgumentType]
    return max(0.0, root - 1e-9)


def guess_numbers(canaries: int) -> list[tuple[int, int]]:
    """How many canaries to call "in" and "out": the few rules that `lower_bound` tries, fixed in advance.

    All of them, or the most certain half, quarter and eighth; and only the most certain "in", because included clients
    that seldom took part look like excluded ones.
    """
    halves = [max(1, canaries // (2 * part)) for part in (1, 2, 4, 8)]
    only_in = [max(1, canaries // part) for part in (4, 8, 16, 32)]
    rules = [(half, half) for half in halves] + [(most, 0) for most in only_in]
    return list(dict.fromkeys(rule for rule in rules if sum(rule) <= canaries))


def lower_bound(
    scores: Any,
    included: Any,
    *,
    delta: float,
    confidence: float = 0.95,
    guesses: Sequence[tuple[int, int]] | None = None,
) -> LowerBound:
    """The bound from the canaries' `scores` (high for a suspected "in") and the coins that `included` them.

    `guesses` lists how many to call "in" and "out", chosen without looking at the coins. If there are several pairs the
    best counts, each at its share of the permitted error (a union bound). Ties go to the earlier canary.

    **Guarantee**: if the release was (epsilon, delta)-DP for every canary and the coins were fair and independent, the
    result exceeds epsilon with probability at most 1 - `confidence`.
    """
    values, coins = np.asarray(scores, np.float64), np.asarray(included)
    if values.ndim != 1 or values.shape != coins.shape or coins.dtype != np.bool_ or len(values) == 0:
        raise InvalidInput(
            f"there must be one score and one coin for each canary, got {values.shape} and {coins.shape}"
        )
    if np.isnan(values).any():
        raise InvalidInput("a canary's score is NaN: the released model or its loss is broken")
    if not 0.5 <= confidence < 1:
        raise InvalidInput(f"confidence must lie between 0.5 and 1, got {confidence}")
    count = len(values)
    rules = list(guess_numbers(count) if guesses is None else guesses)
    if not rules or any(most < 0 or least < 0 or not 1 <= most + least <= count for most, least in rules):
        raise InvalidInput(f"the number of guesses must be between 1 and {count}, got {rules}")
    significance = (1 - confidence) / len(rules)
    ranked = coins[np.argsort(-values, kind="stable")]

    def bound(correct: int, guessed: int) -> float:
        return largest_refuted(correct, guessed, count, delta=delta, significance=significance)

    tried: list[tuple[float, int, int]] = []
    for most, least in rules:
        correct = int(np.sum(ranked[:most])) + int(np.sum(~ranked[count - least :]))
        tried.append((bound(correct, most + least), most + least, correct))
    epsilon, guessed, correct = max(tried, key=lambda one: one[0])
    return LowerBound(
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        canaries=count,
        included=int(np.sum(coins)),
        guesses=guessed,
        correct=correct,
        most=max(bound(most + least, most + least) for most, least in rules),
    )
