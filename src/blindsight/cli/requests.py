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
from blindsight.cli.completing import complete_data, complete_fault, complete_run
from blindsight.cli.describing import DECIMAL, ENCODING, SEPARATOR, TYPES, described
from blindsight.cli.expanding import parameters_of
from blindsight.cli.printing import AsJson, LedgerPath, flag, print_json, resumable, steps_bar
from blindsight.jobs.request import Request

__all__ = ["command_of"]

_data = functools.partial(typer.Option, rich_help_panel="Data")
_model = functools.partial(typer.Option, rich_help_panel="Model")
_privacy = functools.partial(typer.Option, rich_help_panel="Privacy")

_DATA = "Name from `blindsight data list`, or a file or folder."
_FLEET = "Folder of a fleet, in place of DATA: ask the clients of its sites."
_INPUT = "Field to inspect; repeatable. Default: the only image, or for texts the only text."
_REFERENCE = "Public data of the same kind. Default: other clients of an embedded population."
_PRIMARY = "Primary model: an ONNX file or a training run's folder. Default: one trained on --reference."
_DRY_RUN = "Show what would be released, its cost and what could be detected; no client is asked."
_BLIND = "Ask even if nothing could be detected."
_FAULT = "Plant this fault first, to try an inspection out: invert:0.5."
_MODEL_RANGE = "Range that an ONNX model was trained with, 0:1, 0:255 or -1:1; bytes are scaled to it."
_MODEL_LAYOUT = "Axes of an ONNX model's input: images with channels first, last or without, or flat rows."

_SHARED: dict[str, Any] = {
    "data": Annotated[str | None, typer.Argument(metavar="DATA", help=_DATA, autocompletion=complete_data)],
    "fleet": Annotated[Path | None, _data(help=_FLEET)],
    "asker": Annotated[str | None, _data(help="With --fleet: who asks. Default: your user name.")],
    "wait": Annotated[float, _data(min=0, help="With --fleet: seconds to wait for sites that decide by hand.")],
    "reference": Annotated[str | None, _data(help=_REFERENCE, autocompletion=complete_data)],
    "inputs": Annotated[list[str] | None, _data("--input", help=_INPUT)],
    "client": Annotated[str | None, _data(help="Column holding the client id, for tables.")],
    "separator": Annotated[str | None, _data(help=SEPARATOR)],
    "encoding": Annotated[str | None, _data(help=ENCODING)],
    "decimal": Annotated[str | None, _data(help=DECIMAL)],
    "clients": Annotated[int | None, _data(min=2, help="Number of clients, for embedded populations.")],
    "fault": Annotated[str | None, _data(help=_FAULT, autocompletion=complete_fault)],
    "types": Annotated[list[str] | None, _data("--type", help=TYPES)],
    "schema": Annotated[Path | None, typer.Option(hidden=True)],
    "model": Annotated[str | None, _model(help=_PRIMARY, autocompletion=complete_run)],
    "model_range": Annotated[str | None, _model(help=_MODEL_RANGE)],
    "model_layout": Annotated[Literal["NCHW", "NHWC", "NHW", "NF"] | None, _model(help=_MODEL_LAYOUT)],
    "label": Annotated[str, _model(help="Field holding the true class.")],
    "ranges": Annotated[list[str] | None, typer.Option("--range", hidden=True)],
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
        if options["fleet"] is not None and options["data"] and "fields" in options:  # the first word is a field
            options |= {"data": None, "fields": [options["data"], *(options["fields"] or ())]}
        fields = described(options["types"] or (), options["schema"], options.get("ranges") or ())
        if "ranges" not in options:  # unknowns has no ranges: passed on as types, they are refused
            fields["types"] += fields.pop("ranges")
        request = kind(**{name: value for name, value in (options | fields).items() if value is not None})
        _say_dialect(request, quiet=as_json)
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


def _say_dialect(request: Request, *, quiet: bool) -> None:
    """Say how a CSV file is read, as far as its header line tells; nothing for the usual commas in UTF-8."""
    from blindsight.data.csv_tables import dialect_of
    from blindsight.data.dialect import Dialect
    from blindsight.jobs.tables import is_private_table

    if quiet or not request.data or not is_private_table(request.data):
        return
    dialect = dialect_of(request.data, request.dialect, client=request.client or "client", private=True)
    if dialect not in (None, Dialect(",", "utf-8", ".")):
        Console(stderr=True, highlight=False).print(f"{request.data}: {dialect}", markup=False, soft_wrap=True)
