"""`blindsight inspect`: questions about data that nobody may look at, answered in one private round."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.printing import AsJson, flag, print_json, resumable, steps_bar
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.inspection.report import Report

__all__ = ["inspect"]

_OWN = {
    "minimum": ("mistakes",),
    **dict.fromkeys(("low", "high"), ("slices",)),
    "by": ("slices", "bias"),
    "values": ("slices", "bias", "unknowns"),
    **dict.fromkeys(("before", "side", "vocabulary"), ("unknowns",)),
    **dict.fromkeys(("vocabulary_size", "case", "discover"), ("unknowns", "bias")),
    "train": ("unknowns", "labelling", "bias"),
    "classes": ("bias",),
    "samples": ("labelling",),
}
"""Options that only some tasks have."""


def inspect(
    task: Annotated[
        Literal["sanity", "mistakes", "unknowns", "slices", "labelling", "bias"],
        typer.Argument(
            help="Do the data look right? What does the model get wrong? Which words does it lack? Whom does it fail? "
            "What could people label? What do public data lack?"
        ),
    ],
    data: Annotated[str, typer.Argument(help="A name from `blindsight data list`, or a file or folder.")],
    model: Annotated[
        str | None,
        typer.Option(help="The primary model: an ONNX file or the folder of a training run; else one is trained."),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Public data of the same kind; else other clients of an embedded population.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What everything released may cost a client.")] = 8.0,
    delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-6,
    clients: Annotated[int | None, typer.Option(min=2, help="How many clients, for embedded populations.")] = None,
    client: Annotated[str | None, typer.Option(help="The column that says whose a row is, for tables.")] = None,
    fault: Annotated[str | None, typer.Option(help="A fault to plant first, to try things out: invert:0.5.")] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="A field that the model reads; repeat for several.")
    ] = None,
    label: Annotated[str, typer.Option(help="The field with the true class.")] = "label",
    suspects: Annotated[
        list[str] | None, typer.Option("--suspect", help="A fault to vote on; repeat. Else all that fit.")
    ] = None,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="A number's public range, age=0:100; repeat.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="What a field of a table holds, age=whole:0:120; repeat. Else as in --reference."),
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="The same for many fields: a schema in a JSON file.")] = None,
    forming: Annotated[str, typer.Option(help="zero_fill, or eligible: who is in an arm is public.")] = "zero_fill",
    minimum: Annotated[
        int | None, typer.Option(min=1, help="mistakes: of clients with at least so many such examples (5).")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="slices: accuracy, or a field with named classes; bias: such a field.")
    ] = None,
    values: Annotated[
        list[str] | None, typer.Option("--value", help="A value to compare in the field --by, or of --side; repeat.")
    ] = None,
    low: Annotated[
        float | None, typer.Option(help="slices: clients below this accuracy fail; else found privately.")
    ] = None,
    high: Annotated[float | None, typer.Option(help="slices: clients of at least this accuracy are healthy.")] = None,
    before: Annotated[str | None, typer.Option(help="unknowns: the data before the change.")] = None,
    side: Annotated[
        str | None, typer.Option(help="unknowns: a field that tells before from after: --value OLD --value NEW.")
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="unknowns: a file of known words; else the most frequent of --reference.")
    ] = None,
    vocabulary_size: Annotated[
        int | None, typer.Option(min=5, help="unknowns, bias: how many words of --reference are known (10000).")
    ] = None,
    case: Annotated[str | None, typer.Option(help="unknowns, bias: lower (the default) or keep.")] = None,
    discover: Annotated[bool, flag("--discover", "unknowns, bias: words that many clients use.")] = False,
    train: Annotated[
        bool,
        flag(
            "--train",
            "unknowns: train language models of both sides; labelling: train a GAN; bias: train a model of "
            "unlikely sentences.",
        ),
    ] = False,
    samples: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="labelling: so many synthetic examples (500).")
    ] = None,
    classes: Annotated[
        list[str] | None, typer.Option("--class", help="bias: a class to compare; repeat. Else those of --reference.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; run again with the same to go on.")] = None,
    population: Annotated[str | None, typer.Option(help="The clients' name in the ledger; else the data's.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger; else $BLINDSIGHT_LEDGER, else .blindsight/ledger.db.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What is wrong with data nobody may look at? Asked of all clients in one private round.

    sanity: do the data look right at all? mistakes: what does the model get wrong? unknowns: which words does it lack
    after a change, and why? slices: on whom does it fail? labelling: synthetic examples for people to label. bias: what
    do clients have that public data lack?
    """
    if not 0 < epsilon < math.inf:
        raise InvalidInput(f"--epsilon must be positive and finite, got {epsilon:g}")
    if not 0 < delta < 1:
        raise InvalidInput(f"--delta must lie between 0 and 1, got {delta:g}: a common choice is population^-1.1")
    if task in ("labelling", "bias") and suspects:
        raise InvalidInput(f"--suspect is for questions about faults: leave it out of blindsight inspect {task}")
    if task == "bias" and forming != "zero_fill":
        raise InvalidInput("--forming is for arms of clients, and bias compares everyone: leave it out")
    own: dict[str, Any] = {"minimum": minimum, "by": by, "values": values, "low": low, "high": high}
    own |= {"before": before, "side": side, "vocabulary": vocabulary, "vocabulary_size": vocabulary_size, "case": case}
    own |= {"discover": discover, "train": train, "samples": samples, "classes": classes}
    own = {name: value for name, value in own.items() if value not in (None, [], False)}
    for name in own:
        if task not in _OWN[name]:
            option = {"values": "value", "classes": "class"}.get(name, name).replace("_", "-")
            raise InvalidInput(f"--{option} is for blindsight inspect {' or '.join(_OWN[name])}: leave it out")
    from blindsight.accounting.ledger import Ledger

    asked: dict[str, Any] = {"reference": reference, "epsilon": epsilon, "delta": delta, "clients": clients}
    asked |= {"client": client, "fault": fault, "inputs": inputs, "suspects": suspects, "out": out}
    asked |= {"population": population, "ledger": Ledger(ledger), "schema": schema, "types": types, **own}
    judged: dict[str, Any] = {"model": model, "label": label, "ranges": ranges, "forming": forming}
    with resumable(), steps_bar(Console(stderr=True), quiet=as_json) as progress:
        if task == "unknowns":
            from blindsight.jobs import run_unknowns

            _refuse_judged(judged)
            report, path = run_unknowns(data, progress=progress, **asked)
        elif task == "bias":
            from blindsight.jobs import run_bias

            report, path = run_bias(
                data, progress=progress, **_without(asked, "suspects"), **_without(judged, "forming")
            )
        else:
            from blindsight.jobs import run_inspection

            report, path = run_inspection(task, data, progress=progress, **asked, **judged)
    if as_json:
        print_json(report.to_dict())
    else:
        _print(report, path)


def _without(asked: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in asked.items() if key != name}


def _refuse_judged(judged: dict[str, Any]) -> None:
    """Words are known or not, whatever a model says of them."""
    usual = {"model": None, "label": "label", "ranges": None, "forming": "zero_fill"}
    for name, value in judged.items():
        if value not in (usual[name], []):
            option = name.removesuffix("s")
            raise InvalidInput(
                f"--{option} is for a model that classifies: leave it out of blindsight inspect unknowns"
            )


def _print(report: "Report", path: Path) -> None:
    screen = Console(highlight=False)
    screen.print(report)
    screen.print(f"\nThe report is [bold]{escape(str(path / 'report.html'))}[/]: open it in any browser, offline too.")
    if report.task == "labelling":
        screen.print(f"Label the examples:  [bold]blindsight label {escape(str(path))}[/]")
