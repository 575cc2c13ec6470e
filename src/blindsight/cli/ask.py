"""`blindsight ask`: statistics of data that nobody may look at."""

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from blindsight.cli.printing import flag
from blindsight.cli.requests import command_of
from blindsight.jobs.request import AskRequest

__all__ = ["ask"]

_ABOUT = """Histograms, means, quantiles, missing rates, top words and cross-tabs, by slice, for one epsilon.

Without a statistic, Blindsight chooses those that suit each field's kind. Intervals hold for all numbers at once.
"""

_statistics = functools.partial(typer.Option, rich_help_panel="Statistics")
_SIZE = "Leave out this many of the most frequent words of --reference."


def _levels(words: Any) -> list[float]:
    try:
        return [float(word) for word in words.split(",")]
    except ValueError:
        raise typer.BadParameter(f"write levels of quantiles as 0.1,0.5,0.9, got {words!r}") from None


_OPTIONS: dict[str, Any] = {
    "fields": Annotated[list[str] | None, typer.Argument(metavar="FIELD", help="Fields to ask about.")],
    "by": Annotated[str | None, _statistics(help="Category field: ask for each of its values.")],
    "bins": Annotated[
        int | None, _statistics("--histogram", help="Histogram with this many bins; shares of a category.")
    ],
    "mean": Annotated[bool, _statistics("--mean", metavar="", help="Mean.")],
    "levels": Annotated[
        str | None, _statistics("--quantiles", parser=_levels, help="Quantiles at these levels: 0.1,0.5,0.9.")
    ],
    "missing": Annotated[bool, _statistics("--missing", metavar="", help="Share of missing values.")],
    "top": Annotated[int | None, _statistics(help="This many most frequent categories, or words of a text.")],
    "cross": Annotated[list[str] | None, _statistics(help="Cross-tab of two fields, sex,region; repeatable.")],
    "vocabulary": Annotated[Path | None, _statistics(help="File of known words, which lists of words leave out.")],
    "vocabulary_size": Annotated[int | None, _statistics(min=5, help=_SIZE)],
    "reference": Annotated[
        str | None, typer.Option(rich_help_panel="Data", help="Public data of the same kind, for types and ranges.")
    ],
    "dry_run": Annotated[bool, flag("--dry-run", "Show the cost and the widths of intervals; no client is asked.")],
}

ask = command_of("run_ask", AskRequest, _ABOUT, _OPTIONS)
