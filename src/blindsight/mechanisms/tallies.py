"""Noisy counts of votes: each client adds at most one vote (or a bounded spread of one) to a public list of labels."""

import dataclasses
import math

import numpy as np

from blindsight.accounting.events import Event
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms.gaussian_mechanism import GaussianMechanism
from blindsight.mechanisms.laplace_mechanism import LaplaceMechanism
from blindsight.mechanisms.release import Release
from blindsight.trees import BoundedSum, sum_clients

__all__ = ["Tally", "Votes", "votes"]


@dataclasses.dataclass(frozen=True)
class Tally:
    """Noisy votes per label, in the order of `labels`; `noise_std` is that of each count."""

    labels: tuple[str, ...]
    counts: np.ndarray
    noise_std: float

    @property
    def winner(self) -> str:
        """The label with the largest noisy count."""
        return self.labels[int(np.argmax(self.counts))]

    @property
    def margin(self) -> float:
        """The winner's lead over the second noisy count (its noise: sqrt(2) `noise_std`); inf with one label."""
        ordered = np.sort(self.counts)
        return float(ordered[-1] - ordered[-2]) if len(ordered) > 1 else math.inf


@dataclasses.dataclass(frozen=True)
class Votes:
    """A poll over public `labels`, counted through a Gaussian or Laplace mechanism."""

    labels: tuple[str, ...]
    mechanism: GaussianMechanism | LaplaceMechanism

    def __post_init__(self) -> None:
        if len(self.labels) < 1 or len(set(self.labels)) != len(self.labels):
            raise InvalidInput(f"labels must be distinct, and at least one, got {self.labels}")

    def part(self, label: str | None) -> np.ndarray:
        """One client's contribution: its vote, or zeros."""
        part = np.zeros(len(self.labels), dtype=np.float32)
        if label is not None:
            if label not in self.labels:
                raise InvalidInput(f"{label!r} is not one of the labels {self.labels}")
            part[self.labels.index(label)] = 1.0
        return part

    def count(self, parts: np.ndarray, *, n_expected: float) -> BoundedSum:
        """The bounded sum of clients' parts, one row each; rows longer than one vote are clipped to one."""
        grid = self.mechanism.step(1.0) if self.mechanism.sampler == "exact" else None
        return sum_clients(np.asarray(parts, np.float32), 1.0, n_expected=n_expected, order=1, grid=grid)

    def event(self, total: BoundedSum) -> Event:
        """The event of releasing the poll; refuses a sum over other labels."""
        if np.shape(total.value) != (len(self.labels),):
            raise InvalidInput(f"this is not a sum of votes for the {len(self.labels)} labels {self.labels}")
        return self.mechanism.event(total)

    def release(self, total: BoundedSum, *, key: Key) -> Release[Tally]:
        """The noisy tally and its event."""
        self.event(total)
        shares = self.mechanism.release(total, key=key)
        noise_std = shares.noise_std * total.n_expected
        tally = Tally(self.labels, np.asarray(shares.value, np.float64) * total.n_expected, noise_std)
        return Release(tally, shares.event, noise_std)


def votes(labels: tuple[str, ...], mechanism: GaussianMechanism | LaplaceMechanism) -> Votes:
    """A poll over `labels` counted through `mechanism`."""
    return Votes(tuple(labels), mechanism)
