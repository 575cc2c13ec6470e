"""`blindsight label`: people label synthetic examples, on a page of this machine alone."""

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.completing import complete_run
from blindsight.cli.printing import AsJson, flag, print_json, print_value
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.studio.labels import Labels

__all__ = ["label"]


def label(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A synthetic set, or the run folder of blindsight inspect labelling.", autocompletion=complete_run
        ),
    ],
    rater: Annotated[str | None, typer.Option(help="Name of the rater. Default: your user name.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port, 0 for a free one.")] = 0,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Classes, if the set has none or lacks some.")
    ] = None,
    agreement: Annotated[
        bool, flag("--agreement", "Show the agreement of raters: percent, Cohen's and Fleiss' kappa.")
    ] = False,
    import_from: Annotated[
        Path | None,
        typer.Option("--import", metavar="FILE", help="Import labels from Label Studio (JSON, JSON-MIN)."),
    ] = None,
    export_to: Annotated[
        Path | None,
        typer.Option(
            "--export-label-studio", metavar="FILE", dir_okay=False, help="Write tasks and labels for Label Studio."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Label synthetic examples with one key each. Every label is saved before the next example is shown.

    Several people can label one set, each with their own --rater and without seeing the others' labels.
    """
    if sum((agreement, import_from is not None, export_to is not None)) > 1:
        raise InvalidInput("choose one of --agreement, --import and --export-label-studio")
    from blindsight.samples.synthetic_set import read_set
    from blindsight.studio.labels import Labels

    names = tuple(name.strip() for name in classes.split(",")) if classes is not None else ()
    labels = Labels(read_set(folder), names)
    if agreement:
        _agreement(labels, as_json)
    elif import_from is not None:
        from blindsight.studio.annotations import import_annotations

        count = import_annotations(labels, import_from)
        _say({"imported": count, "raters": list(labels.raters)}, f"{count:,} labels imported.", as_json)
    elif export_to is not None:
        from blindsight.studio.annotations import export_annotations

        path = export_annotations(labels, export_to)
        _say({"written": str(path), "samples": len(labels.dataset.samples)}, f"Written to {path}.", as_json)
    else:
        _serve(labels, getpass.getuser() if rater is None else rater, port, as_json)


def _agreement(labels: "Labels", as_json: bool) -> None:
    from blindsight.studio.agreeing import agreement

    print_value(agreement(labels), as_json=as_json)


def _serve(labels: "Labels", rater: str, port: int, as_json: bool) -> None:
    from blindsight.studio.queue import Queue

    try:
        from blindsight.studio.run import label as serve
    except ModuleNotFoundError as error:
        hint = f"blindsight label needs the package {error.name}: pip install 'blindsight[studio]'"
        raise InvalidInput(hint) from None
    queue = Queue(labels, rater)
    state = queue.state()
    done = state["labelled"] + state["skipped"]

    def opened(address: str) -> None:
        total, guarantee = state["total"], labels.dataset.guarantee
        facts = {"address": address, "rater": rater, "samples": total, "done": done, "guarantee": guarantee.to_dict()}
        words = f"Label {total - done:,} synthetic examples as {rater}:  {address}\n{guarantee}\n"
        _say(facts, f"{words}Stop with Ctrl-C; every label is saved.", as_json)

    serve(queue, port=port, opened=opened)


def _say(value: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        Console(highlight=False, soft_wrap=True).print(escape(words))
