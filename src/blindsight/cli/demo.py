"""`blindsight demo`: the main job on embedded data."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from blindsight.cli.printing import steps_bar

__all__ = ["demo"]


def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the run directory.")] = Path("runs"),
) -> None:
    """The main job on embedded data: find out what is wrong with data that nobody may look at."""
    from blindsight.demo import demo as show

    console = Console(highlight=False)
    with steps_bar(console) as progress:
        for part in show(folder=folder, progress=progress):
            console.print(part)
