"""Noisy arg-max: the class most parties vote for, on many questions at once, released only if it is clearly ahead.

After Papernot et al. 2018, *Scalable Private Learning with PATE* (arXiv:1802.08908), with accounting that does not
depend on the votes. A party's model may depend on every one of its examples, so one example can change all of its
party's votes: on each of `k` questions one count falls and another rises by one, which moves the table of counts by at
most sqrt(2 k). One Gaussian release of the whole table pays for that. Everything else (which class is ahead, by how
much, and whether that is enough) is computed from the noisy table and costs nothing more.
"""

import dataclasses
import math

import numpy as np

from blindsight.accounting.events import Event
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms.gaussian_mechanism import GaussianMechanism
from blindsight.mechanisms.release import Release
from blindsight.trees import BoundedSum

__all__ = ["UNDECIDED", "NoisyArgmax", "noisy_argmax", "winners"]

UNDECIDED = -1
"""The winner of a question on which no class is far enough ahead."""


def winners(counts: np.ndarray, *, margin: float, threshold: float = -math.inf) -> np.ndarray:
    """For every row of (questions, classes) the class with the most votes, or `UNDECIDED`.

    A winner has at least `threshold` votes and is ahead of the second by more than `margin`.

    >>> winners(np.array([[5, 0, 0], [3, 2, 0], [3, 1, 1]]), margin=1).tolist()
    [0, -1, 0]
    """
    ordered = np.sort(counts, axis=1)
    second = ordered[:, -2] if counts.shape[1] > 1 else np.full(len(counts), -math.inf)
    clear = (ordered[:, -1] - second > margin) & (ordered[:, -1] >= threshold)
    return np.where(clear, np.argmax(counts, axis=1), UNDECIDED)


@dataclasses.dataclass(frozen=True)
class NoisyArgmax:
    """Winners among `classes` through a Gaussian mechanism, for winners with enough noisy votes and lead."""

    classes: int
    mechanism: GaussianMechanism
    threshold: float = -math.inf
    margin: float = 0.0

    def __post_init__(self) -> None:
        if not self.classes >= 2:
            raise InvalidInput(f"a vote needs at least two classes, got {self.classes}")
        if math.isnan(self.threshold) or not self.margin >= 0:
            raise InvalidInput(f"threshold must be a number and margin >= 0, got {self.threshold} and {self.margin}")

    def count(self, votes: np.ndarray, *, n_expected: float) -> BoundedSum:
        """The table of counts, (questions, classes), from votes (parties, questions); invalid votes are ignored.

        **Guarantee**: however an example changes its own party's votes, the table moves by at most `l2_bound`.
        """
        votes = np.asarray(votes)
        if votes.ndim != 2 or votes.shape[1] < 1 or votes.dtype.kind not in "iu":
            raise InvalidInput(
                f"votes must be whole numbers of shape (parties, questions), got {votes.dtype}{list(votes.shape)}"
            )
        counts = (votes[:, :, None] == np.arange(self.classes)).sum(axis=0)
        bound = math.sqrt(2 * votes.shape[1])
        grid = self.mechanism.grid(bound)
        if grid is None:
            return BoundedSum(counts.astype(np.float32), l2_bound=bound, n_expected=n_expected)
        vote = int(1 / grid * (1 - 2**-50))  # in steps, rounded down: a vote never counts more than one
        return BoundedSum(counts.astype(np.int64) * vote, l2_bound=bound, n_expected=n_expected, grid=grid)

    @property
    def planned_event(self) -> Event:
        """The event for one example of any number of questions in one table, whatever the votes are."""
        return self.mechanism.planned_event

    def event(self, total: BoundedSum) -> Event:
        """The event of releasing the table; refuses one with other classes or another bound."""
        shape = np.shape(total.value)
        if len(shape) != 2 or shape[1] != self.classes or total.l2_bound < math.sqrt(2 * shape[0]):
            raise InvalidInput(f"this is not a table of votes for {self.classes} classes: make it with count()")
        return self.mechanism.event(total)

    def release(self, total: BoundedSum, *, key: Key) -> Release[np.ndarray]:
        """The winner of every question or `UNDECIDED`, the event, and the noise of every count."""
        self.event(total)
        shares = self.mechanism.release(total, key=key)
        counts = np.asarray(shares.value, np.float64) * total.n_expected
        decided = winners(counts, margin=self.margin, threshold=self.threshold)
        return Release(decided, shares.event, shares.noise_std * total.n_expected)


def noisy_argmax(
    classes: int, mechanism: GaussianMechanism, *, threshold: float = -math.inf, margin: float = 0.0
) -> NoisyArgmax:
    """Winners among `classes`, counted through `mechanism`."""
    return NoisyArgmax(classes, mechanism, threshold, margin)
