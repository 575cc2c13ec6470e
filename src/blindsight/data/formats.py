"""Reads a file or folder of any supported format, detected by its name or its first bytes."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from blindsight.data.csv_tables import CSV_SUFFIXES, csv
from blindsight.data.federated import fedjax_sqlite, leaf, sqlite_tables, tff_hdf5, tff_sqlite
from blindsight.data.folders import hugging_face, image_folder
from blindsight.data.json_lines import JSONL_SUFFIXES, jsonl
from blindsight.data.pictures import IMAGE_SUFFIXES
from blindsight.data.population import Population, open_population
from blindsight.data.reading import existing, files_of
from blindsight.data.tables import npz, parquet
from blindsight.errors import InvalidInput

__all__ = ["load", "loader_for", "loader_of", "read_file", "takes"]

Loader = Callable[..., Population]

_SUFFIXES: dict[str, Loader] = {
    ".parquet": parquet,
    **dict.fromkeys(CSV_SUFFIXES, csv),
    **dict.fromkeys(JSONL_SUFFIXES, jsonl),
    ".json": leaf,
    ".h5": tff_hdf5,
    ".hdf5": tff_hdf5,
    ".npz": npz,
}
_FIRST_BYTES: dict[bytes, Loader] = {b"PAR1": parquet, b"\x89HDF\r\n\x1a\n": tff_hdf5, b"PK\x03\x04": npz}
_SQLITE = b"SQLite format 3\0"
_WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods")

_SUPPORTED = (
    f"files {', '.join(_SUFFIXES)}, .sqlite and .db, patterns of tables such as parts/*.csv, and folders of a saved "
    "population, of tables, of LEAF .json files, of images by client, or of a Hugging Face data set"
)


def load(
    path: str | Path,
    *,
    client: str | None = None,
    fields: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    text: Sequence[str] | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    split: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
) -> Population:
    """The population at `path`, in any supported format; options that the format's loader lacks are refused.

    Args:
        path: File or folder, or a pattern of tables such as `parts/*.csv`.
        client: Column holding the client id, for tables (default "client").
        fields: Columns to read; all by default.
        classes: Columns that become labels with named classes, for tables.
        text: Columns to read as text even if they look like numbers, for CSV.
        separator: Separator between the cells of a line, for CSV; inferred from the header by default.
        encoding: Encoding, for CSV; guessed by default.
        decimal: Decimal mark, for CSV; by default a point, or inferred from the numbers.
        split: Split to read, where a file or folder holds several.
        shapes: Shape of the examples of each field, for TFF's SQLite.
        name: Name of the population; that of the file or folder by default.
    """
    given = {"client": client, "fields": fields, "classes": classes, "text": text, "separator": separator}
    given |= {"encoding": encoding, "decimal": decimal, "split": split, "shapes": shapes, "name": name}
    return read_file(path, {option: value for option, value in given.items() if value is not None})


def read_file(path: str | Path, options: Mapping[str, Any]) -> Population:
    """As `load`, with unchecked options from a file or a command line."""
    return loader_for(path, options)(existing(path), **options)


def loader_for(path: str | Path, options: Mapping[str, Any]) -> Loader:
    """The loader for `path`; raises if there is none, or if it lacks one of these options."""
    source, loader = existing(path), loader_of(path)
    if loader is None:
        raise InvalidInput(f"{source} has no supported format: Blindsight reads {_SUPPORTED}")
    supported = [
        name for name, option in inspect.signature(loader).parameters.items() if option.kind is option.KEYWORD_ONLY
    ]
    if unknown := sorted(set(options) - set(supported)):
        takes = ", ".join(supported) or "no options"
        raise InvalidInput(
            f"{source} is read by {loader.__name__}, which has no option {unknown[0]!r}: it takes {takes}"
        )
    return loader


def takes(path: str | Path, option: str) -> bool:
    """Whether the loader for `path` has this option."""
    loader = loader_of(path)
    return loader is not None and option in inspect.signature(loader).parameters


def loader_of(path: str | Path) -> Loader | None:
    """The loader for `path`; None if its format is not supported."""
    source = existing(path)
    return _of_folder(source) if source.is_dir() else _of_file(files_of(path)[0])


def _of_file(file: Path) -> Loader | None:
    if file.suffix.lower() in _WORKBOOKS:
        raise InvalidInput(f"{file} is a workbook: save its sheet as CSV, or pass it to data.table as a DataFrame")
    for suffix, loader in _SUFFIXES.items():
        if file.name.lower().endswith(suffix):
            return loader
    try:
        with file.open("rb") as source:
            first = source.read(16)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read ({error.strerror}): check its permissions") from error
    if first == _SQLITE or file.suffix.lower() in (".sqlite", ".db"):
        return fedjax_sqlite if "federated_data" in sqlite_tables(file) else tff_sqlite
    return next((loader for start, loader in _FIRST_BYTES.items() if first.startswith(start)), None)


def _of_folder(folder: Path) -> Loader | None:
    if (folder / "population.json").is_file():
        return open_population
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        return hugging_face
    if tables := _of_tables([*folder.glob("*")]):
        return tables
    if next(folder.glob("*.json"), None):
        return leaf
    if any(file.suffix.lower() in IMAGE_SUFFIXES for file in folder.glob("*/**/*")):
        return image_folder  # whatever else a client's folder contains
    if tables := _of_tables([*folder.rglob("*")]):
        return tables
    return image_folder if any(inner.is_dir() for inner in folder.glob("[!.]*")) else None


def _of_tables(files: Sequence[Path]) -> Loader | None:
    """The loader of a table's parts, if any of these files is one."""
    for loader, suffixes in ((parquet, (".parquet",)), (csv, CSV_SUFFIXES), (jsonl, JSONL_SUFFIXES)):
        if any(file.name.lower().endswith(suffixes) and not file.name.startswith(".") for file in files):
            return loader
    return None
