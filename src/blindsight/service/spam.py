"""The guard against spam: what an update may do to a model, whoever sent it and whatever the others sent before.

An honest update is a draw, plus one clipped step, plus one client's noise. So the guard looks for the recent draw that
an update started from, the nearest one, and takes the *difference*. It refuses what no client sends, shortens the rest
to what a step and noise can be (`bounds`), cuts it where all clients together push most (`sketch`), shortens it further
where public examples show that it matters (`shields`), and adds what is left to the *current* draw. Draws themselves
show less of what all clients push beside what public examples predict (`anchor`).

    difference = update - nearest recent draw       refused above `limit`, shortened to `radius`
    stored     = current draw + difference          no weight further than `reach`; over a random instance

An honest update of the current draw is stored as it came. What an attacker loses is everything but the increment. No
bound depends on the instances, so it cannot widen one; it does not choose what its increment is added to, so it can
neither climb, from one extreme instance to the next, nor send an old model again; the expected drift of the mean per
update is the increment over k. Draws of many batches are remembered, those
of other processes too, because clients take a while; an update whose draw is not among them is measured from another
one: it is shortened and counts for less, and is not refused. If draws are single instances (`batch = 1`, the paper's
algorithm), the increment is added to the nearest instance, and an attacker can choose among them.
"""

import math
from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy import frombuffer

from blindsight.service.anchor import TOLERATED, Anchor
from blindsight.service.bounds import UpdateBounds
from blindsight.service.shields import Shield
from blindsight.service.sketch import Sketch

if TYPE_CHECKING:
    from blindsight.algorithms.draw_and_discard import Task

__all__ = ["Guard", "recent_draws", "spread_of"]

_FLOAT = np.dtype("<f4")
_FEWEST_RECENT, _MOST_RECENT = 8, 256  # draws
_REMEMBERED = 1 << 20  # numbers in recent draws
_HEAD = 64  # weights by which the nearest instance is found
_AT_ONCE = 1 << 17  # numbers
_HARDLY = 1e-3  # of the largest length: shorter than any noise


def recent_draws(weights: int) -> int:
    """Draws, shown one after the other, that an update may start from: as many as four megabytes hold.

    A client takes a while, and others are faster. What it drew has to be known still when its update comes.
    """
    return min(max(_REMEMBERED // weights, _FEWEST_RECENT), _MOST_RECENT)


class Differences(NamedTuple):
    """Updates, the draw that each probably started from, what it changed, and the squared length of that."""

    updates: Sequence[bytes]
    starts: list[bytes]
    changes: np.ndarray
    squares: np.ndarray


class Guard:
    """Turns updates into differences within the bounds of a task, for `graft`.

    Instances are compared by identity, so that only new ones are copied: they must be immutable, as bytes are.
    """

    def __init__(self, task: "Task") -> None:
        self.bounds = UpdateBounds.of(task)
        self.shield: Shield | None = None
        """Narrower bounds in the directions that public examples show to matter."""
        self.sketch = Sketch(task.weights, math.sqrt(task.variance))
        """Narrower bounds in the directions in which clients push most."""
        self.anchor = Anchor(task.weights)
        """What clients push together, compared with what public examples predict."""
        self.shortened = 0
        """Updates longer than one step and one noise: hostile ones, and those of a draw that is not remembered."""
        self._head = min(_HEAD, task.weights)
        self._known = list[bytes]()
        self._heads = np.zeros((self._head, 0))  # of the known ones, as columns, times minus two
        self._squares = np.zeros(0)
        self._reach, self._limit = np.float32(self.bounds.reach), self.bounds.limit**2
        self._hardly = (_HARDLY * self.bounds.radius) ** 2
        self.at_once = max(1, _AT_ONCE // task.weights)
        """Updates that are best measured together."""

    def measure(
        self, updates: Sequence[bytes], near: Sequence[bytes], base: bytes | None = None
    ) -> list[tuple[bool, bytes]]:
        """For each update whether a client may have sent it, and the instance to store: `base`, changed by it.

        Without `base` it is the nearest one. An update of it that is within all bounds is stored as it came.
        How long it takes depends on what the sender knows, the task and the weights it drew and sent, and on nothing
        that others sent.
        """
        return self.judge(self.compare(updates, near), base)

    def compare(self, updates: Sequence[bytes], near: Sequence[bytes]) -> Differences:
        """Compare updates with the ones of `near` that they started from, mostly the same one."""
        with np.errstate(all="ignore"):  # numbers that overflow, and those that are none, are refused
            rows = frombuffer(b"".join(updates), _FLOAT).reshape(len(updates), -1)
            places = self._nearest(rows, near)
            changes = rows - frombuffer(near[places[0]], _FLOAT)
            for number, place in enumerate(places):
                if place != places[0]:
                    np.subtract(rows[number], frombuffer(near[place], _FLOAT), out=changes[number])
            squares = np.vecdot(changes, changes)
        for number, square in enumerate(squares.tolist()):
            if 0 < square < self._hardly and updates[number] in near:
                # sent back as it was drawn, and taken for a draw with the same first weights
                places[number] = near.index(updates[number])
                changes[number], squares[number] = 0, 0
        return Differences(updates, [near[place] for place in places], changes, squares)

    def are_far(self, differences: Differences) -> bool:
        """Whether honest updates would hardly have started from there: another process may have shown more."""
        return not bool(np.all(differences.squares <= self.radius**2))

    def judge(self, differences: Differences, base: bytes | None = None) -> list[tuple[bool, bytes]]:
        """`measure`, from the differences on; it changes them."""
        updates, starts, changes, _ = differences
        known, altered = self._shorten(differences)
        altered |= self.sketch.cut(changes)
        if self.shield is not None:
            altered |= self.shield.shorten(changes)
        if base is not None:
            altered |= [start is not base for start in starts]
        if changes.max() > self._reach or changes.min() < -self._reach:  # last, so that it holds whatever came before
            altered |= (np.abs(changes) > self._reach).any(axis=1)
            np.clip(changes, -self._reach, self._reach, out=changes)
        if self.shield is not None:
            self.anchor.note(changes)
        taken = list(zip(known.tolist(), updates, strict=True))
        for number in altered.nonzero()[0].tolist():
            changes[number] += frombuffer(starts[number] if base is None else base, _FLOAT)
            taken[number] = taken[number][0], changes[number].tobytes()
        return taken

    def anchored(self, draw: bytes) -> bytes:
        """What to show instead of a draw: less of what clients push beside what public examples predict."""
        excess = None if self.shield is None else self.anchor.excess(self.shield)
        return draw if excess is None else (frombuffer(draw, _FLOAT) - excess).tobytes()

    @property
    def beside(self) -> float | None:
        """What clients push beside what public examples predict, over what a tolerated share can cause."""
        beside = None if self.shield is None else self.anchor.beside(self.shield)
        if beside is None or self.shield is None:
            return None
        return float(np.linalg.norm(beside)) / (TOLERATED * self.shield.step_radius)

    @property
    def radius(self) -> float:
        """The largest length of a difference at present: no longer than noise and twice a typical step."""
        typical = math.hypot(self.bounds.noise_radius, 2 * self.sketch.typical_step)
        return min(typical, self.bounds.radius if self.shield is None else self.shield.radius)

    def _shorten(self, differences: Differences) -> tuple[np.ndarray, np.ndarray]:
        """Shorten differences to `radius`; which updates a client may have sent, and which were altered."""
        _, _, changes, squares = differences
        radius = self.radius
        if squares.max() <= radius**2:  # nearly always; False for NaN
            return np.ones(len(squares), bool), np.zeros(len(squares), bool)
        known = squares <= self._limit
        too_long = known & (squares > radius**2)
        if too_long.any():
            changes[too_long] *= (np.float32(radius) / np.sqrt(squares[too_long]))[:, None]
        changes[~known] = 0
        self.shortened += int(np.count_nonzero(too_long))
        return known, ~known | too_long

    def _nearest(self, rows: np.ndarray, near: Sequence[bytes]) -> list[int]:
        """Which of `near` each update most probably started from: the nearest, by its first weights."""
        if len(near) != len(self._known) or not all(map(is_, near, self._known)):
            self._learn_heads(near)
        distances = rows[:, : self._head].astype(np.float64) @ self._heads  # less the updates' own squares
        distances += self._squares  # of what is no number, any start is as good as another
        return distances.argmin(axis=1).tolist()

    def _learn_heads(self, near: Sequence[bytes]) -> None:
        if len(near) < len(self._known):
            self._known, self._heads, self._squares = [], self._heads[:, :0], self._squares[:0]
        if more := len(near) - len(self._known):
            self._known += [b""] * more
            self._heads = np.hstack([self._heads, np.zeros((self._head, more))])
            self._squares = np.concatenate([self._squares, np.zeros(more)])
        for place, (instance, known) in enumerate(zip(near, self._known, strict=True)):
            if instance is not known:
                self._known[place] = instance
                head = frombuffer(instance, _FLOAT, self._head).astype(np.float64)
                self._heads[:, place] = -2 * head
                self._squares[place] = head @ head


def spread_of(instances: Sequence[bytes]) -> float:
    """The standard deviation over instances, as the root of its mean square over weights."""
    rows = np.stack([frombuffer(instance, _FLOAT) for instance in instances]).astype(np.float64)
    return float(np.sqrt(rows.var(axis=0, ddof=1).mean())) if len(rows) > 1 else 0.0
