"""`blindsight init`: the examples that come with Blindsight."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from blindsight.cli.printing import AsJson, print_json

__all__ = ["init"]


def init(
    folder: Annotated[Path, typer.Argument(help="Folder to write.")] = Path("examples"),
    as_json: AsJson = False,
) -> None:
    """Write the examples into a folder: runs to train, notebooks, and a schema of RUN.toml for editors.

    A file of that name with other contents is refused, and nothing is written then.
    """
    from blindsight.jobs.examples import write_examples

    written = write_examples(folder)
    if as_json:
        print_json({"folder": str(folder), "files": [str(path) for path in written]})
        return
    screen = Console(highlight=False, soft_wrap=True)
    for path in written:
        screen.print(str(path), markup=False)
    screen.print(f"Next:  blindsight train {folder / 'quick.toml'}", markup=False)
