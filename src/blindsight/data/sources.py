"""A population by its name, or from a file: what commands and configurations call data."""

from pathlib import Path
from typing import Any

from blindsight.data.catalogue import DATASETS
from blindsight.data.datasets import dataset
from blindsight.data.embedded import POPULATIONS, embedded
from blindsight.data.formats import load
from blindsight.data.population import Population
from blindsight.errors import InvalidInput

__all__ = ["source"]


def source(name: str, /, **options: Any) -> Population:
    """The embedded population or data set of that name, else what lies in that file or folder.

    >>> source("handwriting", clients=10)
    <GeneratedPopulation 'handwriting': 10 clients, ... examples>
    """
    if name in POPULATIONS:
        return _called(name, embedded, options)
    if name in DATASETS:
        return _called(name, dataset, options)
    if Path(name).exists():
        return _called(name, load, options)
    known = ", ".join([*POPULATIONS, *DATASETS])
    raise InvalidInput(f"{name} is neither a file nor a population: the names are {known}")


def _called(name: str, make: Any, options: dict[str, Any]) -> Population:
    try:
        return make(name, **options)
    except TypeError as error:  # an option that this kind of data does not have, or of the wrong type
        raise InvalidInput(f"{name} cannot be read with the options {options}: {error}") from error
