"""What observers weaker than the guarantee's adversary could learn from Draw and Discard: informal, not a guarantee.

Pihur et al. 2018 (arXiv:1807.04369) argue that an observer who does not see the channel learns less. The numbers in
their Lemmas 1 and 3 do not hold: Lemma 1 averages epsilon over the server's coins, and its epsilon/2 fails if a model
has several weights, because the other weights reveal which instance came first; Lemma 3 has too small a constant and a
tail that is not Gaussian. This module computes the largest loss and the exact curve. They depend on what an observer is
*not* able to do, which no mathematics can enforce, so they are always reported separately.
"""

import dataclasses
import math

import numpy as np
from scipy import optimize

from blindsight.accounting import accountants
from blindsight.accounting.events import Event, Gaussian, Relation
from blindsight.errors import InvalidInput

__all__ = ["Informal", "against_snapshots", "largest_loss_of_a_pair", "many_laplaces"]

_MOST_POINTS = 1 << 21


@dataclasses.dataclass(frozen=True, kw_only=True)
class Informal:
    """The most that two weaker observers could learn from one update. Not a guarantee.

    `snapshot` is the largest privacy loss against an observer of all instances right after the update (adversary II;
    unknown for Gaussian noise), `later` the epsilon at `delta` against an observer of one instance after `updates`
    further updates (adversary III). `survival` is the probability that an update outlives all others (Lemma 2).
    """

    snapshot: float | None
    snapshot_published: float | None
    later: float
    later_published: float | None
    updates: int
    delta: float
    survival: float

    def __str__(self) -> str:
        against = "unknown" if self.snapshot is None else f"up to {self.snapshot:.4g}"
        return (
            f"informal, not a guarantee: against a snapshot of all instances {against}; against one instance "
            f"{self.updates:,} updates later {self.later:.4g} at delta {self.delta:.3g}"
        )


def against_snapshots(
    event: Event, *, epsilon: float, weights: int, whole_update: bool, instances: int, updates: int, delta: float
) -> Informal:
    """Adversaries II and III for one update whose noise is `event`, by coordinate or for the `whole_update`.

    Args:
        event: Noise of one update.
        epsilon: Epsilon of one update.
        weights: Number of weights in an instance.
        whole_update: Whether the noise protects the whole update, or each coordinate separately.
        instances: Number of instances on the server.
        updates: Updates that have changed the instance when adversary III sees it.
        delta: Delta of the guarantee.
    """
    if updates < 1 or not 0 < delta < 1:
        raise InvalidInput(f"updates must be 1 or more and delta between 0 and 1, got {updates} and {delta}")
    if isinstance(event, Gaussian):
        slower = Gaussian(event.noise_multiplier * math.sqrt(updates))
        snapshot = snapshot_published = later_published = None
        later = accountants.epsilon(slower, delta, Relation.REPLACE).epsilon
    else:
        snapshot = _loss_of_whole_update(epsilon, weights) if whole_update else largest_loss_of_a_pair(epsilon, weights)
        snapshot_published = (instances - 1) / instances * epsilon / 2
        later = many_laplaces(epsilon, updates, delta)
        later_published = epsilon / math.sqrt(2 * updates) * math.sqrt(math.log(1 / (2 * delta)))
    if instances == 1:
        snapshot = snapshot if snapshot is None else 0.0  # the only instance was overwritten
    return Informal(
        snapshot=snapshot,
        snapshot_published=snapshot_published,
        later=later,
        later_published=later_published,
        updates=updates,
        delta=delta,
        survival=1 / instances,
    )


def largest_loss_of_a_pair(epsilon: float, weights: int) -> float:
    """The largest loss for one coordinate if an update and the instance it came from are seen in unknown order.

    Each of the other weights can make one order up to e^epsilon times as likely as the other: two instances d apart,
    of which one came from the other by a step a, have the likelihoods f(d + a) and f(-d + a). One weight alone gives
    the paper's epsilon/2; ten give nearly all of epsilon.

    >>> [round(largest_loss_of_a_pair(1.0, weights), 3) for weights in (1, 3, 5, 10, 20)]
    [0.5, 0.735, 0.958, 1.0, 1.0]
    """
    apart = np.linspace(-1.0, 1.0, 401)[:, None, None]
    step, other_step = np.array([-1.0, 0.0, 1.0])[None, :, None], np.array([-1.0, 0.0, 1.0])[None, None, :]
    log_odds = -epsilon * (weights - 1)  # of the other order, with the most revealing values of the other weights

    def log_likelihood(moved: np.ndarray) -> np.ndarray:
        this, other = -epsilon / 2 * np.abs(apart + moved), -epsilon / 2 * np.abs(moved - apart)
        return np.logaddexp(this, other + log_odds)

    return float(np.max(log_likelihood(step) - log_likelihood(other_step)))


def many_laplaces(epsilon: float, updates: int, delta: float) -> float:
    """The epsilon at `delta` of the sum of `updates` independent Laplace noises, each of which alone gives `epsilon`.

    The sum's distribution on a fine grid is the inverse Fourier transform of a power of one noise's characteristic
    function; it is exact for the discrete noise that clients draw.

    >>> [round(many_laplaces(1.0, updates, 1e-8), 3) for updates in (1, 4, 9, 100)]
    [1.0, 0.855, 0.732, 0.317]
    """
    reach = 60 + 20 * math.sqrt(2 * updates) + 2 * epsilon  # in scales of one noise, on either side
    steps = max(8, min(1024, int(_MOST_POINTS / (2 * reach)), int(4096 * max(1.0, math.sqrt(updates)) / epsilon)))
    shift = max(1, round(epsilon * steps))
    per_step = epsilon / shift  # so that the shift is a whole number of steps and one noise gives epsilon
    points = 1 << math.ceil(math.log2(2 * reach * shift / epsilon))
    half_angles = np.pi * np.fft.rfftfreq(points)
    one = 1 / (1 + (np.sin(half_angles) / math.sinh(per_step / 2)) ** 2)
    chances = np.maximum(np.fft.fftshift(np.fft.irfft(one**updates, points)), 0.0)
    shifted = np.roll(chances, shift)

    def excess(candidate: float) -> float:
        return float(np.maximum(chances - math.exp(candidate) * shifted, 0.0).sum()) - delta

    if excess(0.0) <= 0:
        return 0.0
    root = optimize.brentq(excess, 0.0, epsilon * (1 + 1e-9) + 1e-12, xtol=1e-9)
    return min(epsilon, float(root))  # pyright: ignore[reportArgumentType]


def _loss_of_whole_update(epsilon: float, weights: int) -> float:
    """The same if the whole update is protected: log((e^epsilon + 1) / 2), attained with two weights.

    With two instances D apart, steps of length C at most and noise of scale 1, epsilon = 2C: the likelihood of either
    order is between exp(-(D + C)) and exp(-max(D - C, 0)), and by the triangle inequality the two distances add up to
    2D or more. So the ratio is at most (1 + e^{-2D}) e^{D + C} / 2 for D <= C, which grows with D, and
    (e^{2C} + 1) / 2 beyond.
    """
    if weights == 1:
        return largest_loss_of_a_pair(epsilon, 1)
    return epsilon + math.log1p(math.exp(-epsilon)) - math.log(2)
