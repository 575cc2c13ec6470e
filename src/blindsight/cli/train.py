"""`blindsight train`: a model from a configuration, and a student from labelled synthetic examples."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from blindsight.cli.printing import AsJson, print_json, progress_bar, resumable, working

if TYPE_CHECKING:
    from blindsight.config import Config

__all__ = ["train_app"]


class _OrConfiguration(TyperGroup):
    """`blindsight train RUN.toml` needs no further word: what is not a command's name is a configuration."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_command = bool(args) and args[0] in {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if is_command or not args else ["run", *args])


train_app = typer.Typer(
    cls=_OrConfiguration,
    help="Train a model as RUN.toml says, or a student on labelled synthetic examples.\n\n"
    "`blindsight train RUN.toml` is short for `blindsight train run RUN.toml`.",
    no_args_is_help=True,
    epilog="Example:  blindsight train examples/quick.toml",
)


@train_app.command("run", epilog="Example:  blindsight train examples/quick.toml")
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
        from blindsight.jobs.classes import READ_OFF
    with resumable():
        trained = run_training(settings, out=out, ledger=Ledger(ledger), progress=not as_json)
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
    screen.print(f"Everything is in [bold]{escape(str(trained.path))}[/].")


def _tune(settings: "Config", public: str, write: Path, *, as_json: bool) -> None:
    from blindsight.jobs import run_tuning

    with progress_bar("trying settings", quiet=as_json) as progress:
        tuned = run_tuning(settings, public, write=write, progress=progress)
    if as_json:
        print_json(tuned.to_dict())
    else:
        Console(highlight=False).print(tuned)


@train_app.command(
    "student", epilog="Example:  blindsight train student runs/labelling-handwriting --public handwriting"
)
def student(
    folder: Annotated[Path, typer.Argument(help="A synthetic set, or the run of blindsight inspect that made it.")],
    labels: Annotated[
        Literal["raters", "pre", "own"] | None,
        typer.Option(
            help="raters: the majority; pre: as proposed; own: as the generator was asked. Else raters, or pre."
        ),
    ] = None,
    model: Annotated[
        Literal["cnn", "mlp", "logistic"] | None, typer.Option(help="Else a cnn for images, an mlp for rows.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of training.")] = 1000,
    public: Annotated[str | None, typer.Option(metavar="DATA", help="Public data to measure it on.")] = None,
    test: Annotated[
        str | None, typer.Option(metavar="DATA", help="Real data to measure it on, in a simulation only.")
    ] = None,
    label: Annotated[str, typer.Option(help="The field with the true class in these data.")] = "label",
    out: Annotated[Path | None, typer.Option(help="The run's folder; else runs/student-NAME.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a student on labelled synthetic examples. It inherits their guarantee, and nothing more is spent.

    Its folder can be the --model of blindsight inspect.
    """
    from blindsight.jobs import run_student

    with progress_bar("training the student", quiet=as_json) as progress:
        found = run_student(
            folder,
            labels=labels,
            model=model,
            steps=steps,
            public=public,
            test=test,
            label=label,
            out=out,
            progress=progress,
        )
    if as_json:
        print_json(found.to_dict())
        return
    screen = Console(highlight=False)
    screen.print(found, soft_wrap=True)
    screen.print(f"Everything is in [bold]{escape(str(found.path))}[/]; ask about it with blindsight inspect --model.")
