"""The weights that a draw shows: a mixture of instances, the same for everybody, renewed after a batch of updates.

In the paper a draw is an instance, which is some client's update: whoever keeps drawing reads almost every update, sees
which instance it was made from, and whether its own was taken. Here a draw is

    (a + b + c - d) / 2

of four different instances chosen at random. The coefficients and their squares add up to one, so a mixture has the
mean and the covariance of a random instance: the model learns as before. All draws until the batch of updates is
complete get the same bytes, so nobody draws a particular instance, and of a batch only the one mixture is ever seen.

The spread over instances is smaller than the paper's (Theorem 1). Two instances are both replaced by a batch of B
updates with probability r2, one of them with r1, neither with r0; an instance replaced is the mixture plus noise of
variance sigma^2. So the variance over instances V becomes r0 V + r1 (sigma^2 / 2 + (1 - 1/k) V) + r2 sigma^2, which
stays the same at

    V = sigma^2 (r1 / 2 + r2) / (1 - r0 - r1 (1 - 1/k))

With B = 1 this is the paper's k/2 sigma^2.
"""

import math
from collections.abc import Sequence

import numpy as np

from blindsight.algorithms.draw_and_discard import Task
from blindsight.service.protocol import decode
from blindsight.service.randomness import random_index

__all__ = ["MIXED", "expected_spread", "mixture", "of_batch", "random_indices"]

MIXED = 4
"""Instances in a mixture; a model with fewer shows one of them."""


def of_batch(task: Task, batch: int) -> int:
    """Updates per batch: the setting, or as many as the model has instances."""
    return batch or task.instances


def mixture(instances: Sequence[bytes]) -> bytes:
    """The mixture of four instances."""
    first, second, third, last = (decode(instance) for instance in instances)
    mixed = first + second
    mixed += third
    mixed -= last
    mixed *= np.float32(0.5)
    return mixed.tobytes()


def random_indices(count: int) -> list[int]:
    """Four different numbers below `count`, in random order; one if there are fewer."""
    left = list(range(count))
    return [left.pop(random_index(len(left))) for _ in range(MIXED if count >= MIXED else 1)]


def expected_spread(task: Task, batch: int) -> float:
    """The stationary standard deviation over instances, from noise alone.

    >>> from blindsight.algorithms.draw_and_discard import Task
    >>> task = Task(model="m", family="custom", weights=9, unit="feature", epsilon=1.0)
    >>> [round(expected_spread(task, batch) / task.variance**0.5, 2) for batch in (1, 10, 20)]
    [3.16, 1.51, 1.22]
    """
    k = task.instances
    if k == 1:
        return 0.0
    r0 = (1 - 2 / k) ** batch
    r1 = 2 * ((1 - 1 / k) ** batch - r0)
    r2 = 1 - r0 - r1
    return math.sqrt(task.variance * (r1 / 2 + r2) / (1 - r0 - r1 * (1 - 1 / k)))
