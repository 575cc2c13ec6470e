"""The closed-form privacy curve of the Gaussian mechanism, and of rounds whose participants the adversary knows.

`mu` is the distance one client moves the mean of a release, in standard deviations of its noise: `1 / noise_multiplier`
under add or remove, twice that under replace. Gaussian releases compose to one Gaussian release whose mu^2 is the sum.
"""

import bisect
import dataclasses
import itertools
import math
from collections.abc import Mapping

import numpy as np
from scipy import optimize, special, stats

from blindsight.accounting.events import Event, FixedSize, Gaussian, Poisson, Relation

__all__ = ["KnownRounds", "gaussian_delta"]

_TAIL = 1e-20  # probability of the numbers of rounds that are skipped; added to delta
_MOST_CASES = 10**6


def gaussian_delta(mu: np.ndarray | float, epsilon: float) -> np.ndarray:
    """The smallest delta of a Gaussian release at each `mu` (Balle and Wang 2018, Theorem 8).

    >>> round(float(gaussian_delta(1.0, 0.0)), 6)  # the total variation distance, 2 Phi(1/2) - 1
    0.382925
    """
    moved = np.asarray(mu, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        tail, other = (special.log_ndtr(sign * moved / 2 - epsilon / moved) for sign in (1, -1))
        delta = -np.exp(tail) * np.expm1(np.minimum(0.0, epsilon + other - tail))
    return np.where((moved == 0) | (tail == -math.inf), 0.0, delta)


@dataclasses.dataclass(frozen=True)
class KnownRounds:
    """The curve of sampled Gaussian rounds if the adversary also knew which rounds include the client.

    **Why it is an upper bound.** Let k be the number of rounds that the client's coins choose; coins depend on nothing
    else. Given the coins, the rounds are adaptive Gaussian releases of which k depend on the client: mu^2 = k / z^2.
    The rounds with the client are the mixture of these over the coins, and the divergence behind delta is convex, in
    either direction: delta is at most the mean over k. (Under replace both clients use the same coins, and move the sum
    by two bounds.) It is tight where there is so little noise that a release reveals its own participants; Renyi
    divergences and privacy losses on a grid fail there.
    """

    mu: np.ndarray
    probability: np.ndarray
    unseen: float
    accountant: str = "Gaussian given the rounds"

    @classmethod
    def of(cls, leaves: Mapping[Event, int], relation: Relation) -> "KnownRounds | None":
        """The curve of Gaussian releases, sampled or not; None if it is unknown or would be too large."""
        bounds = 2 if relation is Relation.REPLACE else 1
        cases: list[tuple[np.ndarray, np.ndarray]] = []
        for leaf, count in leaves.items():
            noise = leaf.event if isinstance(leaf, Poisson | FixedSize) else leaf
            if not isinstance(noise, Gaussian) or (isinstance(leaf, FixedSize) and relation is not Relation.REPLACE):
                return None
            if not (distribution := _rounds(count, _rate(leaf))):
                return None
            rounds, probability = distribution
            cases.append((rounds * (bounds / noise.noise_multiplier) ** 2, probability))
        if math.prod(len(squares) for squares, _ in cases) > _MOST_CASES:
            return None
        square, probability = np.zeros(1), np.ones(1)
        for more, chance in cases:
            square, probability = np.add.outer(square, more).ravel(), np.multiply.outer(probability, chance).ravel()
        return cls(np.sqrt(square), probability, _TAIL * len(cases))

    def delta(self, epsilon: float) -> float:
        """The mean over the number of rounds."""
        return min(1.0, float(self.probability @ gaussian_delta(self.mu, epsilon)) + self.unseen)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon for `delta`, rounded up."""
        if delta <= self.unseen:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        high = next(2.0**n for n in itertools.count() if self.delta(2.0**n) <= delta)
        root = float(optimize.brentq(lambda at: self.delta(at) - delta, 0.0, high, xtol=1e-9, rtol=1e-9))  # pyright: ignore[reportArgumentType]
        return min(high, root * (1 + 1e-8) + 1e-8)  # brentq may stop on either side of the root


def _rate(leaf: Event) -> float:
    if isinstance(leaf, FixedSize):
        return leaf.cohort / leaf.population
    return leaf.rate if isinstance(leaf, Poisson) else 1.0


def _rounds(count: int, rate: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Numbers of rounds and their probabilities, or None if too many; those below the first count as the first."""
    if rate >= 1.0:
        return np.array([float(count)]), np.ones(1)
    if count * rate * (1 - rate) > (_MOST_CASES / 20) ** 2:  # squared standard deviation; 20 of them are covered
        return None
    low = int(stats.binom.ppf(_TAIL, count, rate))
    # SciPy's `isf` computes 1 - _TAIL, which rounds to 1, and would return all rounds.
    high = bisect.bisect_left(range(count), -_TAIL, lo=low, key=lambda many: -float(stats.binom.sf(many, count, rate)))
    rounds = np.arange(low, high + 1)
    probability = np.asarray(stats.binom.pmf(rounds, count, rate), np.float64)
    probability[0] = stats.binom.cdf(low, count, rate)
    return rounds.astype(np.float64), probability
