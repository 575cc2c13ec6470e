"""Loaders of tables with a column of client ids: Parquet, CSV and NumPy archives.

Rows are grouped without a Python loop over them: stably by client, clients in order of first appearance.
"""

import io
import zipfile
import zlib
from collections.abc import Callable, Sequence
from csv import reader
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.arrow import arrow_population, compute, no_client
from blindsight.data.population import Columns, Population, as_text
from blindsight.data.reading import (
    FileRows,
    existing,
    first_appearance,
    native,
    need_column,
    placed,
    refuse_nan,
    wanted_columns,
)
from blindsight.data.records import client_of, split_records
from blindsight.errors import InvalidInput

__all__ = ["NUMBER", "arrow_of", "csv", "npz", "parquet", "read_columns"]

# No leading zeros: 01067 is a postcode, and would lose its zero as a number.
NUMBER = r"^[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_WHOLE = r"^-?(?:0|[1-9][0-9]*)$"
_TRUTH = r"^(?i:true|false)$"
_NOTHING = r"^(?i:nan|na|n/a|null|none)?$"  # a missing number or truth value


def parquet(
    path: str | Path | Sequence[str | Path],
    *,
    client: str = "client",
    fields: Sequence[str] | None = None,
    classes: Sequence[str] = (),
    name: str | None = None,
) -> Population:
    """The population in a Parquet file, in all `.parquet` files of a folder, or in a list of files.

    `client` is the column holding the client id. Numbers, booleans and text keep their types, except that a column of
    integers or booleans with missing values cannot (`data.missing`); lists of one length become arrays. Columns named
    in `classes` become int32 labels with their names in `Population.classes`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = _parquet_files(path)
    tables: list[Any] = []
    for file in files:
        try:
            source = pq.ParquetFile(file)
            wanted = wanted_columns(source.schema_arrow.names, client, fields, classes, file)
            tables.append(source.read(columns=[client, *wanted]))
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(f"{file} is not a Parquet file, or it is damaged: write it anew") from error
        _refuse_differing(tables[0].schema, tables[-1].schema, files[0], file)
    rows = FileRows(files, [len(table) for table in tables])
    tables = [table.select(tables[0].column_names) for table in tables]
    return arrow_population(pa.concat_tables(tables), rows, client, classes=classes, name=name or files[0].stem)


def csv(
    path: str | Path,
    *,
    client: str = "client",
    fields: Sequence[str] | None = None,
    classes: Sequence[str] = (),
    text: Sequence[str] = (),
    separator: str = ",",
    name: str | None = None,
) -> Population:
    """The population in a CSV file with a header, plain or compressed as `.gz` or `.xz`.

    The first value of a column decides whether it holds numbers, booleans (true, false) or text, and all other rows
    must agree. An empty cell is a missing value (`data.missing`); among numbers and booleans so are NaN, NA, N/A, null
    and none. Client ids are kept verbatim.

    Args:
        path: File.
        client: Column holding the client id.
        fields: Columns to read; all by default.
        classes: Columns that become labels with named classes.
        text: Columns to read as text even if they look like numbers.
        separator: Separator between the cells of a line.
        name: Name of the population; the file's name by default.
    """
    import pyarrow as pa

    if len(separator) != 1:
        raise InvalidInput(f"separator must be one character, got {separator!r}")
    file = existing(path)
    table = _read_csv(file, separator)
    wanted = wanted_columns(table.column_names, client, fields, classes, file)
    for field in text:
        need_column(field, wanted, file)
    rows = FileRows([file], [len(table)])
    typed = {
        field: table.column(field) if field in (client, *text) else _typed(table.column(field), rows, field)
        for field in (client, *wanted)
    }
    return arrow_population(pa.table(typed), rows, client, classes=classes, name=name or file.name.partition(".")[0])


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
    if owners.dtype.kind in "UT" and len(empty := np.flatnonzero(owners == "")):
        no_client(rows, int(empty[0]), client)
    codes, ids = first_appearance(owners)
    return placed(columns, codes, as_text(ids), file, classes=classes, name=name or file.stem)


def read_columns(path: str | Path, *, client: str, separator: str = ",") -> dict[str, Any]:
    """Every column of a table as Arrow reads it, with those of CSV as text.

    A CSV line with too few or too many cells becomes an empty row of its client. A file that is invalid as a whole is
    refused; the message reveals none of its contents.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = existing(path)
    if file.is_dir() or file.suffix.lower() == ".parquet" or _begins(file, b"PAR1"):
        try:
            tables = [pq.read_table(one) for one in _parquet_files(file)]
            table = pa.concat_tables(tables, promote_options="permissive")
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(f"{file} is not a Parquet file, or it is damaged: write it anew") from error
    elif _begins(file, b"PK\x03\x04"):
        return {name: arrow_of(array) for name, array in _arrays(file).items()}
    else:
        table = _read_csv(file, separator, client=client)
    if not len(table):
        raise InvalidInput(f"{file} has no rows: there is nothing to read")
    if len(set(table.column_names)) < len(table.column_names):
        raise InvalidInput(f"{file} has a column name more than once: name each column once")
    return {name: table.column(name) for name in table.column_names}


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


def _parquet_files(path: str | Path | Sequence[str | Path]) -> list[Path]:
    paths = [path] if isinstance(path, str | Path) else list(path)
    if not paths:
        raise InvalidInput("the list of Parquet files is empty: give at least one")
    files: list[Path] = []
    for one in (existing(one) for one in paths):
        inside = sorted(one.rglob("*.parquet")) if one.is_dir() else [one]
        if not inside:
            raise InvalidInput(f"the folder {one} has no .parquet file: check the path")
        files += inside
    return files


def _refuse_differing(first: Any, other: Any, first_file: Path, file: Path) -> None:
    for field in first.names:
        need_column(field, other.names, file)
    for field in other.names:
        need_column(field, first.names, first_file)
        if first.field(field).type != other.field(field).type:
            raise InvalidInput(
                f"{file}: field {field!r} holds {other.field(field).type}, but {first.field(field).type} in "
                f"{first_file}; write both files with the same types"
            )


def _read_csv(file: Path, separator: str, *, client: str | None = None) -> Any:
    """The table with every cell as text; with `client` it is private, and an invalid line keeps only its client."""
    is_private = client is not None
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    data = _bytes(file)
    try:
        data.decode()
    except UnicodeDecodeError as error:  # before Arrow reports a row with it, where the error cannot be caught
        if not is_private:
            raise InvalidInput(
                f"{file} is not CSV in UTF-8 (byte {error.start:,} is not valid text): write it again"
            ) from error
        data = data.decode(errors="replace").encode()
    data, broken = split_records(data, separator, file) if is_private else (data, list[str]())
    wrong: list[Any] = []

    def note(row: Any) -> str:
        wrong.append(row)
        return "skip" if is_private else "error"

    lines = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", errors="replace", newline="")
    header = next(reader(lines, delimiter=separator), [])
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            # One thread, so that an invalid row has a number; large blocks, because a row must fit into one.
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=1 << 26),
            parse_options=arrow_csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, invalid_row_handler=note
            ),
            convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(header, pa.large_string())),
        )
    except pa.ArrowInvalid as error:
        if is_private:
            raise InvalidInput(f"{file} is not CSV in UTF-8: see blindsight data check {file}") from None
        if wrong:
            raise InvalidInput(
                f"{file}, row {wrong[0].number - 1}: it has {wrong[0].actual_columns} fields where the header has "
                f"{wrong[0].expected_columns}; correct the row, or give another separator=..."
            ) from error
        raise InvalidInput(f"{file} is not CSV in UTF-8 ({str(error).splitlines()[0]}): write it again") from error
    if client is None:
        _refuse_unclosed(table, data, file)
        return table
    broken += [line.text or "" for line in wrong]
    return _with_broken(table, broken, client, separator) if broken else table


def _with_broken(table: Any, broken: Sequence[str], client: str, separator: str) -> Any:
    """The table with a row for each broken line, which keeps only its client id."""
    import pyarrow as pa

    place = table.column_names.index(client) if client in table.column_names else 0
    owners = [client_of(line, place, separator) for line in broken]
    columns = {name: owners if name == client else [None] * len(broken) for name in table.column_names}
    more = pa.table({name: pa.array(values, pa.large_string()) for name, values in columns.items()})
    return pa.concat_tables([table, more])


def _bytes(file: Path) -> bytes:
    import gzip
    import lzma

    openers: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".xz": lzma.open}
    try:
        with openers.get(file.suffix.lower(), lambda path: path.open("rb"))(file) as source:
            data = source.read()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InvalidInput(f"{file} cannot be read ({error}): check that it is complete") from error
    if not data.strip():
        raise InvalidInput(f"{file} is empty: there is nothing to read")
    return data


def _refuse_unclosed(table: Any, data: bytes, file: Path) -> None:
    """Refuse an unclosed quotation mark, which turns all rows after it into one cell."""
    if len(table) and table.num_columns:
        last = table.column(table.num_columns - 1)[-1].as_py()
        if isinstance(last, str) and last.endswith("\n") and not data[-8:].rstrip(b"\r\n").endswith(b'"'):
            raise InvalidInput(f"{file}, row {len(table)}: unclosed quotation mark; close it or double it")


def _typed(column: Any, rows: FileRows, field: str) -> Any:
    """A column of CSV cells as numbers, booleans or text, by the type of its first value."""
    import pyarrow as pa

    pc = compute()
    absent = pc.match_substring_regex(column, _NOTHING)
    filled = pc.index(absent, False).as_py()
    first = column[filled].as_py() if filled >= 0 else ""
    for pattern, what in ((NUMBER, "a number"), (_TRUTH, "true or false")):
        if not pc.match_substring_regex(pa.array([first]), pattern)[0].as_py():
            continue
        wrong = pc.index(pc.or_(absent, pc.match_substring_regex(column, pattern)), False).as_py()
        if wrong >= 0:
            raise InvalidInput(
                f"{rows.at(wrong, field)}: {column[wrong].as_py()!r} is not {what}, as the values before it are; "
                f"correct it, or read the column as text: text = [{field!r}] in the options"
            )
        values = pc.if_else(absent, pa.scalar(None, column.type), column)
        if pattern == _TRUTH:
            return pc.equal(pc.utf8_lower(values), "true")
        whole = pc.all(pc.match_substring_regex(values, _WHOLE)).as_py()
        try:
            return pc.cast(pc.utf8_ltrim(values, "+"), pa.int64() if whole else pa.float64())
        except pa.ArrowInvalid as error:
            raise InvalidInput(
                f"{rows.files[0]}: field {field!r} has whole numbers beyond 64 bits ({error}); read the column as text "
                f"with text = [{field!r}] in the options"
            ) from error
    return column


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
            columns[field] = as_text(column) if column.dtype.kind == "U" else native(column)
    return columns


def _shape(column: np.ndarray) -> str:
    return f"{column.dtype} of shape {column.shape}"
