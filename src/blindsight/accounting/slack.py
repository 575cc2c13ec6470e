"""What it costs that noise was drawn on a grid and not from the ideal Gaussian that privacy curves are about."""

import dataclasses
import math
from typing import Protocol

from scipy import optimize

__all__ = ["Curve", "Slack", "ideal_budget"]

_NEVER = math.exp(-100)  # added to delta for what practically never happens
_COARSEST_SCALE, _FINEST_SCALE = 2.0**12, 2.0**24  # of discrete Gaussian noise, in steps of its grid
_MOMENT = 6 * _COARSEST_SCALE**2 - 1
_RATIO_PER_KL = 320 / 24 * _FINEST_SCALE**2
_NEGLIGIBLE = 3e-6  # of epsilon: no digit that is printed
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
    """`failure`: probability that an ideal assumption broke; `kl`: divergence of the noise really drawn from ideal.

    **Why the distance costs next to nothing at any epsilon.** Let p be discrete Gaussian noise of scale s, r the
    rounded continuous Gaussian that the curves are about (`mechanisms.gaussian`), P and R all releases with the one and
    with the other. With t uniform on [-1/2, 1/2], r(x)/p(x) = E[cosh(xt/s^2) exp(-t^2/(2s^2))], so by cosh >= 1 and
    Jensen, and by E[cosh(at)] = sinh(a/2)/(a/2) <= exp(a^2/24),

        log p(x)/r(x) <= 1/(24 s^2) for every x,   and   log r(x)/p(x) <= x^2/(24 s^4).

    Let H be the sum of 1/(24 s^2) over all coordinates of all releases. Then P <= e^H R everywhere. For the other way
    take the moment of order k + 1: E_p[exp((k+1) x^2/(24 s^4))] = (1 - (k+1)/(12 s^2))^(-1/2) <= exp((k+1)/(12 s^2)) as
    long as k + 1 <= 6 s^2. By Markov's inequality R <= e^H' P except with probability e^-L under R, where
    H' = (2(k+1) H + L)/k. If the ideal releases are (e, d)-DP, then for neighbouring populations

        P(A) <= e^H R(A) <= e^H (e^e R'(A) + d) <= e^(e + H + H') P'(A) + e^(H + e - L) + e^H d.

    L = e + H + 100 makes the middle term e^-100. Every scale that Blindsight draws at lies between 2^12 and 2^24, and
    `kl_slack` is the sum of 1/(320 s^4): so H <= 320/24 * 2^48 * kl_slack, and k = 6 * 2^24 - 1 will do. All this holds
    path by path, also for adaptive releases. For a thousand coordinates H is 1.5e-13.

    The other way, by total variation t <= sqrt(kl/2) (Pinsker): (e, d) becomes (e, d + (1 + e^e) t). It needs nothing
    but the divergence, and is the better one where both H and epsilon are small.
    """

    failure: float
    kl: float

    @property
    def ratio(self) -> float:
        """H: how much likelier the noise really drawn can make anything than ideal noise does, as a logarithm."""
        return self.kl * _RATIO_PER_KL

    def epsilon(self, curve: Curve, delta: float) -> float:
        """The smallest epsilon for `delta` of noise this far from the ideal noise of `curve`."""
        if self.kl == 0:
            return curve.epsilon(delta)
        kept = (delta - _NEVER) * math.exp(-self.ratio)
        ideal = curve.epsilon(kept) if kept > 0 else math.inf
        found = ideal + self.more(ideal)
        if found <= (1 + _NEGLIGIBLE) * curve.epsilon(delta):  # less than the ideal noise's own is out of reach
            return found
        return min(found, self._by_total_variation(curve, delta))

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
        """H + H': what epsilon grows by."""
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
    """What a filter may allow ideal noise, so that noise on a grid stays within (epsilon, delta).

    Returns the largest `Slack.ratio` that is allowed, fixed beforehand, and the (epsilon, delta) that are left: the
    argument of `Slack` with that H, which holds for whatever was chosen as long as the releases stay below it.
    """
    slack = Slack(0.0, _RATIO_ALLOWED * min(1.0, epsilon) / _RATIO_PER_KL)
    return slack.ratio, epsilon - slack.more(epsilon), (delta - _NEVER) * math.exp(-slack.ratio)
