"""The Laplace mechanism on bounded sums: pure epsilon for contributions bounded in L1.

`exact` adds discrete Laplace noise of scale 2^24 grid steps to integers. For contributions with an integer L1 norm of
at most 2^24 / z, any output becomes at most exp(1/z) times as likely: pure DP, and the event claims nothing more.
(Probabilities have 128 bits and noise ends at 89 scales; the remainder, less than 2^-120 per coordinate, is as far
below any delta as the chance of guessing the key.) `float` is for simulation.
"""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from blindsight.accounting import events
from blindsight.errors import UnboundedContribution
from blindsight.keys import Key
from blindsight.mechanisms.discrete import discrete_laplace
from blindsight.mechanisms.noise import AdditiveNoise, Sampler
from blindsight.mechanisms.release import Release
from blindsight.trees import BoundedSum

__all__ = ["LaplaceMechanism", "laplace"]


@dataclasses.dataclass(frozen=True)
class LaplaceMechanism(AdditiveNoise):
    """Adds Laplace noise of scale `noise_multiplier * l1_bound` to every coordinate and divides by n_expected.

    For `exact`, clients round with `trees.to_grid(..., order=1)`.
    """

    def event(self, total: BoundedSum) -> events.Laplace:
        """The event of releasing `total`; refuses a sum without an L1 bound."""
        self.check_grid(total, _l1_bound(total))
        return events.Laplace(self.noise_multiplier, discrete=self.sampler == "exact")

    def release(self, total: BoundedSum, *, key: Key) -> Release[Any]:
        """The noised mean, its event, and the standard deviation of the noise in it."""
        event = self.event(total)
        scale = self.noise_multiplier * _l1_bound(total)
        stream = key.stream()

        def noised(leaf: Any) -> np.ndarray:
            values = np.asarray(leaf)
            if self.sampler == "exact":
                noise = discrete_laplace(self.bits, values.size, stream).reshape(values.shape)
                return ((values.astype(np.int64) + noise) * (scale / 2**self.bits / total.n_expected)).astype(
                    np.float32
                )
            words = stream.words(2 * values.size).reshape(2, *values.shape)
            magnitude = -np.log((words[0] + 0.5) * 2.0**-64)  # exponential, from 64 bits: full tail
            noise = scale * np.where(words[1] & np.uint64(1), magnitude, -magnitude)
            return ((values + noise) / total.n_expected).astype(np.float32)

        return Release(jax.tree.map(noised, total.value), event, math.sqrt(2) * scale / total.n_expected)


def laplace(noise_multiplier: float, *, sampler: Sampler = "exact") -> LaplaceMechanism:
    """The Laplace mechanism; `sampler="float"` is for simulation."""
    return LaplaceMechanism(noise_multiplier, sampler)


def _l1_bound(total: BoundedSum) -> float:
    if total.l1_bound is None:
        raise UnboundedContribution("Laplace noise needs an L1 bound: clip with order=1, or use Gaussian noise")
    return total.l1_bound
