"""`blindsight runs`: the runs in a folder, and one of them for MLflow."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from blindsight.cli.completing import complete_run
from blindsight.cli.printing import AsJson, print_json, working

__all__ = ["runs_app"]

runs_app = typer.Typer(
    help="Runs and what they cost; export one to MLflow.",
    no_args_is_help=True,
    epilog="Example:  blindsight runs list",
)


@runs_app.command("list", epilog="Example:  blindsight runs list runs")
def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder of runs.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """The runs in a folder, oldest first, with what each promised."""
    from blindsight.jobs import list_runs as listed

    rows = listed(folder)
    if as_json:
        print_json([one.to_dict() for one in rows])
        return
    screen = Console(highlight=False)
    if not rows:
        screen.print(f"no runs in {escape(str(folder))}")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "name", "began", "epsilon", "delta"):
        table.add_column(heading, overflow="fold", justify="right" if heading in ("epsilon", "delta") else "left")
    for one in rows:
        table.add_row(*map(escape, (str(one.path), one.name, one.began[:16], one.epsilon or "–", one.delta or "–")))
    screen.print(table)


@runs_app.command("export", epilog="Example:  blindsight runs export runs/keyboard --mlflow http://127.0.0.1:5000")
def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.", autocompletion=complete_run)],
    mlflow: Annotated[
        str, typer.Option("--mlflow", metavar="URI", help="MLflow server, http://..., or folder, file:///...")
    ],
    experiment: Annotated[str, typer.Option(help="Name of the MLflow experiment.")] = "blindsight",
    as_json: AsJson = False,
) -> None:
    """Write a run to MLflow: settings, metrics by round, the guarantee as tags, reports as artifacts.

    Only what the guarantee covers, or what is named simulation_only. Seeds stay here.
    """
    with working(f"exporting {escape(str(folder))}"):
        from blindsight.jobs import run_mlflow_export

        logged = run_mlflow_export(folder, mlflow, experiment=experiment)
    if as_json:
        print_json(logged.to_dict())
        return
    Console(highlight=False, soft_wrap=True).print(
        f"{logged.uri}: run {logged.mlflow_run} of {logged.experiment}, {logged.params} parameters, "
        f"{logged.metrics} numbers, {len(logged.artifacts)} files",
        markup=False,
    )
