"""A budget as a privacy filter: it holds even if every question is chosen after reading the answers so far.

Composition by privacy-loss distributions is proved for a plan that is fixed beforehand. People choose the next
question, and its noise, after reading a report, and stopping where the composed curve of what was chosen crosses the
budget is then no protection (shown for trade-off curves in arXiv:2602.06756). What holds is a *filter*: a rule, fixed
beforehand, that looks only at what releases cost and stops before a total is exceeded. These are known, each for a cost
that simply adds up:

=============  ============================================  ===================================================
filter         cost of a release                             (epsilon, delta) of whatever it lets through
=============  ============================================  ===================================================
pure           its epsilon                                   (the sum, 0): Rogers, Roth, Ullman and Vadhan 2016
Gaussian       mu^2, where it is mu-GDP                      that of one Gaussian release of the total mu^2,
                                                             exactly: Smith and Thakurta 2022; Koskela, Tobaben
                                                             and Honkela 2023 (arXiv:2209.15596)
Renyi, order   its Renyi divergence of that order            by conversion, for an order fixed beforehand: Feldman
                                                             and Zrnic 2021 (arXiv:2008.11193); conversion: Canonne,
                                                             Kamath and Steinke 2020 (arXiv:2004.00010), Prop. 12
=============  ============================================  ===================================================

**Why one may use them all.** Which of the filters still lets a release through can depend on the answers, so 'some
filter is content' is no filter for the same delta: with two branches, each may use up the delta of its own order. But
let filter j guarantee (epsilon, w_j delta), where the w_j sum to 1. Costs only grow, so whatever was let through to the
end was let through by at least one j all along; call the set of such outcomes E_j, made disjoint. On E_j the releases
are those of the process that j alone would have let through, so P(A and E_j) <= e^epsilon P'(A and E_j) + w_j delta for
neighbouring populations. Adding up over j: (epsilon, delta), whatever was chosen. The pure filter needs no share of
delta; the Gaussian one has a half, the orders share the other. Where releases of a run are interleaved with other
questions the same filters hold (Haney et al. 2023, for f-DP and for Renyi divergences of fixed order).

**What does not come from an ideal Gaussian.** Noise on a grid has the Renyi divergences of the continuous one at whole
orders (`accountants`); for the Gaussian filter a fixed part of epsilon is set aside for the distance between them
(`slack`, path by path), and more of it than that is refused. A release that is (e, 0)-DP is mu-GDP for
mu = -2 Phi^-1(1/(1 + e^e)): binary randomised response is the worst such release, and its trade-off curve consists of
two chords of that Gaussian's. Sampling can only lower mu; amplification is counted by Renyi divergences alone. A
hundredth of delta is set aside for cohorts that outgrow their limit. Whatever has no finite bound costs infinity.

Arms of one split share no client (`composition`): a client pays for one of them, so each cost is the largest over arms.
The rule looks at that maximum, and each client's own total is below it on every path (Feldman and Zrnic's individual
accounting).

**The first entry** that a client is in was chosen before anything about that client was read: the first of a ledger,
and the first on each arm of one split as long as there is nothing else. If it is within the budget as a plan, it may be
made; if no filter would have let it through, none will let anything through after it, and it was all there was.

*What remains to be assumed*: that the budget itself was set before the first release. A budget that is raised after
reading the answers is a new promise, made by whoever raised it.
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

_FOR_FAILURES = 0.01  # of delta
_RARE = 1e-12  # a limit on the cohort that is reached more often than this is a part of the release
_MOST_NOISE = 1e6  # what lies above is counted as this, which is next to nothing
_ROUNDING = 1 + 2.0**-40  # more than a long running sum can lose


def is_within(total: np.ndarray, epsilon: float, delta: float) -> bool:
    """Whether releases that cost `total` are within a budget: some filter, with its share of delta, is content."""
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
    """What making `event` costs; all its parts are counted."""
    total = NOTHING
    for leaf, count in flatten(event).items():
        total = total + count * leaf_cost(leaf, relation)
    return total


@functools.lru_cache(maxsize=4096)
def leaf_cost(leaf: Event, relation: Relation) -> np.ndarray:
    """What one release of an elementary event costs."""
    if losses.is_non_private(flatten(leaf)):
        return np.full_like(NOTHING, math.inf)
    bounds = 2.0 if relation is Relation.REPLACE else 1.0
    if isinstance(leaf, Gaussian):
        return _of_gaussian(leaf, bounds)
    if isinstance(leaf, TruncatedPoisson) and isinstance(leaf.event, Gaussian):
        if has_a_limit_that_matters(leaf):  # when a client stays away another one has its place: two bounds apart
            return _of_gaussian(leaf.event, 2.0)
        found = leaf_cost(Poisson(leaf.rate, leaf.event), relation).copy()
        found[_FAILURE] = _overflow(leaf)
        return found
    if isinstance(leaf, Poisson | FixedSize) and isinstance(leaf.event, Gaussian):
        return _of_sampled(leaf, leaf.event, relation, bounds)
    noise = leaf.event if isinstance(leaf, Poisson) and isinstance(leaf.event, Laplace) else leaf
    loss = losses.pure_loss(noise, relation)
    if loss == math.inf:
        raise UnknownEvent(f"no filter can bound {leaf}: use Gaussian noise, or participation without sampling")
    square = (2 * special.ndtri(special.expit(-loss))) ** 2 if loss < losses.LARGEST_LOSS else math.inf
    return np.concatenate([[loss, square, 0.0, 0.0], losses.rdp(noise, relation)[_PLACES]])


def has_a_limit_that_matters(leaf: Event) -> bool:
    """Whether cohorts outgrow their limit more than once in a blue moon."""
    return isinstance(leaf, TruncatedPoisson) and _overflow(leaf) > _RARE


def _overflow(leaf: TruncatedPoisson) -> float:
    """The chance that a client who is in is in a cohort beyond its limit, so that somebody is left out."""
    return float(stats.binom.sf(leaf.limit - 1, leaf.population - 1, leaf.rate))


def _of_gaussian(noise: Gaussian, bounds: float) -> np.ndarray:
    square = (bounds / noise.noise_multiplier) ** 2
    return np.concatenate([[math.inf, square, Slack(0.0, noise.kl_slack).ratio, 0.0], _ORDERS * square / 2])


def _of_sampled(leaf: Poisson | FixedSize, noise: Gaussian, relation: Relation, bounds: float) -> np.ndarray:
    """As without sampling, but for the Renyi divergences; where those lost their precision, as without sampling too."""
    found = _of_gaussian(noise, bounds)
    ideal = Gaussian(min(noise.noise_multiplier, _MOST_NOISE))
    sampled = losses.rdp(dataclasses.replace(leaf, event=ideal), relation)[_PLACES]
    found[_RENYI] = np.where((sampled >= 0) & (sampled < found[_RENYI]), sampled, found[_RENYI])
    return found


def _renyi_allowance(epsilon: float, delta: float) -> np.ndarray:
    """The divergence of each order that implies (epsilon, delta)."""
    return epsilon - np.log1p(-1 / _ORDERS) + (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1)
