"""`blindsight inspect`: questions about data that nobody may look at, each a separate command."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from blindsight.cli.completing import complete_fault
from blindsight.cli.groups import TaskCommand, TaskGroup
from blindsight.cli.printing import flag
from blindsight.cli.requests import command_of
from blindsight.jobs.request import (
    BiasRequest,
    LabellingRequest,
    MistakesRequest,
    Request,
    SanityRequest,
    SlicesRequest,
    UnknownsRequest,
)

__all__ = ["inspect_app"]

inspect_app = typer.Typer(
    cls=TaskGroup,
    help="Ask what is wrong with data that nobody may look at. All clients answer in one private round.",
    no_args_is_help=True,
    epilog="Example:  blindsight inspect slices handwriting --fault invert:0.5 --low 0.5 --high 0.9",
)


def _task(name: str, kind: type[Request], help_text: str, example: str, **own: Any) -> None:
    """Add a command that asks a question of this kind; `own` are the options of its own fields."""
    epilog = f"Example:  blindsight inspect {name} {example}"
    inspect_app.command(name, cls=TaskCommand, epilog=epilog)(command_of(f"run_{name}", kind, help_text, own))


def _text(help: str) -> Any:
    return Annotated[str | None, typer.Option(help=help)]


def _texts(name: str, help: str) -> Any:
    return Annotated[list[str] | None, typer.Option(name, help=help)]


_SUSPECTS = Annotated[
    list[str] | None,
    typer.Option(
        "--suspect",
        help="Fault that clients vote on; repeatable. Default: all that fit.",
        autocompletion=complete_fault,
    ),
]
_VALUES = _texts("--value", "Value of the field --by to compare; repeatable, at least two.")
_FORMING = Annotated[
    Literal["zero_fill", "eligible"],
    typer.Option(help="zero_fill hides who is in an arm; eligible makes it public, and the guarantee says so."),
]
_CASE = Annotated[Literal["lower", "keep"], typer.Option(help="lower ignores case; keep distinguishes capitals.")]
_VOCABULARY_SIZE = Annotated[
    int, typer.Option(min=5, help="Number of the most frequent words of --reference that count as known.")
]

_task(
    "sanity",
    SanityRequest,
    "Do the data look right? Compare all clients with public data of the same kind.",
    "handwriting --fault rotate90:0.1 --epsilon 2",
    suspects=_SUSPECTS,
)
_task(
    "mistakes",
    MistakesRequest,
    "What does the model get wrong? Compare misclassified examples with correctly classified ones.",
    "handwriting --fault blur:0.3 --epsilon 4",
    minimum=Annotated[
        int, typer.Option(min=1, help="Include only clients with at least this many misclassified examples.")
    ],
    suspects=_SUSPECTS,
    forming=_FORMING,
)
_task(
    "slices",
    SlicesRequest,
    "On which clients does the model fail? Compare clients of low accuracy with those of high accuracy.",
    "handwriting --fault invert:0.5 --low 0.5 --high 0.9",
    by=Annotated[str, typer.Option(help="accuracy, or a field with named classes or text values.")],
    values=_VALUES,
    low=Annotated[
        float | None,
        typer.Option(help="Clients below this accuracy fail. Default: the lowest quarter, estimated privately."),
    ],
    high=Annotated[float | None, typer.Option(help="Clients of at least this accuracy are healthy.")],
    suspects=_SUSPECTS,
    forming=_FORMING,
)
_task(
    "unknowns",
    UnknownsRequest,
    "Which words does the vocabulary lack after a change, and which bug causes them?",
    "forum --fault token_join:0.1:by=example --epsilon 1",
    before=_text("Data before the change; DATA is after it."),
    side=_text("Field that separates before from after: --value OLD --value NEW."),
    values=_texts("--value", "Value of the field --side: first the old one, then the new."),
    vocabulary=Annotated[
        Path | None, typer.Option(help="File of known words. Default: the most frequent words of --reference.")
    ],
    vocabulary_size=_VOCABULARY_SIZE,
    case=_CASE,
    suspects=_SUSPECTS,
    discover=Annotated[bool, flag("--discover", "Find unknown words that many clients use.")],
    train=Annotated[bool, flag("--train", "Train language models of both sides and show what they generate.")],
)
_task(
    "labelling",
    LabellingRequest,
    "Make synthetic examples for people to label.",
    "handwriting --samples 500 --epsilon 4",
    samples=Annotated[int, typer.Option(min=1, max=100_000, help="Number of synthetic examples.")],
    train=Annotated[bool, flag("--train", "Draw samples from a GAN that is trained on the clients.")],
)
_task(
    "bias",
    BiasRequest,
    "What do clients have that the public training data lack?",
    "photos.parquet --client phone --reference public.parquet",
    by=_text("Field with named classes or text values that divides both clients and reference."),
    values=_VALUES,
    classes=_texts("--class", "Class to compare; repeatable. Default: those of --reference."),
    vocabulary_size=_VOCABULARY_SIZE,
    case=_CASE,
    discover=Annotated[bool, flag("--discover", "Find words of unlikely sentences.")],
    train=Annotated[bool, flag("--train", "Train a language model of unlikely sentences.")],
)
