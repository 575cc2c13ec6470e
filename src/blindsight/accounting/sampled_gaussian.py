"""The library's privacy-loss distribution of a sampled Gaussian, vectorised over the grid.

dp-accounting inverts the privacy loss one grid point at a time, in Python: a second for each distribution, and a plan
needs dozens. These are its formulas on arrays; a test compares every probability with the library's own.
"""

import math
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from scipy import special, stats

from blindsight.accounting.events import Relation

__all__ = ["at_the_limit", "fixed_size_renyi", "optimistic_poisson", "poisson", "poisson_renyi", "truncated_poisson"]

_EXACT_ORDER = 256  # beyond, the differences of the fixed-size bound are left out, as in the library


def poisson(noise_multiplier: float, rate: float, relation: Relation, interval: float) -> PrivacyLossDistribution:
    """The distribution of a Gaussian sum over clients that are each drawn with probability `rate`."""
    if relation is Relation.REPLACE:
        return PrivacyLossDistribution(_masses(noise_multiplier, rate, AdjacencyType.REPLACE, interval))
    sides = (AdjacencyType.REMOVE, AdjacencyType.ADD) if rate < 1 else (AdjacencyType.REMOVE,)  # equal without sampling
    return PrivacyLossDistribution(*(_masses(noise_multiplier, rate, side, interval) for side in sides))


def truncated_poisson(
    noise_multiplier: float, population: int, rate: float, limit: int, relation: Relation, interval: float
) -> PrivacyLossDistribution:
    """The same with at most `limit` of those drawn, chosen uniformly.

    Below the limit this is Poisson sampling. At the limit, a client's presence may displace another client, which moves
    the sum by twice the bound: replacement at half the multiplier (Ganesh 2024, arXiv:2406.17298).

    Args:
        noise_multiplier: Standard deviation of the noise, divided by the bound.
        population: Number of clients.
        rate: Probability that a client is drawn.
        limit: Maximum number of clients in a round.
        relation: Which data sets are neighbours.
        interval: Grid of the privacy loss; smaller is tighter and slower.
    """
    untouched = poisson(noise_multiplier, rate, relation, interval)
    truncated, drawn = at_the_limit(population, rate, limit)
    if truncated == 0.0:
        return untouched
    return poisson(noise_multiplier / 2, drawn, Relation.REPLACE, interval).compute_mixture(untouched, truncated)


def at_the_limit(population: int, rate: float, limit: int) -> tuple[float, float]:
    """The probability that a drawn client meets a full cohort, and that of being kept then."""
    truncated = float(stats.binom.sf(limit - 1, population - 1, rate))  # given that the client was drawn
    if truncated == 0.0:
        return 0.0, 0.0
    return truncated, float(stats.binom.sf(limit, population, rate)) * limit / truncated / population


def optimistic_poisson(noise_multiplier: float, rate: float, interval: float) -> PrivacyLossDistribution:
    """As `poisson` under add-or-remove, but with every loss rounded down: for lower bounds."""
    sides = (AdjacencyType.REMOVE, AdjacencyType.ADD) if rate < 1 else (AdjacencyType.REMOVE,)
    return PrivacyLossDistribution(*(_masses_rounded_down(noise_multiplier, rate, side, interval) for side in sides))


def poisson_renyi(noise_multiplier: float, rate: float, orders: np.ndarray) -> np.ndarray:
    """The Renyi divergences of whole `orders` (Mironov, Talwar and Zhang 2019, Section 3.3).

    The moment of order a is the mean of e^((k^2 - k) / (2 z^2)) over a binomial number k of a coins. The exponent is 0
    for k < 2, so the moment is 1 plus the mean of e^(...) - 1 over larger k: written that way, no digit is lost at
    rates so small that the moment itself rounds to 1, where the library's sum returns zero or less.
    """
    if rate == 0:
        return np.zeros(len(orders))
    if rate == 1:
        return orders / (2 * noise_multiplier**2)
    divergences = list[float]()
    for order in orders.tolist():
        many = np.arange(2, order + 1)
        exponent = (many**2 - many) / (2 * noise_multiplier**2)
        coins = special.gammaln(order + 1) - special.gammaln(many + 1) - special.gammaln(order - many + 1)
        coins += many * math.log(rate) + (order - many) * math.log1p(-rate)
        beyond_one: Any = special.logsumexp(coins + exponent + np.log(-np.expm1(-exponent)))
        divergences.append(float(np.logaddexp(0.0, beyond_one) if beyond_one > -30 else np.exp(beyond_one)))
    return np.array(divergences) / (orders - 1)


def fixed_size_renyi(noise_multiplier: float, rate: float, orders: np.ndarray) -> np.ndarray:
    """The Renyi divergences of whole `orders` if exactly a share `rate` is drawn, under replacement at one bound.

    Wang, Balle and Kasiviswanathan 2019, Theorem 27. Its differences do not depend on the order: the library computes
    them again for each, number by number, which takes a quarter of a second.
    """
    if rate == 1:
        return orders / (2 * noise_multiplier**2)
    most = int(np.max(orders))
    power = np.arange(most + 1)
    moment = np.maximum(power - 1.0, 0) * power / (2 * noise_multiplier**2)  # (i - 1) times the divergence of order i
    terms = math.log(2) + moment
    exact = min(most, _EXACT_ORDER)
    differences = _differences(noise_multiplier, exact + 1)
    near = power[3 : exact + 1]
    around = (differences[2 * (near // 2) - 1] + differences[2 * ((near + 1) // 2) - 1]) / 2
    bounded = np.minimum(math.log(4) + around, terms[3 : exact + 1])
    second = 1 / noise_multiplier**2
    terms[2] = min(math.log(4) + second + math.log(-math.expm1(-second)), math.log(2) + second)
    divergences = list[float]()
    for order in orders.tolist():
        many = power[2 : order + 1]
        parts = terms[2 : order + 1].copy()
        if order <= _EXACT_ORDER:
            parts[1:] = bounded[: order - 2]
        coins = special.gammaln(order + 1) - special.gammaln(many + 1) - special.gammaln(order - many + 1)
        divergences.append(float(np.logaddexp.reduce(parts + coins + many * math.log(rate), initial=0.0)))
    return np.array(divergences) / (orders - 1)


def _differences(noise_multiplier: float, count: int) -> np.ndarray:
    """Logarithms of the first `count` forward differences at -1 of the Gaussian's moments, by size; of any sign."""
    place = np.arange(-1.0, count)
    logs, positive = place * (place + 1) / (2 * noise_multiplier**2), np.ones(count + 1, bool)
    found = np.empty(count)
    with np.errstate(divide="ignore", invalid="ignore"):  # the logarithm of zero
        for number in range(count):
            before, after, same = logs[:-1], logs[1:], positive[:-1] == positive[1:]
            high, low = np.maximum(before, after), np.minimum(before, after)
            apart = np.where(high == -math.inf, -math.inf, low - high)
            logs = high + np.log1p(np.where(same, -np.exp(apart), np.exp(apart)))
            positive = np.where(same, (after >= before) == positive[1:], positive[1:])
            found[number] = logs[0]
    return found


def _masses(noise_multiplier: float, rate: float, side: AdjacencyType, interval: float) -> Any:
    kind = _GaussianLoss if rate < 1 else GaussianPrivacyLoss
    loss = kind(noise_multiplier, sampling_prob=rate, adjacency_type=side)
    bounds: Any = loss.connect_dots_bounds()
    low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
    deltas = loss.get_delta_for_epsilon(np.arange(low, high + 1) * interval)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)


def _masses_rounded_down(noise_multiplier: float, rate: float, side: AdjacencyType, interval: float) -> Any:
    """The probability of each multiple of `interval`, standing for all losses up to the next ("privacy buckets")."""
    loss = _GaussianLoss(noise_multiplier, sampling_prob=rate, adjacency_type=side, pessimistic_estimate=False)
    tail = loss.privacy_loss_tail()
    highest = math.floor(loss.privacy_loss(tail.lower_x_truncation) / interval)
    lowest = loss.privacy_loss(tail.upper_x_truncation)
    buckets = np.arange(highest, math.floor(lowest / interval) - 1, -1)
    buckets = buckets[buckets * interval > lowest]
    edges = [[tail.lower_x_truncation], loss.cutoffs(buckets * interval), [tail.upper_x_truncation]]
    reached: Any = loss.mu_upper_cdf(np.concatenate(edges))
    tails = tail.tail_probability_mass_function
    steps = [math.floor(value / interval) for value in tails]  # rounded down, so that none of them is infinite
    first, last = min(highest - len(buckets), *steps), max(highest, *steps)
    masses = np.zeros(last - first + 1)
    masses[np.arange(highest, highest - len(buckets) - 1, -1) - first] = np.diff(reached)
    np.add.at(masses, np.array(steps) - first, list(tails.values()))
    return pld_pmf.DensePLDPmf(interval, first, masses, 0.0, pessimistic_estimate=False)


class _GaussianLoss(GaussianPrivacyLoss):
    """The library's loss of a sampled Gaussian, with a hockey-stick divergence that takes an array of epsilons."""

    def get_delta_for_epsilon(self, epsilon: Any) -> Any:
        if np.ndim(epsilon) == 0:
            return super().get_delta_for_epsilon(epsilon)
        epsilons: np.ndarray = np.asarray(epsilon, float)
        deltas, edge = np.zeros_like(epsilons), math.log1p(-self.sampling_prob)
        inside = np.ones_like(epsilons, bool)
        if self.adjacency_type is AdjacencyType.ADD:
            inside = epsilons < -edge  # beyond, the divergence is zero
        elif self.adjacency_type is AdjacencyType.REMOVE:
            inside = epsilons > edge
            deltas[~inside] = -np.expm1(epsilons[~inside])
        reached = self.cutoffs(epsilons[inside])
        lower: Any = self.mu_lower_log_cdf(reached)
        deltas[inside] = self.mu_upper_cdf(reached) - np.exp(epsilons[inside] + lower)
        return np.clip(deltas, 0, 1)

    def cutoffs(self, losses: np.ndarray) -> np.ndarray:
        """The outputs up to which the privacy loss is at least each of `losses`."""
        if self.adjacency_type is AdjacencyType.REPLACE:
            return self._cutoffs_replace(losses)
        if self.sampling_prob == 1.0:
            unsampled = losses
        elif self.adjacency_type is AdjacencyType.ADD:
            unsampled = -self._log_unsampled(-losses)
        else:
            unsampled = self._log_unsampled(losses)
        shift = self.sensitivity if self.adjacency_type is AdjacencyType.ADD else 0.0
        return shift - 0.5 * self.sensitivity - unsampled * self._standard_deviation**2 / self.sensitivity

    def _cutoffs_replace(self, losses: np.ndarray) -> np.ndarray:
        rate, std = self.sampling_prob, self._standard_deviation
        log_alpha = 0.5 * (self.sensitivity / std) ** 2 + math.log1p(-rate) - math.log(rate)
        size = np.abs(losses)
        with np.errstate(divide="ignore"):  # a loss of zero: sinh is zero, and so is the cutoff
            log_sinh = size / 2 + np.log1p(-np.exp(-size)) - math.log(2)
            term = log_alpha + log_sinh
        asinh = -np.sign(losses) * np.logaddexp(0.5 * np.logaddexp(0, 2 * term), term)
        return std**2 / self.sensitivity * (asinh - losses / 2)

    def _log_unsampled(self, losses: np.ndarray) -> np.ndarray:
        """log(1 + (e^loss - 1) / rate): the loss without sampling that becomes `losses` with it; -inf at the edge."""
        scaled = losses + np.log(1 / self.sampling_prob)
        at_edge = np.isclose(losses, math.log(1 - self.sampling_prob), rtol=1e-9, atol=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            unsampled = scaled + np.log1p(-np.exp(np.log(1 / self.sampling_prob - 1) - scaled))
        return np.where(at_edge, -np.inf, np.where(losses == 0, 0.0, unsampled))
