"""What a run trains: the model, the clients as the model reads them, and how it is evaluated."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from blindsight import keys
from blindsight.accounting.events import Event
from blindsight.config import Config, ModelSettings
from blindsight.data.population import Population
from blindsight.data.private import FITS, fitting
from blindsight.data.text import Vocabulary
from blindsight.errors import InvalidInput
from blindsight.evaluation import evaluator
from blindsight.jobs.classes import need_field, number_of_classes, numbered, reads_label
from blindsight.jobs.gan import gan_metrics, make_gan
from blindsight.jobs.language import language_metrics, language_model, tokens_of
from blindsight.models.classifiers import CLASSIFIERS, IMAGES_ONLY, accuracy, cross_entropy

__all__ = ["TrainingTask", "classification_task", "language_task", "make_model", "one_example_each", "split_clients"]


@dataclasses.dataclass(frozen=True)
class TrainingTask:
    """A model, the clients that train it, and held-out clients with the metrics to evaluate it by."""

    model: Any
    clients: Population
    held_out: Population | None
    metrics: dict[str, Any]
    vocabulary: Vocabulary | None = None
    released: tuple[Event, ...] = ()  # about the clients, before the first round
    classes: int = 0  # of a classifier

    @property
    def evaluate(self) -> Callable[[Any], dict[str, float]] | None:
        """A function from a model to its metrics on the held-out clients; None if they have no examples."""
        if self.held_out is None or not self.held_out.n_examples:  # a refusal would reveal what they left out
            return None
        return evaluator(self.held_out, self.metrics, batch_size=1000 if self.vocabulary is None else 100)


def classification_task(
    config: Config, population: Population, clients: Population, held_out: Population | None
) -> TrainingTask:
    """A classifier of the clients' examples, or a GAN that generates such examples."""
    settings, fields = config.model, (config.model.inputs, config.model.label)
    clients = one_example_each(clients) if config.privacy.unit == "example" else clients
    population, held_out = fitting(population), None if held_out is None else fitting(held_out)
    if reads_label(config):  # after all are counted: an example that is left out keeps its place
        clients, held_out = numbered(settings, clients), None if held_out is None else numbered(settings, held_out)
        population = population if settings.classes is None else clients
    if settings.kind == "gan":
        return TrainingTask(make_gan(config, population), clients, held_out, gan_metrics())
    metrics = {"accuracy": accuracy(*fields), "loss": cross_entropy(*fields)}
    model = make_model(settings, population)
    return TrainingTask(model, clients, held_out, metrics, classes=number_of_classes(settings, population))


def language_task(
    config: Config,
    clients: Population,
    held_out: Population | None,
    vocabulary: Vocabulary,
    released: tuple[Event, ...] = (),
) -> TrainingTask:
    """A language model of the clients' text; `released` is what the vocabulary has revealed about them."""
    text, kind = config.text, config.model.kind
    model = language_model(config.model, vocabulary)
    held_out = None if held_out is None else tokens_of(text, kind, held_out, vocabulary)
    clients = tokens_of(text, kind, clients, vocabulary)
    return TrainingTask(model, clients, held_out, language_metrics(kind), vocabulary, released)


def split_clients(population: Population, share: float) -> tuple[Population, Population | None]:
    """The clients that train, and the held-out ones, about this `share` of all; None if there are none.

    Which clients are held out is public, so one client must not affect another: each draws a lot from its own id.
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
    """Every example as a separate client, for example-level privacy; one that does not fit is an empty client."""
    places = population.columns.get(FITS, np.ones(population.n_examples, bool)).astype(np.int64)
    return Population(
        fitting(population).columns,
        sizes=places,
        name=population.name,
        classes=population.classes,
        synthetic=population.synthetic,
    )


def make_model(settings: ModelSettings, population: Population) -> Any:
    """The classifier that `settings` describe, for the fields of `population`."""
    _check_fields(settings, population)
    shape = population.fields[settings.inputs[0]][1] if len(settings.inputs) == 1 else (len(settings.inputs),)
    if settings.kind in IMAGES_ONLY and len(shape) not in (2, 3):
        kind, inputs = settings.kind, ", ".join(settings.inputs)
        raise InvalidInput(f'[model] a {kind} reads images, and {inputs} has shape {list(shape)}: use kind = "mlp"')
    key = jax.random.key(settings.seed)
    return CLASSIFIERS[settings.kind](settings, shape, number_of_classes(settings, population), key)


def _check_fields(settings: ModelSettings, population: Population) -> None:
    """Refuse inputs and a label that a classifier cannot read."""
    for field in (*settings.inputs, settings.label):
        need_field(population, field)
        dtype, shape = population.fields[field]
        if dtype.kind not in "biuf":
            hint = "list its classes in [model] classes" if field == settings.label else "these models read numbers"
            raise InvalidInput(f"[model] names {field!r}, which is text in {population.name}: {hint}")
        if len(settings.inputs) > 1 and field in settings.inputs and shape:
            raise InvalidInput(
                f"[model] inputs combines {field!r}, of shape {list(shape)}, with other fields: use it alone, or "
                f"fields of one number each"
            )
