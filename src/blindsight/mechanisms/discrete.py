"""Exact sampling of integer noise: discrete Laplace and discrete Gaussian, vectorised, from a cryptographic stream.

Gaussian noise is rounded now (`rounded_gaussian`). The discrete Gaussian is what earlier versions drew: what ledgers
say of it (`accounting.slack`) is tested against it.

After Canonne, Kamath and Steinke 2020 (arXiv:2004.00010, Algorithms 1-3), with scales that are powers of two. Then
every Bernoulli probability is either a ratio of integers below 2^63, drawn with exactly uniform integers, or exp(-k)
for an integer k, drawn by comparison with 128 bits of its binary expansion. No floating-point number is used.
"""

import functools
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np

from blindsight.errors import InvalidInput
from blindsight.keys import Stream

__all__ = ["LARGEST_BITS", "discrete_gaussian", "discrete_laplace"]

LARGEST_BITS = 24
"""Largest log2 of a scale: (88 * 2^24)^2 still fits into 63 bits."""

_BATCH = 1 << 15


def discrete_gaussian(bits: int, count: int, stream: Stream) -> np.ndarray:
    """`count` independent draws, int64, with P(x) proportional to exp(-x^2 / (2 s^2)) for whole x, s = 2^bits.

    A discrete Laplace draw y of scale s is kept with probability exp(-(|y| - s)^2 / (2 s^2)); about 3 in 4 are.
    """

    def propose(size: int) -> np.ndarray:
        proposals = discrete_laplace(bits, size, stream)
        distance = np.abs(proposals) - (1 << bits)
        keep = _exp_minus(distance * distance, 2 * bits + 1, stream)
        return proposals[keep]

    return _collect(count, 0.76, propose)


def discrete_laplace(bits: int, count: int, stream: Stream) -> np.ndarray:
    """`count` independent draws, int64, with P(x) proportional to exp(-|x| / s) for whole x, s = 2^bits."""
    if not 1 <= bits <= LARGEST_BITS:
        raise InvalidInput(f"the scale must be 2^1 to 2^{LARGEST_BITS}, got 2^{bits}")

    def propose(size: int) -> np.ndarray:
        # u + s v with P(u) ~ exp(-u/s) on [0, s) and P(v) ~ exp(-v): the magnitude has weight exp(-magnitude/s)
        sign_and_remainder = stream.below(1 << (bits + 1), size)
        remainder = sign_and_remainder >> 1
        kept = _exp_minus(remainder, bits, stream)
        negative, remainder = (sign_and_remainder[kept] & 1).astype(bool), remainder[kept]
        magnitude = remainder + (_geometric(remainder.size, stream) << bits)
        once = ~(negative & (magnitude == 0))  # zero has one sign only
        return np.where(negative, -magnitude, magnitude)[once]

    return _collect(count, 0.63, propose)


def _collect(count: int, acceptance: float, propose: Callable[[int], np.ndarray]) -> np.ndarray:
    """Proposals until `count` are kept, in batches that stay in the processor's cache."""
    kept: list[np.ndarray] = []
    missing = count
    while missing > 0:
        batch = propose(min(_BATCH, int(missing / acceptance * 1.01) + 16))[:missing]
        kept.append(batch)
        missing -= len(batch)
    return np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)


def _exp_minus(numerator: np.ndarray, bits: int, stream: Stream) -> np.ndarray:
    """For each, True with probability exp(-numerator / 2^bits), exactly.

    The integer part of the exponent is drawn at once; the rest, g < 1, by von Neumann's series: toss coins with
    probabilities g/1, g/2, g/3, ... until the first failure, and return whether its position is odd.
    """
    whole = numerator >> bits
    result = np.ones(numerator.shape, dtype=bool)
    large = np.flatnonzero(whole)
    if large.size:
        result[large] = _geometric(large.size, stream) >= whole[large]
    alive = np.flatnonzero(result)
    rest = numerator[alive] & ((1 << bits) - 1)
    place = 1
    while alive.size:
        success = stream.below(1 << bits, alive.size) < rest
        if place > 1:
            success &= stream.below(place, alive.size) == 0
        result[alive[~success]] = place % 2 == 1
        alive, rest = alive[success], rest[success]
        place += 1
    return result


def _geometric(count: int, stream: Stream) -> np.ndarray:
    """`count` draws v with P(v >= k) = exp(-k), up to 2^-126: the number of thresholds above a uniform number."""
    high, low = _thresholds()
    words, more = stream.words(count), None
    result = np.zeros(count, dtype=np.int64)
    alive = np.arange(count)
    for k in range(len(high)):
        below = words[alive] < high[k]
        ties = np.flatnonzero(words[alive] == high[k])
        if ties.size:  # once in 2^64: the next 64 bits of the same number decide
            more = stream.words(count) if more is None else more
            below[ties] = more[alive[ties]] < low[k]
        alive = alive[below]
        if not alive.size:
            break
        result[alive] = k + 1
    return result


@functools.cache
def _thresholds() -> tuple[np.ndarray, np.ndarray]:
    """The first and second 64 bits of exp(-1), exp(-2), ..., as long as they are not all zero."""
    with localcontext() as context:
        context.prec = 60
        expansions = [int(Decimal(-k).exp() * 2**128) for k in range(1, 89)]
    return (
        np.array([value >> 64 for value in expansions], dtype=np.uint64),
        np.array([value & (2**64 - 1) for value in expansions], dtype=np.uint64),
    )
