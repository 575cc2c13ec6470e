"""A quantile of one number per client (an accuracy, a norm) as a single bounded sum.

Each client marks the cell of its value in histograms of 2, 4, ..., 2^levels equal cells over a public range: `levels`
ones, so its contribution has norm sqrt(levels) whatever the value. Any prefix of the finest histogram is a sum of at
most `levels` cells of different histograms, so the noise of the distribution function grows with log(cells), not with
cells. Everything after the one Gaussian release is post-processing.
"""

import dataclasses
import math

import numpy as np

from blindsight.accounting.events import Event
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms.gaussian_mechanism import GaussianMechanism
from blindsight.mechanisms.release import Release
from blindsight.trees import BoundedSum, sum_clients

__all__ = ["Quantile", "QuantileEstimate", "quantile"]


@dataclasses.dataclass(frozen=True)
class QuantileEstimate:
    """The estimated quantile, and an interval that covers the clients' true one at least 95 % of the time."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Quantile:
    """The `probability`-quantile of clients' values within the public range [low, high]."""

    probability: float
    low: float
    high: float
    mechanism: GaussianMechanism
    levels: int = 8

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise InvalidInput(f"probability must lie between 0 and 1, got {self.probability}")
        if not 0 < self.high - self.low < math.inf:
            raise InvalidInput(f"the range must be finite and not empty, got [{self.low}, {self.high}]")
        if not 1 <= self.levels <= 20:
            raise InvalidInput(f"levels must lie between 1 and 20, got {self.levels}")

    @property
    def l2_bound(self) -> float:
        """The norm of every client's contribution."""
        return math.sqrt(self.levels)

    def parts(self, values: np.ndarray) -> np.ndarray:
        """The contributions of clients with these values, one row each; values are clamped to the range."""
        position = (np.asarray(values, np.float64) - self.low) / (self.high - self.low)
        if np.isnan(position).any():
            raise InvalidInput("NaN has no rank: drop the client")
        finest = np.clip(np.floor(np.clip(position, 0.0, 1.0) * 2**self.levels), 0, 2**self.levels - 1).astype(np.int64)
        parts = np.zeros((len(finest), 2 ** (self.levels + 1) - 2), dtype=np.float32)
        for level in range(1, self.levels + 1):
            parts[np.arange(len(finest)), _offset(level) + (finest >> (self.levels - level))] = 1.0
        return parts

    def count(self, parts: np.ndarray, *, n_expected: float) -> BoundedSum:
        """The bounded sum of clients' parts."""
        grid = self.mechanism.step(self.l2_bound) if self.mechanism.sampler == "exact" else None
        return sum_clients(parts, self.l2_bound, n_expected=n_expected, grid=grid)

    def event(self, total: BoundedSum) -> Event:
        """The event of releasing the quantile; refuses a sum over other cells."""
        if np.shape(total.value) != (_offset(self.levels + 1),):
            raise InvalidInput(f"this is not a sum over the {_offset(self.levels + 1)} cells of {self.levels} levels")
        return self.mechanism.event(total)

    def release(self, total: BoundedSum, *, key: Key) -> Release[QuantileEstimate]:
        """The estimate and its event; `noise_std` is that of a single cell's count."""
        self.event(total)
        noised = self.mechanism.release(total, key=key)
        noise_std = noised.noise_std * total.n_expected
        cells = np.asarray(noised.value, np.float64) * total.n_expected
        return Release(self.estimate(cells, noise_std), noised.event, noise_std)

    def estimate(self, cells: np.ndarray, noise_std: float) -> QuantileEstimate:
        """The quantile estimated from noisy counts of all cells, each with standard deviation `noise_std`.

        The quantile is left of an edge if and only if, without noise, the edge's excess is not negative. So an end of
        the interval misses it only if the noise at the one edge next to it exceeds 1.96 deviations, however many other
        edges cross zero by chance. The estimate is the cell with as many edges to its left as have a negative excess:
        where the curve is flat and noisy, the middle of its crossings, not the first.
        """
        below, terms = self._prefixes(cells)  # clients below each of the 2^levels + 1 edges
        excess = below - self.probability * (cells[0] + cells[1])  # the coarsest histogram counts all clients
        excess[0], excess[-1] = -math.inf, math.inf  # no value is below the range, all are below its end
        # the noise of an edge: its own cells, and p times the two cells that count all clients
        error = 1.96 * noise_std * np.sqrt(terms + 2 * self.probability**2)
        edges = np.linspace(self.low, self.high, len(below))
        cell = np.count_nonzero(excess < 0)
        first, last = np.flatnonzero(excess + error >= 0)[0], np.flatnonzero(excess - error < 0)[-1]
        return QuantileEstimate(
            float(edges[cell - 1] + edges[cell]) / 2, low=float(edges[first - 1]), high=float(edges[last + 1])
        )

    def _prefixes(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For every edge, the noisy number of values below it and the number of cells in that sum."""
        edges = np.arange(2**self.levels + 1)
        below, terms = np.zeros(len(edges)), np.zeros(len(edges))
        for level in range(1, self.levels + 1):
            index = edges >> (self.levels - level)
            used = index % 2 == 1  # at an odd index the cell to the left completes the prefix
            below[used] += cells[_offset(level) + index[used] - 1]
            terms += used
        below[-1], terms[-1] = cells[0] + cells[1], 2
        return below, terms


def quantile(probability: float, *, low: float, high: float, mechanism: GaussianMechanism, levels: int = 8) -> Quantile:
    """The `probability`-quantile over [low, high] in 2^levels cells, through `mechanism`."""
    return Quantile(probability, low, high, mechanism, levels)


def _offset(level: int) -> int:
    return 2**level - 2
