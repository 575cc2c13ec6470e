"""The common part of additive noise: a multiplier, a sampler, and for `exact` the grid that sums must lie on."""

import dataclasses
import math
from typing import Any, Literal, Protocol, runtime_checkable

from blindsight.errors import InvalidInput, RelationMismatch
from blindsight.mechanisms.discrete import LARGEST_BITS
from blindsight.trees import BoundedSum

__all__ = ["AdditiveNoise", "DrawnElsewhere", "Sampler"]


@runtime_checkable
class DrawnElsewhere(Protocol):
    """Noise drawn by others, such as the sites of a fleet, through their own mechanism."""

    def mechanism(self, noise_multiplier: float) -> Any:
        """The mechanism that describes their noise."""
        ...


Sampler = Literal["exact", "float"] | DrawnElsewhere
"""How noise is drawn: exactly here, by floating point here, or elsewhere."""


@dataclasses.dataclass(frozen=True)
class AdditiveNoise:
    """Noise of scale `noise_multiplier` times one client's bound, drawn `exact` (on a grid) or in `float`."""

    noise_multiplier: float
    sampler: Sampler = "exact"

    def __post_init__(self) -> None:
        if self.sampler not in ("exact", "float"):
            raise InvalidInput(f"sampler must be 'exact' or 'float', got {self.sampler!r}")
        if not 2**-12 <= self.noise_multiplier <= 2**20:
            raise InvalidInput(
                f"noise_multiplier must lie between {2**-12} and {2**20}, got {self.noise_multiplier}; "
                f"a release without noise is not private: use without_noise explicitly"
            )

    @property
    def bits(self) -> int:
        """log2 of the noise's scale in grid steps: as fine as integers up to 2^24 allow."""
        _, exponent = math.frexp(self.noise_multiplier)  # floor(log2) is exponent - 1; log2 itself would round
        return min(LARGEST_BITS, LARGEST_BITS + exponent - 1)

    def step(self, bound: float) -> float:
        """The grid step to which clients round contributions bounded by `bound` for `exact`."""
        return self.noise_multiplier * bound / 2**self.bits

    def grid(self, bound: float) -> float | None:
        """The grid step of contributions if this sampler needs one, otherwise None."""
        return self.step(bound) if self.sampler == "exact" else None

    def check_grid(self, total: BoundedSum, bound: float) -> None:
        """Refuse a sum that does not fit the sampler."""
        expected = self.grid(bound)
        if total.grid == expected:
            return
        if expected is None:
            raise RelationMismatch("this sum lies on a grid: release it with sampler='exact'")
        raise RelationMismatch(
            f"exact noise needs a sum on the grid of step {expected!r}, got {total.grid!r}: "
            f"round every update with trees.to_grid, or use sampler='float' for a simulation"
        )
