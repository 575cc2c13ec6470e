"""The classes of a model, where they come from, and clients' labels as class numbers.

A published model reveals how many classes it has, and a GAN's samples reveal their names. A class found in
clients' data may exist because of one client. So classes are listed in [model] classes, or known from public data;
otherwise the guarantee states the assumption that they are public.
"""

import dataclasses

import numpy as np

from blindsight.accounting.assumptions import CLASSES_READ_OFF as READ_OFF
from blindsight.config import Config, ModelSettings
from blindsight.data.catalogue import DATASETS
from blindsight.data.embedded import POPULATIONS
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Schema
from blindsight.errors import InvalidInput

__all__ = ["READ_OFF", "assumed_classes", "class_names", "listed_by", "need_field", "number_of_classes", "numbered"]
__all__ += ["reads_label"]

_MOST_CLASSES = 1_000_000


def assumed_classes(config: Config, population: Population) -> tuple[str, ...]:
    """What the guarantee of a run has to assume about its classes, in words; nothing if they are public.

    A list that does not fit public data is refused. For other data a refusal would be a leak.
    """
    settings = config.model
    if settings.is_language or not reads_label(config):
        return ()
    are_public = config.data.population in (*POPULATIONS, *DATASETS) and settings.label in population.classes
    if not isinstance(settings.classes, tuple):
        return () if are_public or settings.classes else (READ_OFF,)
    existing = population.classes.get(settings.label, ()) if are_public else settings.classes
    if strange := [name for name in settings.classes if name not in existing]:
        raise InvalidInput(
            f"[model] classes lists {strange[0]!r}, and {population.name} has {', '.join(existing)}: choose from these"
        )
    return ()


def need_field(population: Population, field: str, table: str = "model") -> None:
    """Refuse a population without a field that a table of the configuration names."""
    if field not in population.fields:
        fields = ", ".join(population.fields)
        raise InvalidInput(f"[{table}] names the field {field!r}, but {population.name} has {fields}")


def reads_label(config: Config) -> bool:
    """Whether the model reads the class of an example; a GAN may not."""
    return config.model.kind != "gan" or config.gan.classes


def listed_by(schema: Schema, settings: ModelSettings) -> ModelSettings:
    """The settings with the classes that a public schema lists, if they list none themselves.

    >>> listed_by(Schema({}).updated(["label=whole:0:9"]), ModelSettings()).classes
    10
    """
    field = schema.fields.get(settings.label)
    if settings.is_language or settings.classes is not None or field is None:
        return settings
    if field.kind == "category":
        return dataclasses.replace(settings, classes=field.values)
    if field.kind == "whole" and field.range is not None and field.range[0] >= 0:
        return dataclasses.replace(settings, classes=int(field.range[1]) + 1)
    return dataclasses.replace(settings, classes=2) if field.kind == "truth" else settings


def class_names(settings: ModelSettings, population: Population) -> tuple[str, ...]:
    """The names of the classes in the order of their numbers: as listed, else the population's, else none.

    >>> people = Population({"x": np.arange(2)}, sizes=[1, 1], name="two people")
    >>> class_names(ModelSettings(classes=3), people)
    ('0', '1', '2')
    """
    if settings.classes is None:
        return population.classes.get(settings.label, ())
    return tuple(map(str, range(settings.classes))) if isinstance(settings.classes, int) else settings.classes


def number_of_classes(settings: ModelSettings, population: Population) -> int:
    """The number of classes: of those listed, else of those with names, else of those that occur."""
    if isinstance(settings.classes, int):
        return settings.classes
    if names := class_names(settings, population):
        return len(names)
    _check_whole(settings.label, population)
    values = population.columns[settings.label]
    return int(values[_may_be_classes(values)].max(initial=1)) + 1


def _may_be_classes(values: np.ndarray) -> np.ndarray:
    """Which labels may be numbers of classes that nobody listed: those from 0, of at most a million."""
    return np.asarray((values >= 0) & (values < _MOST_CLASSES))


def numbered(settings: ModelSettings, population: Population) -> Population:
    """The population with its label as numbers of the listed classes; if none are listed, with the numbers it has.

    Each client leaves out its own examples of other classes. No label is refused, since a refusal because of one
    example would reveal it. Clients without examples stay, since the number of clients is public.
    """
    label = settings.label
    if settings.classes is None:
        if label in population.classes or label not in population.fields:
            return population
        dtype, shape = population.fields[label]
        if shape or dtype.kind not in "iu":
            return population
        may_be = _may_be_classes(population.columns[label])
        return population if may_be.all() else population.keep(may_be)
    need_field(population, label)
    codes = _codes(settings, population)
    kept = population.keep(codes >= 0)
    return Population(
        kept.columns | {label: codes[codes >= 0]},
        sizes=kept.sizes,
        ids=kept.ids,
        name=kept.name,
        classes=kept.classes | {label: class_names(settings, population)},
        synthetic=kept.synthetic,
    )


def _codes(settings: ModelSettings, population: Population) -> np.ndarray:
    """The class number of every example, -1 if its class is not listed."""
    label, listed = settings.label, class_names(settings, population)
    column, own = population.columns[label], population.classes.get(label)
    is_text = population.fields[label][0] == TEXT
    if (is_text or own is not None) and isinstance(settings.classes, int):  # a loader's numbers depend on data
        raise InvalidInput(
            f"[model] classes = {settings.classes} is for labels that are numbers, and the classes of {label!r} in "
            f"{population.name} have names: list the names"
        )
    if is_text:
        codes = np.full(len(column), -1, np.int32)
        for number, name in enumerate(listed):
            codes[column == name] = number
        return codes
    _check_whole(label, population)
    count = len(listed if own is None else own)
    inside = (column >= 0) & (column < count)
    codes = np.where(inside, column, count).astype(np.int64)
    place = range(count) if own is None else [listed.index(name) if name in listed else -1 for name in own]
    return np.array([*place, -1], np.int32)[codes]


def _check_whole(label: str, population: Population) -> None:
    dtype, shape = population.fields[label]
    if shape or dtype.kind not in "biu":
        raise InvalidInput(
            f"[model] label {label!r} must be one whole number for each example, but {population.name} has "
            f"{dtype}{list(shape)}: number the classes from 0"
        )
