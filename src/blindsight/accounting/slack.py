"""The cost of drawing noise on a grid instead of from the ideal Gaussian that privacy curves assume."""

import dataclasses
import math
from typing import Protocol

from scipy import optimize

__all__ = ["Curve", "Slack", "ideal_budget"]

_NEVER = math.exp(-100)  # added to delta for events that practically never happen
_COARSEST_SCALE, _FINEST_SCALE = 2.0**12, 2.0**24  # of discrete Gaussian noise, in steps of its grid
_MOMENT = 6 * _COARSEST_SCALE**2 - 1
_RATIO_PER_KL = 320 / 24 * _FINEST_SCALE**2
_NEGLIGIBLE = 3e-6  # of epsilon: below the printed digits
_RATIO_ALLOWED = 1e-4  # of a budget's epsilon, and of 1: enough for 6.7e11 numbers released


class Curve(Protocol):
    """An upper bound on the (epsilon, delta) curve of ideal events."""

    @property
    def accountant(self) -> str:
        """The name of the analysis."""
        ...

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon known for `delta`."""
        ...

    def delta(self, epsilon: float) -> float:
        """The smallest delta known for `epsilon`."""
        ...


@dataclasses.dataclass(frozen=True)
class Slack:
    """`failure`: probability that an ideal assumption broke; `kl`: divergence of the actual noise from ideal noise.

    **Why the distance costs next to nothing at any epsilon.** Let p be discrete Gaussian noise of scale s, r the
    rounded continuous Gaussian that the curves assume (`mechanisms.gaussian`), and P and R all releases with p and with
    r. With t uniform on [-1/2, 1/2], r(x)/p(x) = E[cosh(xt/s^2) exp(-t^2/(2s^2))], so by cosh >= 1 and
    Jensen, and by E[cosh(at)] = sinh(a/2)/(a/2) <= exp(a^2/24),

        log p(x)/r(x) <= 1/(24 s^2) for every x,   and   log r(x)/p(x) <= x^2/(24 s^4).

    Let H be the sum of 1/(24 s^2) over all coordinates of all releases. Then P <= e^H R everywhere. For the other way
    take the moment of order k + 1: E_p[exp((k+1) x^2/(24 s^4))] = (1 - (k+1)/(12 s^2))^(-1/2) <= exp((k+1)/(12 s^2)) as
    long as k + 1 <= 6 s^2. By Markov's inequality R <= e^H' P except with probability e^-L under R, where
    H' = (2(k+1) H + L)/k. If the ideal releases are (e, d)-DP, then for neighbouring populations

        P(A) <= e^H R(A) <= e^H (e^e R'(A) + d) <= e^(e + H + H') P'(A) + e^(H + e - L) + e^H d.

    L = e + H + 100 makes the middle term e^-100. Every scale that Blindsight uses lies between 2^12 and 2^24, and
    `kl_slack` is the sum of 1/(320 s^4): so H <= 320/24 * 2^48 * kl_slack, and k = 6 * 2^24 - 1 suffices. All this
    holds path by path, also for adaptive releases. For a thousand coordinates H is 1.5e-13.

    Alternatively, by total variation t <= sqrt(kl/2) (Pinsker): (e, d) becomes (e, d + (1 + e^e) t). It needs only the
    divergence, and is better where both H and epsilon are small.
    """

    failure: float
    kl: float

    @property
    def ratio(self) -> float:
        """H: the largest log-ratio of an outcome's probability under the actual noise to that under ideal noise."""
        return self.kl * _RATIO_PER_KL

    def epsilon(self, curve: Curve, delta: float) -> float:
        """The smallest epsilon for `delta` of noise this far from the ideal noise of `curve`."""
        if self.kl == 0:
            return curve.epsilon(delta)
        kept = (delta - _NEVER) * math.exp(-self.ratio)
        ideal = curve.epsilon(kept) if kept > 0 else math.inf
        grown = ideal + self.more(ideal)
        if grown <= (1 + _NEGLIGIBLE) * curve.epsilon(delta):  # nothing can beat ideal noise
            return grown
        return min(grown, self._by_total_variation(curve, delta))

    def delta(self, curve: Curve, epsilon: float) -> float:
        """The smallest delta for `epsilon` of noise this far from the ideal noise of `curve`."""
        if self.kl == 0:
            return curve.delta(epsilon)
        by_variation = curve.delta(epsilon) + self._variation(epsilon)
        ideal = epsilon - self.more(epsilon)
        if ideal < 0 or self.ratio > 1:
            return by_variation
        return min(by_variation, math.exp(self.ratio) * curve.delta(ideal) + _NEVER)

    def more(self, epsilon: float) -> float:
        """H + H': the increase of epsilon."""
        least = epsilon + self.ratio + 100
        return self.ratio + (2 * (_MOMENT + 1) * self.ratio + least) / _MOMENT

    def _variation(self, epsilon: float) -> float:
        return (1 + math.exp(min(epsilon, 700.0))) * math.sqrt(self.kl / 2)

    def _by_total_variation(self, curve: Curve, delta: float) -> float:
        def excess(candidate: float) -> float:
            return curve.delta(candidate) + self._variation(candidate) - delta

        high = curve.epsilon(delta / 2)
        if high == math.inf or excess(high) > 0:
            return math.inf
        if excess(0.0) <= 0:
            return 0.0
        root = float(optimize.brentq(excess, 0.0, high, xtol=1e-6))  # pyright: ignore[reportArgumentType]
        return min(high, root + 1e-6)  # brentq may stop on the wrong side of the root


def ideal_budget(epsilon: float, delta: float) -> tuple[float, float, float]:
    """The budget of a filter for ideal noise, so that noise on a grid stays within (epsilon, delta).

    Returns the largest allowed `Slack.ratio`, fixed in advance, and the remaining (epsilon, delta): the argument of
    `Slack` with that H, which holds for any choice of releases that stays below it.
    """
    slack = Slack(0.0, _RATIO_ALLOWED * min(1.0, epsilon) / _RATIO_PER_KL)
    return slack.ratio, epsilon - slack.more(epsilon), (delta - _NEVER) * math.exp(-slack.ratio)
