"""Intervals for ratios of noisy sums that hold for all of them at once.

Every number of an answer is a ratio r = a / w of two linear forms of released sums: the weight of a cell over that of
all cells. Noise of known standard deviation is in both. At the true r, a - r w is Gaussian with mean 0 and a
variance s(r)^2 that is known, so {r : |a - r w| <= c s(r)} contains it with the probability that a normal number is
within c (Fieller 1954): no approximation, however noisy the denominator. If w cannot be told from zero the set is
everything, and so is the interval.

**All at once.** c is the quantile of the largest of all |a - r w| / s(r). Correlations follow from the forms, with
estimates in place of the true r, and the quantile from draws of the noise with a fixed public seed. If there are too
many forms to draw quickly, they are treated as independent, which can only widen intervals (Sidak 1967). Intersecting
intervals with possible values, and those of a distribution function with each other, excludes no truth.

The intervals are about the value of this population. What another population would show is not claimed.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

__all__ = ["CONFIDENCE", "Estimate", "Forms", "critical", "intervals"]

CONFIDENCE = 0.95
_DRAWS, _CHUNK, _SEED = 2**16, 2**12, 20_260
_MOST_DRAWN = 300_000  # forms times coordinates of a block whose correlations are drawn


class Estimate(NamedTuple):
    """A value with the ends of its interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, eq=False)
class Forms:
    """Ratios of linear forms of one slice's released sums: `above` over `below`, one row for each ratio."""

    sums: np.ndarray
    noise_std: float
    above: np.ndarray
    below: np.ndarray

    @functools.cached_property
    def ratios(self) -> np.ndarray:
        """The ratios between 0 and 1; a half where the denominator is not positive."""
        above, below = self.above @ self.sums, self.below @ self.sums
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(below > 0, np.clip(above / below, 0.0, 1.0), 0.5)

    @functools.cached_property
    def standardised(self) -> np.ndarray:
        """a - r w for noise of variance 1, scaled to variance 1 itself."""
        forms = self.above - self.ratios[:, None] * self.below
        return forms / np.maximum(np.linalg.norm(forms, axis=1, keepdims=True), 1e-300)


def critical(blocks: Sequence[Forms], confidence: float = CONFIDENCE) -> float:
    """How many standard deviations contain all forms at once, with that probability; blocks are independent."""
    largest = np.zeros(_DRAWS)
    for number, block in enumerate(blocks):
        dice = np.random.default_rng([_SEED, number])
        count, width = block.above.shape
        if count * width > _MOST_DRAWN:
            chance = dice.random(_DRAWS) ** (1 / count)
            critical_value = special.ndtri((1 + chance) / 2)
        else:
            forms = block.standardised.T.astype(np.float32)
            drawn = (dice.standard_normal((_CHUNK, width), np.float32) @ forms for _ in range(_DRAWS // _CHUNK))
            critical_value = np.concatenate([np.abs(one).max(axis=1) for one in drawn])
        largest = np.maximum(largest, critical_value)
    return float(np.quantile(largest, confidence))


def intervals(forms: Forms, c: float) -> list[Estimate]:
    """The ratios with their intervals at `c` standard deviations, within 0 and 1."""
    reach = (c * forms.noise_std) ** 2
    above, below = forms.above @ forms.sums, forms.below @ forms.sums
    # (w^2 - reach B) r^2 - 2 (a w - reach C) r + a^2 - reach A <= 0
    square = below**2 - reach * np.square(forms.below).sum(axis=1)
    middle = above * below - reach * (forms.above * forms.below).sum(axis=1)
    rest = above**2 - reach * np.square(forms.above).sum(axis=1)
    estimates = list[Estimate]()
    for value, w, a2, a1, a0 in zip(forms.ratios, below, square, middle, rest, strict=True):
        if w <= 0 or a2 <= 0:
            estimates.append(Estimate(float(value), 0.0, 1.0))
            continue
        half = math.sqrt(max(a1 * a1 - a2 * a0, 0.0))
        low, high = (min(max(end, 0.0), 1.0) for end in ((a1 - half) / a2, (a1 + half) / a2))
        estimates.append(Estimate(float(min(max(value, low), high)), float(low), float(high)))
    return estimates
