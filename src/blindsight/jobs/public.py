"""Public data by name or from a file: read as they are, so never the clients that are protected."""

import functools
from collections.abc import Mapping
from typing import Any

from blindsight.data.embedded import POPULATIONS, embedded
from blindsight.data.population import GeneratedPopulation, Population
from blindsight.data.sources import check_public, source

__all__ = ["has_other_clients", "other_clients", "read_public"]

_SEED = 20_260  # of the public clients of embedded populations, which are inspected and trained on with other seeds


@functools.cache
def has_other_clients(name: str) -> bool:
    """Whether `name` is an embedded population whose clients are generated, so that another seed gives other clients.

    >>> has_other_clients("handwriting"), has_other_clients("digits"), has_other_clients("notes.csv")
    (True, False, False)
    """
    return name in POPULATIONS and isinstance(embedded(name, clients=1), GeneratedPopulation)


def other_clients(name: str, clients: int = 150) -> dict[str, Any]:
    """The options that make public data of `name`: other clients of a generated population; none for other data."""
    return {"clients": clients, "seed": _SEED} if has_other_clients(name) else {}


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
