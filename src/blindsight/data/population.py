"""`Population`: clients and their examples, stored in columns.

One flat array per field concatenates all clients' examples, and `offsets` marks where each client's begin. A million
clients need no Python object each, and a population on disk is memory-mapped. Code with access to a population can see
the data, so populations exist only in simulations; only bounded sums leave them.
"""

import functools
import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from blindsight.data.columns import TEXT, as_text, load_column, save_column
from blindsight.data.content import content_of
from blindsight.data.description import Description
from blindsight.errors import BlindsightError, InvalidInput

__all__ = ["Columns", "Description", "Population", "open_population"]

Columns = dict[str, np.ndarray]
"""Field name to array; the first axis indexes examples. Text has numpy's variable-width string dtype."""

ColumnChange = Callable[[np.ndarray, Columns], Columns]
"""Maps client indices and those clients' examples to the changed examples."""

_UNREADABLE = (OSError, EOFError, AttributeError, LookupError, TypeError, ValueError, MemoryError, RecursionError)
_DAMAGED = (*_UNREADABLE, zipfile.BadZipFile)  # numpy takes some bytes for a damaged zip file


class Population:
    """Clients with string ids and their examples.

    >>> people = Population({"x": np.arange(5)}, sizes=[2, 0, 3], name="three people")
    >>> people.size, people.n_examples, people["2"]["x"].tolist()
    (3, 5, [2, 3, 4])
    """

    is_elsewhere = False
    """Whether the examples are at the sites of a fleet."""

    types_read_off = False
    """Whether a loader chose the types of fields by looking at values, which is for people who may see the data."""

    def __init__(
        self,
        columns: Mapping[str, Any],
        *,
        sizes: Any,
        name: str,
        ids: Any = None,
        classes: Mapping[str, tuple[str, ...]] | None = None,
        synthetic: bool = False,
    ) -> None:
        sizes = np.asarray(sizes)
        if sizes.ndim != 1 or not len(sizes) or sizes.dtype.kind not in "iu" or sizes.min() < 0:
            raise InvalidInput(
                "sizes must give each client's number of examples as whole numbers, for at least one client"
            )
        self.name = name
        self.offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.ids = as_text(np.arange(len(sizes)) if ids is None else ids)
        self.classes = dict(classes or {})
        self.synthetic = synthetic
        self._columns = {field: _as_column(column) for field, column in columns.items()}
        self._origin: Population | None = None  # the population whose fields were replaced
        self._whole: Callable[[], str] | None = None  # the content of the table that this is read from
        _check_ids(self.ids, self.size, name)
        check_columns(self._columns, self.n_examples, name)

    @property
    def size(self) -> int:
        """Number of clients."""
        return len(self.offsets) - 1

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """Number of examples of each client."""
        return np.diff(self.offsets)

    @property
    def n_examples(self) -> int:
        """Number of examples of all clients."""
        return int(self.offsets[-1])

    @property
    def columns(self) -> Columns:
        """All examples: one flat array per field, client by client."""
        return self._columns

    @property
    def fields(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Dtype and shape of one example in each field."""
        return {field: (column.dtype, column.shape[1:]) for field, column in self.columns.items()}

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self.size:,} clients, {self.n_examples:,} examples>"

    def _repr_html_(self) -> str:
        from blindsight import pages

        rows = [
            (
                name,
                f"{'text' if dtype == TEXT else dtype}{list(shape) if shape else ''}",
                len(self.classes.get(name, ())) or "",
            )
            for name, (dtype, shape) in self.fields.items()
        ]
        origin = "synthetic" if self.synthetic else "real"
        summary = f"{self.size:,} clients, {self.n_examples:,} examples, {origin} data"
        return pages.card(
            self.name, rows, about=f"{summary}; simulation_only", headings=("field", "one example", "classes")
        )

    def __getitem__(self, client: str | int) -> Columns:
        """One client's examples, by id or by index."""
        return self.examples(np.array([self.index(client) if isinstance(client, str) else range(self.size)[client]]))

    def __iter__(self) -> Iterator[Columns]:
        return (self[client] for client in range(self.size))

    def index(self, client: str) -> int:
        """The index of the client with that id."""
        index = self._index.get(client)
        if index is None:
            raise InvalidInput(f"there is no client {client!r} in {self.name}: ids look like {str(self.ids[0])!r}")
        return index

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {client: index for index, client in enumerate(self.ids.tolist())}

    def examples(self, clients: np.ndarray) -> Columns:
        """The examples of the clients with these indices, concatenated in that order."""
        rows = self.rows(clients)
        return {field: column[rows] for field, column in self.columns.items()}

    def rows(self, clients: np.ndarray) -> np.ndarray:
        """Indices of these clients' examples in `columns`."""
        return ranges(self.offsets[:-1][clients], self.sizes[clients])

    def select(self, clients: Any, *, name: str | None = None) -> "Population":
        """The population of only these clients (indices, or a mask over all), with their ids."""
        chosen = self._chosen(clients)
        selected = Population(
            self.examples(chosen),
            sizes=self.sizes[chosen],
            ids=self.ids[chosen],
            name=name or self.name,
            classes=self.classes,
            synthetic=self.synthetic,
        )
        return selected.with_types_of(self)

    def keep(self, examples: np.ndarray) -> "Population":
        """The same clients with only the examples in this mask; clients without any stay."""
        before = np.concatenate([[0], np.cumsum(examples)])  # kept examples before each
        kept = Population(
            {field: column[examples] for field, column in self.columns.items()},
            sizes=np.diff(before[self.offsets]),
            ids=self.ids,
            name=self.name,
            classes=self.classes,
            synthetic=self.synthetic,
        )
        return kept.with_types_of(self)

    def _chosen(self, clients: Any) -> np.ndarray:
        try:
            chosen = np.arange(self.size)[np.asarray(clients)]
        except IndexError as error:
            raise InvalidInput(
                f"clients of {self.name} are selected by index or by a mask over all: {error}"
            ) from error
        if not chosen.size:
            raise InvalidInput(f"no client of {self.name} was selected")
        return np.atleast_1d(chosen)

    def replace(self, columns: Mapping[str, np.ndarray], *, name: str | None = None) -> "Population":
        """The same clients with other fields, example by example; under another `name` it counts as different data."""
        replaced = Population(
            columns,
            sizes=self.sizes,
            ids=self.ids,
            name=name or self.name,
            classes={field: names for field, names in self.classes.items() if field in columns},
            synthetic=self.synthetic,
        )
        replaced._origin = None if name else self._origin or self
        return replaced.with_types_of(self)

    def transform(self, change: ColumnChange, *, name: str, recipe: Any = None) -> "Population":
        """The same clients after `change(clients, columns)`, which keeps each client's number of examples.

        A generated population stays generated: the change is applied when examples are drawn. `recipe` is everything
        the change depends on, as for `data.generated.GeneratedPopulation`.
        """
        return self.replace(change(np.arange(self.size), self.columns), name=name)

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hex digits that change with any client or example. Only for simulations, or for the data's owner."""
        return fingerprint_of(self.ids, self.sizes, self.columns)

    @property
    def content(self) -> str:
        """Identifies the data in a ledger, whatever their name: see `data.content`. As secret as the data.

        Fields derived from the data do not change it. Empty for a generated population, which has no real data.
        """
        return self._content if self._origin is None else self._origin.content

    def part_of(self, whole: Callable[[], str]) -> Self:
        """This population, identified in a ledger by the content of the whole table that it is read from."""
        self._whole = whole
        return self

    def with_types_of(self, other: "Population | bool") -> Self:
        """This population, whose types were read off values if those of `other` were."""
        self.types_read_off = other if isinstance(other, bool) else other.types_read_off
        return self

    @functools.cached_property
    def _content(self) -> str:
        if self._whole is not None:
            return self._whole()
        # without examples, hash the clients instead: a ledger without an entry would reveal that there are none
        clients = json.dumps([self.name, self.ids.tolist()]).encode()
        return content_of(self.columns) or hashlib.blake2b(clients, digest_size=16).hexdigest()

    def describe(self) -> "Description":
        """Clients, examples, fields and sizes, without noise. For simulations only; never publish it."""
        quantiles = {"least": 0, "quarter": 0.25, "median": 0.5, "three quarters": 0.75, "most": 1}
        return Description(
            name=self.name,
            clients=self.size,
            examples=self.n_examples,
            fields={
                field: f"{'text' if dtype == TEXT else dtype}{list(shape) if shape else ''}"
                for field, (dtype, shape) in self.fields.items()
            },
            classes={field: list(names) for field, names in self.classes.items()},
            examples_per_client={word: float(np.quantile(self.sizes, q)) for word, q in quantiles.items()},
            without_examples=int(np.sum(self.sizes == 0)),
            synthetic=self.synthetic,
        )

    def save(self, path: str | Path) -> Path:
        """Write the population as a folder of `.npy` files that `open_population` memory-maps."""
        folder = Path(path)
        try:
            folder.mkdir(parents=True, exist_ok=False)
        except FileExistsError:
            raise InvalidInput(f"{folder} exists already: choose another folder") from None
        except OSError as error:
            raise BlindsightError(f"cannot create {folder} ({error.strerror}): choose another folder") from error
        np.save(folder / "sizes.npy", self.sizes)
        for number, column in enumerate([self.ids, *self.columns.values()]):
            save_column(folder / f"column-{number}.npy", column)
        header = {"format": 1, "name": self.name, "fields": list(self.columns)}
        header |= {"classes": self.classes, "synthetic": self.synthetic}
        text = json.dumps(header, indent=2) + "\n"
        (folder / "population.json").write_text(text, encoding="utf-8")  # last: marks the folder as complete
        return folder


def open_population(path: str | Path) -> Population:
    """The population saved in the folder `path`, memory-mapped: data are read on first use."""
    folder = Path(path)
    try:
        header = json.loads((folder / "population.json").read_text(encoding="utf-8"))
        if header["format"] != 1:
            raise InvalidInput(f"{folder} was saved by a newer Blindsight: update to read it")
        return Population(
            {f: load_column(folder / f"column-{n}.npy") for n, f in enumerate(header["fields"], 1)},
            sizes=np.load(folder / "sizes.npy"),
            ids=load_column(folder / "column-0.npy"),
            name=header["name"],
            classes={field: tuple(names) for field, names in header["classes"].items()},
            synthetic=header["synthetic"],
        )
    except InvalidInput:
        raise
    except _DAMAGED as error:
        raise InvalidInput(f"{folder} is not a saved population, or it is damaged: {error}") from error


def fingerprint_of(ids: np.ndarray, sizes: np.ndarray, columns: Columns) -> str:
    """16 hex digits that change with any id, size or value."""
    digest = hashlib.blake2b(json.dumps(list(columns)).encode(), digest_size=8)
    for column in (ids, sizes, *columns.values()):
        digest.update(f"{column.dtype} {column.shape}".encode())
        if column.dtype == TEXT:
            digest.update(json.dumps(column.tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The integers starts[i] .. starts[i] + counts[i] - 1 for every i, concatenated.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts, dtype=np.int64)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


def _as_column(values: Any) -> np.ndarray:
    column = np.asanyarray(values)
    return as_text(values) if column.dtype.kind in "TU" else column


def _check_ids(ids: np.ndarray, size: int, name: str) -> None:
    if ids.shape != (size,):
        raise InvalidInput(f"{name} has {size:,} clients but {ids.size:,} ids")
    if len(np.unique(ids)) < size:
        raise InvalidInput(f"two clients of {name} have the same id: make ids unique")


def check_columns(columns: Columns, n_examples: int, name: str) -> None:
    """Refuse columns that do not hold this many numbers or texts each."""
    for field, column in columns.items():
        rows = column.shape[0] if column.ndim else 0
        if rows != n_examples or not column.ndim:
            raise InvalidInput(f"field {field!r} of {name} has {rows:,} examples, but its clients have {n_examples:,}")
        if column.dtype.kind not in "biufT":
            raise InvalidInput(f"field {field!r} of {name} holds {column.dtype}: use numbers or text")
