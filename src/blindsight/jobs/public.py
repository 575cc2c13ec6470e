"""Public data by name or from a file: read as they are, so never the clients that are protected."""

import contextlib
import functools
from collections.abc import Mapping
from typing import Any

from blindsight.data.by_client import is_by_client
from blindsight.data.catalogue import DATASETS
from blindsight.data.embedded import POPULATIONS, embedded
from blindsight.data.formats import takes
from blindsight.data.generated import GeneratedPopulation
from blindsight.data.population import Population
from blindsight.data.private import every_column, is_table
from blindsight.data.reading import exists
from blindsight.data.sources import check_public, source
from blindsight.errors import BlindsightError, PrivacyError
from blindsight.jobs.tables import content_of_table, is_private_table

__all__ = ["check_no_copy", "has_other_clients", "other_clients", "public_options", "read_public"]

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

    This is the private table's id column, if the public table has a column of that name.
    """
    options = other_clients(name, clients)
    if client is None or options or name in POPULATIONS or name in DATASETS or not exists(name):
        return options
    if is_by_client(name):  # every row of JSON Lines has its client
        return {"client": client} if takes(name, "client") else {}
    return {"client": client} if is_table(name) and client in every_column(name, client) else {}


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
    if protected_options is not None:
        check_no_copy(name, options, protected, protected_options, what=what)
    return source(name, options)


def check_no_copy(
    name: str, options: Mapping[str, Any], protected: str, protected_options: Mapping[str, Any], *, what: str
) -> None:
    """Refuse the table `name` as public if it has all data of the table `protected`, in whatever order."""
    if not (is_private_table(name) and is_private_table(protected)):
        return
    given, contents = {"client": protected_options.get("client"), **options}, ("", "another")
    with contextlib.suppress(BlindsightError):  # what cannot be read is refused where it is read
        contents = content_of_table(name, given), content_of_table(protected, protected_options)
    if contents[0] == contents[1]:
        raise PrivacyError(f"{what} = {name!r} has all data of the protected clients: use public data")
