"""`blindsight label`: people label synthetic examples, on a page of this machine alone."""

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.printing import AsJson, flag, print_json
from blindsight.errors import InvalidInput

if TYPE_CHECKING:
    from blindsight.studio.labels import Labels

__all__ = ["label"]


def label(
    folder: Annotated[Path, typer.Argument(help="A synthetic set, or the run of blindsight inspect that made it.")],
    rater: Annotated[str | None, typer.Option(help="Who labels; else your name on this machine.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; a free one if left out.")] = 0,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="The classes, where the set has none or lacks some.")
    ] = None,
    agreement: Annotated[
        bool, flag("--agreement", "How far raters agree: percent, Cohen's and Fleiss' kappa.")
    ] = False,
    import_from: Annotated[
        Path | None,
        typer.Option("--import", metavar="FILE", help="Take labels over from Label Studio (JSON, JSON-MIN)."),
    ] = None,
    export_to: Annotated[
        Path | None,
        typer.Option(
            "--export-label-studio", metavar="FILE", dir_okay=False, help="Write tasks and labels for Label Studio."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Label synthetic examples with one key each. Every label is on disk before the next example is shown.

    Several people can label one set, each with a --rater of their own and blind to the others.
    """
    if sum((agreement, import_from is not None, export_to is not None)) > 1:
        raise InvalidInput("ask for one thing at a time: --agreement, --import or --export-label-studio")
    from blindsight.samples.synthetic_set import read_set
    from blindsight.studio.labels import Labels

    named = tuple(name.strip() for name in classes.split(",")) if classes is not None else ()
    labels = Labels(read_set(folder), named)
    if agreement:
        _agreement(labels, as_json)
    elif import_from is not None:
        from blindsight.studio.annotations import import_annotations

        count = import_annotations(labels, import_from)
        _say({"imported": count, "raters": list(labels.raters)}, f"{count:,} labels were taken over.", as_json)
    elif export_to is not None:
        from blindsight.studio.annotations import export_annotations

        path = export_annotations(labels, export_to)
        _say({"written": str(path), "samples": len(labels.made.samples)}, f"Written to {path}.", as_json)
    else:
        _serve(labels, getpass.getuser() if rater is None else rater, port, as_json)


def _agreement(labels: "Labels", as_json: bool) -> None:
    from blindsight.studio.agreeing import agreement

    found = agreement(labels)
    if as_json:
        print_json(found.to_dict())
    else:
        Console(highlight=False).print(found)


def _serve(labels: "Labels", rater: str, port: int, as_json: bool) -> None:
    from blindsight.studio.queue import Queue

    try:
        from blindsight.studio.run import label as serve
    except ModuleNotFoundError as error:
        wanted = f"blindsight label needs the package {error.name}: pip install 'blindsight[studio]'"
        raise InvalidInput(wanted) from None
    queue = Queue(labels, rater)
    state = queue.state()
    done = state["labelled"] + state["skipped"]

    def opened(address: str) -> None:
        about = {"address": address, "rater": rater, "samples": state["total"], "done": done}
        said = f"Label {state['total'] - done:,} synthetic examples as {rater}:  {address}\n{labels.made.guarantee}\n"
        _say(
            {**about, "guarantee": labels.made.guarantee.to_dict()},
            f"{said}Ctrl-C ends it; every label is saved.",
            as_json,
        )

    serve(queue, port=port, opened=opened)


def _say(value: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        Console(highlight=False, soft_wrap=True).print(escape(words))
