"""What an agent delegates: decisions and the diary to a clerk, and computing from data to work."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from blindsight.fleet.codes import Code
from blindsight.fleet.job import Job

__all__ = ["Clerk", "Opened", "OwnPart", "Work"]


@dataclasses.dataclass(frozen=True)
class OwnPart:
    """This site's part of a sum: the numbers with the site's noise in them, unsigned, and what they cost a client."""

    numbers: np.ndarray
    bits: int
    pay: Callable[[], None]


class Opened(Protocol):
    """A job for which this site's data are open."""

    def part(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> OwnPart:
        """This site's part of the sum that the coordinator asks for."""
        ...


class Work(Protocol):
    """Answers jobs from data; the agent never reads them."""

    def open(self, job: Job, inputs: Mapping[str, bytes], folder: Path) -> Opened:
        """Open the data for an approved job; called in the thread that computes."""
        ...


class Clerk(Protocol):
    """Decides on jobs and keeps the diary."""

    def decide(self, job: Job, inputs: Mapping[str, bytes], folder: Path, sent_at: str) -> tuple[str, Code | None]:
        """`approved`, `pending` or `refused`, with the code; reads no data."""
        ...

    def standing(self, job: Job, sent_at: str) -> tuple[str, Code | None]:
        """The same of a job that was decided on, at once: what the last decision says now."""
        ...

    def job(self, digest: str, folder: Path) -> Job | None:
        """A job that was decided on before, also before a restart."""
        ...

    def note(self, words: str) -> None:
        """Write into the site's diary."""
        ...
