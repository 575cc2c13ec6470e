"""`blindsight inspect`: questions about data that nobody may look at, answered in one private round."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.printing import AsJson, print_json, steps_bar

if TYPE_CHECKING:
    from blindsight.inspection.report import Report

__all__ = ["inspect_app"]

inspect_app = typer.Typer(help="What is wrong with data nobody may look at?", no_args_is_help=True)

Data = Annotated[str, typer.Argument(metavar="DATA", help="A name from `blindsight data list`, or a file or folder.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="The primary model: an ONNX file, or the folder of a `blindsight train` run; else one is trained "
        "on the reference."
    ),
]
Reference = Annotated[
    str | None, typer.Option(help="Public data of the same kind; other clients of an embedded population.")
]
Epsilon = Annotated[float, typer.Option(help="What everything released may cost a client.")]
Delta = Annotated[float, typer.Option(help="At this delta.")]
Clients = Annotated[int | None, typer.Option(min=2, help="How many clients, for embedded populations.")]
ClientColumn = Annotated[str | None, typer.Option("--client", help="The column that says whose a row is, for tables.")]
FaultSpelling = Annotated[str | None, typer.Option(help="A fault to plant first, to try things out: invert:0.5.")]
Inputs = Annotated[list[str] | None, typer.Option("--input", help="A field that the model reads; repeat for several.")]
Label = Annotated[str, typer.Option(help="The field with the true class.")]
Suspects = Annotated[list[str] | None, typer.Option("--suspect", help="A fault to vote on; repeat. Else all that fit.")]
Ranges = Annotated[list[str] | None, typer.Option("--range", help="A number's public range, age=0:100; repeat.")]
FormingName = Annotated[str, typer.Option("--forming", help="zero_fill, or eligible: who is in an arm is public.")]
Out = Annotated[Path | None, typer.Option(help="The run's folder; run again with the same to go on.")]
PopulationName = Annotated[str | None, typer.Option("--population", help="The clients' name in the ledger.")]
LedgerPath = Annotated[
    Path | None, typer.Option("--ledger", help="The ledger; else $BLINDSIGHT_LEDGER, else .blindsight/ledger.db.")
]


@inspect_app.command("sanity", epilog="Example:  blindsight inspect sanity handwriting --fault invert:0.05 --epsilon 1")
def sanity(
    data: Data,
    model: Model = None,
    reference: Reference = None,
    epsilon: Epsilon = 8.0,
    delta: Delta = 1e-6,
    clients: Clients = None,
    client: ClientColumn = None,
    fault: FaultSpelling = None,
    inputs: Inputs = None,
    label: Label = "label",
    suspects: Suspects = None,
    ranges: Ranges = None,
    forming: FormingName = "zero_fill",
    out: Out = None,
    population: PopulationName = None,
    ledger: LedgerPath = None,
    as_json: AsJson = False,
) -> None:
    """T1: do the data look right at all? Everyone, against public data of the same kind."""
    _inspect("sanity", {}, dict(locals()))


@inspect_app.command("mistakes", epilog="Example:  blindsight inspect mistakes handwriting --fault blur:0.1:by=example")
def mistakes(
    data: Data,
    minimum: Annotated[int, typer.Option(min=1, help="Of clients with at least so many such examples.")] = 5,
    model: Model = None,
    reference: Reference = None,
    epsilon: Epsilon = 8.0,
    delta: Delta = 1e-6,
    clients: Clients = None,
    client: ClientColumn = None,
    fault: FaultSpelling = None,
    inputs: Inputs = None,
    label: Label = "label",
    suspects: Suspects = None,
    ranges: Ranges = None,
    forming: FormingName = "zero_fill",
    out: Out = None,
    population: PopulationName = None,
    ledger: LedgerPath = None,
    as_json: AsJson = False,
) -> None:
    """T2: what does the model get wrong? Misclassified examples against correctly classified ones."""
    _inspect("mistakes", {"minimum": minimum}, dict(locals()))


@inspect_app.command(
    "slices", epilog="Example:  blindsight inspect slices handwriting --fault invert:0.5 --low 0.5 --high 0.9"
)
def slices(
    data: Data,
    by: Annotated[str, typer.Option(help="accuracy, or a field with named classes.")] = "accuracy",
    low: Annotated[float | None, typer.Option(help="Clients below this accuracy fail; else found privately.")] = None,
    high: Annotated[float | None, typer.Option(help="Clients of at least this accuracy are healthy.")] = None,
    model: Model = None,
    reference: Reference = None,
    epsilon: Epsilon = 8.0,
    delta: Delta = 1e-6,
    clients: Clients = None,
    client: ClientColumn = None,
    fault: FaultSpelling = None,
    inputs: Inputs = None,
    label: Label = "label",
    suspects: Suspects = None,
    ranges: Ranges = None,
    forming: FormingName = "zero_fill",
    out: Out = None,
    population: PopulationName = None,
    ledger: LedgerPath = None,
    as_json: AsJson = False,
) -> None:
    """T4: on whom does the model fail? Clients of low accuracy against those of high, or class against class."""
    _inspect("slices", {"by": by, "low": low, "high": high}, dict(locals()))


def _inspect(task: str, own: dict[str, Any], given: dict[str, Any]) -> None:
    from blindsight.accounting.ledger import Ledger
    from blindsight.jobs import run_inspection

    as_json = given.pop("as_json")
    for name in own:
        del given[name]
    given["ledger"] = Ledger(given["ledger"])
    with steps_bar(Console(stderr=True), quiet=as_json) as progress:
        report, path = run_inspection(task, **given, **own, progress=progress)
    if as_json:
        print_json(report.to_dict())
        return
    _print(report, path)


def _print(report: "Report", path: Path) -> None:
    screen = Console(highlight=False)
    screen.print(report)
    screen.print(f"\nThe report is [bold]{escape(str(path / 'report.html'))}[/]: open it in any browser, offline too.")
