"""`blindsight audit`: what a trained model gives away about those it was trained on."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.printing import AsJson, print_json, steps_bar
from blindsight.errors import PrivacyError

__all__ = ["audit"]


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run trained with a table [audit].")],
    references: Annotated[
        int, typer.Option(min=1, help="Random phrases among which each canary is ranked.")
    ] = 2_000_000,
    width: Annotated[int, typer.Option(min=1, help="Of the beam search for canaries.")] = 5,
    confidence: Annotated[float, typer.Option(help="Of the lower bound on epsilon.")] = 0.95,
    out: Annotated[Path | None, typer.Option(help="Where the report goes; else the run's folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """What did the model memorise, and does it keep its promise? Exit code 3 if a claim is proved wrong.

    Canaries that [audit] planted are ranked, searched for and guessed; see docs/audit.md.
    """
    from blindsight.jobs import run_audit

    with steps_bar(Console(stderr=True), quiet=as_json) as progress:
        settings = {"references": references, "width": width, "confidence": confidence}
        report, path = run_audit(run, **settings, out=out, progress=progress)  # pyright: ignore[reportArgumentType]
    if as_json:
        print_json(report.to_dict())
    else:
        screen = Console(highlight=False)
        screen.print(report)
        screen.print(f"\nThe report is [bold]{escape(str(path))}[/]: open it in any browser, offline too.")
    if report.outcome == "broken":
        raise PrivacyError(report.verdict)
