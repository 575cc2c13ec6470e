"""The privacy loss of an event: by privacy-loss distributions, or by Renyi divergences where those fail.

The mathematics is dp-accounting's; this module and `losses` are the guard around it. What the guard adds:

* Counting. `events.flatten` counts; each elementary event is then bounded once and composed `count` times by the same
  line of code. (dp-accounting 0.6 ignores the count of randomised response under PLD.)
* Sensitivity. A noise multiplier is noise over *one client's bound S*. Replacing a client moves a clipped sum by up to
  2S, so under `replace` every unsampled or fixed-size event is bounded at half its multiplier. (dp-accounting's
  `RdpAccountant(REPLACE_ONE)` uses S, and reports 4.73 where the exact value is 10.0.)
* Sampling. Fixed-size rounds and randomised response are defined under `replace` only; Poisson amplification is proved
  for some mechanisms only. Anything else is refused by name.
* Slack. The extra cost of sampling with a limit and of noise on a grid is added, and so is the rounding error of the
  Fourier transforms, which alone can exceed a delta of 1e-12.
"""

import contextlib
import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from dp_accounting import get_epsilon_gaussian
from dp_accounting.rdp import rdp_privacy_accountant as upstream_rdp
from scipy import stats

from blindsight.accounting import losses, sampled_gaussian
from blindsight.accounting.events import (
    Event,
    FixedSize,
    Gaussian,
    Poisson,
    Relation,
    Thresholded,
    TruncatedPoisson,
    flatten,
)
from blindsight.accounting.gaussian_curve import KnownRounds, gaussian_delta
from blindsight.accounting.losses import Distribution
from blindsight.accounting.self_composition import TooWide
from blindsight.accounting.slack import Curve, Slack
from blindsight.errors import InvalidInput, PrivacyError, UnknownEvent

__all__ = ["Bound", "delta", "epsilon", "epsilon_by_renyi", "fixed_size_lower", "rough_epsilon"]

_FINEST_INTERVAL = 1e-4
_ROUGH = 10  # how much coarser the grid of `rough_epsilon` is
_LARGEST_PLD_EPSILON = 100.0  # beyond this a distribution on a grid is huge, and its last digit does not matter
_LEAST_DIVERGENCE = 1e-15  # smaller ones count as this one
_MOST_NOISE = 1e6  # larger multipliers are counted as this one, which costs next to nothing


@dataclasses.dataclass(frozen=True)
class Bound:
    """An upper bound on epsilon and the name of the analysis that gave it."""

    epsilon: float
    accountant: str


def epsilon(event: Event, delta: float, relation: Relation = Relation.ADD_OR_REMOVE) -> Bound:
    """The smallest epsilon for which `event` is known to be (epsilon, delta)-DP under `relation`.

    >>> epsilon(Gaussian(1.0), 1e-5).epsilon < epsilon(Gaussian(1.0), 1e-5, Relation.REPLACE).epsilon
    True
    """
    _check_delta(delta)
    return _bound(frozenset(flatten(event).items()), delta, relation)


def rough_epsilon(event: Event, delta: float, relation: Relation = Relation.ADD_OR_REMOVE) -> float:
    """An upper bound on epsilon on a grid ten times coarser: about ten times faster, and usually 0.1 % too large."""
    _check_delta(delta)
    return _bound(frozenset(flatten(event).items()), delta, relation, coarse=_ROUGH).epsilon


def epsilon_by_renyi(event: Event, delta: float, relation: Relation = Relation.ADD_OR_REMOVE) -> float:
    """An upper bound on epsilon by Renyi divergences alone: some 10 % too large, and a hundred times faster.

    Infinite where the divergences of an event are unknown.
    """
    _check_delta(delta)
    leaves = flatten(event)
    if not leaves:
        return 0.0
    if losses.is_non_private(leaves):
        return math.inf
    ideal, slack = _idealise(leaves, delta)
    try:
        return (
            slack.epsilon(_RdpCurve.of(ideal, relation), delta - slack.failure) if delta > slack.failure else math.inf
        )
    except PrivacyError:
        return math.inf


@functools.lru_cache(maxsize=4096)  # a plan, its guarantee and every report of a run need the same number
def _bound(counted: frozenset[tuple[Event, int]], delta: float, relation: Relation, coarse: int = 1) -> Bound:
    leaves = Counter(dict(counted))
    if losses.is_non_private(leaves):
        return Bound(math.inf, "none")
    if not leaves:
        return Bound(0.0, "nothing released")
    ideal, slack = _idealise(leaves, delta)
    left = delta - slack.failure
    if left <= 0:
        return Bound(math.inf, "none")
    curve = _curve(ideal, delta, relation, coarse)
    value = slack.epsilon(curve, left)
    if value == math.inf and slack.kl > 0:
        return Bound(_renyi_of_discrete(ideal, left, relation), "RDP")
    return Bound(value, curve.accountant)


def delta(event: Event, epsilon: float, relation: Relation = Relation.ADD_OR_REMOVE) -> float:
    """The smallest delta for which `event` is known to be (epsilon, delta)-DP under `relation`."""
    if not epsilon >= 0:
        raise InvalidInput(f"epsilon must be >= 0, got {epsilon}")
    leaves = flatten(event)
    if losses.is_non_private(leaves):
        return 1.0
    if not leaves:
        return 0.0
    ideal, slack = _idealise(leaves, 1e-9)
    return min(1.0, slack.delta(_curve(ideal, 1e-9, relation), epsilon) + slack.failure)


def fixed_size_lower(event: Event, delta: float) -> float:
    """An epsilon below which fixed-size rounds are certainly not (epsilon, delta)-DP.

    Let every other client's clipped update be -S along some direction and the differing client's +S or -S. Centred,
    the noised sum is (1-q) N(0) + q N(2S) against N(0): the Poisson-sampled Gaussian at half the multiplier. Its
    privacy-loss distribution, rounded optimistically, is a lower bound that no accountant can beat.
    """
    _check_delta(delta)
    leaves = flatten(event)
    if not leaves or losses.is_non_private(leaves):
        return math.inf if leaves else 0.0
    rounds = {leaf: leaf.event for leaf in leaves if isinstance(leaf, FixedSize) and isinstance(leaf.event, Gaussian)}
    if len(rounds) != len(leaves):
        raise UnknownEvent(f"the lower bound is only known for fixed-size Gaussian rounds, not for {list(leaves)}")
    rounds = {leaf: noise for leaf, noise in rounds.items() if noise.noise_multiplier <= _MOST_NOISE}
    if not rounds:  # a lower bound may omit releases that reveal next to nothing
        return 0.0
    if (error := _rounding_error(leaves)) >= delta:  # with this many rounds, rounding errors exceed delta
        return 0.0
    # Coarser steps keep huge losses on a grid that fits; rounding down keeps the bound valid at any step.
    shift = 2 / min(noise.noise_multiplier for noise in rounds.values())
    largest = epsilon(event, delta, Relation.REPLACE).epsilon
    interval = max(_FINEST_INTERVAL / 2, shift * (shift / 2 + 9) / 5e5, largest / 5e6)
    if leaves.total() * interval / 4 > largest:  # rounding down, by half a step on average, would leave nothing
        return 0.0
    try:
        parts = [
            losses.self_composed(
                sampled_gaussian.optimistic_poisson(
                    noise.noise_multiplier / 2, leaf.cohort / leaf.population, interval
                ),
                leaves[leaf],
            )
            for leaf, noise in rounds.items()
        ]
    except TooWide:
        return 0.0
    whole = functools.reduce(lambda left, right: left.compose(right), parts)
    return losses.epsilon_for_delta(whole, min(1.0, delta + error))


# --- the distance of actual releases from ideal events


def _renyi_of_discrete(ideal: Counter[Event], delta: float, relation: Relation) -> float:
    """Epsilon by Renyi divergences of integer orders, which need no slack; inf where they are unknown.

    On a grid, discrete Gaussians have the same moments as continuous ones: E[(p_v/p)^k] = exp((k^2 - k) |v|^2 / (2s^2))
    for whole k and whole shifts v (Canonne, Kamath and Steinke 2020), and the divergences of sampled Gaussians at whole
    orders are sums of these. (The other direction is smaller, by reflection: Mironov, Talwar and Zhang 2019, Thm 5.)
    """
    try:
        return _RdpCurve.of(ideal, relation).epsilon(delta)
    except PrivacyError:
        return math.inf


def _idealise(leaves: Counter[Event], delta: float) -> tuple[Counter[Event], Slack]:
    """The same events with ideal noise and without cohort limits that are almost never reached.

    Divergences add up over coordinates and adaptive releases.
    """
    ideal: Counter[Event] = Counter()
    failure = divergence = 0.0
    for leaf, count in leaves.items():
        inner = leaf
        if isinstance(inner, Thresholded):
            failure += count * inner.delta
            inner = inner.event
        if isinstance(inner, TruncatedPoisson):
            # Given that the client takes part, the limit applies if at least `limit` of the others do too.
            overflow = count * float(stats.binom.sf(inner.limit - 1, inner.population - 1, inner.rate))
            if overflow <= delta / 1000 / len(leaves):
                failure += overflow
                inner = Poisson(inner.rate, inner.event)
        noise = inner.event if isinstance(inner, Poisson | TruncatedPoisson | FixedSize) else inner
        if isinstance(noise, Gaussian):
            divergence += count * noise.kl_slack
            sampled = noise is not inner
            clean = Gaussian(min(noise.noise_multiplier, _MOST_NOISE) if sampled else noise.noise_multiplier)
            inner = dataclasses.replace(inner, event=clean) if sampled else clean
        ideal[inner] += count
    return ideal, Slack(failure, divergence)


# --- curves


def _curve(leaves: Counter[Event], delta: float, relation: Relation, coarse: int = 1) -> Curve:
    plain = {leaf: n for leaf, n in leaves.items() if isinstance(leaf, Gaussian)}
    if plain:  # Gaussians without sampling compose exactly to one Gaussian
        together = 1 / math.hypot(*(math.sqrt(n) / leaf.noise_multiplier for leaf, n in plain.items()))
        merged = Gaussian(min(together, _MOST_NOISE))
        leaves = Counter({leaf: n for leaf, n in leaves.items() if leaf not in plain} | {merged: 1})
        if len(leaves) == 1:
            return _ExactGaussian(losses.halved_under_replace(merged.noise_multiplier, relation))
    if any(isinstance(leaf, FixedSize) for leaf in leaves):
        return _best([_RdpCurve.of(leaves, relation), KnownRounds.of(leaves, relation)], delta)
    pure = sum(n * losses.pure_loss(leaf, relation) for leaf, n in leaves.items())
    curve = _best_curve(leaves, delta, relation, coarse)
    return curve if pure == math.inf else _CappedCurve(curve, pure)


def _best_curve(leaves: Counter[Event], delta: float, relation: Relation, coarse: int) -> Curve:
    """A rough bound determines the grid of the best one; if no grid works, the rough bound is returned."""
    rough: list[Curve | None] = []
    largest = max(losses.largest_loss(leaf, relation) for leaf in leaves)
    on_a_grid = largest <= losses.LARGEST_LOSS and delta > 2 * _rounding_error(leaves)
    refusal: PrivacyError | None = None
    try:
        rough.append(_RdpCurve.of(leaves, relation))
    except PrivacyError as error:  # not known to Renyi, or too small for its precision
        refusal = error
    if refusal or _best(rough, delta).epsilon(delta) > _LARGEST_PLD_EPSILON:
        rough.append(KnownRounds.of(leaves, relation))
        rough.append(_on_a_grid(leaves, relation, max(_FINEST_INTERVAL, largest / 2000)) if on_a_grid else None)
        if refusal and not any(rough):
            raise refusal
    best = _best(rough, delta)
    size = best.epsilon(delta)
    if not on_a_grid or not 0 < size <= _LARGEST_PLD_EPSILON:
        return best
    return _on_a_grid(leaves, relation, coarse * max(_FINEST_INTERVAL, size * 1e-5)) or best


def _on_a_grid(leaves: Counter[Event], relation: Relation, interval: float) -> "_PldCurve | None":
    """The curve by privacy-loss distributions; None if they are too wide to compute."""
    with contextlib.suppress(TooWide):
        return _PldCurve.of(leaves, relation, interval)
    return None


def _best(curves: Sequence[Curve | None], delta: float) -> Curve:
    """The curve with the smallest epsilon at `delta`."""
    return min((curve for curve in curves if curve), key=lambda curve: curve.epsilon(delta))


def _rounding_error(leaves: Counter[Event]) -> float:
    """An allowance for the error in delta of composing `leaves` by Fourier transforms, truncated tails included.

    Measured against the Gaussian's closed form: 2e-17 per release, in either direction; ten times that is allowed for.
    """
    return 0.0 if leaves.total() == 1 else 1e-15 + leaves.total() * 2.0**-52


@dataclasses.dataclass(frozen=True)
class _ExactGaussian:
    """The Gaussian mechanism's own closed form (Balle and Wang 2018)."""

    noise_multiplier: float
    accountant: str = "exact Gaussian"

    def epsilon(self, delta: float) -> float:
        with np.errstate(divide="ignore"):  # the logarithm of a delta that underflows to zero
            return float(get_epsilon_gaussian(self.noise_multiplier, delta))

    def delta(self, epsilon: float) -> float:
        return float(gaussian_delta(1 / self.noise_multiplier, epsilon))


@dataclasses.dataclass(frozen=True)
class _PldCurve:
    distribution: Distribution
    rounding_error: float
    accountant: str = "PLD"

    @classmethod
    def of(cls, leaves: Counter[Event], relation: Relation, interval: float) -> "_PldCurve":
        parts = [losses.self_composed_pld(leaf, n, relation, interval) for leaf, n in leaves.items()]
        return cls(functools.reduce(lambda left, right: left.compose(right), parts), _rounding_error(leaves))

    def epsilon(self, delta: float) -> float:
        left = delta - self.rounding_error
        return losses.epsilon_for_delta(self.distribution, left) if left > 0 else math.inf

    def delta(self, epsilon: float) -> float:
        return float(self.distribution.get_delta_for_epsilon(epsilon)) + self.rounding_error  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class _CappedCurve:
    """A curve of events that compose to (`pure`, 0)-DP: a grid may round above that."""

    curve: Curve
    pure: float

    @property
    def accountant(self) -> str:
        return self.curve.accountant

    def epsilon(self, delta: float) -> float:
        return min(self.pure, self.curve.epsilon(delta))

    def delta(self, epsilon: float) -> float:
        return 0.0 if epsilon >= self.pure else self.curve.delta(epsilon)


@dataclasses.dataclass(frozen=True)
class _RdpCurve:
    rdp: tuple[float, ...]
    accountant: str = "RDP"

    @classmethod
    def of(cls, leaves: Mapping[Event, int], relation: Relation) -> "_RdpCurve":
        total = np.asarray(sum(n * _rdp(leaf, relation) for leaf, n in leaves.items()))
        if not np.all(total >= 0):
            raise PrivacyError(
                "the Renyi accountant is not precise enough for these events: their noise is too extreme"
            )
        # the library's conversion takes the logarithm of 1 - e^-divergence
        return cls(tuple(np.where(total > 0, np.maximum(total, _LEAST_DIVERGENCE), 0.0)))

    def epsilon(self, delta: float) -> float:
        return float(upstream_rdp.compute_epsilon(losses.ORDERS, np.array(self.rdp), delta)[0])  # pyright: ignore[reportArgumentType]

    def delta(self, epsilon: float) -> float:
        return float(upstream_rdp.compute_delta(losses.ORDERS, np.array(self.rdp), epsilon)[0])  # pyright: ignore[reportArgumentType]


_rdp = functools.lru_cache(maxsize=256)(losses.rdp)  # a progress bar needs that of the same round again and again


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie between 0 and 1, got {delta}; a common choice is population^-1.1")
