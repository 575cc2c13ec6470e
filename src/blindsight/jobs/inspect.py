"""The questions of `blindsight inspect` about a classifier and its data: sanity, mistakes, slices, labelling, bias."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.config import ModelSettings
from blindsight.data.missing import coded_as
from blindsight.data.population import TEXT, Population
from blindsight.data.reading import as_classes
from blindsight.data.schema import Field
from blindsight.errors import InvalidInput
from blindsight.inspect import Language, Report, Training, WordTraining, bias, labelling, mistakes, sanity, slices
from blindsight.inspection.bias.comparison import confirming_half, learning_half
from blindsight.jobs.classes import numbered
from blindsight.jobs.inspecting import Clients, check_suspects, read_reference, read_request, run_folder, session_of
from blindsight.jobs.models import public_model, read_model
from blindsight.jobs.on_fleet import described_like
from blindsight.jobs.request import (
    BiasRequest,
    LabellingRequest,
    MistakesRequest,
    ModelRequest,
    SanityRequest,
    SlicesRequest,
)
from blindsight.models.primary import Primary, in_order
from blindsight.progress import Progress, quiet

__all__ = ["run_bias", "run_labelling", "run_mistakes", "run_sanity", "run_slices"]

_REFERENCE_CLIENTS = 300  # of a generated population, if no reference is named; half of them train the model
_BIAS_CLIENTS = 600  # more, since their own sampling error is part of every interval


def run_sanity(request: SanityRequest, *, progress: Progress = quiet) -> tuple[Report, Path]:
    """Do the data look right? Returns the report and the folder of the run."""
    check_suspects(request.suspects)
    read = _read(request)
    return _ask(sanity, request, read, progress, suspects=request.suspects)


def run_mistakes(request: MistakesRequest, *, progress: Progress = quiet) -> tuple[Report, Path]:
    """What does the model get wrong? Returns the report and the folder of the run."""
    check_suspects(request.suspects)
    read = _read(request, needs_label=True)
    _check_model(read, request.label, "mistakes")
    own = {"minimum": request.minimum, "suspects": request.suspects, "forming": request.forming}
    return _ask(mistakes, request, read, progress, **own)


def run_slices(request: SlicesRequest, *, progress: Progress = quiet) -> tuple[Report, Path]:
    """On which clients does the model fail? Returns the report and the folder of the run."""
    check_suspects(request.suspects)
    is_by_accuracy = request.by == "accuracy"
    read = _read(request, by="" if is_by_accuracy else request.by, needs_label=is_by_accuracy)
    if is_by_accuracy:
        _check_model(read, request.label, "slices")
    thresholds = None if request.low is None or request.high is None else (request.low, request.high)
    own = {"by": request.by, "values": request.values, "thresholds": thresholds}
    return _ask(slices, request, read, progress, **own, suspects=request.suspects, forming=request.forming)


def run_labelling(request: LabellingRequest, *, progress: Progress = quiet) -> tuple[Report, Path]:
    """Synthetic examples for people to label. Returns the report and the folder of the run."""
    training = Training() if request.train else None
    return _ask(labelling, request, _read(request), progress, samples=request.samples, training=training)


def run_bias(request: BiasRequest, *, progress: Progress = quiet) -> tuple[Report, Path]:
    """What do clients have that public data lack? Returns the report and the folder of the run.

    If clients have no labels and the public data have, a small model is trained on half of the public data to classify
    clients' examples.
    """
    reference = _with_labels(read_reference(request, _BIAS_CLIENTS), request.label)
    if reference is None:
        raise InvalidInput("name the public data to compare with, such as the model's training data: --reference DATA")
    read = read_request(request, reference, by=request.by, reads_text=True)
    reference, label = read.reference or reference, request.label
    if request.model is not None:
        model = in_order(_model_of(request, request.model), reference.classes.get(label, ()))
        read = dataclasses.replace(read, model=model)
    elif label in reference.fields and label not in read.clients.fields:
        read = _with_half_model(read, reference, label)
    language = Language(
        case=request.case,
        vocabulary_size=request.vocabulary_size,
        discover=request.discover,
        training=WordTraining() if request.train else None,
    )
    own = {"by": request.by, "values": request.values, "classes": request.classes, "language": language}
    return _ask(bias, request, read, progress, **own)


def _ask(
    question: Callable[..., Report], request: ModelRequest, read: Clients, progress: Progress, **own: Any
) -> tuple[Report, Path]:
    """The report of a function of `bs.inspect`, given its own arguments, and the folder of the run."""
    folder = run_folder(request, question.__name__, read.clients)
    session = session_of(request, read.payer, folder, progress)
    arguments = {"epsilon": request.epsilon, "delta": request.delta, "reference": read.reference, "schema": read.schema}
    model = read.model
    if read.train is not None:  # every option is checked with an untrained model first
        question(read.clients, model=model, session=dataclasses.replace(session, only_check=True), **arguments, **own)
        progress("training a model on half of the public data", 0, 1)
        model = read.train()
    return question(read.clients, model=model, session=session, **arguments, **own), folder


def _read(request: ModelRequest, by: str = "", *, needs_label: bool = False) -> Clients:
    """The clients of a request, and the primary model: the one it names, else a small one of the reference's labels."""
    reference, label = _with_labels(read_reference(request, _REFERENCE_CLIENTS), request.label), request.label
    model = None if request.model is None else _model_of(request, request.model)
    kind = Field("category", values=model.classes) if model is not None and model.classes else None
    read = read_request(request, reference, label_kind=kind, by=by, needs_label=needs_label)
    if request.reference is not None and read.reference is not None:
        read = _in_public_classes(read, read.reference, label)
    if model is not None:
        read = _by_name(read, label, model.classes)
        return dataclasses.replace(read, model=in_order(model, read.clients.classes.get(label, ())))
    if read.reference is None or label not in read.reference.fields or not _is_readable(read):
        return read
    # clients are compared with the other half: a model makes fewer mistakes on what it was trained on
    train = functools.partial(public_model, learning_half(read.reference), read.schema.inputs, label)
    other = confirming_half(read.reference)
    return dataclasses.replace(read, reference=other, model=train(is_trained=False), train=train)


def _with_labels(reference: Population | None, label: str) -> Population | None:
    """The public data without rows that lack a label, if labels are numbers: these are floats only because of gaps."""
    if reference is None or label not in reference.fields or reference.fields[label] != (np.dtype(np.float64), ()):
        return reference
    kept = reference.keep(np.isfinite(reference.columns[label]))
    column = kept.columns[label]
    is_whole = bool(np.all(np.floor(column) == column)) and float(np.max(np.abs(column), initial=0.0)) < 2**31
    return kept.replace({**kept.columns, label: column.astype(np.int64)}) if is_whole else reference


def _model_of(request: ModelRequest, path: str | Path) -> Primary:
    return read_model(path, request.data, value_range=request.model_range, layout=request.model_layout)


def _is_readable(read: Clients) -> bool:
    """Whether a built-in model can read the inputs, which text and categories without numbers are not."""
    reference = read.reference
    if reference is None:
        return False
    shared = [name for name in read.schema.inputs if name in reference.fields]
    is_text = any(reference.fields[name][0] == TEXT for name in shared)
    return not is_text and not (shared and all(name in reference.classes for name in shared))


def _in_public_classes(read: Clients, reference: Population, label: str) -> Clients:
    """Both populations with text labels as numbers of the public data's classes."""
    if label not in reference.fields or reference.fields[label][0] != TEXT:
        return read
    listed = ModelSettings(label=label, classes=as_classes(reference.columns[label], reference.name)[1])
    clients = read.clients
    if label in clients.fields:
        coded = numbered(listed, clients)
        clients = described_like(clients, coded) if clients.is_elsewhere else coded
    return dataclasses.replace(read, clients=clients, reference=numbered(listed, reference))


def _by_name(read: Clients, label: str, names: Sequence[str]) -> Clients:
    """Both populations with labels that are whole numbers as places in the model's list of classes, such as 3, 5."""
    if not names or label not in read.clients.fields or label in read.clients.classes:
        return read

    def placed(one: Population) -> Population:
        if label not in one.fields or one.fields[label][0].kind not in "biu":
            return one
        codes = coded_as(one.columns[label], names, one.classes.get(label))
        kept = one.replace({**one.columns, label: codes}).keep(codes >= 0)
        kept.classes[label] = tuple(names)
        return kept

    public = None if read.reference is None else placed(read.reference)
    return dataclasses.replace(read, clients=placed(read.clients), reference=public)


def _check_model(read: Clients, label: str, task: str) -> None:
    """Refuse a question about the model's errors if there is no model or no true class."""
    clients = read.clients
    if label not in clients.fields:
        raise InvalidInput(
            f"inspect {task} needs the true class, and {clients.name} has no field {label!r}: choose one of "
            f"{', '.join(clients.fields)} with --label FIELD"
        )
    if read.model is None:
        raise InvalidInput(
            f"inspect {task} needs a primary model: name one with --model, or public data to train one on with "
            f"--reference"
        )


def _with_half_model(read: Clients, reference: Population, label: str) -> Clients:
    """With a model of the half of the public data that clients are not compared with; without one for text."""
    inputs = read.schema.inputs
    if any(reference.fields[field][0] == TEXT for field in inputs if field in reference.fields):
        return read
    train = functools.partial(public_model, learning_half(reference), inputs, label)
    return dataclasses.replace(read, model=train(is_trained=False), train=train)
