"""Spam check: whether every weight of an update is within the range of honest ones, without reading the instances.

The k instances of Draw and Discard spread around their mean, and an honest update is one of them, moved by one step and
one client's noise. So a weight is within t standard deviations of the mean, plus a step. Mean and spread are computed
from the instances every 50 updates. In between the mean drifts by sigma^2 / k with every accepted update (sigma^2 is
the variance of a client's noise) and by at most a step / k, so the window widens accordingly:

    |weight - mean| <= t sqrt(spread^2 + (1 + age / k) sigma^2) + (1 + age / k) step

This is weaker than a proof that an update is honest: it bounds what one update can do to the model, not what many can.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy import count_nonzero, frombuffer, greater_equal, less_equal

if TYPE_CHECKING:
    from blindsight.algorithms.draw_and_discard import Task

__all__ = ["REFRESH_EVERY", "Window", "standard_deviations"]

REFRESH_EVERY = 50  # updates
_WIDEN_EVERY = 25  # updates: the half-widths in use are those of up to this many updates later
_LARGEST = np.float32(1e16)  # weight, wherever spam has driven the window: squares of larger ones overflow
_FLOAT = np.dtype("<f4")


def standard_deviations(weights: int) -> float:
    """The number of standard deviations t that an honest update with this many weights may deviate.

    All weights must be inside, so t grows with their number. It was measured, not derived from a normal distribution:
    the spread of a few instances fluctuates widely. With this t fewer than one honest update in a thousand is refused,
    from 10 to 50,000 weights, even while a model learns as fast as it can (experiments/spam.py, docs/service.md).

    >>> round(standard_deviations(387), 1), round(standard_deviations(50_000), 1)
    (5.6, 7.7)
    """
    return 3.0 + math.log10(weights)


class Window:
    """The window in which the weights of an honest update lie."""

    def __init__(self, task: "Task") -> None:
        self._variance = task.variance
        self._step = task.learning_rate * task.clip
        self._instances = task.instances
        self._deviations = standard_deviations(task.weights)
        self._mean = np.zeros(task.weights, np.float32)
        self._spread = np.zeros(task.weights, np.float32)  # squared
        self._low = np.zeros(task.weights, np.float32)
        self._high = np.zeros(task.weights, np.float32)
        self._half = np.zeros(task.weights, np.float32)
        self._rows = np.zeros((task.instances, task.weights), _FLOAT)
        self._row_bytes = [row.data.cast("B") for row in self._rows]
        self._inside = np.zeros((2, task.weights), bool)
        self._above, self._below = self._inside
        self._count = 0
        self.due = 0
        """The number of updates at which the instances should be read again."""
        self._holds_until = -1

    @property
    def spread(self) -> float:
        """The standard deviation over instances, as the root of its mean square over weights."""
        return float(np.sqrt(self._spread.mean(dtype=np.float64)))

    def age(self, count: int) -> int:
        """Updates since the instances were read, given `count` in total."""
        return count - self._count

    def refresh(self, instances: Sequence[bytes], count: int) -> None:
        """Compute mean and spread of the instances after `count` updates."""
        rows = self._rows  # reused memory: fresh pages would cost more than the arithmetic
        for row, instance in zip(self._row_bytes, instances, strict=True):
            row[:] = instance
        np.add.reduce(rows, axis=0, out=self._mean)  # np.mean and np.sum have more overhead than the additions take
        np.divide(self._mean, len(rows), out=self._mean)
        np.subtract(rows, self._mean, out=rows)
        np.multiply(rows, rows, out=rows)
        np.add.reduce(rows, axis=0, out=self._spread)
        np.divide(self._spread, max(len(rows) - 1, 1), out=self._spread)
        self._count, self.due = count, count + REFRESH_EVERY
        self._widen(0)

    def admits(self, update: bytes, count: int) -> bool:
        """Whether every weight of `update` is inside after `count` updates; NaN never is.

        It takes the same time whatever the answer: the sender's next request waits for it and would reveal it.
        """
        if count > self._holds_until:
            self._widen(count - self._count)
        weights = frombuffer(update, _FLOAT)
        greater_equal(weights, self._low, self._above)
        less_equal(weights, self._high, self._below)
        return count_nonzero(self._inside) == self._inside.size

    def _widen(self, age: int) -> None:
        self._holds_until = self._count + age + _WIDEN_EVERY
        steps = 1 + (age + _WIDEN_EVERY) / self._instances
        half = self._half
        np.add(self._spread, np.float32(steps * self._variance), out=half)
        np.sqrt(half, out=half)
        np.multiply(half, np.float32(self._deviations), out=half)
        np.add(half, np.float32(steps * self._step), out=half)
        np.subtract(self._mean, half, out=self._low)
        np.add(self._mean, half, out=self._high)
        np.fmax(self._low, -_LARGEST, out=self._low)
        np.fmin(self._high, _LARGEST, out=self._high)
