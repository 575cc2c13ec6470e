"""`Population`: clients and their examples, stored in columns.

One flat array per field concatenates all clients' examples, and `offsets` marks where each client's begin. A million
clients need no Python object each, and a population on disk is memory-mapped. Code with access to a population can see
the data, so populations exist only in simulations; only bounded sums leave them.
"""

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.content import content_of
from blindsight.data.description import Description
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.keys import digest_of

__all__ = ["Columns", "Description", "GeneratedPopulation", "Population", "open_population"]

Columns = dict[str, np.ndarray]
"""Field name to array; the first axis indexes examples. Text has numpy's variable-width string dtype."""

Change = Callable[[np.ndarray, Columns], Columns]
"""Maps client indices and those clients' examples to the changed examples."""

Draw = Callable[[np.ndarray], Columns]
"""Maps client indices to those clients' examples, concatenated in that order."""

TEXT = np.dtypes.StringDType()

_FEW = 100  # clients drawn for a fingerprint


class Population:
    """Clients with string ids and their examples.

    >>> people = Population({"x": np.arange(5)}, sizes=[2, 0, 3], name="three people")
    >>> people.size, people.n_examples, people["2"]["x"].tolist()
    (3, 5, [2, 3, 4])
    """

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
        _check_ids(self.ids, self.size, name)
        _check_columns(self._columns, self.n_examples, name)

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
        return Population(
            self.examples(chosen),
            sizes=self.sizes[chosen],
            ids=self.ids[chosen],
            name=name or self.name,
            classes=self.classes,
            synthetic=self.synthetic,
        )

    def keep(self, examples: np.ndarray) -> "Population":
        """The same clients with only the examples in this mask; clients without any stay."""
        before = np.concatenate([[0], np.cumsum(examples)])  # kept examples before each
        return Population(
            {field: column[examples] for field, column in self.columns.items()},
            sizes=np.diff(before[self.offsets]),
            ids=self.ids,
            name=self.name,
            classes=self.classes,
            synthetic=self.synthetic,
        )

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
        return replaced

    def transform(self, change: Change, *, name: str, recipe: Any = None) -> "Population":
        """The same clients after `change(clients, columns)`, which returns as many examples for each client.

        A generated population stays generated: the change is applied when examples are drawn. `recipe` is everything
        the change depends on, as for `GeneratedPopulation`.
        """
        return self.replace(change(np.arange(self.size), self.columns), name=name)

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hex digits that change with any client or example. Only for simulations, or for the data's owner."""
        return _fingerprint(self.ids, self.sizes, self.columns)

    @property
    def content(self) -> str:
        """Identifies the data in a ledger under any name: see `data.content`. As secret as the data.

        Fields derived from the data do not change it. Empty for a generated population, which has no real data.
        """
        return self._content if self._origin is None else self._origin.content

    @functools.cached_property
    def _content(self) -> str:
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
            _save_column(folder / f"column-{number}.npy", column)
        header = {"format": 1, "name": self.name, "fields": list(self.columns)}
        header |= {"classes": self.classes, "synthetic": self.synthetic}
        text = json.dumps(header, indent=2) + "\n"
        (folder / "population.json").write_text(text, encoding="utf-8")  # last: marks the folder as complete
        return folder


class GeneratedPopulation(Population):
    """A population that generates its examples on demand, the same ones each time.

    `recipe` is everything that `draw` depends on: generator, seed and options. Populations with different recipes count
    as different data. Without a recipe, comparing them means drawing all clients.
    """

    def __init__(
        self,
        draw: Draw,
        *,
        sizes: Any,
        name: str,
        recipe: Any = None,
        ids: Any = None,
        classes: Mapping[str, tuple[str, ...]] | None = None,
        synthetic: bool = False,
    ) -> None:
        self.draw = draw
        super().__init__({}, sizes=sizes, name=name, ids=ids, classes=classes, synthetic=synthetic)
        self._recipe = recipe
        self._numbers = np.arange(self.size)  # indices of these clients in the recipe

    @property
    def columns(self) -> Columns:
        """All examples, drawn once and kept."""
        if not self._columns:
            self._columns = self.draw(np.arange(self.size))
            _check_columns(self._columns, self.n_examples, self.name)
        return self._columns

    @property
    def fields(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Dtype and shape of one example in each field, taken from the first client with examples."""
        some = self.draw(np.array([int(np.argmax(self.sizes > 0))]))
        return {field: (column.dtype, column.shape[1:]) for field, column in some.items()}

    def examples(self, clients: np.ndarray) -> Columns:
        """The examples of these clients; no others are drawn."""
        return super().examples(clients) if self._columns else self.draw(clients)

    @functools.cached_property
    def fingerprint(self) -> str:
        """As for any population; for a large one, of its recipe and of its first clients, to detect changed code."""
        few = self._recipe is None or self.size <= _FEW
        drawn = _fingerprint(self.ids, self.sizes, self.draw(np.arange(self.size if few else _FEW)))
        return drawn if few else digest_of([drawn, self._recipe, self._numbers])[:16]

    @property
    def content(self) -> str:
        """Empty: generated examples are no person's data."""
        return ""

    def select(self, clients: Any, *, name: str | None = None) -> "Population":
        """The population of only these clients, still generated on demand."""
        chosen = self._chosen(clients)
        options: dict[str, Any] = {"ids": self.ids[chosen], "classes": self.classes, "synthetic": self.synthetic}
        options["recipe"] = self._recipe
        draw = lambda some: self.draw(chosen[some])  # noqa: E731
        selected = GeneratedPopulation(draw, sizes=self.sizes[chosen], name=name or self.name, **options)
        selected._numbers = self._numbers[chosen]
        return selected

    def transform(self, change: Change, *, name: str, recipe: Any = None) -> "Population":
        """The same clients after `change(clients, columns)`, applied when examples are drawn."""
        options: dict[str, Any] = {"ids": self.ids, "classes": self.classes, "synthetic": self.synthetic}
        if self._recipe is not None and recipe is not None:
            options["recipe"] = (self._recipe, self._numbers, recipe)
        return GeneratedPopulation(lambda some: change(some, self.draw(some)), sizes=self.sizes, name=name, **options)


def open_population(path: str | Path) -> Population:
    """The population saved in the folder `path`, memory-mapped: data are read on first use."""
    folder = Path(path)
    try:
        header = json.loads((folder / "population.json").read_text(encoding="utf-8"))
        if header["format"] != 1:
            raise InvalidInput(f"{folder} was saved by a newer Blindsight: update to read it")
        return Population(
            {f: _load_column(folder / f"column-{n}.npy") for n, f in enumerate(header["fields"], 1)},
            sizes=np.load(folder / "sizes.npy"),
            ids=_load_column(folder / "column-0.npy"),
            name=header["name"],
            classes={field: tuple(names) for field, names in header["classes"].items()},
            synthetic=header["synthetic"],
        )
    except InvalidInput:
        raise
    except (OSError, EOFError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{folder} is not a saved population, or it is damaged: {error}") from error


def as_text(values: Any) -> np.ndarray:
    """An array of variable-width strings, without a Python object for each."""
    if not isinstance(values, np.ndarray):
        return np.array(values, dtype=TEXT)  # directly: fixed-width strings would drop trailing NUL characters
    return values if values.dtype == TEXT else values.astype(TEXT)


def _fingerprint(ids: np.ndarray, sizes: np.ndarray, columns: Columns) -> str:
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


def _check_columns(columns: Columns, n_examples: int, name: str) -> None:
    for field, column in columns.items():
        rows = column.shape[0] if column.ndim else 0
        if rows != n_examples or not column.ndim:
            raise InvalidInput(f"field {field!r} of {name} has {rows:,} examples, but its clients have {n_examples:,}")
        if column.dtype.kind not in "biufT":
            raise InvalidInput(f"field {field!r} of {name} holds {column.dtype}: use numbers or text")


def _save_column(path: Path, column: np.ndarray) -> None:
    """Save numbers as they are, and text as UTF-8 bytes with the length of each."""
    if column.dtype == TEXT:
        encoded = [text.encode() for text in column.ravel().tolist()]
        lengths = np.array([len(text) for text in encoded], np.int64)
        np.save(path.with_suffix(".lengths.npy"), lengths.reshape(column.shape))
        column = np.frombuffer(b"".join(encoded), np.uint8)
    np.save(path, column)


def _load_column(path: Path) -> np.ndarray:
    column = np.load(path, mmap_mode="r")
    if not path.with_suffix(".lengths.npy").exists():
        return column
    lengths = np.load(path.with_suffix(".lengths.npy"))
    bounds, raw = [0, *np.cumsum(lengths).tolist()], column.tobytes()
    if bounds[-1] != len(raw):
        raise InvalidInput(f"{path} is damaged: its texts have {len(raw):,} bytes instead of {bounds[-1]:,}")
    texts = [raw[start:end].decode() for start, end in itertools.pairwise(bounds)]
    return np.array(texts, dtype=TEXT).reshape(lengths.shape)
