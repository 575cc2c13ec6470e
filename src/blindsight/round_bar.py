"""The progress bar of a training run: rounds, clients per second, a bound on epsilon so far, and the time left.

The bound is by Renyi divergences and at most the epsilon of the whole run, which is known before the first round: no
round waits for a tighter one.
"""

import contextlib
import time
from collections.abc import Callable, Generator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from blindsight.accounting.guarantee import round_up

__all__ = ["round_bar"]

_UPDATE_S = 0.2


class _Rounds(Protocol):
    """A run between two rounds."""

    round: int
    clients_per_s: float

    def epsilon_so_far(self) -> float:
        """A quick upper bound on the epsilon of the rounds so far."""
        ...


@contextlib.contextmanager
def round_bar(rounds: int, begun: int, whole: float, *, shown: bool) -> Generator[Callable[[_Rounds], None]]:
    """A function that shows how far a run is; `whole` is the epsilon of all rounds, of which `begun` are done."""
    if not shown:
        yield lambda loop: None
        return
    words = [TextColumn("round"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[speed]:,.0f} clients/s")]
    words += [TextColumn("epsilon {task.fields[epsilon]}"), TimeRemainingColumn()]
    with Progress(*words, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=rounds, completed=begun, speed=0.0, epsilon="...")
        updated_at = 0.0

        def show(loop: _Rounds) -> None:
            nonlocal updated_at
            if loop.round < rounds and time.monotonic() - updated_at < _UPDATE_S:
                return
            updated_at = time.monotonic()
            reached = whole if loop.round == rounds else min(whole, loop.epsilon_so_far())
            epsilon = round_up(reached) if loop.round == rounds else f"<= {round_up(reached)}"
            bar.update(task, completed=loop.round, speed=loop.clients_per_s, epsilon=epsilon)

        yield show
