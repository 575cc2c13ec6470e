"""Counts of clients (votes, clients in an arm) against those of public clients.

The null hypothesis: private clients are drawn from the same distribution as public ones. Resampling public clients
cannot produce what the reference happens to lack. If k of M public clients do something, the true share follows
Beta(k + 1, M - k), an upper bound: for k = 0 its 95 % point is the rule of three, 3 / M. `Background` averages over it:
the number among N private clients is beta-binomial, and noise is added.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from scipy import optimize, stats

__all__ = ["Background", "tail"]

_FINE = 4000  # clients up to which the beta-binomial distribution is exact
_LEVELS = np.logspace(-12, 0, 481)  # of the distribution over shares, finest in the tail


@dataclasses.dataclass(frozen=True)
class Background:
    """`public` of `public_clients` do something where nothing is wrong; how many of `clients` may, and with noise?"""

    public: float
    public_clients: int
    clients: int
    noise_std: float

    def p_more(self, seen: float) -> float:
        """The probability of a noisy count of at least `seen`."""
        return tail(seen, self.clients, (self.public + 1, self.public_clients - self.public), self.noise_std)

    def p_fewer(self, seen: float) -> float:
        """The probability of a noisy count of at most `seen`."""
        rest = self.public_clients - self.public
        return tail(self.clients - seen, self.clients, (rest + 1, self.public), self.noise_std)

    def fewest_detected(self, level: float) -> float:
        """The count whose p-value is `level`; infinite if not even all clients are enough."""

        def off(seen: float) -> float:
            return math.log(max(self.p_more(seen), 1e-300)) - math.log(level)

        if off(float(self.clients)) > 0:
            return math.inf
        if off(0.0) <= 0:
            return 0.0
        root: Any = optimize.brentq(off, 0.0, float(self.clients), xtol=0.01)
        return float(root)


def tail(seen: float, clients: int, shape: tuple[float, float], noise_std: float) -> float:
    """The probability of a noisy count of at least `seen` among `clients` whose share follows Beta(*shape)."""
    a, b = shape[0], max(shape[1], 1e-3)
    if clients <= _FINE:
        values = np.arange(clients + 1)
        chance = stats.norm.sf((seen - values) / noise_std) if noise_std > 0 else values >= seen
        return float(_chances(clients, a, b) @ chance)
    share = stats.beta.isf(np.sqrt(_LEVELS[1:] * _LEVELS[:-1]), a, b)
    deviation = np.sqrt(clients * share * (1 - share) + noise_std**2)
    chance = stats.norm.sf((seen - clients * share) / np.maximum(deviation, 1e-9))
    return float(np.diff(_LEVELS) @ chance + _LEVELS[0])


@functools.lru_cache(maxsize=256)
def _chances(clients: int, a: float, b: float) -> np.ndarray:
    """The probability of every count."""
    return stats.betabinom.pmf(np.arange(clients + 1), clients, a, b)
