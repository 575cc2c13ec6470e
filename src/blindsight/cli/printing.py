"""What commands print with: JSON on stdout, and on stderr what shows that something is being done."""

import contextlib
import json
import sys
from collections.abc import Callable, Generator
from typing import Annotated, Any

import typer
from rich.console import Console

__all__ = ["AsJson", "flag", "print_json", "progress_bar", "resumable", "steps_bar", "working"]


def flag(name: str, about: str) -> Any:
    """An option that is given or not; an empty metavar keeps help from showing a value that it does not take."""
    return typer.Option(name, metavar="", help=about)


AsJson = Annotated[bool, flag("--json", "Print JSON for machines.")]


def print_json(value: Any) -> None:
    """Print `value` as JSON that any reader accepts: no NaN, no infinity."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False, default=str) + "\n")


def working(doing: str) -> Any:
    """A spinner on stderr while something takes seconds; nothing where stderr is not a terminal."""
    return Console(stderr=True).status(f"{doing} …")


@contextlib.contextmanager
def resumable() -> Generator[None]:
    """Where Ctrl-C loses nothing, it says so."""
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False).print("Stopped. The same command goes on where it was.")
        raise


class progress_bar:
    """A progress bar on stderr, as a function `(done, total)` to call; `in_bytes` shows megabytes and speed."""

    def __init__(self, doing: str, *, in_bytes: bool = False, quiet: bool = False) -> None:
        from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

        console = Console(stderr=True)
        columns = [*Progress.get_default_columns(), *([DownloadColumn(), TransferSpeedColumn()] if in_bytes else [])]
        self._bar = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task(doing, total=None)

    def __enter__(self) -> Callable[[int, int], None]:
        self._bar.start()
        return lambda done, total: self._bar.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class steps_bar:
    """A bar that says which step is being done, as a function `(doing, done, total)` to call."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
        self._bar = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> Callable[[str, int, int], None]:
        self._bar.start()
        return lambda doing, done, total: self._bar.update(self._task, description=doing, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
