"""Stateless dice: each throw is a function of a seed, a purpose and integers.

Client 17 of seed 3 has the same style and the same examples whichever other clients are drawn, in any order: a throw
depends only on its name and its indices. Throws are vectorised over arrays of indices. They generate synthetic data
and choose the clients that a fault affects. They must not be used for privacy, which needs `keys`.
"""

import functools
import operator
from typing import Any

import numpy as np

from blindsight import keys
from blindsight.errors import InvalidInput

__all__ = ["Dice"]


class Dice:
    """The dice of one seed and one purpose.

    >>> dice = Dice(3, "example")
    >>> bool(dice.uniform("height", np.arange(9))[5] == dice.uniform("height", 5))
    True
    """

    def __init__(self, seed: int, purpose: str) -> None:
        try:
            self.seed = operator.index(seed)
        except TypeError:
            raise InvalidInput(f"the seed must be a whole number, got {seed!r}") from None
        self._key = keys.reproducible(self.seed).derive(purpose)

    def words(self, name: str, *indices: Any) -> np.ndarray:
        """One uniform 64-bit word for each element of `indices`, broadcast against each other."""
        state = _first_word(self._key, name)
        for index in indices:
            state = _mix(state + (np.atleast_1d(index).astype(np.uint64) + _ODD[0]) * _ODD[1])
        return state.reshape(np.broadcast_shapes(*map(np.shape, indices)))

    def uniform(self, name: str, *indices: Any) -> np.ndarray:
        """Uniform on [0, 1)."""
        return (self.words(name, *indices) >> np.uint64(11)) * 2.0**-53

    def bell(self, name: str, *indices: Any) -> np.ndarray:
        """Nearly normal with mean 0 and variance 1, bounded by 3.47: the sum of a word's four quarters."""
        quarters = self.words(name, *indices)[..., None].view(np.uint16).sum(axis=-1, dtype=np.int64)
        return ((quarters - 2 * 65535) * (np.sqrt(3.0) / 65536)).astype(np.float32)

    def below(self, bound: Any, name: str, *indices: Any) -> np.ndarray:
        """Integers on [0, bound)."""
        return (self.uniform(name, *indices) * bound).astype(np.int64)


# Steele, Lea and Flood's SplitMix64 (OOPSLA 2014): every input bit affects every output bit.
_ODD = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)


def _mix(state: np.ndarray) -> np.ndarray:
    state = state + _ODD[0]
    state = (state ^ (state >> np.uint64(30))) * _ODD[1]
    state = (state ^ (state >> np.uint64(27))) * _ODD[2]
    return state ^ (state >> np.uint64(31))


@functools.lru_cache(maxsize=4096)
def _first_word(key: keys.Key, name: str) -> np.ndarray:
    return np.frombuffer(key.derive(name).secret[:8], dtype="<u8").astype(np.uint64)
