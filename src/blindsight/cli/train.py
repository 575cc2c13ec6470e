"""`blindsight train`: a model from a configuration."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.printing import AsJson, print_json, working

__all__ = ["train"]


def train(
    config: Annotated[Path, typer.Argument(metavar="RUN.toml", help="The configuration; see docs/training.md.")],
    out: Annotated[Path | None, typer.Option(help="The run's folder; else runs/NAME.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger; else $BLINDSIGHT_LEDGER, else .blindsight/ledger.db.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a model as RUN.toml says. Run it again to go on where it stopped, after a crash too."""
    from blindsight.config import load

    settings = load(config)
    with working(f"reading {escape(settings.data.population)}"):
        from blindsight.accounting.ledger import Ledger
        from blindsight.jobs import run_training
    trained = run_training(settings, out=out, ledger=Ledger(ledger), progress=not as_json)
    if as_json:
        print_json(trained.to_dict())
        return
    screen = Console(highlight=False)
    ending = "the budget is spent" if trained.stopped == "budget" else "finished"
    screen.print(f"[bold]{escape(settings.name)}[/]: {trained.rounds:,} rounds, {ending}")
    screen.print(f"[green]{escape(str(trained.guarantee))}[/]", soft_wrap=True)
    for name, value in trained.simulation_only.items():
        screen.print(f"held-out {escape(name)} {value:.4f} [yellow]simulation_only[/]")
    screen.print(f"Everything is in [bold]{escape(str(trained.path))}[/].")
