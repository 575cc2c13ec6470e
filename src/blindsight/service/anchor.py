"""The anchor: where all clients together push a little beside what public examples predict, the examples are believed.

A hostile push hides in the noise of each update, but hardly in the mean of a thousand, and public examples predict that
mean: it is a clipped step down their loss. The two are compared along the gradients of the shield's groups, where a
model does most harm. What they differ by is either what clients know and the examples do not show, or spam. A share of
5 % can make it at most 5 % of the shield's radius long, so as much is taken off every draw, and with it off every
update of that draw. What remains, more than 5 % of the clients agreed on. Who pushes less than that moves the model
only until the mean has learned of it: by as much as the memory holds, however long it goes on.

Faster than predicted is no difference: how long a client's step is depends on how many examples it has.
"""

import numpy as np

from blindsight.service.shields import Shield

__all__ = ["TOLERATED", "Anchor"]

TOLERATED = 0.05
"""Share of hostile clients whose pushes are taken back."""

_MEMORY = 1000  # updates; a mean that fades so is known to 2 % of a client's noise, less than is tolerated
_FEWEST = _MEMORY / 4
_TINY = 1e-30


class Anchor:
    """The mean of the differences that were stored, and how far it is beside what public examples predict."""

    def __init__(self, weights: int) -> None:
        self._sum, self._count = np.zeros(weights), 0.0

    def note(self, changes: np.ndarray) -> None:
        """Learn from the differences of some updates, as they are stored."""
        kept = max(0.0, 1 - len(changes) / _MEMORY)
        self._sum *= kept
        self._sum += changes.sum(axis=0)
        self._count = kept * self._count + len(changes)

    def beside(self, shield: Shield) -> np.ndarray | None:
        """How far the mean is beside the prediction, along the gradients of groups; None before it can be told."""
        if not len(shield.step) or self._count < _FEWEST:
            return None
        mean = shield.basis[: len(shield.step)] @ (self._sum / self._count)
        pace = max(1.0, float(mean @ shield.step) / max(float(shield.step @ shield.step), _TINY))
        return np.asarray(mean - pace * shield.step)

    def excess(self, shield: Shield) -> np.ndarray | None:
        """What to take off a draw, if anything: as much of that as a tolerated share can cause."""
        beside = self.beside(shield)
        if beside is None:
            return None
        most = TOLERATED * shield.step_radius
        beside *= min(1.0, most / max(float(np.linalg.norm(beside)), _TINY))
        return np.asarray(beside @ shield.basis[: len(shield.step)], np.float32)
