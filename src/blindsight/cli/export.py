"""`blindsight export`: a trained model as an ONNX file."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from blindsight.cli.completing import complete_run
from blindsight.cli.printing import AsJson, print_json, working

__all__ = ["export"]


def export(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Folder of a blindsight train or train student run.", autocompletion=complete_run
        ),
    ],
    path: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="File to write.")],
    as_json: AsJson = False,
) -> None:
    """Write a trained model as an ONNX file, for any runtime. Nothing is released, nothing is spent.

    Its metadata hold the guarantee, the classes or words, and how inputs are laid out.
    """
    with working(f"exporting {escape(str(folder))}"):
        from blindsight.jobs import run_export

        exported = run_export(folder, path)
    if as_json:
        print_json(exported.to_dict())
        return
    screen = Console(highlight=False, soft_wrap=True)
    inputs, outputs = ", ".join(exported.inputs), ", ".join(exported.outputs)
    screen.print(f"{exported.path}: {exported.kind}, from {inputs} to {outputs}", markup=False)
