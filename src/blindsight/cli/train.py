"""`blindsight train`: a model as a configuration says, or a student of labelled synthetic examples."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.completing import complete_run
from blindsight.cli.groups import ConfigurationGroup
from blindsight.cli.printing import AsJson, LedgerPath, print_json, print_value, progress_bar, resumable, working
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.config import Config

__all__ = ["train_app"]


train_app = typer.Typer(
    cls=ConfigurationGroup,
    help="Train the model that RUN.toml describes, or a student on labelled synthetic examples.\n\n"
    "`blindsight train RUN.toml` is short for `blindsight train run RUN.toml`.",
    no_args_is_help=True,
    epilog="Example:  blindsight train examples/quick.toml",
)


@train_app.command("run", epilog="Example:  blindsight train examples/quick.toml")
def train(
    config: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Configuration; see docs/training.md.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/NAME.")] = None,
    ledger: LedgerPath = None,
    tune_on: Annotated[
        str | None,
        typer.Option(metavar="PUBLIC", help="Try settings on these public data and write the best to RUN.tuned.toml."),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="INDEX/COUNT@ADDRESS:PORT",
            help="Train on several hosts: which one this is, and the address of host 0. Default: JAX's variables.",
        ),
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Train on the clients of this fleet's sites; [data] is public data of the same kind.",
        ),
    ] = None,
    asker: Annotated[str | None, typer.Option(help="With --fleet: who asks. Default: your user name.")] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="With --fleet: seconds to wait for sites that decide by hand.")
    ] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Train the model that RUN.toml describes. Run it again to resume, after a crash too."""
    from blindsight.config import load

    settings = load(config)
    if fleet is not None and hosts is not None:
        raise InvalidInput("choose one of --fleet and --hosts")
    if tune_on is not None:
        _tune(settings, tune_on, config.with_suffix(".tuned.toml"), as_json=as_json)
        return
    with working(f"reading {escape(settings.data.population)}"):
        from blindsight.accounting.ledger import Ledger
        from blindsight.backends.meeting import Place
        from blindsight.jobs import run_on_hosts, run_training
        from blindsight.jobs.classes import READ_OFF
    place = Place.parse(hosts) if hosts else Place.from_environment()
    with resumable():
        if fleet is not None:
            from blindsight.jobs.fleet_training import train_on_fleet
            from blindsight.jobs.on_fleet import fleet_at

            there = fleet_at(fleet, asker=asker, wait_s=wait)
            trained = train_on_fleet(settings, there, out=out, ledger=Ledger(ledger), progress=not as_json)
        elif place is None or place.count == 1:
            trained = run_training(settings, out=out, ledger=Ledger(ledger), progress=not as_json)
        elif place.index == 0:
            trained = run_on_hosts(settings, place, out=out, ledger=Ledger(ledger), progress=not as_json)
        else:
            trained = run_on_hosts(settings, place)
    if trained is None:  # host 0 prints
        return
    if as_json:
        print_json(trained.to_dict())
        return
    screen = Console(highlight=False)
    ending = "the budget is spent" if trained.stopped == "budget" else "finished"
    screen.print(f"[bold]{escape(settings.name)}[/]: {trained.rounds:,} rounds, {ending}")
    screen.print(f"[green]{escape(str(trained.guarantee))}[/]", soft_wrap=True)
    if READ_OFF in trained.guarantee.assumptions:
        screen.print(f"[yellow]This holds if {escape(READ_OFF)}.[/]", soft_wrap=True)
    for name, value in trained.simulation_only.items():
        screen.print(f"held-out {escape(name)} {value:.4f} [yellow]simulation_only[/]")
    if trained.bayesian is not None:  # never without the classical guarantee, the pairs and the largest distance
        screen.print(f"[yellow]{escape(str(trained.bayesian))}[/]", soft_wrap=True)
    screen.print(f"Run folder: [bold]{escape(str(trained.path))}[/]")


def _tune(settings: "Config", public: str, write: Path, *, as_json: bool) -> None:
    from blindsight.jobs import run_tuning

    with progress_bar("trying settings", quiet=as_json) as progress:
        tuned = run_tuning(settings, public, write=write, progress=progress)
    print_value(tuned, as_json=as_json)


@train_app.command("schema", epilog="Example:  blindsight train schema > RUN.schema.json")
def schema() -> None:
    """Print the JSON Schema of RUN.toml, with which an editor completes and checks its keys."""
    from blindsight.config import json_schema

    print_json(json_schema())


@train_app.command(
    "student", epilog="Example:  blindsight train student runs/labelling-handwriting --public handwriting"
)
def student(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A synthetic set, or the run folder of blindsight inspect labelling.", autocompletion=complete_run
        ),
    ],
    labels: Annotated[
        Literal["raters", "pre", "own"] | None,
        typer.Option(
            help="raters: majority vote; pre: proposed labels; own: the generator's classes. Default: raters, else pre."
        ),
    ] = None,
    model: Annotated[
        Literal["cnn", "mlp", "logistic"] | None, typer.Option(help="Default: cnn for images, mlp for rows.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 1000,
    public: Annotated[str | None, typer.Option(metavar="DATA", help="Public data to evaluate on.")] = None,
    test: Annotated[
        str | None, typer.Option(metavar="DATA", help="Real data to evaluate on, in simulations only.")
    ] = None,
    label: Annotated[str, typer.Option(help="Field holding the true class in these data.")] = "label",
    client: Annotated[str | None, typer.Option(help="Column holding the client id, if they are tables.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/student-NAME.")] = None,
    ledger: LedgerPath = None,
    as_json: AsJson = False,
) -> None:
    """Train a student on labelled synthetic examples. It inherits their guarantee; nothing more is spent.

    Use its folder as --model of blindsight inspect.
    """
    from blindsight.accounting.ledger import Ledger
    from blindsight.jobs import run_student

    with progress_bar("training the student", quiet=as_json) as progress:
        report = run_student(
            folder,
            labels=labels,
            model=model,
            steps=steps,
            public=public,
            test=test,
            label=label,
            client=client,
            out=out,
            ledger=Ledger(ledger),
            progress=progress,
        )
    if as_json:
        print_json(report.to_dict())
        return
    screen = Console(highlight=False)
    screen.print(report, soft_wrap=True)
    screen.print(f"Run folder: [bold]{escape(str(report.path))}[/] (usable as --model of blindsight inspect)")
