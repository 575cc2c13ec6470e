"""What a release says about one arm: its cues and its votes, with their errors. NumPy only, for readers without JAX."""

import dataclasses
import math
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["ABSENT", "DECADES", "MAGNITUDE", "NONE", "OTHERS", "ArmCues", "ArmVotes", "difference_of_cues"]
__all__ += ["estimated_error", "statistic"]

NONE = "none"  # the last label of every ballot
MAGNITUDE, DECADES = "magnitude", 8
"""The cue whose differences are ratios, and the number of powers of ten it covers between 0 and 1."""

ABSENT, OTHERS = "missing", "unlisted"
"""The cues that count missing values, and values of a category that the public list lacks."""


@dataclasses.dataclass(frozen=True)
class ArmCues:
    """The released cues of one arm: the mean over clients and both sources of its error.

    `counted` is the noisy number of clients, `noise_std` the standard deviation of the DP noise in every sum, and
    `spread` the standard deviation between clients, estimated conservatively for tests; `likely` is its plain estimate,
    for intervals. Many releases can be read at once: arrays then have one more axis in front.
    """

    arm: str
    names: tuple[str, ...]
    counted: Any
    noise_std: float
    mean: np.ndarray
    spread: np.ndarray
    likely: np.ndarray | None = None

    @property
    def is_measurable(self) -> Any:
        """Whether the arm is large enough, relative to the noise, for ratios to be meaningful."""
        return self.counted >= max(5 * self.noise_std, 2)

    def share(self, clients: int) -> tuple[float, float, float]:
        """The share of `clients` (a public number) that are in the arm, and its 95 % interval."""
        ends = (self.counted, self.counted - 1.96 * self.noise_std, self.counted + 1.96 * self.noise_std)
        middle, low, high = (min(max(end / clients, 0.0), 1.0) for end in ends)
        return middle, low, high

    @property
    def noise_error(self) -> np.ndarray:
        """The standard deviation of each mean due to noise, in the sum and in the count it is divided by."""
        return self.noise_std * np.sqrt(1 + (self.mean - 0.5) ** 2) / np.maximum(self.counted, 1.0)

    @property
    def sampling_error(self) -> np.ndarray:
        """The standard deviation of each mean due to the sampling of clients."""
        return self.spread / np.sqrt(np.maximum(self.counted, 1.0))


def difference_of_cues(
    first: ArmCues,
    second: ArmCues,
    *,
    disjoint_by_client: bool = True,
    expected: tuple[ArmCues, ArmCues] | None = None,
    is_pooled: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The difference of two arms in each cue, minus the expected one, and its standard deviation.

    `expected` are the same arms of public data. Under the null hypothesis an arm varies there as it does on clients;
    the larger of the two estimates is used for both, because an arm of few public clients has a poor one. `is_pooled`
    does the same for an arm and its own public counterpart.
    """
    if first.names != second.names:
        raise InvalidInput("arms can only be compared by the same cues: measure both in one round")
    difference = first.mean - second.mean
    if is_pooled:
        first, second = _pooled(first, second)
    if expected is None:
        return difference, np.sqrt(np.maximum(_variance(first, second, disjoint_by_client), 1e-18))
    difference = difference - (expected[0].mean - expected[1].mean)
    (first, one), (second, other) = _pooled(first, expected[0]), _pooled(second, expected[1])
    variance = _variance(first, second, disjoint_by_client) + _variance(one, other, disjoint_by_client)
    return difference, np.sqrt(np.maximum(variance, 1e-18))


def estimated_error(
    first: ArmCues,
    second: ArmCues,
    *,
    disjoint_by_client: bool = True,
    expected: tuple[ArmCues, ArmCues] | None = None,
) -> np.ndarray:
    """The standard deviation of a difference as estimated, for intervals: tests use a cautious one."""
    pairs = [(first, second), *([] if expected is None else [expected])]
    plain = [
        [one if one.likely is None else dataclasses.replace(one, spread=one.likely) for one in pair] for pair in pairs
    ]
    variance = sum(_variance(one, other, disjoint_by_client) for one, other in plain)
    return np.sqrt(np.maximum(variance, 1e-18))


def statistic(difference: np.ndarray, error: np.ndarray, *arms: ArmCues) -> np.ndarray:
    """The size of each difference in standard deviations; 0 where an arm is too small."""
    is_measurable = np.all([np.asarray(arm.is_measurable) for arm in arms], axis=0)
    return np.where(is_measurable, np.abs(difference) / error, 0.0)


def _pooled(arm: ArmCues, public: ArmCues) -> tuple[ArmCues, ArmCues]:
    spread = np.maximum(arm.spread, public.spread)
    return dataclasses.replace(arm, spread=spread), dataclasses.replace(public, spread=spread)


def _variance(first: ArmCues, second: ArmCues, disjoint_by_client: bool) -> np.ndarray:
    noise = first.noise_error**2 + second.noise_error**2
    if disjoint_by_client:
        return noise + first.sampling_error**2 + second.sampling_error**2
    return noise + (first.sampling_error + second.sampling_error) ** 2


@dataclasses.dataclass(frozen=True)
class ArmVotes:
    """The released votes of one arm; `noise_std` is that of each count."""

    arm: str
    labels: tuple[str, ...]
    counts: np.ndarray
    noise_std: float

    @property
    def voters(self) -> float:
        """The noisy number of clients that voted."""
        return float(self.counts.sum())

    @property
    def is_measurable(self) -> bool:
        """Whether enough clients voted for shares to be meaningful: four standard deviations of their noisy number."""
        return self.voters >= 4 * self.voters_std and self.voters >= 2

    @property
    def voters_std(self) -> float:
        """The standard deviation of the noise in the number of voters, which is a sum of noisy counts."""
        return self.noise_std * math.sqrt(len(self.labels))

    @property
    def shares(self) -> np.ndarray:
        """The share of each candidate among the arm's clients."""
        return self.counts / max(self.voters, 1.0)

    def error(self, share: np.ndarray | float) -> np.ndarray:
        """The standard deviation of a share, from noise in the count and in the total and from the sampling of clients.

        With V votes of T, d(V/T) = (dV - s dT) / T, and T is the sum of V and the other counts.
        """
        s, total = np.clip(np.asarray(share, np.float64), 0.0, 1.0), max(self.voters, 1.0)
        noise = self.noise_std**2 * ((1 - s) ** 2 + (len(self.labels) - 1) * s**2) / total**2
        return np.sqrt(noise + s * (1 - s) / total)
