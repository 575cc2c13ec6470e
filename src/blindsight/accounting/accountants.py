"""The privacy loss of an event: privacy-loss distributions first, Renyi divergences where those cannot go.

The mathematics is dp-accounting's; this module is the guard around it. What the guard adds:

* Counting. `events.flatten` counts; each elementary event is then bounded once and composed `count` times by the same
  line of code. (Inside dp-accounting 0.6 the count is forgotten for randomised response under PLD.)
* Sensitivity. A noise multiplier is noise over *one client's bound S*. Replacing a client moves a clipped sum by up to
  2S, so under `replace` every unsampled or fixed-size event is bounded at half its multiplier. (dp-accounting's
  `RdpAccountant(REPLACE_ONE)` uses S, and reports 4.73 where the exact value is 10.0.)
* Sampling. Fixed-size rounds make sense under `replace` only, randomised response likewise; Poisson amplification is
  known for some mechanisms only. Anything else is refused by name.
* Slack. What sampling with a limit and drawing noise on a grid cost beyond the ideal is added to delta, not forgotten.
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from dp_accounting import NeighboringRelation, dp_event, get_epsilon_gaussian
from dp_accounting.pld import privacy_loss_distribution as upstream_pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.rdp import rdp_privacy_accountant as upstream_rdp
from scipy import optimize, special, stats

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
    TruncatedPoisson,
    flatten,
)
from blindsight.errors import InvalidInput, PrivacyError, RelationMismatch, UnknownEvent

__all__ = ["Bound", "delta", "epsilon", "fixed_size_lower"]

_PLD = upstream_pld.PrivacyLossDistribution
_UPSTREAM = {
    Relation.ADD_OR_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Relation.REPLACE: NeighboringRelation.REPLACE_ONE,
}
_ORDERS = np.array(
    [*range(2, 65), 96, 128, 256, 512, 1024]
)  # whole orders only: the fractional series may not converge
_FINEST_INTERVAL = 1e-4
_LARGEST_PLD_EPSILON = 100.0  # beyond this a distribution on a grid is huge, and no one should care for its last digit


@dataclasses.dataclass(frozen=True)
class Bound:
    """An upper bound on epsilon and the name of the analysis that gave it."""

    epsilon: float
    accountant: str


class _Curve(Protocol):
    """An upper bound on the (epsilon, delta) curve of ideal events."""

    @property
    def accountant(self) -> str: ...

    def epsilon(self, delta: float) -> float: ...

    def delta(self, epsilon: float) -> float: ...


def epsilon(event: Event, delta: float, relation: Relation = Relation.ADD_OR_REMOVE) -> Bound:
    """The smallest epsilon for which `event` is known to be (epsilon, delta)-DP under `relation`.

    >>> epsilon(Gaussian(1.0), 1e-5).epsilon < epsilon(Gaussian(1.0), 1e-5, Relation.REPLACE).epsilon
    True
    """
    _check_delta(delta)
    leaves = flatten(event)
    if _is_non_private(leaves):
        return Bound(math.inf, "none")
    if not leaves:
        return Bound(0.0, "nothing released")
    ideal, slack = _idealise(leaves, delta)
    curve = _curve(ideal, delta, relation)
    if slack.total_variation == 0:
        return Bound(curve.epsilon(delta - slack.failure), curve.accountant)

    def excess(candidate: float) -> float:
        return curve.delta(candidate) + slack.at(candidate) - delta

    low, high = 0.0, curve.epsilon(delta / 2 - slack.failure)
    if excess(high) > 0:
        raise PrivacyError(
            f"the noise was drawn on too coarse a grid for delta = {delta:.3g}: the difference from ideal noise alone "
            f"amounts to {slack.at(high):.3g}; use a finer grid, or fewer releases"
        )
    if excess(low) <= 0:
        return Bound(low, curve.accountant)
    root = float(optimize.brentq(excess, low, high, xtol=1e-6))  # pyright: ignore[reportArgumentType]
    return Bound(min(high, root + 1e-6), curve.accountant)  # brentq may stop on the wrong side of the root


def delta(event: Event, epsilon: float, relation: Relation = Relation.ADD_OR_REMOVE) -> float:
    """The smallest delta for which `event` is known to be (epsilon, delta)-DP under `relation`."""
    if not epsilon >= 0:
        raise InvalidInput(f"epsilon must be >= 0, got {epsilon}")
    leaves = flatten(event)
    if _is_non_private(leaves):
        return 1.0
    if not leaves:
        return 0.0
    ideal, slack = _idealise(leaves, 1e-9)
    return min(1.0, _curve(ideal, 1e-9, relation).delta(epsilon) + slack.at(epsilon))


def fixed_size_lower(event: Event, delta: float) -> float:
    """An epsilon below which fixed-size rounds are certainly not (epsilon, delta)-DP.

    Let every other client's clipped update be -S along some direction and the differing client's +S or -S. Centred,
    the noised sum is (1-q) N(0) + q N(2S) against N(0): the Poisson-sampled Gaussian at half the multiplier. Its
    privacy-loss distribution, rounded optimistically, is a lower bound that no accountant can beat.
    """
    _check_delta(delta)
    leaves = flatten(event)
    if not leaves or _is_non_private(leaves):
        return math.inf if leaves else 0.0
    noises = [leaf.event for leaf in leaves if isinstance(leaf, FixedSize) and isinstance(leaf.event, Gaussian)]
    if len(noises) != len(leaves):
        raise UnknownEvent(f"the lower bound is known for fixed-size Gaussian rounds only, not for {list(leaves)}")
    # Coarser steps keep huge losses on a grid that fits; rounding down keeps the bound valid at any step.
    shift = 2 / min(noise.noise_multiplier for noise in noises)
    largest = epsilon(event, delta, Relation.REPLACE).epsilon
    interval = max(_FINEST_INTERVAL / 2, shift * (shift / 2 + 9) / 5e5, largest / 5e6)
    parts = [
        upstream_pld.from_gaussian_mechanism(
            noise.noise_multiplier / 2,
            sampling_prob=leaf.cohort / leaf.population,
            pessimistic_estimate=False,
            use_connect_dots=False,
            value_discretization_interval=interval,
        ).self_compose(leaves[leaf])
        for leaf, noise in zip(leaves, noises, strict=True)
        if isinstance(leaf, FixedSize)
    ]
    return float(functools.reduce(lambda left, right: left.compose(right), parts).get_epsilon_for_delta(delta))


# --- slack: how far what really ran is from the ideal events


@dataclasses.dataclass(frozen=True)
class _Slack:
    """`failure`: probability that an ideal assumption broke; `total_variation`: distance of the noise from ideal."""

    failure: float
    total_variation: float

    def at(self, epsilon: float) -> float:
        """What to add to delta: a mechanism within distance t of an (e, d)-DP one is (e, d + (1 + exp(e)) t)-DP."""
        if self.total_variation == 0:
            return self.failure
        return self.failure + (1 + math.exp(min(epsilon, 700.0))) * self.total_variation


def _idealise(leaves: Counter[Event], delta: float) -> tuple[Counter[Event], _Slack]:
    """The same events with ideal noise and, where a limit is all but never reached, without the limit.

    Divergences add up over adaptive releases, so the distance of all the noise from ideal is at most
    sqrt(sum of kl_slack / 2) by Pinsker's inequality.
    """
    ideal: Counter[Event] = Counter()
    failure = divergence = 0.0
    for leaf, count in leaves.items():
        inner = leaf
        if isinstance(inner, TruncatedPoisson):
            # Given that the client in question is in, the limit bites if at least `limit` of the others are in too.
            overflow = count * float(stats.binom.sf(inner.limit - 1, inner.population - 1, inner.rate))
            if overflow <= delta / 1000:
                failure += overflow
                inner = Poisson(inner.rate, inner.event)
        noise = inner.event if isinstance(inner, Poisson | TruncatedPoisson | FixedSize) else inner
        if isinstance(noise, Gaussian):
            divergence += count * noise.kl_slack
            clean = Gaussian(noise.noise_multiplier)
            inner = clean if noise is inner else dataclasses.replace(inner, event=clean)
        ideal[inner] += count
    return ideal, _Slack(failure, math.sqrt(divergence / 2))


# --- curves


def _curve(leaves: Counter[Event], delta: float, relation: Relation) -> _Curve:
    plain = {leaf: n for leaf, n in leaves.items() if isinstance(leaf, Gaussian)}
    if plain:  # Gaussians without sampling are together one Gaussian, exactly
        merged = Gaussian(sum(n / leaf.noise_multiplier**2 for leaf, n in plain.items()) ** -0.5)
        leaves = Counter({leaf: n for leaf, n in leaves.items() if leaf not in plain} | {merged: 1})
        if len(leaves) == 1:
            return _ExactGaussian(_halved_under_replace(merged.noise_multiplier, relation))
    needs_rdp = [leaf for leaf in leaves if isinstance(leaf, FixedSize)]
    if needs_rdp:
        return _RdpCurve.of(leaves, relation)
    try:
        rough = _RdpCurve.of(leaves, relation)
    except UnknownEvent:
        return _PldCurve.of(leaves, relation, _FINEST_INTERVAL)
    size = rough.epsilon(delta)
    if size > _LARGEST_PLD_EPSILON:
        return rough
    return _PldCurve.of(leaves, relation, max(_FINEST_INTERVAL, size * 1e-5))


@dataclasses.dataclass(frozen=True)
class _ExactGaussian:
    """The Gaussian mechanism's own closed form (Balle and Wang 2018)."""

    noise_multiplier: float
    accountant: str = "exact Gaussian"

    def epsilon(self, delta: float) -> float:
        return float(get_epsilon_gaussian(self.noise_multiplier, delta))

    def delta(self, epsilon: float) -> float:
        z = self.noise_multiplier
        tail, other = special.log_ndtr(np.array([0.5 / z - epsilon * z, -0.5 / z - epsilon * z]))
        return float(-math.exp(tail) * math.expm1(min(0.0, epsilon + other - tail)))


@dataclasses.dataclass(frozen=True)
class _PldCurve:
    distribution: upstream_pld.PrivacyLossDistribution
    accountant: str = "PLD"

    @classmethod
    def of(cls, leaves: Mapping[Event, int], relation: Relation, interval: float) -> "_PldCurve":
        parts = [_self_composed_pld(leaf, n, relation, interval) for leaf, n in leaves.items()]
        return cls(functools.reduce(lambda left, right: left.compose(right), parts))

    def epsilon(self, delta: float) -> float:
        return float(self.distribution.get_epsilon_for_delta(delta))

    def delta(self, epsilon: float) -> float:
        return float(self.distribution.get_delta_for_epsilon(epsilon))  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class _RdpCurve:
    rdp: tuple[float, ...]
    accountant: str = "RDP"

    @classmethod
    def of(cls, leaves: Mapping[Event, int], relation: Relation) -> "_RdpCurve":
        total = sum(n * _rdp(leaf, relation) for leaf, n in leaves.items())
        if not np.all(np.asarray(total) >= 0):
            raise PrivacyError("the Renyi accountant lost its precision on these events; use more noise")
        return cls(tuple(np.asarray(total)))

    def epsilon(self, delta: float) -> float:
        return float(upstream_rdp.compute_epsilon(_ORDERS, np.array(self.rdp), delta)[0])  # pyright: ignore[reportArgumentType]

    def delta(self, epsilon: float) -> float:
        return float(upstream_rdp.compute_delta(_ORDERS, np.array(self.rdp), epsilon)[0])  # pyright: ignore[reportArgumentType]


# --- one elementary event


@functools.lru_cache(maxsize=8)  # a ledger asks for the same composition again with every release
def _self_composed_pld(
    leaf: Event, count: int, relation: Relation, interval: float
) -> upstream_pld.PrivacyLossDistribution:
    one = _pld(leaf, relation, interval)
    return one if count == 1 else one.self_compose(count)


@functools.singledispatch
def _pld(event: Event, relation: Relation, interval: float) -> upstream_pld.PrivacyLossDistribution:
    raise _unknown(event)


@_pld.register
def _(event: Gaussian, relation: Relation, interval: float) -> upstream_pld.PrivacyLossDistribution:
    return upstream_pld.from_gaussian_mechanism(
        _halved_under_replace(event.noise_multiplier, relation), value_discretization_interval=interval
    )


@_pld.register
def _(event: Laplace, relation: Relation, interval: float) -> upstream_pld.PrivacyLossDistribution:
    if event.discrete:
        return _pld(PureDP(1 / event.noise_multiplier), relation, interval)
    return upstream_pld.from_laplace_mechanism(
        _halved_under_replace(event.noise_multiplier, relation), value_discretization_interval=interval
    )


@_pld.register
def _(event: RandomizedResponse, relation: Relation, interval: float) -> upstream_pld.PrivacyLossDistribution:
    _needs_replace(event, relation)
    return upstream_pld.from_randomized_response(
        _noise_parameter(event), event.buckets, value_discretization_interval=interval
    )


@_pld.register
def _(event: PureDP, relation: Relation, interval: float) -> upstream_pld.PrivacyLossDistribution:
    return upstream_pld.from_privacy_parameters(
        DifferentialPrivacyParameters(_pure_epsilon(event, relation), 0.0), value_discretization_interval=interval
    )


@_pld.register
def _(event: Poisson, relation: Relation, interval: float) -> upstream_pld.PrivacyLossDistribution:
    noise = event.event
    if event.rate == 0:
        return upstream_pld.identity(value_discretization_interval=interval)
    if isinstance(noise, Gaussian):  # here the library's own `replace` is right: it moves the sum by 2S
        return upstream_pld.from_gaussian_mechanism(
            noise.noise_multiplier,
            sampling_prob=event.rate,
            neighboring_relation=_UPSTREAM[relation],
            value_discretization_interval=interval,
        )
    if isinstance(noise, Laplace) and not noise.discrete and relation is Relation.ADD_OR_REMOVE:
        return upstream_pld.from_laplace_mechanism(
            noise.noise_multiplier, sampling_prob=event.rate, value_discretization_interval=interval
        )
    raise _unknown(event)


@_pld.register
def _(event: TruncatedPoisson, relation: Relation, interval: float) -> upstream_pld.PrivacyLossDistribution:
    if not isinstance(event.event, Gaussian):
        raise _unknown(event)
    return upstream_pld.from_truncated_subsampled_gaussian_mechanism(
        event.population,
        event.rate,
        event.limit,
        event.event.noise_multiplier,
        neighboring_relation=_UPSTREAM[relation],
        value_discretization_interval=interval,
    )


@functools.singledispatch
def _rdp(event: Event, relation: Relation) -> np.ndarray:
    raise _unknown(event)


@_rdp.register
def _(event: Gaussian, relation: Relation) -> np.ndarray:
    return _upstream_rdp(dp_event.GaussianDpEvent(_halved_under_replace(event.noise_multiplier, relation)))


@_rdp.register
def _(event: Laplace, relation: Relation) -> np.ndarray:
    if event.discrete:
        return _rdp(PureDP(1 / event.noise_multiplier), relation)
    return _upstream_rdp(dp_event.LaplaceDpEvent(_halved_under_replace(event.noise_multiplier, relation)))


@_rdp.register
def _(event: RandomizedResponse, relation: Relation) -> np.ndarray:
    _needs_replace(event, relation)
    return _upstream_rdp(
        dp_event.RandomizedResponseDpEvent(_noise_parameter(event), event.buckets), NeighboringRelation.REPLACE_ONE
    )


@_rdp.register
def _(event: PureDP, relation: Relation) -> np.ndarray:
    # Binary randomised response is the worst mechanism of its epsilon (Kairouz, Oh and Viswanath 2015).
    return _rdp(RandomizedResponse(_pure_epsilon(event, relation), 2), Relation.REPLACE)


@_rdp.register
def _(event: Poisson, relation: Relation) -> np.ndarray:
    if not isinstance(event.event, Gaussian) or relation is not Relation.ADD_OR_REMOVE:
        raise _unknown(event)
    noise = dp_event.GaussianDpEvent(event.event.noise_multiplier)
    return _upstream_rdp(dp_event.PoissonSampledDpEvent(event.rate, noise))


@_rdp.register
def _(event: FixedSize, relation: Relation) -> np.ndarray:
    _needs_replace(event, relation)
    if not isinstance(event.event, Gaussian):
        raise _unknown(event)
    noise = dp_event.GaussianDpEvent(event.event.noise_multiplier / 2)
    return _upstream_rdp(
        dp_event.SampledWithoutReplacementDpEvent(event.population, event.cohort, noise),
        NeighboringRelation.REPLACE_ONE,
    )


def _upstream_rdp(
    event: dp_event.DpEvent, relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
) -> np.ndarray:
    accountant = upstream_rdp.RdpAccountant(list(_ORDERS), relation)
    accountant.compose(event)
    return accountant.rdp


# --- rules


def _halved_under_replace(noise_multiplier: float, relation: Relation) -> float:
    return noise_multiplier / 2 if relation is Relation.REPLACE else noise_multiplier


def _pure_epsilon(event: PureDP, relation: Relation) -> float:
    """Replacing one client is removing it and adding another: twice the epsilon. The other way nothing follows."""
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
            f"a {event.name} event hides what a client holds, not whether it is there: account it under "
            f"relation='replace', or use truncated Poisson participation for an add-or-remove guarantee"
        )


def _is_non_private(leaves: Counter[Event]) -> bool:
    noises = [leaf.event if isinstance(leaf, Poisson | TruncatedPoisson | FixedSize) else leaf for leaf in leaves]
    return any(
        isinstance(noise, NonPrivate) or (isinstance(noise, Gaussian | Laplace) and noise.noise_multiplier == 0)
        for noise in noises
    )


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie between 0 and 1, got {delta}; a common choice is population^-1.1")


def _unknown(event: Event) -> UnknownEvent:
    return UnknownEvent(f"no accountant here can bound {event}; use Gaussian noise, or participation without sampling")
