"""The privacy loss of one elementary event, once: as a distribution on a grid, and as Renyi divergences.

Dispatch is by event type, so a type without a bound is refused by name, and none can forget its count: counting is done
elsewhere. Under `replace`, unsampled and fixed-size events are bounded at half their multiplier, because replacing a
client moves a clipped sum by twice its bound.
"""

import functools
import math
from collections import Counter
from typing import Any

import numpy as np
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import privacy_loss_distribution as upstream_pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.rdp import rdp_privacy_accountant as upstream_rdp

from blindsight.accounting import sampled_gaussian, self_composition
from blindsight.accounting.events import (
    Event,
    FixedSize,
    Gaussian,
    Laplace,
    NonPrivate,
    Poisson,
    PureDP,
    RandomizedResponse,
    Relation,
    Thresholded,
    TruncatedPoisson,
)
from blindsight.errors import RelationMismatch, UnknownEvent

__all__ = ["LARGEST_LOSS", "ORDERS", "Distribution", "epsilon_for_delta", "halved_under_replace", "is_non_private"]
__all__ += ["largest_loss", "pld", "pure_loss", "rdp", "self_composed", "self_composed_pld"]

Distribution = upstream_pld.PrivacyLossDistribution

ORDERS = np.array([*range(2, 65), 96, 128, 256, 512, 1024])
"""The Renyi orders: integers only, as the series for fractions may not converge."""

LARGEST_LOSS = 600.0
"""The largest loss of one release that a grid can hold: its exponential is still finite."""

_SMALL_LOSS = 1e-6  # below this the library's formulas for pure losses cancel to zero or less
_LEAST_NOISE = 1e-50  # less counts as no noise


@functools.lru_cache(maxsize=8)  # a ledger needs the same composition with every release
def self_composed_pld(leaf: Event, count: int, relation: Relation, interval: float) -> Distribution:
    """The distribution of `count` releases of `leaf`."""
    return self_composed(pld(leaf, relation, interval), count)


def self_composed(distribution: Distribution, count: int) -> Distribution:
    """The distribution of `count` independent releases, on arrays.

    The library keeps few points in a dictionary, and computes `size ** count`, digit by digit, to learn that the result
    does not fit into one: minutes for 10^8 rounds.
    """
    if count == 1:
        return distribution
    sides: list[Any] = [distribution._pmf_remove]  # pyright: ignore[reportPrivateUsage]
    if not distribution._symmetric:  # pyright: ignore[reportPrivateUsage]
        sides.append(distribution._pmf_add)  # pyright: ignore[reportPrivateUsage]
    return Distribution(*(self_composition.self_composed(side.to_dense_pmf(), count) for side in sides))


def epsilon_for_delta(distribution: Distribution, delta: float) -> float:
    """The library's `get_epsilon_for_delta` on arrays: its loop over losses, in Python, takes longer than composing."""
    sides: list[Any] = [distribution._pmf_remove]  # pyright: ignore[reportPrivateUsage]
    if not distribution._symmetric:  # pyright: ignore[reportPrivateUsage]
        sides.append(distribution._pmf_add)  # pyright: ignore[reportPrivateUsage]
    return max(_epsilon_of_side(side.to_dense_pmf(), delta) for side in sides)


def _epsilon_of_side(side: Any, delta: float) -> float:
    if side._infinity_mass > delta:
        return math.inf
    first = min(max(0, 1 - side._lower_loss), len(side._probs))  # losses of 0 or less do not matter
    masses = side._probs[first:][::-1]
    loss = (side._lower_loss + np.arange(first, len(side._probs)))[::-1] * side._discretization
    # Probability of the outcomes with the largest losses, with the client and without.
    upper = np.cumsum(np.concatenate([[side._infinity_mass], masses]))
    lower = np.cumsum(np.concatenate([[0.0], np.exp(-loss) * masses]))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reached = np.log((upper - delta) / lower)
    beyond = np.flatnonzero((upper[1:] >= delta) & (lower[1:] == 0))  # the exponential of such a loss overflows
    if len(beyond):
        return float(loss[beyond[0]])
    enough = np.flatnonzero((upper[:-1] > delta) & (reached[:-1] >= loss))
    last = float(reached[enough[0] if len(enough) else -1])
    return last if last > 0 else 0.0


@functools.singledispatch
def pld(event: Event, relation: Relation, interval: float) -> Distribution:
    """The privacy-loss distribution of one release, rounded up to multiples of `interval`."""
    raise _unknown(event)


@pld.register
def _(event: Gaussian, relation: Relation, interval: float) -> Distribution:
    return upstream_pld.from_gaussian_mechanism(
        halved_under_replace(event.noise_multiplier, relation), value_discretization_interval=interval
    )


@pld.register
def _(event: Laplace, relation: Relation, interval: float) -> Distribution:
    if event.discrete:
        return pld(PureDP(1 / event.noise_multiplier), relation, interval)
    return upstream_pld.from_laplace_mechanism(
        halved_under_replace(event.noise_multiplier, relation), value_discretization_interval=interval
    )


@pld.register
def _(event: RandomizedResponse, relation: Relation, interval: float) -> Distribution:
    _needs_replace(event, relation)
    if event.epsilon < _SMALL_LOSS:
        return pld(PureDP(event.epsilon, Relation.REPLACE), relation, interval)
    return upstream_pld.from_randomized_response(
        _noise_parameter(event), event.buckets, value_discretization_interval=interval
    )


@pld.register
def _(event: PureDP, relation: Relation, interval: float) -> Distribution:
    return upstream_pld.from_privacy_parameters(
        DifferentialPrivacyParameters(_pure_epsilon(event, relation), 0.0), value_discretization_interval=interval
    )


@pld.register
def _(event: Poisson, relation: Relation, interval: float) -> Distribution:
    noise = event.event
    if event.rate == 0:
        return upstream_pld.identity(value_discretization_interval=interval)
    if isinstance(noise, Gaussian):  # here the library's own `replace` is correct: it moves the sum by 2S
        return sampled_gaussian.poisson(noise.noise_multiplier, event.rate, relation, interval)
    if isinstance(noise, Laplace) and not noise.discrete and relation is Relation.ADD_OR_REMOVE:
        return upstream_pld.from_laplace_mechanism(
            noise.noise_multiplier, sampling_prob=event.rate, value_discretization_interval=interval
        )
    raise _unknown(event)


@pld.register
def _(event: TruncatedPoisson, relation: Relation, interval: float) -> Distribution:
    if not isinstance(event.event, Gaussian):
        raise _unknown(event)
    return sampled_gaussian.truncated_poisson(
        event.event.noise_multiplier, event.population, event.rate, event.limit, relation, interval
    )


@functools.singledispatch
def rdp(event: Event, relation: Relation) -> np.ndarray:
    """The Renyi divergences of one release at `ORDERS`."""
    raise _unknown(event)


@rdp.register
def _(event: Gaussian, relation: Relation) -> np.ndarray:
    return _upstream_rdp(dp_event.GaussianDpEvent(halved_under_replace(event.noise_multiplier, relation)))


@rdp.register
def _(event: Laplace, relation: Relation) -> np.ndarray:
    loss = pure_loss(event, relation)
    if event.discrete or loss < _SMALL_LOSS:
        return _rdp_of_pure(loss)
    return _upstream_rdp(dp_event.LaplaceDpEvent(1 / loss))


@rdp.register
def _(event: RandomizedResponse, relation: Relation) -> np.ndarray:
    _needs_replace(event, relation)
    if not _SMALL_LOSS <= event.epsilon <= LARGEST_LOSS:
        return _rdp_of_pure(event.epsilon)
    return _upstream_rdp(
        dp_event.RandomizedResponseDpEvent(_noise_parameter(event), event.buckets), NeighboringRelation.REPLACE_ONE
    )


@rdp.register
def _(event: PureDP, relation: Relation) -> np.ndarray:
    return _rdp_of_pure(pure_loss(event, relation))


def _rdp_of_pure(loss: float) -> np.ndarray:
    if _SMALL_LOSS <= loss <= LARGEST_LOSS:
        # Binary randomised response is the worst mechanism of its epsilon (Kairouz, Oh and Viswanath 2015).
        return rdp(RandomizedResponse(loss, 2), Relation.REPLACE)
    return loss * np.minimum(1.0, ORDERS * min(loss, 1.0) / 2)  # Bun and Steinke 2016, Proposition 3.3


@rdp.register
def _(event: Poisson, relation: Relation) -> np.ndarray:
    if not isinstance(event.event, Gaussian):
        raise _unknown(event)
    noise = event.event.noise_multiplier
    if relation is Relation.ADD_OR_REMOVE:
        return sampled_gaussian.poisson_renyi(noise, event.rate, ORDERS)
    # Through the population without the client: the weak triangle inequality (Mironov 2017, Proposition 11).
    there = sampled_gaussian.poisson_renyi(noise, event.rate, 2 * ORDERS)
    back = sampled_gaussian.poisson_renyi(noise, event.rate, 2 * ORDERS - 1)
    return (ORDERS - 0.5) / (ORDERS - 1) * there + back


@rdp.register
def _(event: TruncatedPoisson, relation: Relation) -> np.ndarray:
    """The mixture of `sampled_gaussian.truncated_poisson`: the moments behind the divergences are jointly convex."""
    untouched = rdp(Poisson(event.rate, event.event), relation)
    truncated, drawn = sampled_gaussian.at_the_limit(event.population, event.rate, event.limit)
    if truncated == 0.0 or not isinstance(event.event, Gaussian):
        return untouched
    replaced = rdp(Poisson(min(drawn, 1.0), Gaussian(event.event.noise_multiplier / 2)), Relation.REPLACE)
    with np.errstate(divide="ignore"):  # a limit that is always reached
        weights = np.log1p(-truncated), math.log(truncated)
    mixed = np.logaddexp(weights[0] + (ORDERS - 1) * untouched, weights[1] + (ORDERS - 1) * replaced) / (ORDERS - 1)
    return np.maximum(mixed, untouched)  # where the second part is below the last digit of the first


@rdp.register
def _(event: FixedSize, relation: Relation) -> np.ndarray:
    _needs_replace(event, relation)
    if not isinstance(event.event, Gaussian):
        raise _unknown(event)
    halved = event.event.noise_multiplier / 2
    sampled = sampled_gaussian.fixed_size_renyi(halved, event.cohort / event.population, ORDERS)
    return np.minimum(sampled, ORDERS / (2 * halved**2))  # for large cohorts the bound exceeds that without sampling


def _upstream_rdp(
    event: dp_event.DpEvent, relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
) -> np.ndarray:
    accountant = upstream_rdp.RdpAccountant(ORDERS.tolist(), relation)
    accountant.compose(event)
    return accountant.rdp


# --- rules


def halved_under_replace(noise_multiplier: float, relation: Relation) -> float:
    """The noise divided by what a neighbour can change: one bound, or two."""
    return noise_multiplier / 2 if relation is Relation.REPLACE else noise_multiplier


def largest_loss(leaf: Event, relation: Relation) -> float:
    """Roughly the largest privacy loss of one release of `leaf`; it determines the grid."""
    noise = leaf.event if isinstance(leaf, Poisson | TruncatedPoisson | FixedSize) else leaf
    if isinstance(noise, Gaussian):
        shift = 2 / noise.noise_multiplier
        return shift * (shift / 2 + 10)
    return pure_loss(noise, relation)


def pure_loss(leaf: Event, relation: Relation) -> float:
    """The epsilon for which `leaf` is (epsilon, 0)-DP; inf if there is none. Sampling by coins can only lower it."""
    noise = leaf.event if isinstance(leaf, Poisson) else leaf
    if isinstance(noise, Laplace):
        return 1 / halved_under_replace(noise.noise_multiplier, relation)
    if isinstance(noise, RandomizedResponse):
        return noise.epsilon
    return _pure_epsilon(noise, relation) if isinstance(noise, PureDP) else math.inf


def _pure_epsilon(event: PureDP, relation: Relation) -> float:
    """Replacing one client is removing it and adding another: twice the epsilon. The converse does not hold."""
    if event.relation is relation:
        return event.epsilon
    if relation is Relation.REPLACE:
        return 2 * event.epsilon
    raise RelationMismatch(f"{event} says nothing about adding or removing a client: account it under 'replace'")


def _noise_parameter(event: RandomizedResponse) -> float:
    """The probability of answering at random in dp-accounting's parametrisation."""
    return event.buckets / (event.buckets - 1 + math.exp(event.epsilon))


def _needs_replace(event: Event, relation: Relation) -> None:
    if relation is not Relation.REPLACE:
        raise RelationMismatch(
            f"a {event.name} event protects a client's data, not its presence: account it under "
            "relation='replace', or use truncated Poisson participation for an add-or-remove guarantee"
        )


def is_non_private(leaves: Counter[Event]) -> bool:
    """Whether any of them protects nothing."""
    noises = [
        leaf.event if isinstance(leaf, Poisson | TruncatedPoisson | FixedSize | Thresholded) else leaf
        for leaf in leaves
    ]
    return any(
        isinstance(noise, NonPrivate)
        or (isinstance(noise, Gaussian | Laplace) and noise.noise_multiplier < _LEAST_NOISE)
        or (isinstance(noise, RandomizedResponse | PureDP) and noise.epsilon == math.inf)
        for noise in noises
    )


def _unknown(event: Event) -> UnknownEvent:
    return UnknownEvent(f"no accountant can bound {event}: use Gaussian noise, or participation without sampling")
