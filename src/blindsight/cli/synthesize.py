"""`blindsight synthesize`: synthetic rows of data that nobody may look at."""

from typing import Annotated, Any

import typer

from blindsight.cli.printing import flag
from blindsight.cli.requests import command_of
from blindsight.jobs.request import SynthesizeRequest

__all__ = ["synthesize"]

_ABOUT = """Synthetic rows of a table, to train a model on or to look at, from private tables of all pairs of fields.

Writes rows.csv, samples/ with a card that states the guarantee, and a report into the folder of the run.
"""
_FIELDS = "Fields of a row. Default: all that are described."
_LABEL = "Category field that a model would predict. Default: label, if there is one."

_OPTIONS: dict[str, Any] = {
    "fields": Annotated[list[str] | None, typer.Argument(metavar="FIELD", help=_FIELDS)],
    "label": Annotated[str | None, typer.Option(help=_LABEL)],
    "rows": Annotated[int, typer.Option(min=1, help="Number of rows to draw, which costs nothing.")],
    "reference": Annotated[
        str | None, typer.Option(rich_help_panel="Data", help="Public data of the same kind, for types and ranges.")
    ],
    "dry_run": Annotated[bool, flag("--dry-run", "Show the cost and the noise; no client is asked.")],
}

synthesize = command_of("run_synthesize", SynthesizeRequest, _ABOUT, _OPTIONS)
