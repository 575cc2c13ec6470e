"""The primary model of an inspection: from an ONNX file, from a run's folder, or trained on public data."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from blindsight.config import ModelSettings
from blindsight.data.population import Population
from blindsight.data.sources import same_clients
from blindsight.errors import InvalidInput
from blindsight.jobs.student import FACTS, load_student
from blindsight.jobs.tasks import make_model
from blindsight.jobs.train import TrainedRun, load_trained
from blindsight.models.equinox_models import fit
from blindsight.models.primary import Learnt, Primary, gather, in_order, primary
from blindsight.models.scaling import Scaling

__all__ = ["load_model", "public_model", "read_model"]


def read_model(
    path: str | Path, data: str = "", *, value_range: str | None = None, layout: str | None = None
) -> Primary:
    """The model in a run's folder or in an ONNX file, to inspect `data`.

    `value_range` ("0:1") and `layout` ("NCHW") say how an ONNX file reads images; a run stores both.
    """
    if not Path(path).is_dir():
        return primary(Path(path), value_range=_ends(value_range), layout=layout)
    if value_range is not None or layout is not None:
        raise InvalidInput(f"--model-range and --model-layout are for ONNX files, and {path} is a run: leave them out")
    return load_model(path, data=data)


def load_model(folder: str | Path, classes: Sequence[str] = (), data: str = "") -> Primary:
    """The model that `blindsight train` or `train student` left in `folder`, as the primary model of an inspection.

    If the run lists its classes by name, the model's scores come in the order of `classes`, those to be inspected. The
    model brings the guarantee of its run: reports about the clients that it was trained on include it, and reports
    about `data` do so under any name in the ledger.
    """
    if (Path(folder) / FACTS).is_file():
        return in_order(load_student(folder), classes)
    trained = load_trained(folder)
    settings = trained.config.model
    if settings.is_language:
        raise InvalidInput(
            f"{folder} holds a language model: name a classifier's run, or use blindsight inspect unknowns"
        )
    if settings.kind == "gan":
        raise InvalidInput(f"{folder} holds a GAN, which does not classify: name a classifier's run")
    shape = trained.clients.fields[settings.inputs[0]][1] if len(settings.inputs) == 1 else None
    model = primary(trained.model, name=trained.run.path.name, shape=shape, learnt=_learnt(trained, data))
    listed = settings.classes if isinstance(settings.classes, tuple) else ()
    return in_order(dataclasses.replace(model, classes=listed), classes)


def _ends(words: str | None) -> tuple[float, float] | None:
    """`0:1` as a range."""
    if words is None:
        return None
    try:
        low, high = (float(end) for end in words.split(":"))
    except ValueError:
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise InvalidInput(f"write the range of the model's input as --model-range 0:1, 0:255 or -1:1, got {words!r}")
    return low, high


def _learnt(trained: TrainedRun, data: str) -> Learnt:
    """The clients that a run was trained on, with its guarantee; under any name, if they are those of `data`."""
    settings, guarantee = trained.config.data, trained.run.read("guarantee.json")
    is_same = bool(data) and same_clients(settings.population, settings.options, data, {})
    return Learnt(None if is_same else trained.clients.name, guarantee)


def public_model(public: Population, inputs: Sequence[str], label: str, *, is_trained: bool = True) -> Primary:
    """A small classifier trained on public data; an untrained one reads the same, to check options with."""
    for field in (*inputs, label):
        if field not in public.fields:
            raise InvalidInput(f"{public.name} has no field {field!r}: it has {', '.join(public.fields)}")
    dtype, shape = public.fields[inputs[0]]
    if dtype.kind not in "biuf":
        raise InvalidInput(
            f"{inputs[0]} of {public.name} is text, and built-in models read numbers: name your own with --model"
        )
    kind = "cnn" if len(shape) >= 2 else "mlp"
    network = make_model(ModelSettings(kind=kind, inputs=tuple(inputs), label=label), public)
    x, y, key = gather(public.columns, list(inputs)), public.columns[label], jax.random.key(0)
    name = f"a {kind} trained on {public.name}" if kind == "cnn" else f"an {kind} trained on {public.name}"
    if kind == "cnn":
        return primary(
            fit(network, x, y, epochs=3 if is_trained else 0, key=key), name=name, shape=x.shape[1:], learnt=Learnt()
        )
    rows = x.reshape(len(x), -1)
    rows = np.where(np.array([field in public.classes for field in inputs]) & (rows < 0), np.nan, rows)
    scaling = Scaling.of(rows)
    return scaling.before(
        fit(network, scaling(rows), y, epochs=10 if is_trained else 0, key=key), name=name, learnt=Learnt()
    )
