"""A population by its name, or from a file: what commands and configurations call data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blindsight.data.catalogue import DATASETS
from blindsight.data.datasets import dataset
from blindsight.data.embedded import POPULATIONS, embedded
from blindsight.data.formats import load
from blindsight.data.population import Population
from blindsight.errors import InvalidInput, PrivacyError

__all__ = ["check_public", "same_clients", "source"]


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


def check_public(
    name: str, options: Mapping[str, Any], protected: str, protected_options: Mapping[str, Any], *, what: str
) -> None:
    """Refuses `what` (a setting) if it calls data public that hold clients who are protected: see `same_clients`."""
    if same_clients(name, options, protected, protected_options):
        raise PrivacyError(
            f"{what} = {name!r} are the protected clients, and would be read without noise: use public data"
        )


def same_clients(name: str, options: Mapping[str, Any], other: str, other_options: Mapping[str, Any]) -> bool:
    """Whether two names of data stand for the same clients.

    Files are the same however their path is spelled. Embedded clients are others with another seed, and images of
    another split are others'; no other option tells people apart.
    """

    def place(one: str, given: Mapping[str, Any]) -> tuple[Any, ...]:
        if one in POPULATIONS:
            return one, given.get("seed", 0)
        return (one, given.get("split", "")) if one in DATASETS else (Path(one).resolve(),)

    return place(name, options) == place(other, other_options)


def _called(name: str, make: Any, options: dict[str, Any]) -> Population:
    try:
        return make(name, **options)
    except TypeError as error:  # an option that this kind of data does not have, or of the wrong type
        raise InvalidInput(f"{name} cannot be read with the options {options}: {error}") from error
