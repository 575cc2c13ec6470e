"""An inspection from its options: what `blindsight inspect` does, and how it comes by a primary model."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from blindsight import runs
from blindsight.accounting.ledger import Known
from blindsight.backends import use_cores
from blindsight.config import ModelSettings
from blindsight.data import faults
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import TEXT, Population
from blindsight.data.reading import as_classes
from blindsight.data.schema import Field, Schema
from blindsight.data.sources import check_public, same_clients, source
from blindsight.errors import InvalidInput
from blindsight.inspect import Session, Training, labelling, mistakes, sanity, slices
from blindsight.inspection.report import Report
from blindsight.jobs.classes import numbered
from blindsight.jobs.language import PUBLIC
from blindsight.jobs.student import FACTS, load_student
from blindsight.jobs.tables import content_of_clients, header, read_clients, schema_of
from blindsight.jobs.train import TrainedRun, load_trained, make_model
from blindsight.models.primary import Learnt, Primary, fit, gather, primary

__all__ = ["load_model", "public_model", "read_model", "read_range", "read_reference", "run_inspection"]


def run_inspection(
    task: str,
    data: str,
    *,
    model: str | Path | None = None,
    reference: str | None = None,
    clients: int | None = None,
    client: str | None = None,
    fault: str | None = None,
    inputs: Sequence[str] | None = None,
    label: str = "label",
    ranges: Sequence[str] | None = None,
    schema: str | Path | None = None,
    types: Sequence[str] | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] = lambda doing, done, total: None,
    **settings: Any,
) -> tuple[Report, Path]:
    """Ask `task` (sanity, mistakes, slices, labelling) of the population `data`; the report, and the folder of the run.

    Without a model, a small one is trained on the reference, which is public. The reference of an embedded population
    are other clients of it, unless another is named. What fields hold is said by `schema` (a file), `types` and
    `ranges`, else it is read off the reference: see `jobs.tables`.
    """
    use_cores()
    if reference is not None:
        public = read_reference(reference, data, PUBLIC, {"client": client} if client else {})
    else:
        public = source(data, **PUBLIC) if data in POPULATIONS and data != "digits" else None
    said = schema_of(schema, types)
    known = said.ranges | dict(read_range(words) for words in ranges or ())
    names = header(data, client, said, public)
    if names is not None and not inputs:
        inputs = [_input_of(public, label) if public is not None else _described_input(said, names, label)]
    needed: dict[str, Field | None] = {field: part_of(field, known, model is not None) for field in inputs or ()}
    needed[label] = Field("text" if model is None else "whole")
    if (by := settings.get("by")) not in (None, "accuracy"):
        needed[str(by)] = Field("text")
    has_both = (settings.get("low") is None) == (settings.get("high") is None)  # else the task itself refuses
    is_judged = task == "mistakes" or (task == "slices" and has_both and settings.get("by") in (None, "accuracy"))
    about: dict[str, Any] = {"optional": () if is_judged else (label,), "schema": said, "public": public}
    people = read_clients(data, client=client, clients=clients, needed=needed, **about)
    # what is planted or left out makes nobody else of them
    content = content_of_clients(data, {"client": client}, people)
    people = people if fault is None else faults.apply(people, fault)
    if reference is not None and public is not None:
        people, public = _in_public_classes(people, public, label)
    read = list(inputs or [_input_of(people, label)])
    judge = None if model is None else read_model(model, people.classes.get(label, ()), data)
    if judge is None and public is not None and label in public.fields:
        progress("training a model on the public reference", 0, 1)
        judge = public_model(public, read, label)
    if is_judged:
        _check_judged(people, judge, label, task)
    folder = Path(out) if out is not None else Path("runs") / f"{task}-{runs.file_name(people.name)}"
    session = Session(
        out=folder,
        progress=progress,
        ledger=settings.pop("ledger", None),
        population=Known(settings.pop("population", None) or people.name, content),
    )
    ask: Any = {"sanity": sanity, "mistakes": mistakes, "slices": slices, "labelling": labelling}[task]
    low, high = settings.pop("low", None), settings.pop("high", None)
    if (low is None) != (high is None):
        raise InvalidInput("give both thresholds of accuracy, low and high, or neither: they are then found privately")
    if task == "slices":
        settings["thresholds"] = None if low is None else (low, high)
    if settings.pop("train", False):
        settings["training"] = Training()
    given = {name: value for name, value in settings.items() if value is not None}
    fields = {name: Field("number", *ends) for name, ends in known.items()}
    report = ask(
        people,
        model=judge,
        reference=public,
        schema=Schema(fields, tuple(read), label),
        session=session,
        **given,
    )
    return report, folder


def read_reference(name: str, data: str, known: Mapping[str, Any], whose: Mapping[str, Any]) -> Population:
    """Public data, never the clients' own: an embedded population as `known` says, a file as the clients' is read."""
    options = known if name in POPULATIONS and name != "digits" else whose if Path(name).is_file() else {}
    check_public(name, options, data, {}, what="--reference")
    return source(name, **options)


def read_model(path: str | Path, classes: Sequence[str] = (), data: str = "") -> Primary:
    """The model in a run's folder, or in an ONNX file, that scores `classes` in this order, to inspect `data`."""
    return load_model(path, classes, data) if Path(path).is_dir() else primary(Path(path))


def load_model(folder: str | Path, classes: Sequence[str] = (), data: str = "") -> Primary:
    """The model that `blindsight train` or `train student` left in `folder`, as the primary model of an inspection.

    Where the run lists its classes by name, the model's scores come in the order of `classes`, those to be inspected.
    The model brings the guarantee of its run: reports about the clients that it learnt from include it, and about
    `data` they do under any name in the ledger.
    """
    if (Path(folder) / FACTS).is_file():
        return load_student(folder)
    trained = load_trained(folder)
    settings = trained.config.model
    if settings.is_language:
        raise InvalidInput(f"{folder} holds a language model: name a classifier's run, or blindsight inspect unknowns")
    if settings.kind == "gan":
        raise InvalidInput(f"{folder} holds a generator, which names no classes: name a classifier's run")
    shape = trained.clients.fields[settings.inputs[0]][1] if len(settings.inputs) == 1 else None
    found = primary(trained.model, name=trained.run.path.name, shape=shape, learnt=_learnt(trained, data))
    if not isinstance(settings.classes, tuple) or tuple(classes) in ((), settings.classes):
        return found
    if strange := [name for name in classes if name not in settings.classes]:
        raise InvalidInput(
            f"{folder} has a model of {', '.join(settings.classes)}, and {strange[0]!r} is to be told apart too: use a "
            f"model that was trained for these classes"
        )
    order = [settings.classes.index(name) for name in classes]
    digest = found.digest and f"{found.digest} in the order {order}"
    return dataclasses.replace(found, call=lambda x: np.asarray(found.call(x))[:, order], digest=digest)


def _learnt(trained: TrainedRun, data: str) -> Learnt:
    """Whom a run learnt from, under its guarantee; under any name, if they are those of `data`."""
    said, promise = trained.config.data, trained.run.read("guarantee.json")
    is_same = bool(data) and same_clients(said.population, said.options, data, {})
    return Learnt(None if is_same else trained.clients.name, promise)


def public_model(public: Population, inputs: Sequence[str], label: str) -> Primary:
    """A small classifier of public data."""
    for field in (*inputs, label):
        if field not in public.fields:
            raise InvalidInput(f"{public.name} has no field {field!r}: it has {', '.join(public.fields)}")
    dtype, shape = public.fields[inputs[0]]
    if dtype.kind not in "biuf":
        raise InvalidInput(f"{inputs[0]} of {public.name} is text, which no model here reads: name a model")
    kind = "cnn" if len(shape) >= 2 else "mlp"
    model = make_model(ModelSettings(kind=kind, inputs=tuple(inputs), label=label), public)
    x, y = gather(public.columns, list(inputs)), public.columns[label]
    if kind == "cnn":
        return primary(
            fit(model, x, y, key=jax.random.key(0)),
            name=f"a cnn trained on {public.name}",
            shape=x.shape[1:],
            learnt=Learnt(),
        )
    # numbers of all sizes: each is brought to the spread that it has in public, and what is missing to its middle
    middle, spread = np.nanmean(x, axis=0), np.nanstd(x, axis=0) + 1e-6

    def scaled(rows: np.ndarray) -> np.ndarray:
        return np.nan_to_num((rows - middle) / spread).astype(np.float32)

    scores = primary(fit(model, scaled(x), y, epochs=10, key=jax.random.key(0))).scores
    judge = primary(lambda rows: scores(scaled(rows)), name=f"an mlp trained on {public.name}", learnt=Learnt())
    return dataclasses.replace(judge, by_row=True)  # both steps are


def _in_public_classes(people: Population, public: Population, label: str) -> tuple[Population, Population]:
    """Both with labels that are texts as numbers of the classes in the public data, whose names anyone may know."""
    if label not in public.fields or public.fields[label][0] != TEXT:
        return people, public
    listed = ModelSettings(label=label, classes=as_classes(public.columns[label], public.name)[1])
    return numbered(listed, people) if label in people.fields else people, numbered(listed, public)


def _check_judged(people: Population, judge: Primary | None, label: str, task: str) -> None:
    """Refuses a question about what a model gets wrong where nobody knows."""
    if label not in people.fields:
        others = ", ".join(people.fields)
        raise InvalidInput(
            f"inspect {task} needs the true class, and {people.name} has no field {label!r}: name one of {others} with "
            f"--label FIELD"
        )
    if judge is None:
        raise InvalidInput(
            f"inspect {task} needs labels and a primary model: name one with --model, or public data to train one on "
            f"with --reference"
        )


def _input_of(population: Population, label: str) -> str:
    """The image of a population; else the model's inputs have to be named."""
    images = [field for field, (_, shape) in population.fields.items() if len(shape) >= 2]
    return images[0] if len(images) == 1 else _which(list(population.fields), label)


def _described_input(schema: Schema, names: Sequence[str], label: str) -> str:
    """The image that the asker describes; else the model's inputs have to be named."""
    images = [name for name, field in schema.fields.items() if field.kind == "image" and name in names]
    return images[0] if len(images) == 1 else _which(names, label)


def _which(names: Sequence[str], label: str) -> Any:
    known = ", ".join(field for field in names if field != label)
    of = f"of {known}" if known else "fields"
    raise InvalidInput(f"say which {of} the model reads: --input FIELD, once for each")


def part_of(field: str, ranges: Mapping[str, tuple[float, float]], has_model: bool) -> Field | None:
    """What an input must be for the question to make sense: a number that has a range, or that a model reads."""
    return Field("number") if has_model or field in ranges else None


def read_range(words: str) -> tuple[str, tuple[float, float]]:
    """`age=0:100` as a field and its ends."""
    field, _, ends = words.partition("=")
    try:
        low, high = (float(end) for end in ends.split(":"))
    except ValueError:
        raise InvalidInput(f"a range is spelled age=0:100, got {words!r}") from None
    return field, (low, high)
