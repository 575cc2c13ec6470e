"""`blindsight train`: a model from a configuration."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.printing import AsJson, print_json, progress_bar, working

if TYPE_CHECKING:
    from blindsight.config import Config

__all__ = ["train"]


def train(
    config: Annotated[Path, typer.Argument(metavar="RUN.toml", help="The configuration; see docs/training.md.")],
    out: Annotated[Path | None, typer.Option(help="The run's folder; else runs/NAME.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger; else $BLINDSIGHT_LEDGER, else .blindsight/ledger.db.")
    ] = None,
    tune_on: Annotated[
        str | None,
        typer.Option(metavar="PUBLIC", help="Try settings on this public data, and write the best to RUN.tuned.toml."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a model as RUN.toml says. Run it again to go on where it stopped, after a crash too."""
    from blindsight.config import load

    settings = load(config)
    if tune_on is not None:
        _tune(settings, tune_on, config.with_suffix(".tuned.toml"), as_json=as_json)
        return
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


def _tune(settings: "Config", public: str, write: Path, *, as_json: bool) -> None:
    from blindsight.jobs import run_tuning

    with progress_bar("trying settings", quiet=as_json) as progress:
        tuned = run_tuning(settings, public, write=write, progress=progress)
    if as_json:
        print_json(tuned.to_dict())
    else:
        Console(highlight=False).print(tuned)
