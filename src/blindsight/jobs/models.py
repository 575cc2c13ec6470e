"""The primary model of an inspection: from an ONNX file, from a run's folder, or trained on public data."""

import dataclasses
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
from blindsight.models.primary import Learnt, Primary, fit, gather, primary

__all__ = ["load_model", "public_model", "read_model"]


def read_model(path: str | Path, classes: Sequence[str] = (), data: str = "") -> Primary:
    """The model in a run's folder or in an ONNX file, which scores `classes` in this order, to inspect `data`."""
    return load_model(path, classes, data) if Path(path).is_dir() else primary(Path(path))


def load_model(folder: str | Path, classes: Sequence[str] = (), data: str = "") -> Primary:
    """The model that `blindsight train` or `train student` left in `folder`, as the primary model of an inspection.

    If the run lists its classes by name, the model's scores come in the order of `classes`, those to be inspected. The
    model brings the guarantee of its run: reports about the clients that it was trained on include it, and reports
    about `data` do so under any name in the ledger.
    """
    if (Path(folder) / FACTS).is_file():
        return load_student(folder)
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
    if not isinstance(settings.classes, tuple) or tuple(classes) in ((), settings.classes):
        return model
    if strange := [name for name in classes if name not in settings.classes]:
        raise InvalidInput(
            f"the model in {folder} knows the classes {', '.join(settings.classes)}, and the data have {strange[0]!r}: "
            f"use a model that was trained for these classes"
        )
    order = [settings.classes.index(name) for name in classes]
    digest = model.digest and f"{model.digest} in the order {order}"
    return dataclasses.replace(model, call=lambda x: np.asarray(model.call(x))[:, order], digest=digest)


def _learnt(trained: TrainedRun, data: str) -> Learnt:
    """The clients that a run was trained on, with its guarantee; under any name, if they are those of `data`."""
    settings, guarantee = trained.config.data, trained.run.read("guarantee.json")
    is_same = bool(data) and same_clients(settings.population, settings.options, data, {})
    return Learnt(None if is_same else trained.clients.name, guarantee)


def public_model(public: Population, inputs: Sequence[str], label: str, *, is_trained: bool = True) -> Primary:
    """A small classifier trained on public data; untrained for a dry run, which only needs to know what it reads."""
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
    # numbers have any scale: standardise by the public mean and spread, and put missing ones at the mean
    mean, spread = np.nanmean(x, axis=0), np.nanstd(x, axis=0) + 1e-6

    def scaled(rows: np.ndarray) -> np.ndarray:
        return np.nan_to_num((rows - mean) / spread).astype(np.float32)

    scores = primary(fit(network, scaled(x), y, epochs=10, key=key)).scores
    model = primary(lambda rows: scores(scaled(rows)), name=name, learnt=Learnt())
    return dataclasses.replace(model, by_row=True)  # scaling and scoring treat each row alone
