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
_LINES = 20  # without a terminal, of a whole run


class _Rounds(Protocol):
    """A run between two rounds."""

    round: int
    clients_per_s: float

    def epsilon_so_far(self) -> float:
        """A quick upper bound on the epsilon of the rounds so far."""
        ...


@contextlib.contextmanager
def round_bar(rounds: int, begun: int, whole: float, *, shown: bool) -> Generator[Callable[[_Rounds], None]]:
    """A function that shows a run's progress; `whole` is the epsilon of all rounds, of which `begun` are done."""
    if not shown:
        yield lambda loop: None
        return
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        shown_up_to = begun

        def line(loop: _Rounds) -> None:
            nonlocal shown_up_to
            if loop.round * _LINES // rounds != shown_up_to * _LINES // rounds:
                speed = f"{loop.clients_per_s:,.0f} clients/s"
                reached = _reached(loop, rounds, whole)
                console.print(f"round {loop.round:,} of {rounds:,}, {speed}, epsilon {reached}")
            shown_up_to = loop.round

        yield line
        return
    words = [TextColumn("round"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[speed]:,.0f} clients/s")]
    words += [TextColumn("epsilon {task.fields[epsilon]}"), TimeRemainingColumn()]
    with Progress(*words, console=console) as bar:
        task = bar.add_task("", total=rounds, completed=begun, speed=0.0, epsilon="...")
        updated_at = 0.0

        def show(loop: _Rounds) -> None:
            nonlocal updated_at
            if loop.round < rounds and time.monotonic() - updated_at < _UPDATE_S:
                return
            updated_at = time.monotonic()
            bar.update(task, completed=loop.round, speed=loop.clients_per_s, epsilon=_reached(loop, rounds, whole))

        yield show


def _reached(loop: _Rounds, rounds: int, whole: float) -> str:
    """The epsilon of the rounds so far: that of the guarantee at the end, and a quick bound before."""
    if loop.round == rounds:
        return round_up(whole)
    return f"<= {round_up(min(whole, loop.epsilon_so_far()))}"
