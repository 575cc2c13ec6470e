"""What a release says about one arm: its cues and its votes, with their errors. NumPy only, for readers without JAX."""

import dataclasses
import math

import numpy as np

__all__ = ["DECADES", "MAGNITUDE", "NONE", "ArmCues", "ArmVotes"]

NONE = "none"  # the last label of every ballot
MAGNITUDE, DECADES = "magnitude", 8
"""The cue whose differences are ratios, and the number of powers of ten it covers between 0 and 1."""


@dataclasses.dataclass(frozen=True)
class ArmCues:
    """The released cues of one arm: the mean over clients and both sources of its error.

    `counted` is the noisy number of clients, `noise_std` the standard deviation of the DP noise in every sum, and
    `spread` the standard deviation between clients, estimated conservatively.
    """

    arm: str
    names: tuple[str, ...]
    counted: float
    noise_std: float
    mean: np.ndarray
    spread: np.ndarray

    @property
    def is_measurable(self) -> bool:
        """Whether the arm is large enough, relative to the noise, for ratios to be meaningful."""
        return self.counted >= 5 * self.noise_std and self.counted >= 2

    def share(self, clients: int) -> tuple[float, float, float]:
        """The share of `clients` (a public number) that are in the arm, and its 95 % interval."""
        ends = (self.counted, self.counted - 1.96 * self.noise_std, self.counted + 1.96 * self.noise_std)
        middle, low, high = (min(max(end / clients, 0.0), 1.0) for end in ends)
        return middle, low, high

    @property
    def noise_error(self) -> np.ndarray:
        """The standard deviation of each mean due to noise, in the sum and in the count it is divided by."""
        count = max(self.counted, 1.0)
        return self.noise_std * np.sqrt(1 + (self.mean - 0.5) ** 2) / count

    @property
    def sampling_error(self) -> np.ndarray:
        """The standard deviation of each mean due to the sampling of clients."""
        return self.spread / math.sqrt(max(self.counted, 1.0))


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
