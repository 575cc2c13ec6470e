"""`blindsight audit`: what a trained model reveals about its clients."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.completing import complete_run
from blindsight.cli.printing import AsJson, print_json, steps_bar
from blindsight.errors import PrivacyError

__all__ = ["audit"]


def audit(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Folder of a run trained with a table [audit].", autocompletion=complete_run
        ),
    ],
    references: Annotated[
        int, typer.Option(min=1, help="Number of random phrases that each canary is ranked among.")
    ] = 2_000_000,
    width: Annotated[int, typer.Option(min=1, help="Width of the beam search for canaries.")] = 5,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bound on epsilon.")] = 0.95,
    out: Annotated[Path | None, typer.Option(help="Folder for the report. Default: the run's.")] = None,
    as_json: AsJson = False,
) -> None:
    """What did the model memorise, and does its guarantee hold? Exit code 3 if the claim is proved wrong.

    Canaries that [audit] planted are ranked, searched for and guessed; see docs/audit.md.
    """
    from blindsight.jobs import run_audit

    with steps_bar(Console(stderr=True), quiet=as_json) as progress:
        report, path = run_audit(
            run, references=references, width=width, confidence=confidence, out=out, progress=progress
        )
    if as_json:
        print_json(report.to_dict())
    else:
        screen = Console(highlight=False)
        screen.print(report)
        screen.print(f"\nReport: [bold]{escape(str(path))}[/] (open it in any browser, offline too)")
    if report.outcome == "broken":
        raise PrivacyError(report.verdict)
