"""What a fault predicts: the released sums and their error, if some clients have it.

Every candidate is planted in public clients, whole: what each of them would send then is known, with the fault and
without. If shares s_k of N private clients have the faults k, the released sums y are

    y = N (h + sum_k s_k d_k) + error,    h, d_k: mean contribution of a healthy client, and how far fault k moves it.

The error has four parts: the noise, the sampling of private clients, that of the public ones from which h and d are
estimated, and `Scatter`: others implement some faults differently. Covariances are shrunken after Ledoit and Wolf 2004.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import linalg

from blindsight.inspection.contrast.explained import tolerance_of

__all__ = [
    "Evidence",
    "MeanAndCovariance",
    "Moved",
    "Normal",
    "PlantedAnswers",
    "Scatter",
    "error_covariance",
    "error_of",
]

PlantedAnswers = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""For each candidate the public clients it was planted in (rows of `Evidence.public`), and what they would send."""


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """Released sums with the noise of each, and what every public client would send: one row each."""

    sums: np.ndarray
    noise_std: np.ndarray
    clients: int
    public: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class MeanAndCovariance:
    """Mean and covariance of rows, the covariance shrunken by the share `shrunk` towards a multiple of the identity."""

    rows: np.ndarray
    shrunk: float

    @classmethod
    def of(cls, rows: np.ndarray) -> "MeanAndCovariance":
        """Of these rows, shrunken as Ledoit and Wolf recommend."""
        from sklearn.covariance import ledoit_wolf_shrinkage  # takes a second to import, and only faults need it

        return cls(rows, float(ledoit_wolf_shrinkage(rows)) if len(rows) > 1 else 0.0)

    @functools.cached_property
    def mean(self) -> np.ndarray:
        """The mean of the rows."""
        return self.rows.mean(axis=0)

    @functools.cached_property
    def covariance(self) -> np.ndarray:
        """Their covariance."""
        return self.redrawn(np.ones((1, len(self.rows))))[1][0]

    def redrawn(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means and covariances if each row had occurred so often, shape (populations, rows)."""
        shares = counts / counts.sum(axis=1, keepdims=True)
        centred = self.rows - self.mean
        means = shares @ centred
        squares = (centred.T[None] * shares[:, None, :]) @ centred - means[:, :, None] * means[:, None, :]
        size = centred.shape[1]
        even = np.trace(squares, axis1=1, axis2=2)[:, None, None] / size * np.eye(size)
        return self.mean + means, (1 - self.shrunk) * squares + self.shrunk * even


@dataclasses.dataclass(frozen=True, eq=False)
class Normal:
    """Healthy public clients: mean and covariance of what they send, in units of `scale`."""

    scale: np.ndarray
    estimate: MeanAndCovariance

    @classmethod
    def of(cls, evidence: Evidence) -> "Normal":
        """Of the public clients in the evidence."""
        # in units of each coordinate's error, so that shrinking towards a multiple of the identity makes sense
        scale = np.sqrt(evidence.noise_std**2 + evidence.clients * evidence.public.std(axis=0) ** 2)
        return cls(scale, MeanAndCovariance.of(evidence.public / scale))


@dataclasses.dataclass(frozen=True, eq=False)
class Moved:
    """Public clients with a fault: what they send, and how far it moves them, in units of the scale."""

    fault: str
    sent: MeanAndCovariance
    moved: MeanAndCovariance

    @classmethod
    def of(cls, evidence: Evidence, healthy: Normal, fault: str, rows: np.ndarray, sent: np.ndarray) -> "Moved":
        """Of the public clients in `rows`, which send `sent` with the fault."""
        moved = (sent - evidence.public[rows]) / healthy.scale
        return cls(fault, MeanAndCovariance.of(sent / healthy.scale), MeanAndCovariance.of(moved))


def error_covariance(
    evidence: Evidence,
    scale: np.ndarray,
    shares: np.ndarray,
    healthy: np.ndarray,
    faults: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> np.ndarray:
    """The covariance of the released sums if these shares of clients have the faults, in units of the scale.

    `healthy` is the covariance of what healthy clients send; of each fault the mean movement, its covariance, and the
    covariance of what clients with it send. All may have a first axis of populations.
    """
    n = evidence.clients
    mixed, public = max(1 - float(shares.sum()), 0.0) * healthy, healthy / len(evidence.public)
    mean = np.zeros(healthy.shape[:-1])
    for share, (step, wobble, spread) in zip(shares.tolist(), faults, strict=True):
        mixed = mixed + share * (spread + step[..., :, None] * step[..., None, :])
        public = public + share**2 * wobble
        mean = mean + share * step
    noise = np.diag((evidence.noise_std / scale) ** 2 + 1e-9)
    return noise + n * (mixed - mean[..., :, None] * mean[..., None, :]) + n**2 * public


def error_of(evidence: Evidence, healthy: Normal, shares: np.ndarray, faults: Sequence[Moved]) -> np.ndarray:
    """The same, as estimated from all public clients."""
    estimates = [(one.moved.mean, one.moved.covariance / len(one.moved.rows), one.sent.covariance) for one in faults]
    return error_covariance(evidence, healthy.scale, shares, healthy.estimate.covariance, estimates)


@dataclasses.dataclass(frozen=True, eq=False)
class Scatter:
    """How differently others may implement a fault: a change in a direction drawn at random.

    `white` is the root of the error of a healthy release, in which lengths are measured; `root` that of the covariance
    of a change of unit length.
    """

    white: np.ndarray
    root: np.ndarray

    def length(self, evidence: Evidence, shares: np.ndarray, faults: Sequence[Moved], mismatch: float) -> float:
        """The length of the change, if that share of each fault's movement differs, or what is tolerated."""
        squared = 0.0
        for share, one in zip(shares.tolist(), faults, strict=True):
            step = linalg.solve_triangular(self.white, evidence.clients * one.moved.mean, lower=True)
            squared += (share * min(mismatch, tolerance_of(one.fault))) ** 2 * float(step @ step)
        return math.sqrt(squared)
