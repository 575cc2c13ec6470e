"""Shared by all loaders: locating invalid rows, and grouping examples by client."""

import dataclasses
import difflib
import glob
import gzip
import importlib
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.population import TEXT, Columns, Population
from blindsight.errors import InvalidInput

__all__ = [
    "ClientByClient",
    "FileRows",
    "as_classes",
    "existing",
    "exists",
    "files_of",
    "first_appearance",
    "native",
    "need",
    "need_column",
    "one_split",
    "placed",
    "refuse_infinite",
    "refuse_nan",
    "table_name",
    "table_name_of",
    "unpacked",
    "wanted_columns",
]


_INDEX = re.compile(r"^__index_level_[0-9]+__$")  # what pandas' index without a name becomes in Arrow, and in Parquet


@dataclasses.dataclass(frozen=True)
class FileRows:
    """The concatenated rows of one or several files; error messages give a row's own file and number, from 1."""

    files: Sequence[str | Path]
    counts: Sequence[int]

    @property
    def total(self) -> int:
        """Number of rows of all files."""
        return sum(self.counts)

    def refuse_none(self) -> None:
        """Refuse files without rows."""
        if not self.total:
            raise InvalidInput(f"{self.files[0]} has no rows: there is nothing to read")

    def at(self, row: int, field: str) -> str:
        """The location of a value, for messages.

        >>> FileRows(["a.csv", "b.csv"], [2, 5]).at(3, "label")
        "b.csv, row 2, field 'label'"
        """
        ends = np.cumsum(self.counts)
        file = int(np.searchsorted(ends, row, side="right"))
        return f"{self.files[file]}, row {row - int(ends[file]) + self.counts[file] + 1}, field {field!r}"


def unpacked(file: Path) -> bytes:
    """The bytes in a file, which may be compressed as `.gz` or `.xz`."""
    openers: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open}
    try:
        with openers.get(file.suffix.lower(), lambda path: path.open("rb"))(file) as source:
            return source.read()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InvalidInput(f"{file} cannot be read ({error}): check that it is complete") from error


def exists(path: str | Path) -> bool:
    """Whether the file or folder exists, or a file matches the pattern `path`."""
    return Path(path).exists() or bool(_matches(path))


def existing(path: str | Path) -> Path:
    """`path`, if it exists, or if files match it."""
    if not exists(path):
        raise InvalidInput(f"there is no file or folder {path}: check the path")
    return Path(path)


def files_of(path: str | Path | Sequence[str | Path], *suffixes: str) -> list[Path]:
    """The files that `path` refers to: itself, those in a folder with these suffixes, or those of a pattern or list."""
    paths = [path] if isinstance(path, str | Path) else list(path)
    if not paths:
        raise InvalidInput("the list of files is empty: give at least one")
    files: list[Path] = []
    for one in paths:
        place, inside = existing(one), _matches(one)
        if not inside:
            inside = sorted(file for file in place.rglob("*") if _is_shown(file, place)) if place.is_dir() else [place]
        if place.is_dir():
            inside = [file for file in inside if file.name.lower().endswith(suffixes)]
        if not inside:
            raise InvalidInput(f"the folder {one} has no {' or '.join(suffixes)} file: check the path")
        files += inside
    return files


def table_name(path: str | Path) -> str:
    """The name of the population in a file or folder; files of a pattern are named after their folder.

    >>> table_name("data/people.csv.gz"), table_name("data/people-*.csv"), table_name("data/**/*.csv")
    ('people', 'data', 'data')
    """
    place = Path(path)
    if not place.exists():
        place = next((one for one in (place, *place.parents) if not glob.has_magic(str(one))), place)
    return place.resolve().name.partition(".")[0] or "table"


def table_name_of(path: str | Path | Sequence[str | Path]) -> str:
    """The name of the population in what a loader is given; that of the first in a list."""
    return table_name(path if isinstance(path, str | Path) else path[0])


def _matches(path: str | Path) -> list[Path]:
    """The files that match a pattern such as `parts/*.csv`; none if `path` is no pattern, or exists by that name."""
    if not glob.has_magic(str(path)) or Path(path).exists():
        return []
    return sorted(file for file in map(Path, glob.glob(str(path), recursive=True)) if file.is_file())


def _is_shown(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    return not hidden and file.is_file()


def need(module: str, extra: str, what: str) -> Any:
    """The module of an optional dependency."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidInput(f"reading {what} needs the package {module}: pip install 'blindsight[{extra}]'") from None


def need_column(column: str, columns: Iterable[str], file: str | Path) -> None:
    """Refuse a column that does not exist, and suggest the nearest one that does."""
    names = list(columns)
    if column in names:
        return
    near = difflib.get_close_matches(str(column), names, n=1, cutoff=0)  # 0 names no column, but "0" may
    listed = ", ".join(repr(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")
    hint = f"the nearest of its columns ({listed}) is {near[0]!r}" if near else "it has no columns"
    raise InvalidInput(f"{file} has no column {column!r}: {hint}")


def wanted_columns(
    names: Sequence[str], client: str, fields: Sequence[str] | None, classes: Sequence[str], file: str | Path
) -> list[str]:
    """The columns to read besides the client's."""
    if client == "client" and client not in names:  # the default
        listed = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
        raise InvalidInput(
            f"{file} has no column {client!r} with the client id: choose it from {listed} with "
            f'--client NAME or client = "NAME"'
        )
    need_column(client, names, file)
    wanted = list(dict.fromkeys([one for one in names if not _INDEX.match(one)] if fields is None else fields))
    for field in dict.fromkeys((client, *wanted)):
        need_column(field, names, file)
        if not field or names.count(field) > 1:
            state = "without a name" if not field else f"named {field!r} more than once"
            raise InvalidInput(
                f"{file} has a column {state}: name each column once, or choose others with fields=(...)"
            )
    if client in wanted:
        wanted.remove(client)
    for field in classes:
        need_column(field, wanted, file)
    if not wanted:
        raise InvalidInput(f"{file} has no column besides {client!r}: a population needs at least one field")
    return wanted


def one_split(split: str | None, splits: Sequence[str], file: str | Path) -> str:
    """The requested split, or the only one: several splits are never pooled."""
    listed = ", ".join(f"split={name!r}" for name in splits)
    if split is None and len(splits) > 1:
        raise InvalidInput(f"{file} has {len(splits)} splits: choose one of {listed}")
    if not splits or split not in (None, *splits):
        raise InvalidInput(f"{file} has no split {split or 'at all'!r}: it has {listed or 'no examples'}")
    return splits[0] if split is None else split


def native(column: np.ndarray) -> np.ndarray:
    """The column in this machine's byte order."""
    return column if column.dtype.isnative else column.astype(column.dtype.newbyteorder("="))


def refuse_nan(column: np.ndarray, rows: FileRows, field: str, *, single: bool = False) -> None:
    """Refuse the first image or vector with a NaN in it; a `single` number may be missing in tables."""
    if column.dtype.kind != "f" or (column.ndim < 2 and not single):
        return
    with np.errstate(all="ignore"):
        if not np.isnan(np.sum(column, dtype=np.float64)):  # a sum needs no memory
            return
    missing = np.flatnonzero(np.isnan(column.ravel()))  # none if the sum had infinities of both signs
    if len(missing):
        row = int(missing[0]) // (column.size // len(column))
        raise InvalidInput(f"{rows.at(row, field)}: the value is missing (NaN); fill it in or leave the row out")


def refuse_infinite(column: np.ndarray, rows: FileRows, field: str) -> None:
    """Refuse the first infinite number."""
    if column.dtype.kind != "f" or not len(column):
        return
    if len(infinite := np.flatnonzero(np.isinf(column.reshape(len(column), -1)).any(axis=1))):
        raise InvalidInput(
            f"{rows.at(int(infinite[0]), field)}: the value is infinite; correct it, or leave it out as missing"
        )


def as_classes(column: np.ndarray, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as int32 codes, and their names in sorted order; an empty text is a missing label.

    >>> as_classes(np.array(["no", "yes", "", "no"]), "notes.csv, field 'label'")
    (array([ 0,  1, -1,  0], dtype=int32), ('no', 'yes'))
    """
    if column.ndim != 1 or column.dtype.kind not in "biuUT":
        raise InvalidInput(f"{where} holds {column.dtype}, not one label per row: remove it from classes")
    names, codes = np.unique(column, return_inverse=True)
    listed = tuple(str(name) for name in names.tolist())
    is_first_empty = listed[:1] == ("",)  # sorted before all others
    return codes.astype(np.int32) - is_first_empty, listed[is_first_empty:]


def first_appearance(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A code for each value, and the distinct values, in order of first appearance.

    >>> first_appearance(np.array([7, 3, 7]))
    (array([0, 1, 0]), array([7, 3]))
    """
    distinct, first, codes = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[codes], distinct[order]


def placed(
    columns: Columns,
    owners: np.ndarray,
    ids: np.ndarray,
    file: str | Path,
    *,
    name: str,
    classes: Sequence[str] = (),
    named: Mapping[str, tuple[str, ...]] | None = None,
) -> Population:
    """The population in which row i belongs to client `owners[i]`; a client's rows stay in order.

    Args:
        columns: Fields, one value per row.
        owners: Client of every row, as an index into `ids`.
        ids: Client ids.
        file: Where the rows come from, for error messages.
        name: Name of the population.
        classes: Fields that become codes with named classes.
        named: Class names of fields that hold codes already.
    """
    names = dict(named or {})
    for field in classes:
        columns[field], names[field] = as_classes(columns[field], f"{file}, field {field!r}")
    if np.any(owners[1:] < owners[:-1]):
        order = np.argsort(owners, kind="stable")
        columns = {field: column[order] for field, column in columns.items()}
    sizes = np.bincount(owners, minlength=len(ids))
    return Population(columns, sizes=sizes, ids=ids, name=name, classes=names)


class ClientByClient:
    """Collects columns client by client, and checks each against those before it."""

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray]] = {}
        self._places: dict[str, str] = {}  # the first client with examples of each field
        self._ids: list[str] = []
        self._sizes: list[int] = []

    def add(self, client: str, columns: Columns, file: str | Path) -> None:
        """Append one client's examples."""
        where = f"{file}, client {client!r}"
        if not columns:
            raise InvalidInput(f"{where} has no fields: give it the same fields as the others, or leave it out")
        if not self._ids:
            self._parts = {field: [] for field in columns}
        if differing := sorted(set(columns) ^ set(self._parts)):
            state = "is missing" if differing[0] in self._parts else "is missing from the clients before it"
            raise InvalidInput(f"{where}: field {differing[0]!r} {state}; give all clients the same fields")
        lengths = {field: len(column) for field, column in columns.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{field!r} has {length}" for field, length in lengths.items())
            raise InvalidInput(f"{where}: the fields differ in their number of examples ({shown}); make them equal")
        for field, column in columns.items():
            self._append(field, column, where)
        self._ids.append(client)
        self._sizes.append(next(iter(lengths.values())))

    def _append(self, field: str, column: np.ndarray, where: str) -> None:
        if column.dtype.kind not in "biufT":
            raise InvalidInput(f"{where}, field {field!r} holds {column.dtype}: use numbers or text")
        if not len(column):
            return  # an empty list has no dtype or shape to compare
        refuse_nan(column, FileRows([where], [len(column)]), field, single=True)
        refuse_infinite(column, FileRows([where], [len(column)]), field)
        parts = self._parts[field]
        if parts and (_kind(column), column.shape[1:]) != (_kind(parts[0]), parts[0].shape[1:]):
            raise InvalidInput(
                f"{where}, field {field!r}: its examples are {_in_words(column)}, but those of {self._places[field]} "
                f"are {_in_words(parts[0])}; make them alike"
            )
        self._places.setdefault(field, where.rpartition(", ")[2])
        parts.append(native(column))

    def population(self, name: str, file: str | Path) -> Population:
        """The population of all added clients."""
        if not self._ids:
            raise InvalidInput(f"{file} has no clients: there is nothing to read")
        columns = {
            field: np.concatenate(parts) if parts else np.zeros(0, np.float32) for field, parts in self._parts.items()
        }
        whole = Population(columns, sizes=self._sizes, ids=np.array(self._ids, dtype=TEXT), name=name)
        return whole.with_types_of(True)


def _kind(column: np.ndarray) -> str:
    """Text, booleans or numbers: integers and floats may share a column."""
    return {"T": "text", "b": "booleans"}.get(column.dtype.kind, "numbers")


def _in_words(column: np.ndarray) -> str:
    shape = "x".join(str(length) for length in column.shape[1:])
    return f"{shape} {_kind(column)}" if shape else f"single {_kind(column)}"
