"""What an honest update can be, from the task alone: no bound depends on what others have sent."""

import dataclasses
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blindsight.algorithms.draw_and_discard import Task

__all__ = ["UpdateBounds"]

_RARE = 1e-4  # probability that an honest update exceeds a bound
_DEVIATIONS = 4.0  # of the squared length of a client's noise


@dataclasses.dataclass(frozen=True)
class UpdateBounds:
    """What an honest update can be, from the task alone.

    Let d be the number of weights, sigma^2 the variance of a client's noise, s = learning_rate clip the largest step of
    a weight (of the whole update if the whole gradient is clipped) and p = 10^-4.

    `reach`, of one weight: the step and the largest of d noises. For Laplace noise of scale b, P(one exceeds t) =
    exp(-t / b), hence s + b ln(d / p) by the union bound; for Gaussian noise s + sigma sqrt(2 ln(2 d / p)).

    `radius`, of the whole difference: the squared length of the noise has mean d sigma^2 and variance (m4 - 1) d
    sigma^4, with m4 = 6 for Laplace and 3 for Gaussian noise. Four standard deviations above the mean, or the square of
    the largest of the noises if that is more, plus that of the longest step: s^2, or d s^2 if each weight is clipped
    separately.

    `limit`, of an update from *any* instance, even an overwritten one. Two instances of Draw and Discard have a common
    ancestor: of two lineages, one is replaced by a copy of the other with probability 2 / k^2 per update, so T updates
    ago with P(T > t) = exp(-2 t / k^2), and T = k^2 ln(1 / p) / 2 covers all but p. Each lineage takes one noise and
    one step in k updates, so the two differ by at most 2 T / k = k ln(1 / p) of them. Another k allow an instance drawn
    up to k^2 updates ago, and one is the client's own. The mean square of a difference is thus at most
    (1 + k + k ln(1 / p)) (sigma^2 + step^2), whatever the instances look like: nobody can widen it.

    The same with the factor 1 + 4 sqrt((m4 - 1) / d) for all weights together.

    `largest_spread`, the standard deviation over instances above which noise and k no longer explain it: the variance
    is largest if one half of the instances is the other's T = k^2 ln(1 / p) / 2 updates old relative, and is then a
    quarter of the squared difference, k ln(1 / p) / 4 (sigma^2 + step^2), against an expected k / 2 (Theorem 1). It
    raises an alarm and changes no bound.

    >>> from blindsight.algorithms.draw_and_discard import Task
    >>> bounds = UpdateBounds.of(Task(model="m", family="custom", weights=387, unit="feature", epsilon=3.4657))
    >>> [round(bounds.reach, 4), round(bounds.radius, 4), round(bounds.limit, 3), round(bounds.largest_spread, 4)]
    [0.0098, 0.0276, 0.439, 0.0088]
    """

    reach: float
    noise_radius: float
    step_length: float
    limit: float
    largest_spread: float

    @property
    def radius(self) -> float:
        """The largest length of a difference."""
        return math.hypot(self.noise_radius, self.step_length)

    @classmethod
    def of(cls, task: "Task") -> "UpdateBounds":
        """The bounds of a task."""
        d, k, step = task.weights, task.instances, task.learning_rate * task.clip
        rare, sigma = math.log(1 / _RARE), math.sqrt(task.variance)
        laplace = task.noise == "laplace"
        tail = task.scale * (math.log(d) + rare) if laplace else sigma * math.sqrt(2 * (math.log(2 * d) + rare))
        excess = 1 + _DEVIATIONS * math.sqrt((5 if laplace else 2) / d)
        length = step * math.sqrt(d) if task.norm is None else step
        per_weight = task.variance + length**2 / d
        return cls(
            reach=step + tail,
            noise_radius=math.sqrt(d * task.variance + max(d * task.variance * (excess - 1), tail**2)),
            step_length=length,
            limit=math.sqrt(d * excess * per_weight * (1 + k + k * rare)),
            largest_spread=math.sqrt(per_weight * k * rare / 4),
        )
