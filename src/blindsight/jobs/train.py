"""A training run from its configuration: what `blindsight train RUN.toml` does."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from blindsight import keys, runs, trees
from blindsight.accounting.events import Event, Unit
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import AdaptiveClip, Algorithm, dp_fedavg
from blindsight.backends import Simulation, placement, use_cores
from blindsight.config import Config, ModelSettings, ServerSettings
from blindsight.data.population import Population
from blindsight.data.sources import source
from blindsight.errors import InvalidInput
from blindsight.evaluation import evaluator
from blindsight.mechanisms import gaussian
from blindsight.models.classifiers import CNN, MLP, Logistic, accuracy, cross_entropy
from blindsight.privacy import Privacy
from blindsight.training import Trained, train

__all__ = ["make_algorithm", "make_model", "make_privacy", "number_of_classes", "one_example_each"]
__all__ += ["run_training", "split_clients"]

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
