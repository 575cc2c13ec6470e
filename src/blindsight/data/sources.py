"""Populations by name or path, as commands and configurations specify data."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from blindsight.data.catalogue import DATASETS
from blindsight.data.datasets import read_dataset
from blindsight.data.embedded import POPULATIONS, make_embedded
from blindsight.data.formats import read_file
from blindsight.data.population import Population
from blindsight.data.reading import exists, files_of
from blindsight.errors import InvalidInput, PrivacyError

__all__ = ["check_public", "same_clients", "source"]


def source(name: str, options: Mapping[str, Any] | None = None) -> Population:
    """The embedded population or data set of that name; otherwise the file or folder at that path.

    `options` are those of `embedded`, `dataset` or `load`.

    >>> source("handwriting", {"clients": 10})
    <GeneratedPopulation 'handwriting': 10 clients, ... examples>
    """
    if name in POPULATIONS:
        return _read(make_embedded, name, options or {})
    if name in DATASETS:
        return _read(read_dataset, name, options or {})
    if exists(name):
        return _read(read_file, name, options or {})
    names = ", ".join([*POPULATIONS, *DATASETS])
    raise InvalidInput(f"{name} is neither a file nor a population: the names are {names}")


def check_public(
    name: str, options: Mapping[str, Any], protected: str, protected_options: Mapping[str, Any], *, what: str
) -> None:
    """Refuse the setting `what` if the data it declares public are the protected clients: see `same_clients`."""
    if same_clients(name, options, protected, protected_options):
        raise PrivacyError(
            f"{what} = {name!r} are the protected clients, and would be read without noise: use public data"
        )


def same_clients(name: str, options: Mapping[str, Any], other: str, other_options: Mapping[str, Any]) -> bool:
    """Whether two data specifications mean the same clients.

    Files are compared by resolved path: patterns or folders that share a file share clients. A different seed means
    different embedded clients, and a different split means different images; no other option distinguishes clients.
    """

    def places(one: str, given: Mapping[str, Any]) -> set[Any]:
        if not one:  # the clients of a fleet, whose data are elsewhere
            return set()
        if one in POPULATIONS:
            return {(one, given.get("seed", 0))}
        if one in DATASETS:
            return {(one, given.get("split", ""))}
        return {Path(one).resolve(), *(file.resolve() for file in _files(one))}

    return bool(places(name, options) & places(other, other_options))


def _files(name: str) -> list[Path]:
    """Every file in a folder, or of a pattern."""
    if Path(name).is_dir():
        return [file for file in Path(name).rglob("*") if file.is_file()]
    return files_of(name) if exists(name) else []


def _read(read: Callable[[str, Mapping[str, Any]], Population], name: str, options: Mapping[str, Any]) -> Population:
    try:
        return read(name, options)
    except TypeError as error:  # an option of the wrong type
        raise InvalidInput(f"{name} cannot be read with the options {dict(options)}: {error}") from error
