"""What long commands do: a training run from its configuration, and an inspection from its options."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from blindsight import checkpoints, keys, runs, trees
from blindsight.accounting.events import Event, Unit
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import AdaptiveClip, Algorithm, dp_fedavg
from blindsight.backends import Simulation, placement, use_cores
from blindsight.config import Config, ModelSettings, ServerSettings, parse
from blindsight.data import faults
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import Population
from blindsight.data.sources import source
from blindsight.errors import InvalidInput
from blindsight.evaluation import evaluator
from blindsight.inspection import tasks
from blindsight.inspection.report import Report
from blindsight.mechanisms import gaussian
from blindsight.models.classifiers import CNN, MLP, Logistic, accuracy, cross_entropy
from blindsight.models.primary import Primary, fit, gather, primary
from blindsight.privacy import Privacy
from blindsight.training import Trained, train

__all__ = ["load_model", "run_inspection", "run_training"]

_NO_PROMISE_DELTA = 1e-6  # an infinite epsilon is infinite at every delta
_MOST_CLASSES = 1_000_000
_PUBLIC = {"clients": 150, "seed": 20_260}  # of an embedded population: nobody who is inspected is among them


def run_training(
    config: Config,
    *,
    out: str | Path | None = None,
    ledger: Ledger | None = None,
    population: Population | None = None,
    progress: bool = False,
) -> Trained:
    """Train as `config` says in the folder `out` (`runs/NAME` if None), or go on where an earlier attempt stopped.

    `population` is what `config.data` names, for who has it in memory already.
    """
    use_cores()
    folder = Path(out) if out is not None else Path("runs") / config.name
    if population is None:
        population = source(config.data.population, **config.data.options)
    clients, held_out = split_clients(population, config.data.held_out)
    if config.privacy.unit == "example":
        clients = one_example_each(clients)
    model = make_model(config.model, population)
    privacy = make_privacy(config, clients.size, trees.size(model))
    algorithm = make_algorithm(config, model, privacy)
    fields = config.model.inputs, config.model.label
    metrics = {"accuracy": accuracy(*fields), "loss": cross_entropy(*fields)}
    key = keys.root() if config.seed is None else keys.reproducible(config.seed)
    run = runs.begin(folder, config.name, config.to_dict(), may_differ=("privacy", "rounds"))
    with run.alone():
        return train(
            algorithm,
            Simulation(clients),
            privacy,
            population=population.name,
            delta=config.privacy.delta or _NO_PROMISE_DELTA,
            key=key,
            run=run,
            ledger=ledger or Ledger(),
            evaluate=evaluator(held_out, metrics) if held_out is not None else None,
            progress=progress,
            **dataclasses.asdict(config.training),
        )


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
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] = lambda doing, done, total: None,
    **settings: Any,
) -> tuple[Report, Path]:
    """Ask `task` (sanity, mistakes or slices) of the population `data`; the report, and the folder it lies in.

    Without a model, a small one is trained on the reference, which is public. The reference of an embedded population
    are other clients of it, unless another is named.
    """
    use_cores()
    options: dict[str, Any] = {"clients": clients} if clients else {}
    people = source(data, **options, **({"client": client} if client else {}))
    people = people if fault is None else faults.apply(people, fault)
    if reference is None:
        public = source(data, **_PUBLIC) if data in POPULATIONS and data != "digits" else None
    else:
        public = source(reference, **(_PUBLIC if reference in POPULATIONS and reference != "digits" else {}))
    read = list(inputs or [_input_of(people, label)])
    one = read[0] if len(read) == 1 else read
    judge = None if model is None else load_model(model) if Path(model).is_dir() else primary(Path(model))
    if judge is None and public is not None and label in public.fields:
        progress("training a model on the public reference", 0, 1)
        judge = _public_model(public, read, label)
    folder = Path(out) if out is not None else Path("runs") / f"{task}-{_file_name(people.name)}"
    ask = {"sanity": tasks.sanity, "mistakes": tasks.mistakes, "slices": tasks.slices}[task]
    report = ask(
        people,
        model=judge,
        reference=public,
        inputs=one,
        label=label,
        ranges=dict(_range(words) for words in ranges or ()),
        out=folder,
        progress=progress,
        **settings,
    )
    return report, folder


def load_model(folder: str | Path) -> Primary:
    """The model that `blindsight train` left in `folder`, as the primary model of an inspection."""
    run = runs.open_run(folder)
    path = checkpoints.newest(run.path)
    if path is None:
        raise InvalidInput(f"{folder} has no checkpoint of a model yet: train it first")
    config = parse(_said(run.read("run.json")["settings"]))
    population = source(config.data.population, **config.data.options)
    trained, _ = split_clients(population, config.data.held_out)
    size = trained.n_examples if config.privacy.unit == "example" else trained.size
    unprotected = Privacy.none(population=size, cohort=1, rounds=1)  # what was kept has the same shape
    algorithm = make_algorithm(config, make_model(config.model, population), unprotected)
    like = {"state": algorithm.init(), "participated": np.zeros(size, np.int32)}
    model = algorithm.model(checkpoints.load(path, like).tree["state"])
    shape = population.fields[config.model.inputs[0]][1] if len(config.model.inputs) == 1 else None
    return primary(model, name=run.path.name, shape=shape)


def _said(settings: Any) -> Any:
    """Settings as a file would say them, which has no word for what was left out."""
    if not isinstance(settings, dict):
        return settings
    return {key: _said(value) for key, value in settings.items() if value is not None}


def _public_model(public: Population, inputs: Sequence[str], label: str) -> Primary:
    """A small classifier of public data."""
    dtype, shape = public.fields[inputs[0]]
    if dtype.kind not in "biuf":
        raise InvalidInput(f"{inputs[0]} of {public.name} is text, which no model here reads: name a model")
    kind = "cnn" if len(shape) >= 2 else "mlp"
    model = make_model(ModelSettings(kind=kind, inputs=tuple(inputs), label=label), public)
    x, y = gather(public.columns, list(inputs)), public.columns[label]
    trained = fit(model, x, y, key=jax.random.key(0))
    return primary(trained, name=f"a {kind} trained on {public.name}", shape=x.shape[1:])


def _input_of(population: Population, label: str) -> str:
    """The image of a population; else the model's inputs have to be named."""
    images = [field for field, (_, shape) in population.fields.items() if len(shape) >= 2]
    if len(images) != 1:
        known = ", ".join(field for field in population.fields if field != label)
        raise InvalidInput(f"say which of {known} the model reads: --input FIELD, once for each")
    return images[0]


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in name)


def _range(words: str) -> tuple[str, tuple[float, float]]:
    """`age=0:100` as a field and its ends."""
    field, _, ends = words.partition("=")
    try:
        low, high = (float(end) for end in ends.split(":"))
    except ValueError:
        raise InvalidInput(f"a range is spelled age=0:100, got {words!r}") from None
    return field, (low, high)


def split_clients(population: Population, share: float) -> tuple[Population, Population | None]:
    """The clients that train and those that are held out, always the same ones; none of these if `share` is 0."""
    count = round(share * population.size)
    if count == 0:
        return population, None
    if count == population.size:
        raise InvalidInput(
            f"[data] held_out {share} of {population.size} clients leaves nobody to train on: use a smaller share"
        )
    is_held_out = np.zeros(population.size, bool)
    is_held_out[keys.reproducible(0).derive("held out").stream().subset(population.size, count)] = True
    return population.select(~is_held_out), population.select(is_held_out)


def one_example_each(population: Population) -> Population:
    """Every example as a client of its own: what example-level privacy protects."""
    ones = np.ones(population.n_examples, np.int64)
    about: Any = {"classes": population.classes, "synthetic": population.synthetic}
    return Population(population.columns, sizes=ones, name=population.name, **about)


def make_model(settings: ModelSettings, population: Population) -> Any:
    """The model that `settings` describe, for the fields of `population`."""
    fields = population.fields
    for field in (*settings.inputs, settings.label):
        if field not in fields:
            raise InvalidInput(f"[model] names the field {field!r}, but {population.name} has {', '.join(fields)}")
        if fields[field][0].kind not in "biuf":
            raise InvalidInput(
                f"[model] names {field!r}, which is text in {population.name}: these models read numbers"
            )
        if fields[field][0].itemsize == 8 and placement.beyond_32_bits(population.columns[field]):
            raise InvalidInput(
                f"[model] names {field!r}, whose whole numbers go beyond 32 bits in {population.name}: scale them down"
            )
        if len(settings.inputs) > 1 and field in settings.inputs and fields[field][1]:
            raise InvalidInput(
                f"[model] inputs puts {field!r} beside others, but it has the shape {list(fields[field][1])}: "
                f"several inputs must be one number each, so name this one alone"
            )
    shape = fields[settings.inputs[0]][1] if len(settings.inputs) == 1 else (len(settings.inputs),)
    classes = number_of_classes(settings.label, population)
    key = jax.random.key(settings.seed)
    activation = {"relu": jax.nn.relu, "tanh": jax.numpy.tanh}[settings.activation]
    if settings.kind == "logistic":
        return Logistic(shape, classes, key=key)
    if settings.kind == "mlp":
        return MLP(shape, classes, hidden=settings.hidden, activation=activation, key=key)
    if len(shape) not in (2, 3):
        fed = ", ".join(settings.inputs)
        raise InvalidInput(f'[model] a cnn reads images, and {fed} has the shape {list(shape)}: use kind = "mlp"')
    layers: Any = {"channels": settings.channels, "kernel": settings.kernel, "hidden": settings.hidden[0]}
    return CNN(shape, classes, **layers, activation=activation, key=key)


def number_of_classes(label: str, population: Population) -> int:
    """How many classes the label has: as many as have names, else as many as occur."""
    if label in population.classes:
        return len(population.classes[label])
    dtype, shape = population.fields[label]
    if shape or dtype.kind == "f":
        raise InvalidInput(
            f"[model] label {label!r} must be one whole number for each example, but {population.name} has "
            f"{dtype}{list(shape)}: number the classes from 0"
        )
    values = population.columns[label]
    if values.size and values.min() < 0:
        raise InvalidInput(
            f"[model] label {label!r} has negative values in {population.name}: number the classes from 0"
        )
    classes = int(values.max(initial=1)) + 1
    if classes > _MOST_CLASSES:
        raise InvalidInput(
            f"[model] label {label!r} goes up to {classes - 1:,} in {population.name}: number the classes from 0, at "
            f"most {_MOST_CLASSES:,} of them"
        )
    return classes


def make_privacy(config: Config, population: int, coordinates: int) -> Privacy:
    """The settings of privacy, with noise for the epsilon that was asked for."""
    asked = config.privacy
    about: Any = {"population": population, "cohort": asked.cohort, "rounds": asked.rounds}
    limits: Any = {"max_participations": asked.max_participations, "unit": Unit(asked.unit)}
    about["participation"] = asked.participation
    try:
        if asked.none:
            return dataclasses.replace(Privacy.none(**about), **limits)
        privacy = Privacy(**about, **limits, noise_multiplier=asked.noise_multiplier, clip=asked.clip)
    except InvalidInput as error:
        raise InvalidInput(f"[privacy] {error}") from None
    if asked.epsilon is None or asked.delta is None:
        return privacy

    def release(noise_multiplier: float) -> Event:
        return gaussian(noise_multiplier, sampler=asked.sampler).event_for(coordinates + 1)  # and a count, if adaptive

    return privacy.calibrate(epsilon=asked.epsilon, delta=asked.delta, release=release)


def make_algorithm(config: Config, model: Any, privacy: Privacy) -> Algorithm:
    """DP-FedAvg as configured."""
    quantile = config.privacy.adaptive_clip
    return dp_fedavg(
        model,
        cross_entropy(config.model.inputs, config.model.label),
        privacy,
        client_optimizer=optax.sgd(config.client.learning_rate),
        server_optimizer=make_server_optimizer(config.server),
        batch_size=config.client.batch_size,
        epochs=config.client.epochs,
        adaptive_clip=None if quantile is None else AdaptiveClip(quantile),
        sampler=config.privacy.sampler,
        compute_dtype=jax.numpy.dtype(config.client.precision),
    )


def make_server_optimizer(settings: ServerSettings) -> optax.GradientTransformation:
    """The server's optimiser."""
    if settings.optimizer == "adam":
        return optax.adam(settings.learning_rate, eps=1e-3)  # updates are small: the usual 1e-8 would blow noise up
    momentum = settings.momentum if settings.optimizer == "nesterov" else None
    return optax.sgd(settings.learning_rate, momentum=momentum, nesterov=settings.optimizer == "nesterov")
