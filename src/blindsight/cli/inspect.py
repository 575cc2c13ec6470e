"""`blindsight inspect`: questions about data that nobody may look at, each a command of its own."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.groups import TaskCommand, TaskGroup
from blindsight.cli.printing import AsJson, LedgerPath, flag, print_json, resumable, steps_bar
from blindsight.jobs.request import ModelRequest, Progress, Request

if TYPE_CHECKING:
    from blindsight.inspection.report import Report

__all__ = ["inspect_app"]

inspect_app = typer.Typer(
    cls=TaskGroup,
    help="Ask what is wrong with data that nobody may look at. All clients answer in one private round.",
    no_args_is_help=True,
    epilog="Example:  blindsight inspect slices handwriting --fault invert:0.5 --low 0.5 --high 0.9",
)


# --- options that questions share

_data = functools.partial(typer.Option, rich_help_panel="Data")
_model = functools.partial(typer.Option, rich_help_panel="Model")
_privacy = functools.partial(typer.Option, rich_help_panel="Privacy")

_REFERENCE = "Public data of the same kind. Default: other clients of an embedded population."
_TYPES = "Type of a table's field, age=whole:0:120; repeatable. Default: as in --reference."
_PRIMARY = "Primary model: an ONNX file or a training run's folder. Default: one trained on --reference."

_SHARED: dict[str, Any] = {
    "data": Annotated[
        str, typer.Argument(metavar="DATA", help="Name from `blindsight data list`, or a file or folder.")
    ],
    "reference": Annotated[str | None, _data(help=_REFERENCE)],
    "inputs": Annotated[
        list[str] | None, _data("--input", help="Field to inspect; repeatable. Default: the only image.")
    ],
    "client": Annotated[str | None, _data(help="Column holding the client id, for tables.")],
    "clients": Annotated[int | None, _data(min=2, help="Number of clients, for embedded populations.")],
    "fault": Annotated[str | None, _data(help="Plant this fault first, to try things out: invert:0.5.")],
    "types": Annotated[list[str] | None, _data("--type", help=_TYPES)],
    "schema": Annotated[Path | None, _data(help="Types of many fields, as a JSON file.")],
    "model": Annotated[str | None, _model(help=_PRIMARY)],
    "label": Annotated[str, _model(help="Field holding the true class.")],
    "ranges": Annotated[list[str] | None, _model("--range", help="Public range of a number, age=0:100; repeatable.")],
    "epsilon": Annotated[float, _privacy(help="Privacy cost per client of everything released.")],
    "delta": Annotated[float, _privacy(help="Delta of the guarantee.")],
    "population": Annotated[str | None, _privacy(help="Name of the clients in the ledger. Default: that of the data.")],
    "ledger": LedgerPath,
    "out": Annotated[Path | None, typer.Option(help="Folder of the run; the same folder resumes it.")],
    "dry_run": Annotated[
        bool, flag("--dry-run", "Check every option and show the cost; train nothing, ask nobody, spend nothing.")
    ],
}
"""The Typer option of every field of a request."""

Suspects = Annotated[
    list[str] | None, typer.Option("--suspect", help="Fault to vote on; repeatable. Default: all that fit.")
]
Forming = Annotated[
    Literal["zero_fill", "eligible"],
    typer.Option(help="zero_fill hides who is in an arm; eligible makes it public, and the guarantee says so."),
]
Values = Annotated[
    list[str] | None, typer.Option("--value", help="Value of the field --by to compare; repeatable, at least two.")
]
Case = Annotated[Literal["lower", "keep"], typer.Option(help="lower ignores case; keep tells words apart by it.")]
VocabularySize = Annotated[
    int, typer.Option(min=5, help="Number of the most frequent words of --reference that count as known.")
]

Answer = tuple["Report", Path]


def _task(name: str, kind: type[Request], example: str) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Register a function of (request, progress, own options) as a command, whose options include the request's."""
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=_SHARED[field.name],
        )
        for field in dataclasses.fields(kind)
    ]

    def register(ask: Callable[..., Answer]) -> Callable[..., Answer]:
        def _command(*, as_json: AsJson, **options: Any) -> None:
            request = kind(**{parameter.name: options.pop(parameter.name) for parameter in shared})
            with resumable(), steps_bar(Console(stderr=True), quiet=as_json) as progress:
                report, path = ask(request, progress, **options)
            if as_json:
                print_json(report.to_dict())
            else:
                _print(report, None if request.dry_run else path)

        _, _, *own = inspect.signature(ask).parameters.values()
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        as_json = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
        vars(_command)["__signature__"] = inspect.Signature([shared[0], *own, *shared[1:], as_json])
        _command.__doc__ = ask.__doc__
        inspect_app.command(name, cls=TaskCommand, epilog=f"Example:  {example}")(_command)
        return ask

    return register


def _print(report: "Report", path: Path | None) -> None:
    screen = Console(highlight=False)
    screen.print(report)
    if path is None:
        return
    screen.print(f"\nReport: [bold]{escape(str(path / 'report.html'))}[/] (open it in any browser, offline too)")
    if report.task == "labelling":
        screen.print(f"Label the examples:  [bold]blindsight label {escape(str(path))}[/]")


# --- the questions


@_task("sanity", ModelRequest, "blindsight inspect sanity handwriting --fault rotate90:0.1 --epsilon 2")
def sanity(request: ModelRequest, progress: Progress, suspects: Suspects = None) -> Answer:
    """Do the data look right? Compare all clients with public data of the same kind."""
    from blindsight.jobs.inspect import run_sanity

    return run_sanity(request, suspects=suspects, progress=progress)


@_task("mistakes", ModelRequest, "blindsight inspect mistakes handwriting --fault blur:0.3 --epsilon 4")
def mistakes(
    request: ModelRequest,
    progress: Progress,
    minimum: Annotated[
        int, typer.Option(min=1, help="Include only clients with at least this many misclassified examples.")
    ] = 5,
    suspects: Suspects = None,
    forming: Forming = "zero_fill",
) -> Answer:
    """What does the model get wrong? Compare misclassified examples with correctly classified ones."""
    from blindsight.jobs.inspect import run_mistakes

    return run_mistakes(request, minimum=minimum, suspects=suspects, forming=forming, progress=progress)


@_task("slices", ModelRequest, "blindsight inspect slices handwriting --fault invert:0.5 --low 0.5 --high 0.9")
def slices(
    request: ModelRequest,
    progress: Progress,
    by: Annotated[str, typer.Option(help="accuracy, or a field with named classes or text values.")] = "accuracy",
    values: Values = None,
    low: Annotated[
        float | None,
        typer.Option(help="Clients below this accuracy fail. Default: the lowest quarter, found privately."),
    ] = None,
    high: Annotated[float | None, typer.Option(help="Clients of at least this accuracy are healthy.")] = None,
    suspects: Suspects = None,
    forming: Forming = "zero_fill",
) -> Answer:
    """On which clients does the model fail? Compare clients of low accuracy with those of high accuracy."""
    from blindsight.jobs.inspect import run_slices

    return run_slices(
        request, by=by, values=values, low=low, high=high, suspects=suspects, forming=forming, progress=progress
    )


@_task("unknowns", Request, "blindsight inspect unknowns forum --fault token_join:0.1:by=example --epsilon 1")
def unknowns(
    request: Request,
    progress: Progress,
    before: Annotated[str | None, typer.Option(help="Data before the change; DATA is after it.")] = None,
    side: Annotated[
        str | None, typer.Option(help="Field that tells before from after: --value OLD --value NEW.")
    ] = None,
    values: Annotated[
        list[str] | None, typer.Option("--value", help="Value of the field --side: first the old one, then the new.")
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="File of known words. Default: the most frequent words of --reference.")
    ] = None,
    vocabulary_size: VocabularySize = 10_000,
    case: Case = "lower",
    suspects: Suspects = None,
    discover: Annotated[bool, flag("--discover", "Find unknown words that many clients use.")] = False,
    train: Annotated[bool, flag("--train", "Train language models of both sides and show what they generate.")] = False,
) -> Answer:
    """Which words does the vocabulary lack after a change, and which bug makes them?"""
    from blindsight.jobs.unknowns import run_unknowns

    return run_unknowns(
        request,
        before=before,
        side=side,
        values=values,
        vocabulary=vocabulary,
        vocabulary_size=vocabulary_size,
        case=case,
        suspects=suspects,
        discover=discover,
        train=train,
        progress=progress,
    )


@_task("labelling", ModelRequest, "blindsight inspect labelling handwriting --samples 500 --epsilon 4")
def labelling(
    request: ModelRequest,
    progress: Progress,
    samples: Annotated[int, typer.Option(min=1, max=100_000, help="Number of synthetic examples.")] = 500,
    train: Annotated[bool, flag("--train", "Draw samples from a GAN that is trained on the clients.")] = False,
) -> Answer:
    """Make synthetic examples for people to label."""
    from blindsight.jobs.inspect import run_labelling

    return run_labelling(request, samples=samples, train=train, progress=progress)


@_task("bias", ModelRequest, "blindsight inspect bias photos.parquet --client phone --reference public.parquet")
def bias(
    request: ModelRequest,
    progress: Progress,
    by: Annotated[str | None, typer.Option(help="Field with named classes or text values to divide both by.")] = None,
    values: Values = None,
    classes: Annotated[
        list[str] | None, typer.Option("--class", help="Class to compare; repeatable. Default: those of --reference.")
    ] = None,
    vocabulary_size: VocabularySize = 10_000,
    case: Case = "lower",
    discover: Annotated[bool, flag("--discover", "Find words of unlikely sentences.")] = False,
    train: Annotated[bool, flag("--train", "Train a language model of unlikely sentences.")] = False,
) -> Answer:
    """What do clients have that the public training data lack?"""
    from blindsight.jobs.inspect import run_bias

    return run_bias(
        request,
        by=by,
        values=values,
        classes=classes,
        vocabulary_size=vocabulary_size,
        case=case,
        discover=discover,
        train=train,
        progress=progress,
    )
