"""Public data by name or from a file: read as they are, so never the clients that are protected."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blindsight.data.catalogue import DATASETS
from blindsight.data.embedded import POPULATIONS, embedded
from blindsight.data.formats import loader_of
from blindsight.data.population import GeneratedPopulation, Population
from blindsight.data.private import every_column
from blindsight.data.sources import check_public, source
from blindsight.data.tables import csv, npz, parquet

__all__ = ["has_other_clients", "other_clients", "public_options", "read_public"]

_SEED = 20_260  # of the public clients of embedded populations, which are inspected and trained on with other seeds


@functools.cache
def has_other_clients(name: str) -> bool:
    """Whether `name` is an embedded population of generated clients, so that another seed gives other clients.

    >>> has_other_clients("handwriting"), has_other_clients("digits"), has_other_clients("notes.csv")
    (True, False, False)
    """
    return name in POPULATIONS and isinstance(embedded(name, clients=1), GeneratedPopulation)


def other_clients(name: str, clients: int = 150) -> dict[str, Any]:
    """The options that make public data of `name`: other clients of a generated population; none for other data."""
    return {"clients": clients, "seed": _SEED} if has_other_clients(name) else {}


def public_options(name: str, clients: int, client: str | None) -> dict[str, Any]:
    """The options to read public data with: those of `other_clients`, or of a table the column of the client id.

    That is the column that the private table has it in, if the public one has that column too.
    """
    options = other_clients(name, clients)
    if client is None or options or name in POPULATIONS or name in DATASETS or not Path(name).exists():
        return options
    is_column = loader_of(name) in (csv, parquet, npz) and client in every_column(name)
    return {"client": client} if is_column else {}


def read_public(
    name: str,
    options: Mapping[str, Any],
    protected: str,
    protected_options: Mapping[str, Any] | None = None,
    *,
    what: str,
) -> Population:
    """The public data that the setting `what` names, refused if they are the clients of `protected`."""
    check_public(name, options, protected, protected_options or {}, what=what)
    return source(name, options)
