"""The sketch: in which directions all clients together push more than noise does.

A share h of hostile clients that pushes along a unit vector v by m sigma on average adds h m^2 sigma^2 to the mean
square of the differences along v, whatever else it sends and however it turns from one update to the next. So the
directions with the largest mean squares are followed (a block power iteration over the updates), and within them a
difference may be as long as is typical there, which a minority does not move: in the first direction 1.6
times the median, and in the first 2, 4, 8, 16 and 32 together little more than the length that the medians make. What
is w times as long is divided by w^2 as a whole, in all directions. It begins after twenty updates, with wider bounds
until it has seen some hundreds: what is pushed before anybody looks would take thousands of honest updates to repair.
When it looks again is random: who knew could turn to another direction just before, each time. There are enough
directions, and the sums last long enough, that those who turn at random times come back to one that is still followed.
Nothing is kept of an update but its share in a sum, and of the last few differences their noisy values.
"""

import math

import numpy as np

from blindsight.service.randomness import random_index, secret_generator

__all__ = ["Sketch"]

_DIRECTIONS = 32
_BLOCK = 500  # updates between two steps of the iteration, on average
_FIRST = 20  # updates before the first step; twice as many before each further one, up to a block
_MEMORY = 0.9  # of the sums, from one block to the next
_RECENT = 128  # differences whose median tells what is typical
_MOST = 1 << 16  # numbers in the basis
_MOST_RECENT = 1 << 18  # numbers in the recent differences
_CHEAP = 1 << 12  # weights up to which it learns from every update; from a random part of them if there are more
_MORE = 0.6  # typical deviations beyond the typical length
_FIRST_MORE = 1.5  # of the first steps: hardly any honest update is as long
_TINY = 1e-30  # a squared length that nothing is shorter than
_NORMAL = 0.6745  # median of the absolute value of a standard normal variable


class Sketch:
    """Follows the directions of the largest differences, and weakens what is too long in them."""

    def __init__(self, weights: int, sigma: float) -> None:
        self._sigma = sigma
        count = min(_DIRECTIONS, weights // 4, max(1, _MOST // weights))
        self.basis = np.linalg.qr(secret_generator().standard_normal((weights, count)))[0].T.astype(np.float32)
        self._sizes = sorted({count >> halvings for halvings in range(6)} - {0})
        self.bounds = []
        self._sums = np.zeros((count, weights), np.float32)
        self._recent = np.zeros((max(16, min(_RECENT, _MOST_RECENT // weights)), weights), np.float32)
        self.typical_step = math.inf
        """The length that a typical difference has beyond that of noise: the median, which a minority does not move."""
        self._next = self._count = 0
        self._block = self._until = _FIRST
        self._filled = 0
        self._part = -(-weights // _CHEAP)

    @property
    def bounds(self) -> list[tuple[int, float]]:
        """Pairs (n, length): the largest length of a difference within the first n directions."""
        return self._bounds

    @bounds.setter
    def bounds(self, bounds: list[tuple[int, float]]) -> None:
        self._bounds = bounds
        self._shares = np.zeros((len(self.basis), len(bounds)), np.float32)  # of a squared bound, by squared component
        for number, (size, length) in enumerate(bounds):
            self._shares[:size, number] = 1 / max(length**2, _TINY)

    @property
    def drift(self) -> float | None:
        """How long the mean of the last differences is, over its length if they were noise; None if none were seen."""
        recent = self._recent[: self._filled]
        if not len(recent) or not self._sigma:
            return None
        of_noise = self._sigma * math.sqrt(recent.shape[1] / len(recent))
        return float(np.linalg.norm(recent.mean(axis=0, dtype=np.float64))) / of_noise

    def cut(self, changes: np.ndarray) -> np.ndarray:
        """Weaken rows of `changes` in place, and learn from all as they were; which rows were weakened."""
        if not len(self.basis):
            return np.zeros(len(changes), bool)
        inside = changes @ self.basis.T
        if self._part == 1 or random_index(self._part) == 0:
            self._learn(inside, changes)
        far = self._weaken(changes, inside)
        if self._count >= self._until:
            self._follow()
        return far

    def _weaken(self, changes: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """Let what is too long in the directions count for less as a whole, the less the longer it is.

        A direction is never known exactly, so what is pushed along it leaves a part beside it: cutting only what is in
        the direction would let that pass. Who pushes twice as far as a bound moves a model half as far as at the bound.
        """
        if not self.bounds:
            return np.zeros(len(changes), bool)
        worst = (np.square(inside) @ self._shares).max(axis=1)
        far = worst > 1
        if far.any():
            changes[far] /= worst[far][:, None]
        return far

    def _learn(self, inside: np.ndarray, changes: np.ndarray) -> None:
        self._sums += np.dot(inside.T, changes)  # of one row, `@` would take ten times as long
        room = len(self._recent) - self._next
        self._recent[self._next : self._next + len(changes)] = changes[:room]
        self._next = (self._next + len(changes)) % len(self._recent) if len(changes) < room else 0
        self._count += len(changes)
        self._filled = min(self._filled + len(changes), len(self._recent))

    def _follow(self) -> None:
        recent = self._recent[: self._filled]
        self.basis = np.ascontiguousarray(np.linalg.qr(self._sums.T)[0].T)
        typical = np.median(np.abs(recent @ self.basis.T), axis=0) / _NORMAL
        lengths = np.sqrt(np.cumsum(np.maximum(typical, self._sigma) ** 2))
        more = _MORE if self._block > _BLOCK // 2 else _FIRST_MORE
        self.bounds = [(size, float(lengths[size - 1]) * (1 + more / math.sqrt(size))) for size in self._sizes]
        square = float(np.median(np.einsum("ij,ij->i", recent, recent)))
        self.typical_step = math.sqrt(max(square - recent.shape[1] * self._sigma**2, 0.0))
        self._sums *= _MEMORY ** (self._count / _BLOCK)
        self._block = min(2 * self._block, _BLOCK)
        self._count, self._until = 0, self._block if self._block < _BLOCK else 1 + random_index(2 * _BLOCK)
