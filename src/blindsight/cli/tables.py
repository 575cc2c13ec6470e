"""`blindsight tables`: the privacy numbers of the papers."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from blindsight.cli.printing import AsJson, flag, print_json, progress_bar

__all__ = ["tables"]


def tables(
    paper: Annotated[str | None, typer.Argument(help="000, 001, 002 or 003. Default: all of them.")] = None,
    markdown: Annotated[bool, flag("--markdown", "Print Markdown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Every privacy number the papers print: as published, as reproduced, and what is true."""
    from blindsight.accounting import tables as published

    built: list[published.Table] = []
    console = Console(highlight=False)
    for name in [paper] if paper else list(published.PAPERS):
        with progress_bar(f"computing table {name}") as progress:
            built.append(published.build(name, progress))
        if markdown:
            sys.stdout.write(built[-1].to_markdown() + "\n")
        elif not as_json:
            console.print(built[-1])
            console.print()
    if as_json:
        print_json([table.to_dict() for table in built])
