"""A budget as a privacy filter: it holds even if every question is chosen after reading the answers so far.

Composition by privacy-loss distributions is proved for a plan fixed in advance. People choose the next question, and
its noise, after reading a report; stopping where the composed curve of their choices crosses the budget then gives no
guarantee (shown for trade-off curves in arXiv:2602.06756). What holds is a *filter*: a rule, fixed in advance, that
reads only the costs of releases and stops before a total is exceeded. These filters are proved, each for an additive
cost:

=============  ============================================  ===================================================
filter         cost of a release                             (epsilon, delta) of whatever it lets through
=============  ============================================  ===================================================
pure           its epsilon                                   (the sum, 0): Rogers, Roth, Ullman and Vadhan 2016
Gaussian       mu^2, where it is mu-GDP                      that of one Gaussian release of the total mu^2,
                                                             exactly: Smith and Thakurta 2022; Koskela, Tobaben
                                                             and Honkela 2023 (arXiv:2209.15596)
Renyi, order   its Renyi divergence of that order            by conversion, for an order fixed in advance: Feldman
                                                             and Zrnic 2021 (arXiv:2008.11193); conversion: Canonne,
                                                             Kamath and Steinke 2020 (arXiv:2004.00010), Prop. 12
=============  ============================================  ===================================================

**Why all of them can be used at once.** Which filters still allow a release can depend on the answers, so 'some filter
allows it' is not a filter for the same delta: with two branches, each may use up the delta of its own order. But let
filter j guarantee (epsilon, w_j delta), where the w_j sum to 1. Costs only grow, so a sequence allowed to the end was
allowed by at least one j throughout; call the set of such outcomes E_j, made disjoint. On E_j the releases are those of
the process that j alone would have allowed, so P(A and E_j) <= e^epsilon P'(A and E_j) + w_j delta for neighbouring
populations. Adding up over j: (epsilon, delta), whatever was chosen. The pure filter needs no share of delta; the
Gaussian one has a half, the orders share the other. The same filters hold if releases of a run are interleaved with
other questions (Haney et al. 2023, for f-DP and for Renyi divergences of fixed order).

**Releases without an ideal Gaussian.** Noise on a grid has the Renyi divergences of the continuous one at integer
orders (`accountants`); for the Gaussian filter a fixed part of epsilon is reserved for the distance between them
(`slack`, path by path), and releases that would exceed it are refused. A release that is (e, 0)-DP is mu-GDP for
mu = -2 Phi^-1(1/(1 + e^e)): binary randomised response is the worst such release, and its trade-off curve consists of
two chords of that Gaussian's. Sampling can only lower mu; amplification is counted only by Renyi divergences. A
tenth of delta is reserved for cohorts that exceed their limit and for names that only one client has
(`Thresholded`). A release without a finite bound costs infinity.

Arms of one split share no client (`composition`): a client pays for one of them, so each cost is the largest over arms.
The rule looks at that maximum, and each client's own total is below it on every path (Feldman and Zrnic's individual
accounting).

**The first entry** that includes a client was chosen before anything about that client was read: the first of a ledger,
and the first on each arm of one split as long as there is nothing else. If it is within the budget as a plan, it is
allowed; if no filter would have allowed it, none will allow anything after it, so it remains the only one.

*Remaining assumption*: the budget itself was set before the first release. A budget raised after reading the answers is
a new promise by the person who raised it.
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import special, stats

from blindsight.accounting import losses
from blindsight.accounting.events import (
    Event,
    FixedSize,
    Gaussian,
    Laplace,
    Poisson,
    Relation,
    Thresholded,
    TruncatedPoisson,
    flatten,
)
from blindsight.accounting.gaussian_curve import gaussian_delta
from blindsight.accounting.slack import Slack, ideal_budget
from blindsight.errors import UnknownEvent

__all__ = ["NOTHING", "cost", "has_a_limit_that_matters", "is_within", "leaf_cost", "spent"]

ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
_PLACES = np.searchsorted(losses.ORDERS, ORDERS)
_ORDERS = np.array(ORDERS, np.float64)
_PURE, _SQUARE, _RATIO, _FAILURE, _RENYI = 0, 1, 2, 3, slice(4, None)

NOTHING = np.zeros(4 + len(ORDERS))
"""No cost. Costs are vectors that add up: pure epsilon, mu^2, distance from ideal noise, failures, orders."""

_FOR_FAILURES = 0.1  # of delta: room for 99 lists of words (`set_union.CHANCE`), at half a percent of epsilon
_RARE = 1e-12  # a cohort limit that is reached more often than this is part of the release
_MOST_NOISE = 1e6  # larger multipliers are counted as this one, which costs next to nothing
_ROUNDING = 1 + 2.0**-40  # more than a long running sum can lose


def is_within(total: np.ndarray, epsilon: float, delta: float) -> bool:
    """Whether releases that cost `total` are within a budget: some filter, with its share of delta, allows them."""
    costs = total * _ROUNDING
    left = (1 - _FOR_FAILURES) * delta
    if costs[_FAILURE] > _FOR_FAILURES * delta:
        return False
    if costs[_PURE] <= epsilon or np.any(costs[_RENYI] <= _renyi_allowance(epsilon, left / 2 / len(ORDERS))):
        return True
    ratio, ideal_epsilon, ideal_delta = ideal_budget(epsilon, left / 2)
    if costs[_RATIO] > ratio or costs[_SQUARE] == math.inf or ideal_epsilon <= 0:
        return False
    return float(gaussian_delta(math.sqrt(costs[_SQUARE]), ideal_epsilon)) <= ideal_delta


def spent(total: np.ndarray, delta: float) -> float:
    """The smallest epsilon of a budget that would have allowed all this, at `delta`; inf if there is none."""
    if is_within(total, 0.0, delta):
        return 0.0
    high = 1.0
    while not is_within(total, high, delta):
        high *= 2
        if high > 1e300:
            return math.inf
    low = high / 2 if high > 1 else 0.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_within(total, middle, delta) else (middle, high)
    return high


def cost(event: Event, relation: Relation) -> np.ndarray:
    """The cost of `event`, summed over all its parts."""
    total = NOTHING
    for leaf, count in flatten(event).items():
        total = total + count * leaf_cost(leaf, relation)
    return total


@functools.lru_cache(maxsize=4096)
def leaf_cost(leaf: Event, relation: Relation) -> np.ndarray:
    """The cost of one release of an elementary event."""
    if losses.is_non_private(flatten(leaf)):
        return np.full_like(NOTHING, math.inf)
    bounds = 2.0 if relation is Relation.REPLACE else 1.0
    if isinstance(leaf, Gaussian):
        return _of_gaussian(leaf, bounds)
    if isinstance(leaf, Thresholded):
        cost = leaf_cost(leaf.event, relation).copy()
        cost[_FAILURE] += leaf.delta
        return cost
    if isinstance(leaf, TruncatedPoisson) and isinstance(leaf.event, Gaussian):
        if has_a_limit_that_matters(leaf):  # without a client another one takes its place: two bounds apart
            return _of_gaussian(leaf.event, 2.0)
        costs = leaf_cost(Poisson(leaf.rate, leaf.event), relation).copy()
        costs[_FAILURE] = _overflow(leaf)
        return costs
    if isinstance(leaf, Poisson | FixedSize) and isinstance(leaf.event, Gaussian):
        return _of_sampled(leaf, leaf.event, relation, bounds)
    noise = leaf.event if isinstance(leaf, Poisson) and isinstance(leaf.event, Laplace) else leaf
    loss = losses.pure_loss(noise, relation)
    if loss == math.inf:
        raise UnknownEvent(f"no filter can bound {leaf}: use Gaussian noise, or participation without sampling")
    square = (2 * special.ndtri(special.expit(-loss))) ** 2 if loss < losses.LARGEST_LOSS else math.inf
    return np.concatenate([[loss, square, 0.0, 0.0], losses.rdp(noise, relation)[_PLACES]])


def has_a_limit_that_matters(leaf: Event) -> bool:
    """Whether cohorts exceed their limit with more than negligible probability."""
    return isinstance(leaf, TruncatedPoisson) and _overflow(leaf) > _RARE


def _overflow(leaf: TruncatedPoisson) -> float:
    """The probability that a participating client's cohort exceeds its limit, so that a client is dropped."""
    return float(stats.binom.sf(leaf.limit - 1, leaf.population - 1, leaf.rate))


def _of_gaussian(noise: Gaussian, bounds: float) -> np.ndarray:
    square = (bounds / noise.noise_multiplier) ** 2
    return np.concatenate([[math.inf, square, Slack(0.0, noise.kl_slack).ratio, 0.0], _ORDERS * square / 2])


def _of_sampled(leaf: Poisson | FixedSize, noise: Gaussian, relation: Relation, bounds: float) -> np.ndarray:
    """As without sampling, except for the Renyi divergences, unless those lost their precision."""
    costs = _of_gaussian(noise, bounds)
    ideal = Gaussian(min(noise.noise_multiplier, _MOST_NOISE))
    sampled = losses.rdp(dataclasses.replace(leaf, event=ideal), relation)[_PLACES]
    costs[_RENYI] = np.where((sampled >= 0) & (sampled < costs[_RENYI]), sampled, costs[_RENYI])
    return costs


def _renyi_allowance(epsilon: float, delta: float) -> np.ndarray:
    """The divergence of each order that implies (epsilon, delta)."""
    return epsilon - np.log1p(-1 / _ORDERS) + (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1)
