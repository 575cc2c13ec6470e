"""The library's privacy-loss distribution of a sampled Gaussian, for all losses of the grid at once.

dp-accounting inverts the privacy loss at one grid point after the other, in Python: a second for each distribution, and
a plan asks for dozens. These are its formulas on arrays; a test holds every probability against the library's own.
"""

import math
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from scipy import stats

from blindsight.accounting.events import Relation

__all__ = ["optimistic_poisson", "poisson", "truncated_poisson"]


def poisson(noise_multiplier: float, rate: float, relation: Relation, interval: float) -> PrivacyLossDistribution:
    """The distribution of a Gaussian sum over clients that are each drawn with probability `rate`."""
    if relation is Relation.REPLACE:
        return PrivacyLossDistribution(_masses(noise_multiplier, rate, AdjacencyType.REPLACE, interval))
    sides = (AdjacencyType.REMOVE, AdjacencyType.ADD) if rate < 1 else (AdjacencyType.REMOVE,)  # alike without sampling
    return PrivacyLossDistribution(*(_masses(noise_multiplier, rate, side, interval) for side in sides))


def truncated_poisson(
    noise_multiplier: float, population: int, rate: float, limit: int, relation: Relation, interval: float
) -> PrivacyLossDistribution:
    """The same with at most `limit` of those drawn, chosen uniformly.

    Where the limit is not reached this is Poisson sampling. Where it is, a client's presence may displace another's,
    which moves the sum by twice the bound: replacement at half the multiplier (Ganesh 2024, arXiv:2406.17298).

    Args:
        noise_multiplier: Standard deviation of the noise, divided by the bound.
        population: Number of clients.
        rate: Probability that a client is drawn.
        limit: Most clients in a round.
        relation: Which data sets are neighbours.
        interval: Grid of the privacy loss; smaller is tighter and slower.
    """
    untouched = poisson(noise_multiplier, rate, relation, interval)
    truncated = float(stats.binom.sf(limit - 1, population - 1, rate))  # given that the client in question was drawn
    if truncated == 0.0:
        return untouched
    drawn = float(stats.binom.sf(limit, population, rate)) * limit / truncated / population
    return poisson(noise_multiplier / 2, drawn, Relation.REPLACE, interval).compute_mixture(untouched, truncated)


def optimistic_poisson(noise_multiplier: float, rate: float, interval: float) -> PrivacyLossDistribution:
    """As `poisson` under add-or-remove, but with every loss rounded down: for lower bounds."""
    sides = (AdjacencyType.REMOVE, AdjacencyType.ADD) if rate < 1 else (AdjacencyType.REMOVE,)
    return PrivacyLossDistribution(*(_masses_rounded_down(noise_multiplier, rate, side, interval) for side in sides))


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
    masses = dict(zip([*buckets.tolist(), highest - len(buckets)], np.diff(reached).tolist(), strict=True))
    for value, mass in tail.tail_probability_mass_function.items():  # rounded down, so that none of them is infinite
        step = math.floor(value / interval)
        masses[step] = masses.get(step, 0.0) + float(mass)
    return pld_pmf.create_pmf(masses, interval, 0.0, pessimistic_estimate=False)


class _GaussianLoss(GaussianPrivacyLoss):
    """The library's loss of a sampled Gaussian; the hockey-stick divergence takes an array of epsilons in one go."""

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
        """Up to which output the privacy loss is at least each of `losses`."""
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
            found = scaled + np.log1p(-np.exp(np.log(1 / self.sampling_prob - 1) - scaled))
        return np.where(at_edge, -np.inf, np.where(losses == 0, 0.0, found))
