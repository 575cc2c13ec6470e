"""Commands that build a request from their options, run its job and print the report: inspect, ask, synthesize."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from blindsight import jobs
from blindsight.cli.expanding import parameters_of
from blindsight.cli.printing import AsJson, LedgerPath, flag, print_json, resumable, steps_bar
from blindsight.jobs.request import Request

__all__ = ["command_of"]

_data = functools.partial(typer.Option, rich_help_panel="Data")
_model = functools.partial(typer.Option, rich_help_panel="Model")
_privacy = functools.partial(typer.Option, rich_help_panel="Privacy")

_DATA = "Name from `blindsight data list`, or a file or folder."
_INPUT = "Field to inspect; repeatable. Default: the only image."
_REFERENCE = "Public data of the same kind. Default: other clients of an embedded population."
_TYPES = "Type of a table's field, age=whole:0:120; repeatable. Default: as in --reference."
_PRIMARY = "Primary model: an ONNX file or a training run's folder. Default: one trained on --reference."
_RANGES = "Public range of a number, age=0:100; repeatable."
_DRY_RUN = "Show what would be released, its cost and what could be found; ask nobody."
_BLIND = "Ask even if nothing could be found."
_MODEL_RANGE = "Range that an ONNX model was trained with, 0:1, 0:255 or -1:1; bytes are scaled to it."
_MODEL_LAYOUT = "Axes of an ONNX model's input: images with channels first, last or without, or flat rows."

_SHARED: dict[str, Any] = {
    "data": Annotated[str, typer.Argument(metavar="DATA", help=_DATA)],
    "reference": Annotated[str | None, _data(help=_REFERENCE)],
    "inputs": Annotated[list[str] | None, _data("--input", help=_INPUT)],
    "client": Annotated[str | None, _data(help="Column holding the client id, for tables.")],
    "clients": Annotated[int | None, _data(min=2, help="Number of clients, for embedded populations.")],
    "fault": Annotated[str | None, _data(help="Plant this fault first, to try things out: invert:0.5.")],
    "types": Annotated[list[str] | None, _data("--type", help=_TYPES)],
    "schema": Annotated[Path | None, _data(help="Types of many fields, as a JSON file.")],
    "model": Annotated[str | None, _model(help=_PRIMARY)],
    "model_range": Annotated[str | None, _model(help=_MODEL_RANGE)],
    "model_layout": Annotated[Literal["NCHW", "NHWC", "NHW", "NF"] | None, _model(help=_MODEL_LAYOUT)],
    "label": Annotated[str, _model(help="Field holding the true class.")],
    "ranges": Annotated[list[str] | None, _data("--range", help=_RANGES)],
    "epsilon": Annotated[float, _privacy(help="Privacy cost per client of everything released.")],
    "delta": Annotated[float, _privacy(help="Delta of the guarantee.")],
    "population": Annotated[str | None, _privacy(help="Name of the clients in the ledger. Default: that of the data.")],
    "ledger": LedgerPath,
    "out": Annotated[Path | None, typer.Option(help="Folder of the run; the same folder resumes it.")],
    "dry_run": Annotated[bool, flag("--dry-run", _DRY_RUN)],
    "even_if_blind": Annotated[bool, flag("--even-if-blind", _BLIND)],
}
"""The Typer option of every field that requests share."""


def command_of(job: str, kind: type[Request], help_text: str, own: Mapping[str, Any]) -> Callable[..., None]:
    """The function of a command that runs `job` on a request of this kind; `own` has the options of its own fields.

    An option that is not given has the default of its field.
    """

    def _command(*, as_json: bool, **options: Any) -> None:
        request = kind(**{name: value for name, value in options.items() if value is not None})
        with resumable(), steps_bar(Console(stderr=True), quiet=as_json) as progress:
            report, path = getattr(jobs, job)(request, progress=progress)
        if as_json:
            print_json(report.to_dict())
            return
        screen = Console(highlight=False)
        screen.print(report)
        if request.dry_run:
            return
        screen.print(f"\nReport: [bold]{escape(str(path / 'report.html'))}[/] (open it in any browser, offline too)")
        if report.task == "synthesize":
            screen.print(f"Rows: [bold]{escape(str(path / 'rows.csv'))}[/]")
        if report.task == "labelling":
            screen.print(f"Label the examples:  [bold]blindsight label {escape(str(path))}[/]")

    options = {option.name: option for option in parameters_of(kind, {**_SHARED, **own})}
    first = [options.pop(name) for name in ("data", *own)]
    as_json = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
    vars(_command)["__signature__"] = inspect.Signature([*first, *options.values(), as_json])
    _command.__doc__ = help_text
    return _command
