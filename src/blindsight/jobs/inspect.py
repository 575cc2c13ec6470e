"""The questions of `blindsight inspect` about a classifier and its data: sanity, mistakes, slices, labelling, bias."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from blindsight.config import ModelSettings
from blindsight.data.population import TEXT, Population
from blindsight.data.reading import as_classes
from blindsight.data.schema import Field
from blindsight.data.text import Case
from blindsight.errors import InvalidInput
from blindsight.inspect import Language, Report, Training, WordTraining, bias, labelling, mistakes, sanity, slices
from blindsight.inspection.bias.comparison import learning_half
from blindsight.jobs.classes import numbered
from blindsight.jobs.inspecting import Clients, read_reference, read_request, run_folder, session_of
from blindsight.jobs.models import public_model, read_model
from blindsight.jobs.request import ModelRequest, Progress
from blindsight.models.primary import Primary
from blindsight.selection import Forming

__all__ = ["run_bias", "run_labelling", "run_mistakes", "run_sanity", "run_slices"]

_REFERENCE_CLIENTS = 150  # of a generated population, if no reference is named
_BIAS_CLIENTS = 600  # more, since their own sampling error is part of every interval


def _quiet(doing: str, done: int, total: int) -> None:
    """Report no progress."""


def run_sanity(
    request: ModelRequest, *, suspects: Sequence[str] | None = None, progress: Progress = _quiet
) -> tuple[Report, Path]:
    """Do the data look right? Returns the report and the folder of the run."""
    read, model = _read(request, progress)
    folder = run_folder(request, "sanity", read.clients)
    report = sanity(
        read.clients,
        epsilon=request.epsilon,
        delta=request.delta,
        model=model,
        reference=read.reference,
        schema=read.schema,
        suspects=suspects or (),
        session=session_of(request, read.payer, folder, progress),
    )
    return report, folder


def run_mistakes(
    request: ModelRequest,
    *,
    minimum: int = 5,
    suspects: Sequence[str] | None = None,
    forming: Forming = "zero_fill",
    progress: Progress = _quiet,
) -> tuple[Report, Path]:
    """What does the model get wrong? Returns the report and the folder of the run."""
    read, model = _read(request, progress, needs_label=True)
    _check_model(read.clients, model, request.label, "mistakes")
    folder = run_folder(request, "mistakes", read.clients)
    report = mistakes(
        read.clients,
        minimum=minimum,
        epsilon=request.epsilon,
        delta=request.delta,
        model=model,
        reference=read.reference,
        schema=read.schema,
        suspects=suspects or (),
        forming=forming,
        session=session_of(request, read.payer, folder, progress),
    )
    return report, folder


def run_slices(
    request: ModelRequest,
    *,
    by: str = "accuracy",
    values: Sequence[str] | None = None,
    low: float | None = None,
    high: float | None = None,
    suspects: Sequence[str] | None = None,
    forming: Forming = "zero_fill",
    progress: Progress = _quiet,
) -> tuple[Report, Path]:
    """On which clients does the model fail? Returns the report and the folder of the run.

    Args:
        request: Data, model and privacy.
        by: "accuracy", or a field with named classes or text values.
        values: Values of the field to compare, at least two.
        low: Clients below this accuracy fail; the lowest quarter, found privately, by default.
        high: Clients of at least this accuracy are healthy.
        suspects: Faults to vote on; all that fit by default.
        forming: `zero_fill` hides who is in an arm; `eligible` makes it public.
        progress: Called with what is being done, the steps done and their total.
    """
    if (low is None) != (high is None):
        raise InvalidInput("give both thresholds of accuracy, --low and --high, or neither to find them privately")
    is_by_accuracy = by == "accuracy"
    read, model = _read(request, progress, by=None if is_by_accuracy else by, needs_label=is_by_accuracy)
    if is_by_accuracy:
        _check_model(read.clients, model, request.label, "slices")
    folder = run_folder(request, "slices", read.clients)
    report = slices(
        read.clients,
        by=by,
        values=values or (),
        thresholds=None if low is None or high is None else (low, high),
        epsilon=request.epsilon,
        delta=request.delta,
        model=model,
        reference=read.reference,
        schema=read.schema,
        suspects=suspects or (),
        forming=forming,
        session=session_of(request, read.payer, folder, progress),
    )
    return report, folder


def run_labelling(
    request: ModelRequest, *, samples: int = 500, train: bool = False, progress: Progress = _quiet
) -> tuple[Report, Path]:
    """Synthetic examples for people to label. Returns the report and the folder of the run."""
    read, model = _read(request, progress)
    folder = run_folder(request, "labelling", read.clients)
    report = labelling(
        read.clients,
        samples=samples,
        training=Training() if train else None,
        epsilon=request.epsilon,
        delta=request.delta,
        model=model,
        reference=read.reference,
        schema=read.schema,
        session=session_of(request, read.payer, folder, progress),
    )
    return report, folder


def run_bias(
    request: ModelRequest,
    *,
    by: str | None = None,
    values: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    vocabulary_size: int = 10_000,
    case: Case = "lower",
    discover: bool = False,
    train: bool = False,
    progress: Progress = _quiet,
) -> tuple[Report, Path]:
    """What do clients have that public data lack? Returns the report and the folder of the run.

    If clients have no labels and the public data have, a small model is trained on half of the public data to classify
    clients' examples.

    Args:
        request: Data, model and privacy.
        by: Field with named classes or text values to divide both by.
        values: Values of the field to compare, at least two.
        classes: Classes to compare; those of the public data by default.
        vocabulary_size: Number of most frequent public words that count as known.
        case: `lower` ignores case; `keep` tells words apart by it.
        discover: Find words of unlikely sentences.
        train: Train a language model of unlikely sentences.
        progress: Called with what is being done, the steps done and their total.
    """
    reference = read_reference(request, _BIAS_CLIENTS)
    if reference is None:
        raise InvalidInput("name the public data to compare with, such as the model's training data: --reference DATA")
    read = read_request(request, reference, label_kind=Field("text"), by=by, reads_text=True)
    label = request.label
    model = None
    if request.model is not None:
        model = read_model(request.model, reference.classes.get(label, ()), request.data)
    elif label in reference.fields and label not in read.clients.fields:
        progress("training a model on half of the public data", 0, 1)
        model = _half_model(reference, read.schema.inputs, label, is_trained=not request.dry_run)
    folder = run_folder(request, "bias", read.clients)
    report = bias(
        read.clients,
        reference=reference,
        by=by or "",
        values=values or (),
        classes=classes or (),
        language=Language(
            case=case,
            vocabulary_size=vocabulary_size,
            discover=discover,
            training=WordTraining() if train else None,
        ),
        epsilon=request.epsilon,
        delta=request.delta,
        model=model,
        schema=read.schema,
        session=session_of(request, read.payer, folder, progress),
    )
    return report, folder


def _read(
    request: ModelRequest, progress: Progress, by: str | None = None, *, needs_label: bool = False
) -> tuple[Clients, Primary | None]:
    """The clients of a request, and the primary model: the one it names, else a small one of the reference's labels."""
    reference, label = read_reference(request, _REFERENCE_CLIENTS), request.label
    kind = Field("text" if request.model is None else "whole")
    read = read_request(request, reference, label_kind=kind, by=by, needs_label=needs_label)
    if request.reference is not None and reference is not None:
        read = _in_public_classes(read, reference, label)
    if request.model is not None:
        return read, read_model(request.model, read.clients.classes.get(label, ()), request.data)
    if read.reference is None or label not in read.reference.fields:
        return read, None
    progress("training a model on the public reference", 0, 1)
    return read, public_model(read.reference, read.schema.inputs, label, is_trained=not request.dry_run)


def _in_public_classes(read: Clients, reference: Population, label: str) -> Clients:
    """Both populations with text labels as the numbers of the classes in the public data, whose names are public."""
    if label not in reference.fields or reference.fields[label][0] != TEXT:
        return read
    listed = ModelSettings(label=label, classes=as_classes(reference.columns[label], reference.name)[1])
    clients = numbered(listed, read.clients) if label in read.clients.fields else read.clients
    return dataclasses.replace(read, clients=clients, reference=numbered(listed, reference))


def _check_model(clients: Population, model: Primary | None, label: str, task: str) -> None:
    """Refuse a question about the model's errors if there is no model or no true class."""
    if label not in clients.fields:
        raise InvalidInput(
            f"inspect {task} needs the true class, and {clients.name} has no field {label!r}: choose one of "
            f"{', '.join(clients.fields)} with --label FIELD"
        )
    if model is None:
        raise InvalidInput(
            f"inspect {task} needs a primary model: name one with --model, or public data to train one on with "
            f"--reference"
        )


def _half_model(reference: Population, inputs: Sequence[str], label: str, *, is_trained: bool) -> Primary | None:
    """A model of the half of the public data that clients are not compared with; None for text."""
    if any(reference.fields[field][0] == TEXT for field in inputs if field in reference.fields):
        return None
    return public_model(learning_half(reference), inputs, label, is_trained=is_trained)
