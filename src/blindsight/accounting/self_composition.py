"""A distribution of privacy losses composed with itself: the library's formulas, on real Fourier transforms.

dp-accounting transforms complex numbers, of which half are redundant, and takes a power of each by its logarithm: a
third of a second for a distribution of a million points, and a plan composes dozens. Here powers are products, and the
40 moments that bound the tails come from one exponential. A test compares every probability with the library's.
"""

import math
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf
from scipy import fft

from blindsight.errors import PrivacyError

__all__ = ["TooWide", "self_composed"]

_TAIL = 1e-15  # what the library leaves out of both tails and counts as an infinite loss
_MOMENTS = 20
_MOST_POINTS = 1 << 25  # a second and a gigabyte


class TooWide(PrivacyError):
    """The losses of this many releases do not fit onto the grid: use a coarser one, or another bound."""


def self_composed(masses: Any, count: int) -> Any:
    """The distribution of the sum of `count` independent losses, for one side of a distribution on a grid (dense)."""
    low, high = _ends(masses._probs, count)
    length = high - low + 1
    if length > _MOST_POINTS:
        raise TooWide(f"{count:,} releases spread over {length:,} points of a grid")
    size: Any = fft.next_fast_len(max(length, len(masses._probs)), real=True)
    spectrum: Any = fft.rfft(masses._probs, size)
    whole: Any = fft.irfft(_power(spectrum, count), size)
    kept = np.roll(whole, -(low % size))[:length]  # sums wrap around at `size`
    infinite = _TAIL - math.expm1(count * math.log1p(-masses._infinity_mass))
    first = masses._lower_loss * count + low
    return pld_pmf.DensePLDPmf(masses._discretization, first, kept, infinite, masses._pessimistic_estimate)


def _ends(probabilities: np.ndarray, count: int) -> tuple[int, int]:
    """Between which grid points the sum lies, but for the tails: Chernoff bounds of the library's 40 orders."""
    points = len(probabilities)
    low, high = 0, (points - 1) * count
    once = np.exp(np.arange(points) / points)
    grown, shrunk = probabilities, probabilities
    for moment in range(1, _MOMENTS + 1):
        grown, shrunk = grown * once, shrunk / once
        with np.errstate(divide="ignore"):  # no probability at all
            logs = np.log([grown.sum(), shrunk.sum()]) * count + math.log(2 / _TAIL)
        if math.isfinite(logs[0]):
            high = min(high, math.ceil(logs[0] * points / moment))
        if math.isfinite(logs[1]):
            low = max(low, math.floor(-logs[1] * points / moment))
    return low, high


def _power(base: np.ndarray, exponent: int) -> np.ndarray:
    result = None
    while True:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if not exponent:
            return base if result is None else result
        base = base * base
