"""Splits plain data into clients: at random, unevenly by label, by a few classes each, or by one of its columns.

`columns` is a dict of equally long arrays. Every example goes to exactly one client, and the same key always gives the
same split.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from blindsight.data.population import Columns, Population, as_text
from blindsight.data.reading import first_appearance, need_column, placed
from blindsight.errors import InvalidInput
from blindsight.keys import Key

__all__ = ["by_column", "dirichlet", "iid", "pathological"]


def iid(columns: Mapping[str, Any], clients: int, *, key: Key, name: str = "iid") -> Population:
    """Examples split uniformly at random; clients' sizes differ by at most one.

    >>> from blindsight.keys import reproducible
    >>> iid({"x": np.arange(7)}, 3, key=reproducible(1)).sizes.tolist()
    [3, 2, 2]
    """
    arrays, total = _arrays(columns)
    _check_clients(clients)
    owners = np.empty(total, np.int64)
    owners[_generator(key).permutation(total)] = np.arange(total) % clients
    return placed(arrays, owners, as_text(np.arange(clients)), "the data", name=name)


def dirichlet(
    columns: Mapping[str, Any], label: str, clients: int, alpha: float, *, key: Key, name: str = "dirichlet"
) -> Population:
    """Examples split so that the proportions of each class over the clients are drawn from Dirichlet(alpha).

    A large `alpha` spreads every class evenly; a small one gives most of a class to few clients, and nothing to many.

    Args:
        columns: Fields of the examples.
        label: Field holding the class.
        clients: Number of clients.
        alpha: Dirichlet parameter: large is even, small is uneven.
        key: Key of the split.
        name: Name of the population.

    >>> from blindsight.keys import reproducible
    >>> data = {"x": np.arange(100), "y": np.arange(100) % 2}
    >>> dirichlet(data, "y", 4, 1e6, key=reproducible(1)).sizes.tolist()
    [25, 25, 25, 25]
    """
    arrays, total = _arrays(columns)
    _check_clients(clients)
    if not 0 < alpha < math.inf:
        raise InvalidInput(f"alpha must be positive and finite, got {alpha}")
    generator = _generator(key)
    owners = np.empty(total, np.int64)
    for rows in _rows_of_classes(arrays, label):
        ends = np.cumsum(_proportions(generator, alpha, clients)) * len(rows)
        # One shift for all ends: a client's expected count is exactly its proportion, and its count that number
        # rounded up or down.
        ends = np.minimum(np.floor(ends + generator.random()), len(rows)).astype(np.int64)
        ends[-1] = len(rows)
        owners[generator.permutation(rows)] = np.repeat(np.arange(clients), np.diff(ends, prepend=0))
    return placed(arrays, owners, as_text(np.arange(clients)), "the data", name=name)


def pathological(
    columns: Mapping[str, Any], label: str, clients: int, k: int, *, key: Key, name: str = "pathological"
) -> Population:
    """Examples split so that each client has `k` classes, and the clients with a class share it evenly.

    If a class has fewer examples than clients, some of them lack it.

    Args:
        columns: Fields of the examples.
        label: Field holding the class.
        clients: Number of clients.
        k: Classes per client.
        key: Key of the split.
        name: Name of the population.

    >>> from blindsight.keys import reproducible
    >>> data = {"x": np.arange(100), "y": np.arange(100) % 10}
    >>> shards = pathological(data, "y", 5, 2, key=reproducible(1))
    >>> [len(set(client["y"].tolist())) for client in shards]
    [2, 2, 2, 2, 2]
    """
    arrays, total = _arrays(columns)
    _check_clients(clients)
    classes = list(_rows_of_classes(arrays, label))
    if not 1 <= k <= len(classes):
        raise InvalidInput(f"k must be between 1 and the {len(classes)} classes of {label!r}, got {k}")
    if clients * k < len(classes):
        raise InvalidInput(
            f"{clients} clients with {k} classes each cannot hold all {len(classes)} classes of {label!r}: raise one"
        )
    generator = _generator(key)
    cards = _cards(generator, len(classes), clients, k)
    owners = np.empty(total, np.int64)
    for card, rows in enumerate(classes):
        holders = generator.permutation(np.flatnonzero(cards == card) // k)
        owners[generator.permutation(rows)] = holders[np.arange(len(rows)) % len(holders)]
    return placed(arrays, owners, as_text(np.arange(clients)), "the data", name=name)


def by_column(columns: Mapping[str, Any], column: str, *, name: str | None = None) -> Population:
    """One client for each distinct value of `column`, which is its id; the other columns are the fields.

    >>> by_column({"writer": np.array(["ann", "bob", "ann"]), "x": np.arange(3)}, "writer")["ann"]["x"].tolist()
    [0, 2]
    """
    arrays, _ = _arrays(columns)
    need_column(column, arrays, "the data")
    values = arrays.pop(column)
    if values.ndim != 1 or values.dtype.kind not in "biuUT":
        raise InvalidInput(
            f"client ids are whole numbers or text, one per example, but {column!r} holds {values.dtype}"
        )
    if not arrays:
        raise InvalidInput(f"the data have no column besides {column!r}: a population needs at least one field")
    owners, distinct = first_appearance(values)
    return placed(arrays, owners, as_text(distinct), "the data", name=name or f"by {column}")


def _arrays(columns: Mapping[str, Any]) -> tuple[Columns, int]:
    arrays = {field: np.asanyarray(column) for field, column in columns.items()}
    lengths = {field: len(column) if column.ndim else 0 for field, column in arrays.items()}
    if len(set(lengths.values())) != 1 or not max(lengths.values()):
        shown = ", ".join(f"{field!r} has {length}" for field, length in lengths.items()) or "there are none"
        raise InvalidInput(f"the columns must have the same number of examples, at least one: {shown}")
    return arrays, next(iter(lengths.values()))


def _check_clients(clients: int) -> None:
    if not clients >= 1:
        raise InvalidInput(f"there must be at least one client, got {clients}")


def _generator(key: Key) -> np.random.Generator:
    return np.random.default_rng(np.frombuffer(key.derive("shards").secret, np.uint32))


def _rows_of_classes(arrays: Columns, label: str) -> Iterator[np.ndarray]:
    """The rows of each class, in the order of the classes."""
    need_column(label, arrays, "the data")
    if arrays[label].ndim != 1 or arrays[label].dtype.kind not in "biuUT":
        raise InvalidInput(f"{label!r} holds {arrays[label].dtype}, not one label per example")
    codes = np.unique(arrays[label], return_inverse=True)[1]
    yield from np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])


def _proportions(generator: np.random.Generator, alpha: float, clients: int) -> np.ndarray:
    """A draw from the symmetric Dirichlet distribution."""
    # If G is Gamma(alpha + 1) and U uniform, G U^(1/alpha) is Gamma(alpha). In logarithms, and relative to the largest
    # U, so that a tiny alpha leaves one client with everything instead of everyone with 0.
    logs = np.log(generator.standard_gamma(alpha + 1, clients))
    exponentials = generator.standard_exponential(clients)
    with np.errstate(over="ignore"):
        logs -= (exponentials - exponentials.min()) / alpha
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def _cards(generator: np.random.Generator, classes: int, clients: int, k: int) -> np.ndarray:
    """The classes of all clients, `k` per client: distinct within a client, and each class equally often.

    `k` neighbours in a shuffled circle of classes are distinct. Each circle is repeated until it divides evenly, then
    the next is shuffled.
    """
    dealt = math.lcm(classes, k)
    circles = -(-clients * k // dealt)
    shuffled = generator.permuted(np.tile(np.arange(classes), (circles, 1)), axis=1)
    return np.tile(shuffled, (1, dealt // classes)).ravel()[: clients * k]
