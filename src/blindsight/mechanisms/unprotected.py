"""Releases without noise, for comparison. They protect nobody, so they must be requested explicitly."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from blindsight.accounting.events import Gaussian
from blindsight.keys import Key
from blindsight.mechanisms.release import Release
from blindsight.trees import BoundedSum, Tree

__all__ = ["WithoutNoise", "without_noise"]


@dataclasses.dataclass(frozen=True)
class WithoutNoise:
    """Divides a bounded sum by n_expected and adds nothing: the event's epsilon is infinite."""

    def grid(self, bound: float) -> None:
        """No grid, since there is no noise."""
        del bound

    def event(self, total: BoundedSum) -> Gaussian:
        """Gaussian noise of scale zero."""
        del total
        return Gaussian(0.0)

    @property
    def planned_event(self) -> Gaussian:
        """Gaussian noise of scale zero."""
        return Gaussian(0.0)

    def begin(self, like: Tree, *, key: Key) -> None:
        """Nothing is drawn."""
        del like, key

    def release(self, total: BoundedSum, *, key: Key, begun: object = None) -> Release[Any]:
        """The exact mean."""
        del key, begun
        return Release(_times(total.value, (total.grid or 1.0) / total.n_expected), Gaussian(0.0), 0.0)


@jax.jit
def _times(tree: Any, factor: float) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) * factor, tree)


def without_noise() -> WithoutNoise:
    """The mechanism of a run that is not private."""
    return WithoutNoise()
