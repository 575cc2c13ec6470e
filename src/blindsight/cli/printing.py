"""What commands share: option types, JSON on stdout, progress on stderr."""

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

__all__ = ["AsJson", "LedgerPath", "flag", "print_json", "print_value", "progress_bar", "resumable", "steps_bar"]
__all__ += ["working"]


def flag(name: str, help_text: str) -> Any:
    """A yes-or-no option; the empty metavar keeps help from showing a value that it does not take."""
    return typer.Option(name, metavar="", help=help_text)


AsJson = Annotated[bool, flag("--json", "Print JSON.")]

LedgerPath = Annotated[
    Path | None,
    typer.Option("--ledger", help="Ledger file. Default: $BLINDSIGHT_LEDGER, else .blindsight/ledger.db."),
]


def print_json(value: Any) -> None:
    """Print `value` as strict JSON: no NaN, no infinity."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False, default=str) + "\n")


def print_value(value: Any, *, as_json: bool) -> None:
    """Print a report or plan: its `to_dict()` as JSON, or as it renders itself."""
    if as_json:
        print_json(value.to_dict())
    else:
        Console(highlight=False).print(value)


def working(doing: str) -> Any:
    """A spinner on stderr while something takes seconds; nothing if stderr is not a terminal."""
    return Console(stderr=True).status(f"{doing} …")


@contextlib.contextmanager
def resumable() -> Generator[None]:
    """Say after Ctrl-C that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False).print("Stopped. Run the same command again to resume.")
        raise


@contextlib.contextmanager
def progress_bar(doing: str, *, in_bytes: bool = False, quiet: bool = False) -> Generator[Callable[[int, int], None]]:
    """A progress bar on stderr, as a function `(done, total)` to call; `in_bytes` shows megabytes and speed."""
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    columns = [*Progress.get_default_columns(), *([DownloadColumn(), TransferSpeedColumn()] if in_bytes else [])]
    with _bar(columns, doing, Console(stderr=True), quiet) as update:
        yield lambda done, total: update(completed=done, total=total)


@contextlib.contextmanager
def steps_bar(console: Console, *, quiet: bool = False) -> Generator[Callable[[str, int, int], None]]:
    """A bar that names the step under way and the time left, as a function `(doing, done, total)` to call.

    Without a terminal, one line for each step.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    if not console.is_terminal:
        yield _steps_in_lines(console, quiet=quiet)
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    columns += [TextColumn("left"), TimeRemainingColumn()]
    with _bar(columns, "starting", console, quiet) as update:
        yield lambda doing, done, total: update(description=doing, completed=done, total=total)


def _steps_in_lines(console: Console, *, quiet: bool) -> Callable[[str, int, int], None]:
    """A function that writes a line when another step begins."""
    begun = ""

    def show(doing: str, done: int, total: int) -> None:
        nonlocal begun
        if not quiet and doing != begun:
            begun = doing
            console.print(f"{doing} ({done + 1} of {total})" if total > 1 else doing, markup=False, soft_wrap=True)

    return show


@contextlib.contextmanager
def _bar(columns: Sequence[Any], doing: str, console: Console, quiet: bool) -> Generator[Callable[..., None]]:
    from rich.progress import Progress

    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        yield functools.partial(bar.update, bar.add_task(doing, total=None))
