"""Loaders of tables with a column of client ids: Parquet files and NumPy archives; for CSV see `csv_tables`.

Rows are grouped without a Python loop over them: stably by client, clients in order of first appearance.
"""

import dataclasses
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.arrow import arrow_population, no_client
from blindsight.data.arrow_values import as_strings, is_number, is_text, plain
from blindsight.data.csv_tables import CSV_SUFFIXES, read_private_csv
from blindsight.data.dialect import Dialect
from blindsight.data.population import Columns, Population, as_text
from blindsight.data.reading import (
    FileRows,
    existing,
    files_of,
    first_appearance,
    native,
    need_column,
    placed,
    refuse_infinite,
    refuse_nan,
    table_name_of,
    wanted_columns,
)
from blindsight.data.whole import known_as_whole
from blindsight.errors import InvalidInput

__all__ = ["RawTable", "arrow_of", "npz", "parquet", "read_columns"]


@known_as_whole
def parquet(
    path: str | Path | Sequence[str | Path],
    *,
    client: str = "client",
    fields: Sequence[str] | None = None,
    classes: Sequence[str] = (),
    name: str | None = None,
) -> Population:
    """The population in a Parquet file, in all `.parquet` files of a folder, or those of a pattern or a list.

    `client` is the column holding the client id. Numbers, booleans and text keep their types, except that a column of
    integers or booleans with missing values cannot (`data.missing`). Decimals become floats, times seconds since 1970
    (`data.arrow_values`), encoded images pixels, and lists of one length arrays. Columns named in `classes` become
    int32 labels with their names in `Population.classes`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = files_of(path, ".parquet")
    tables: list[Any] = []
    for file in files:
        try:
            source = pq.ParquetFile(file)
            wanted = wanted_columns(source.schema_arrow.names, client, fields, classes, file)
            tables.append(source.read(columns=[client, *wanted]))
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(f"{file} is not a Parquet file, or it is damaged: write it again") from error
        _refuse_missing(tables[0].schema, tables[-1].schema, files[0], file)
    rows = FileRows(files, [len(table) for table in tables])
    columns = {field: _joined([one.column(field) for one in tables], field, files) for field in tables[0].column_names}
    return arrow_population(pa.table(columns), rows, client, classes=classes, name=name or table_name_of(path))


@known_as_whole
def npz(
    path: str | Path,
    *,
    client: str = "client",
    fields: Sequence[str] | None = None,
    classes: Sequence[str] = (),
    name: str | None = None,
) -> Population:
    """The population in a NumPy archive of equally long arrays, one of which, `client`, holds the client ids."""
    file = existing(path)
    columns = _read_npz(file, client, fields, classes)
    owners = columns.pop(client)
    rows = FileRows([file], [np.size(owners)])
    rows.refuse_none()
    if owners.ndim != 1 or owners.dtype.kind not in "iuUT":
        raise InvalidInput(f"{file}: client ids are whole numbers or text, but {client!r} holds {_shape(owners)}")
    for field, column in columns.items():
        if column.ndim == 0 or len(column) != rows.total:
            raise InvalidInput(
                f"{file}: field {field!r} has {_shape(column)}, but {client!r} has {rows.total} rows; leave it out "
                f"with fields=(...) or make them equal"
            )
        refuse_nan(column, rows, field)
        refuse_infinite(column, rows, field)
    if owners.dtype.kind in "UT" and len(empty := np.flatnonzero(owners == "")):
        no_client(rows, int(empty[0]), client)
    codes, ids = first_appearance(owners)
    whole = placed(columns, codes, as_text(ids), file, classes=classes, name=name or file.stem)
    return whole.with_types_of(True)


@dataclasses.dataclass(frozen=True)
class RawTable:
    """Columns as Arrow reads them, those of CSV as text, in which numbers have this decimal mark."""

    columns: dict[str, Any]
    decimal: str = "."


def read_columns(path: str | Path, *, client: str, dialect: Dialect | None = None) -> RawTable:
    """Every column of a table.

    A CSV line with too few or too many cells becomes an empty row of its client. A file that is invalid as a whole is
    refused; the message reveals none of its contents.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file, decimal = files_of(path, ".parquet", *CSV_SUFFIXES)[0], "."
    if file.suffix.lower() == ".parquet" or _begins(file, b"PAR1"):
        try:
            tables = [pq.ParquetFile(one).read() for one in files_of(path, ".parquet")]
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(f"{file} is not a Parquet file, or it is damaged: write it again") from error
        for one in tables:
            _refuse_same_names(one, file)
        table = _concatenated(tables)
    elif _begins(file, b"PK\x03\x04"):
        return RawTable({name: arrow_of(array) for name, array in _arrays(file).items()})
    else:
        table, decimal = read_private_csv(path, client, dialect or Dialect())
    if not len(table):
        raise InvalidInput(f"{file} has no rows: there is nothing to read")
    _refuse_same_names(table, file)
    return RawTable({name: table.column(name) for name in table.column_names}, decimal)


def _refuse_same_names(table: Any, file: Path) -> None:
    if len(set(table.column_names)) < len(table.column_names):
        raise InvalidInput(f"{file} has a column name more than once: name each column once")


def _concatenated(tables: Sequence[Any]) -> Any:
    """One table of several; a column whose types cannot be joined, which one value may decide, becomes text.

    Columns are those of any of the tables, whatever types they have.
    """
    import pyarrow as pa

    joined = dict[str, Any]()
    for name in dict.fromkeys(name for one in tables for name in one.column_names):
        own = [
            one.select([name]) if name in one.column_names else pa.table({name: pa.nulls(len(one))}) for one in tables
        ]
        try:
            column = pa.concat_tables(own, promote_options="permissive").column(name)
        except pa.ArrowException:
            texts = [part for one in own for part in as_strings(one.column(name)).chunks]
            column = pa.chunked_array(texts, pa.large_string())
        joined[name] = column
    return pa.table(joined)


def _begins(file: Path, start: bytes) -> bool:
    with file.open("rb") as source:
        return source.read(len(start)) == start


def _arrays(file: Path) -> Columns:
    columns = _read_npz(file, "", None, (), every=True)
    counts = {np.shape(column)[0] if np.ndim(column) else -1 for column in columns.values()}
    if len(counts) != 1 or counts == {-1}:
        raise InvalidInput(f"{file} holds arrays of different lengths: make them equal")
    return columns


def arrow_of(array: np.ndarray) -> Any:
    """A NumPy array as an Arrow column; further axes become fixed-size lists."""
    import pyarrow as pa

    values = pa.array(array.ravel().tolist() if array.dtype.kind in "UT" else array.ravel())
    for length in array.shape[:0:-1]:
        values = pa.FixedSizeListArray.from_arrays(values, length)
    return pa.chunked_array([values])


def _refuse_missing(first: Any, other: Any, first_file: Path, file: Path) -> None:
    for field in first.names:
        need_column(field, other.names, file)
    for field in other.names:
        need_column(field, first.names, first_file)


def _joined(parts: Sequence[Any], field: str, files: Sequence[Path]) -> Any:
    """The column of all files: of one type, or numbers that are whole in some and missing in others, or texts."""
    import pyarrow as pa

    known = [(part, file) for part, file in zip(parts, files, strict=True) if not pa.types.is_null(part.type)]
    for part, file in known[1:]:
        if part.type != known[0][0].type and _kind(part) != _kind(known[0][0]):
            raise InvalidInput(
                f"{file}: field {field!r} holds {part.type}, but {known[0][0].type} in {known[0][1]}; write both files "
                f"with the same types"
            )
    if len({str(part.type) for part in parts}) > 1:
        parts = [plain(part) if known[0][0].type != part.type or _kind(part) else part for part in parts]
    tables = [pa.table({field: part}) for part in parts]
    return pa.concat_tables(tables, promote_options="permissive").column(field)


def _kind(column: Any) -> str:
    """`numbers` or `text`, whatever the exact type; empty for types that must be the same in all files."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return "numbers" if is_number(kind) else "text" if is_text(kind) else ""


def _read_npz(
    file: Path, client: str, fields: Sequence[str] | None, classes: Sequence[str], *, every: bool = False
) -> Columns:
    try:
        archive = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{file} is not a NumPy archive, or it is damaged: write it with numpy.savez") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise InvalidInput(f"{file} holds a single array: write an archive of named arrays with numpy.savez")
    columns: Columns = {}
    with archive:
        names = archive.files if every else [client, *wanted_columns(archive.files, client, fields, classes, file)]
        for field in names:
            try:
                column = archive[field]
            except ValueError as error:
                raise InvalidInput(f"{file}: field {field!r} holds Python objects; use numbers or text") from error
            except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                raise InvalidInput(f"{file}: field {field!r} is damaged ({error}); write the file again") from error
            if column.dtype.kind not in "biufUT":
                raise InvalidInput(f"{file}: field {field!r} holds {column.dtype}; use numbers, booleans or text")
            columns[field] = _texts(column, file, field, private=every) if column.dtype.kind == "U" else native(column)
    return columns


def _texts(column: np.ndarray, file: Path, field: str, *, private: bool) -> np.ndarray:
    """A column of texts; halves of surrogate pairs, which no text has, are replaced or refused."""
    try:
        return as_text(column)
    except TypeError:
        if not private:
            raise InvalidInput(f"{file}: field {field!r} holds text that is not Unicode; write it again") from None
        texts = [text.encode(errors="replace").decode() for text in column.ravel().tolist()]
        return as_text(np.array(texts)).reshape(column.shape)


def _shape(column: np.ndarray) -> str:
    return f"{column.dtype} of shape {column.shape}"
