"""A training run from its configuration: what `blindsight train RUN.toml` does."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from blindsight import checkpoints, keys, runs, trees
from blindsight.accounting.events import Event, Unit
from blindsight.accounting.ledger import Ledger, known_as
from blindsight.algorithms import AdaptiveClip, Algorithm, dp_fedavg
from blindsight.backends import Backend, Simulation, use_cores
from blindsight.backends.paired import Paired, bayesian_config
from blindsight.config import Config, ModelSettings, ServerSettings, parse, said
from blindsight.data.population import Population
from blindsight.data.private import FITS, fitting
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.evaluation import evaluator
from blindsight.jobs.classes import assumed_classes, class_names, number_of_classes, numbered, reads_label
from blindsight.jobs.gan import gan_algorithm, gan_metrics, make_gan, save_made
from blindsight.jobs.language import (
    check_text,
    kept_vocabulary,
    language_metrics,
    language_model,
    public_words,
    tokens_of,
    vocabulary_of,
)
from blindsight.jobs.pairs import PairLog
from blindsight.jobs.planting import plant
from blindsight.jobs.run_data import name_in_ledger, read_run, with_listed_classes
from blindsight.mechanisms import gaussian
from blindsight.models.cifg_lstm import next_token_loss
from blindsight.models.classifiers import CNN, MLP, Logistic, accuracy, cross_entropy
from blindsight.privacy import Privacy
from blindsight.training import Trained, train

__all__ = ["Task", "TrainedRun", "asked_privacy", "classification_task", "language_task", "load_trained"]
__all__ += [
    "make_algorithm",
    "make_loss",
    "make_model",
    "make_privacy",
    "one_example_each",
    "run_settings",
    "run_training",
    "split_clients",
]

_NO_PROMISE_DELTA = 1e-6  # an infinite epsilon is infinite at every delta


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
    folder, ledger = Path(out) if out is not None else Path("runs") / config.name, ledger or Ledger()
    ledger.populations()  # one that cannot be read is refused now, before a run has a guarantee on disk
    settings, config = run_settings(config), with_listed_classes(config)
    if population is None:
        population = read_run(config)
        name = name_in_ledger(config, population)
    else:
        name = known_as(population)
    ledger.check_names(name)
    clients, held_out = split_clients(population, config.data.held_out)
    key, assumptions = _root(config.seed, settings, population), assumed_classes(config, population)
    if config.model.is_language:
        check_text(config.text, population)
        asked_privacy(config, clients.size)  # refused now, before a run begins and a vocabulary is paid for
        public, ready = public_words(config, folder), None
    else:
        public = None
        ready = _ready(config, classification_task(config, population, clients, held_out))
    run = runs.begin(folder, config.name, settings, may_differ=("privacy", "rounds"))
    with run.alone():
        if ready is None:
            vocabulary, released = vocabulary_of(config, clients, public, name, run=run, key=key, ledger=ledger)
            ready = _ready(config, language_task(config, clients, held_out, vocabulary, released))
        task, privacy, algorithm = ready
        _check_clients(run, task.clients.size)
        log = None if config.bayesian is None else PairLog(run, bayesian_config(privacy))
        trained = train(
            algorithm,
            _backend(config, task, privacy, run=run, key=key, log=log),
            privacy,
            population=name,
            delta=config.privacy.delta or _NO_PROMISE_DELTA,
            key=key,
            run=run,
            ledger=ledger,
            evaluate=task.evaluate,
            before=task.released,
            assumptions=assumptions,
            progress=progress,
            **dataclasses.asdict(config.training),
        )
        if config.model.kind == "gan":
            save_made(config, trained, class_names(config.model, population))
        if log is None or config.bayesian is None:
            return trained
        return dataclasses.replace(trained, bayesian=log.report(config.bayesian.delta, trained.guarantee))


def _root(seed: int | None, settings: dict[str, Any], population: Population) -> keys.Key:
    """Where the run's randomness descends from: for a seed, from the settings and the data too.

    Two runs with one seed about the same clients would draw the same noise, and their difference would be without any.
    """
    if seed is None:
        return keys.root()
    privacy = {name: value for name, value in settings["privacy"].items() if name != "rounds"}  # may grow
    said_of_run = json.dumps([settings | {"privacy": privacy}, population.fingerprint], sort_keys=True).encode()
    return keys.reproducible(seed).derive(f"run {hashlib.blake2b(said_of_run, digest_size=16).hexdigest()}")


def _backend(
    config: Config, task: "Task", privacy: Privacy, *, run: runs.Run, key: keys.Key, log: PairLog | None
) -> Backend:
    """The clients of a run, those that [audit] plants beside them, or the pairs that [bayesian] draws among them."""
    if config.bayesian is not None and log is not None:
        return Paired(Simulation(task.clients), pairs=config.bayesian.pairs, record=log.record)
    if config.audit is None:
        return Simulation(task.clients)
    about: Any = {"vocabulary": task.vocabulary, "classes": task.classes}
    return plant(config, config.audit, task.clients, privacy, **about, run=run, key=key)


@dataclasses.dataclass(frozen=True)
class Task:
    """Who trains which model, on what, and how it is measured; `released` about the clients before the first round."""

    model: Any
    clients: Population
    held_out: Population | None
    metrics: dict[str, Any]
    vocabulary: Vocabulary | None = None
    released: tuple[Event, ...] = ()
    classes: int = 0  # that a classifier tells apart

    @property
    def evaluate(self) -> Callable[[Any], dict[str, float]] | None:
        """A function from a model to what it reaches on the held-out clients, if there are any with examples."""
        if self.held_out is None or not self.held_out.n_examples:  # a refusal would tell what they left out
            return None
        return evaluator(self.held_out, self.metrics, batch_size=1000 if self.vocabulary is None else 100)


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """What a training run has left: the newest model, and the clients as it read them."""

    run: runs.Run
    config: Config
    model: Any
    clients: Population
    held_out: Population | None
    vocabulary: Vocabulary | None = None
    initial: Any = None  # the model before its first round, which is public


def load_trained(folder: str | Path, *, population: Population | None = None) -> TrainedRun:
    """The run that `blindsight train` left in `folder`, with the model of its newest checkpoint.

    `population` is what its configuration names, for who has it in memory already. Nothing is released.
    """
    run = runs.open_run(folder)
    path = checkpoints.newest(run.path)
    if path is None:
        raise InvalidInput(f"{folder} has no checkpoint of a model yet: train it first")
    config = with_listed_classes(parse(said(run.read("run.json")["settings"])))
    if population is None:
        population = read_run(config)
    clients, held_out = split_clients(population, config.data.held_out)
    if config.model.is_language:
        task = language_task(config, clients, held_out, *kept_vocabulary(run))
    else:
        task = classification_task(config, population, clients, held_out)
    size = task.clients.size
    _check_clients(run, size)
    unprotected = Privacy.none(population=size, cohort=1, rounds=1)  # what was kept has the same shape
    algorithm = make_algorithm(config, task.model, unprotected)
    model = algorithm.model(checkpoints.load(path, {"state": algorithm.init()}).tree["state"])
    return TrainedRun(run, config, model, task.clients, task.held_out, task.vocabulary, task.model)


def _check_clients(run: runs.Run, size: int) -> None:
    """Refuses to go on with others than those whom the run began with: the data, or who is held out, has changed."""
    path = checkpoints.newest(run.path)
    began = size if path is None else checkpoints.read_facts(path).get("settings", {}).get("population", size)
    if began != size:
        raise InvalidInput(
            f"{run.path} was begun with {began:,} to train on, and now there are {size:,}: the data have changed, or a "
            f"version of Blindsight that held out others began it, so begin the run anew in another folder"
        )


def _ready(config: Config, task: Task) -> tuple[Task, Privacy, Algorithm]:
    released = task.model.critic if config.model.kind == "gan" else task.model
    privacy = make_privacy(config, task.clients.size, trees.size(released), before=task.released)
    return task, privacy, make_algorithm(config, task.model, privacy)


def classification_task(
    config: Config, population: Population, clients: Population, held_out: Population | None
) -> Task:
    """A classifier of these clients' examples, or a generator of such."""
    settings, fields = config.model, (config.model.inputs, config.model.label)
    clients = one_example_each(clients) if config.privacy.unit == "example" else clients
    population, held_out = fitting(population), None if held_out is None else fitting(held_out)
    if reads_label(config) and settings.classes is not None:
        population = clients = numbered(settings, clients)  # after all are counted: an example that goes leaves a place
        held_out = None if held_out is None else numbered(settings, held_out)
    if settings.kind == "gan":
        return Task(make_gan(config, population), clients, held_out, gan_metrics())
    metrics = {"accuracy": accuracy(*fields), "loss": cross_entropy(*fields)}
    model = make_model(settings, population)
    return Task(model, clients, held_out, metrics, classes=number_of_classes(settings, population))


def language_task(
    config: Config,
    clients: Population,
    held_out: Population | None,
    vocabulary: Vocabulary,
    released: tuple[Event, ...] = (),
) -> Task:
    """A language model of what these clients wrote; `released` is what the vocabulary told about them."""
    text, kind = config.text, config.model.kind
    model = language_model(config.model, vocabulary)
    held_out = None if held_out is None else tokens_of(text, kind, held_out, vocabulary)
    clients = tokens_of(text, kind, clients, vocabulary)
    return Task(model, clients, held_out, language_metrics(kind), vocabulary, released)


def run_settings(config: Config) -> dict[str, Any]:
    """The settings that a run keeps and goes on with; what was tuned is no part of it."""
    settings = {name: table for name, table in config.to_dict().items() if name != "tune"}
    for table, name in (("model", "classes"), ("data", "schema"), ("data", "types")):
        if not settings[table][name]:  # runs of before this setting go on, with the noise that they began with
            del settings[table][name]
    return settings


def split_clients(population: Population, share: float) -> tuple[Population, Population | None]:
    """The clients that train and about a `share` that is held out, told by their ids; None of these if there are none.

    Who is held out is no secret, so one client more or less must not turn anybody else: each has a lot of its own.
    """
    is_held_out = keys.lots(population.ids.tolist(), b"held out") < share
    if not is_held_out.any():
        return population, None
    if is_held_out.all():
        raise InvalidInput(
            f"[data] held_out {share} of {population.size} clients leaves nobody to train on: use a smaller share"
        )
    return population.select(~is_held_out), population.select(is_held_out)


def one_example_each(population: Population) -> Population:
    """Every example as a client of its own: what example-level privacy protects. One that does not fit is empty."""
    places = population.columns.get(FITS, np.ones(population.n_examples, bool)).astype(np.int64)
    about: Any = {"classes": population.classes, "synthetic": population.synthetic}
    return Population(fitting(population).columns, sizes=places, name=population.name, **about)


def make_model(settings: ModelSettings, population: Population) -> Any:
    """The model that `settings` describe, for the fields of `population`."""
    fields = population.fields
    for field in (*settings.inputs, settings.label):
        if field not in fields:
            raise InvalidInput(f"[model] names the field {field!r}, but {population.name} has {', '.join(fields)}")
        if fields[field][0].kind not in "biuf":
            hint = "list its classes, [model] classes" if field == settings.label else "these models read numbers"
            raise InvalidInput(f"[model] names {field!r}, which is text in {population.name}: {hint}")
        if len(settings.inputs) > 1 and field in settings.inputs and fields[field][1]:
            raise InvalidInput(
                f"[model] inputs puts {field!r} beside others, but it has the shape {list(fields[field][1])}: "
                f"several inputs must be one number each, so name this one alone"
            )
    shape = fields[settings.inputs[0]][1] if len(settings.inputs) == 1 else (len(settings.inputs),)
    classes = number_of_classes(settings, population)
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


def make_privacy(config: Config, population: int, coordinates: int, *, before: Sequence[Event] = ()) -> Privacy:
    """The settings of privacy, with noise for the epsilon that was asked for, less what was released `before`."""
    asked, privacy = config.privacy, asked_privacy(config, population)
    if asked.epsilon is None or asked.delta is None:
        return privacy

    def release(noise_multiplier: float) -> Event:
        return gaussian(noise_multiplier, sampler=asked.sampler).event_for(coordinates + 1)  # and a count, if adaptive

    return privacy.calibrate(epsilon=asked.epsilon, delta=asked.delta, release=release, before=before)


def asked_privacy(config: Config, population: int) -> Privacy:
    """The settings of privacy as they were given; noise for an epsilon is still to be solved for."""
    asked = config.privacy
    about: Any = {"population": population, "cohort": asked.cohort, "rounds": asked.rounds}
    limits: Any = {"max_participations": asked.max_participations, "unit": Unit(asked.unit)}
    about["participation"] = asked.participation
    try:
        if asked.none:
            return dataclasses.replace(Privacy.none(**about), **limits)
        return Privacy(**about, **limits, noise_multiplier=asked.noise_multiplier, clip=asked.clip)
    except InvalidInput as error:
        raise InvalidInput(f"[privacy] {error}") from None


def make_algorithm(config: Config, model: Any, privacy: Privacy) -> Algorithm:
    """DP-FedAvg as configured, or the Bayesian GAN."""
    if config.model.kind == "gan":
        return gan_algorithm(config, model, privacy)
    quantile = config.privacy.adaptive_clip
    return dp_fedavg(
        model,
        make_loss(config),
        privacy,
        client_optimizer=optax.sgd(config.client.learning_rate),
        server_optimizer=make_server_optimizer(config.server),
        batch_size=config.client.batch_size,
        epochs=config.client.epochs,
        adaptive_clip=None if quantile is None else AdaptiveClip(quantile),
        sampler=config.privacy.sampler,
        compute_dtype=jax.numpy.dtype(config.client.precision),
    )


def make_loss(config: Config) -> Any:
    """What clients make small, and what tells a client that was in from one that was not."""
    return next_token_loss() if config.model.is_language else cross_entropy(config.model.inputs, config.model.label)


def make_server_optimizer(settings: ServerSettings) -> optax.GradientTransformation:
    """The server's optimiser."""
    if settings.optimizer == "adam":
        return optax.adam(settings.learning_rate, eps=1e-3)  # updates are small: the usual 1e-8 would blow noise up
    momentum = settings.momentum if settings.optimizer == "nesterov" else None
    return optax.sgd(settings.learning_rate, momentum=momentum, nesterov=settings.optimizer == "nesterov")
