"""When a run is evaluated and saved, and what else its ledger and its guarantee need to know."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from blindsight.accounting.composition import Split
from blindsight.accounting.events import Event
from blindsight.errors import InvalidInput

__all__ = ["Checkpointing", "Evaluation", "RunTerms"]

_SAVED = 10  # checkpoints of a run at least, one for each round if it has fewer

Evaluate = Callable[[Any], dict[str, float]]
"""A model to its metrics, computed without noise: they are stored as `simulation_only`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Evaluates `function` every `every` rounds and at the end; only at the end if `every` is 0."""

    function: Evaluate
    every: int = 0

    def __post_init__(self) -> None:
        if not self.every >= 0:
            raise InvalidInput(f"every must be 0 (at the end only) or more rounds, got {self.every}")

    def is_due(self, done: int, rounds: int) -> bool:
        """Whether to measure after `done` of `rounds` rounds."""
        return done == rounds or (self.every > 0 and done % self.every == 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpointing:
    """When a run is saved: every `every_rounds` rounds, which are also paid for together, and `every_seconds`.

    A run of few rounds is saved at least ten times on the way, so that a killed run never starts from nothing.
    """

    every_rounds: int = 50
    every_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not self.every_rounds >= 1:
            raise InvalidInput(f"every_rounds must be at least 1 round, got {self.every_rounds}")
        if not self.every_seconds > 0:
            raise InvalidInput(f"every_seconds must be positive, got {self.every_seconds}")

    def rounds_of(self, rounds: int) -> int:
        """Rounds between checkpoints of a run of that many rounds.

        >>> Checkpointing(every_rounds=50).rounds_of(20), Checkpointing(every_rounds=50).rounds_of(2000)
        (2, 50)
        """
        return min(self.every_rounds, max(1, rounds // _SAVED))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunTerms:
    """What the ledger and the guarantee need to know about a run besides its rounds.

    With `split` and `arm`, only clients of that arm may contribute anything but zeros: arms are paid for in parallel.
    The guarantee includes `before`, earlier releases about the same clients that are already paid for, and lists
    further `assumptions`.
    """

    split: Split | None = None
    arm: str = ""
    before: Sequence[Event] = ()
    assumptions: Sequence[str] = ()
