"""CSV and TSV files with a header, with any separator, encoding and decimal mark; plain or compressed.

Every cell is read as text first. The loader `csv`, for users allowed to see the data, then infers the type of each
column. `read_private_csv` leaves the types to a public schema, and keeps only the client of an invalid line.
"""

import io
from collections.abc import Sequence
from csv import reader
from pathlib import Path
from typing import Any

from blindsight.data.arrow import arrow_population, compute
from blindsight.data.dialect import Dialect, as_utf8, guessed
from blindsight.data.population import Population
from blindsight.data.reading import FileRows, files_of, need_column, table_name_of, unpacked, wanted_columns
from blindsight.data.records import client_of, one_line_end, split_records
from blindsight.data.whole import known_as_whole
from blindsight.errors import InvalidInput

__all__ = ["CSV_SUFFIXES", "NUMBER", "csv", "dialect_of", "read_private_csv", "spelled"]

CSV_SUFFIXES = tuple(f"{name}{packed}" for name in (".csv", ".tsv") for packed in ("", ".gz", ".xz"))

# No leading zeros: 01067 is a postcode, and would lose its zero as a number.
NUMBER = r"^[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_WHOLE = r"^-?(?:0|[1-9][0-9]*)$"
_TRUTH = r"^(?i:true|false)$"
_NOTHING = r"^(?i:nan|na|n/a|null|none)?$"  # a missing number or truth value
_BLOCK = 1 << 26  # bytes that are parsed at once
_INFINITE = r"^[+-]?(?i:inf|infinity)$"
_GROUPED = r"^[+-]?[0-9]{1,3}(?:(?:,[0-9]{3})+(?:\.[0-9]+)?|(?:\.[0-9]{3})+(?:,[0-9]+)?|(?:'[0-9]{3})+[.,]?[0-9]*)$"


@known_as_whole
def csv(
    path: str | Path | Sequence[str | Path],
    *,
    client: str = "client",
    fields: Sequence[str] | None = None,
    classes: Sequence[str] = (),
    text: Sequence[str] = (),
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    name: str | None = None,
) -> Population:
    """The population in CSV files with a header, plain or compressed as `.gz` or `.xz`.

    A column without a name, such as pandas' index, is left out.

    A column holds numbers or booleans (true, false) if its first value is one, and all other rows must agree; otherwise
    it holds text. An empty cell is a missing value (`data.missing`); among numbers and booleans so are NaN, NA, N/A,
    null and none. A column without any value holds missing numbers. Client ids are kept verbatim.

    Args:
        path: File, folder of `.csv` or `.tsv` files, pattern such as `parts/*.csv`, or list of files.
        client: Column holding the client id.
        fields: Columns to read; all by default.
        classes: Columns that become labels with named classes.
        text: Columns to read as text even if they look like numbers.
        separator: Separator between the cells of a line; inferred from the header by default.
        encoding: Encoding, such as utf-8, cp1252 or utf-16; guessed by default.
        decimal: Decimal mark; by default a point, or inferred from the numbers if the separator is not a comma.
        name: Name of the population; that of the file or folder by default.
    """
    import pyarrow as pa

    files, given = files_of(path, *CSV_SUFFIXES), Dialect(separator or "", encoding or "", decimal or "")
    tables, read = zip(*(_read_owned(file, given, client) for file in files), strict=True)
    for file, table in zip(files, tables, strict=True):
        for column in tables[0].column_names:
            need_column(column, table.column_names, file)
    wanted = wanted_columns(tables[0].column_names, client, fields, classes, files[0])
    for field in text:
        need_column(field, wanted, files[0])
    rows = FileRows(files, [len(table) for table in tables])
    chosen = [table.select([client, *wanted]) for table in tables]
    marks = [_decimal_of(one, file, dialect.decimal) for one, file, dialect in zip(chosen, files, read, strict=True)]
    table = pa.concat_tables(chosen)
    for place, field in enumerate(table.column_names):
        if field not in (client, *text):
            chunks = [spelled(one.column(field), mark) for one, mark in zip(chosen, marks, strict=True)]
            plain = pa.chunked_array([part for chunk in chunks for part in chunk.chunks], pa.large_string())
            table = table.set_column(place, field, _typed(table.column(field), plain, rows, field))
    name = name or table_name_of(path)
    return arrow_population(table, rows, client, classes=classes, name=name)


def dialect_of(
    path: str | Path, given: Dialect | None = None, *, client: str = "", private: bool = False
) -> Dialect | None:
    """The dialect of the CSV file at `path`, or of the first of several; None if it is not a CSV file.

    Of private files only the header line is examined.
    """
    inside = [file for file in files_of(path, "") if file.name.lower().endswith(CSV_SUFFIXES)]
    if not inside:
        return None
    file = inside[0]
    dialect = guessed(_bytes(file), given or Dialect(), client=client, file=file, private=private)
    if private or dialect.decimal != ".,":
        return dialect
    table, _ = _read_owned(file, dialect, client)
    return Dialect(dialect.separator, dialect.encoding, _decimal_of(table, file, dialect.decimal))


def read_private_csv(path: str | Path, client: str, given: Dialect) -> tuple[Any, str]:
    """The table with every cell as text, and its decimal mark. An invalid line keeps only its client.

    **Non-interference**: separator and encoding follow from the options and from each file's header line.
    """
    import pyarrow as pa

    tables, marks = list[Any](), set[str]()
    for file in files_of(path, *CSV_SUFFIXES):
        data = _bytes(file)
        dialect = guessed(data, given, client=client, file=file, private=True)
        data = one_line_end(as_utf8(data, dialect.encoding, file, private=True))
        data, broken = split_records(data, dialect.separator, file)
        wrong: list[Any] = []
        try:
            table = _parse(data, dialect.separator, wrong, private=True)
        except pa.ArrowInvalid:
            raise InvalidInput(
                f"{file} is not CSV in {dialect.encoding.upper()}: see blindsight data check {file}"
            ) from None
        broken += [line.text or "" for line in wrong]
        tables.append(_named(_with_broken(table, broken, client, dialect.separator) if broken else table))
        marks.add(dialect.decimal)
        if len(set(tables[-1].column_names)) < tables[-1].num_columns:
            raise InvalidInput(f"{file} has a column name more than once: name each column once")
        for column in tables[0].column_names:
            need_column(column, tables[-1].column_names, file)
    decimal = marks.pop() if len(marks) == 1 else ".,"
    return pa.concat_tables([table.select(tables[0].column_names) for table in tables]), decimal


def _read_owned(file: Path, given: Dialect, client: str) -> tuple[Any, Dialect]:
    """The table with every cell as text, and how it was read; whatever is wrong is named."""
    import pyarrow as pa

    data = _bytes(file)
    dialect = guessed(data, given, client=client, file=file, private=False)
    data = as_utf8(data, dialect.encoding, file, private=False)
    wrong: list[Any] = []
    try:
        table = _parse(data, dialect.separator, wrong, private=False)
    except pa.ArrowInvalid as error:
        if wrong:
            raise InvalidInput(
                f"{file}, row {wrong[0].number - 1}: it has {wrong[0].actual_columns} fields where the header has "
                f"{wrong[0].expected_columns}; correct the row, or give another separator=..."
            ) from error
        spelling = dialect.encoding.upper()
        raise InvalidInput(f"{file} is not CSV in {spelling} ({str(error).splitlines()[0]}): write it again") from error
    _refuse_unclosed(table, data, file)
    return _named(table), dialect


def _parse(data: bytes, separator: str, wrong: list[Any], *, private: bool) -> Any:
    """The table of a file in UTF-8; rows with too few or too many cells are noted in `wrong`."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    def note(row: Any) -> str:
        wrong.append(row)
        return "skip" if private else "error"

    header = next(reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""), delimiter=separator), [])
    parsing = arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=note)
    converting = arrow_csv.ConvertOptions(column_types=dict.fromkeys(header, pa.large_string()))

    def parse(block: int) -> Any:  # with one thread, so that an invalid row has a number
        reading = arrow_csv.ReadOptions(use_threads=False, block_size=block)
        return arrow_csv.read_csv(
            pa.BufferReader(data), read_options=reading, parse_options=parsing, convert_options=converting
        )

    try:
        return parse(_BLOCK)
    except pa.ArrowInvalid:
        if len(data) <= _BLOCK:
            raise
        wrong.clear()  # a row must fit into a block; where one does not, the whole file is one
        return parse(min(len(data) + 1, 2**31 - 1))


def _named(table: Any) -> Any:
    """The columns that have a name, without spaces around it; where the header has them after separators, cells too.

    Columns without a name are dropped: pandas' index, or the empty column after a separator at the end of lines.
    """
    import pyarrow as pa

    header = table.column_names
    is_spaced = len(header) > 1 and all(name.startswith(" ") for name in header[1:])
    places = [place for place, name in enumerate(header) if name.strip()]
    columns = [compute().utf8_trim(one, " ") if is_spaced else one for one in map(table.column, places)]
    return pa.table(columns, names=[header[place].strip() for place in places]) if places else table


def _with_broken(table: Any, broken: Sequence[str], client: str, separator: str) -> Any:
    """The table with a row for each broken line, which keeps only its client id."""
    import pyarrow as pa

    names = [name.strip() for name in table.column_names]
    place = names.index(client) if client in names else 0
    # a line of one cell is the rest of a value that contains a line break, so it holds no client id
    rows = [line for line in broken if separator in line or table.num_columns < 2]
    owners = [client_of(line, place, separator) for line in rows]
    columns = [owners if number == place else [None] * len(rows) for number in range(len(names))]
    more = pa.table([pa.array(values, pa.large_string()) for values in columns], names=table.column_names)
    return pa.concat_tables([table, more])


def _bytes(file: Path) -> bytes:
    if not (data := unpacked(file)).strip():
        raise InvalidInput(f"{file} is empty: there is nothing to read")
    return data


def _refuse_unclosed(table: Any, data: bytes, file: Path) -> None:
    """Refuse an unclosed quotation mark, which turns all rows after it into one cell."""
    if len(table) and table.num_columns:
        last = table.column(table.num_columns - 1)[-1].as_py()
        if isinstance(last, str) and last.endswith("\n") and not data[-8:].rstrip(b"\r\n").endswith(b'"'):
            raise InvalidInput(f"{file}, row {len(table)}: unclosed quotation mark; close it or double it")


# --- types of columns, for users allowed to see the data


def spelled(column: Any, decimal: str) -> Any:
    """Cells without surrounding spaces, with a decimal point for this mark; the wrong mark makes a cell text."""
    pc = compute()
    column = pc.utf8_trim(column, " ")
    if decimal == ".":
        return column
    if decimal == ",":
        column = pc.if_else(pc.match_substring(column, "."), "wrong mark", column)
    return pc.replace_substring(column, ",", ".")


def _decimal_of(table: Any, file: Path, decimal: str) -> str:
    """The mark that the numbers of a file have; refused if they have both."""
    if decimal != ".,":
        return decimal
    pc, rows, found = compute(), FileRows([file], [len(table)]), dict[str, str]()
    for field in table.column_names:
        column = table.column(field)
        for mark in (",", "."):
            is_number = pc.match_substring_regex(spelled(column, mark), NUMBER)
            at = pc.index(pc.and_(is_number, pc.match_substring(column, mark)), True).as_py()
            if at is not None and at >= 0:
                found.setdefault(mark, rows.at(at, field))
    if len(found) == 2:
        raise InvalidInput(
            f'{found[","]} has the decimal mark , and {found["."]} has a point: write them alike, give decimal = ",", '
            f"or read the column that holds no numbers as text"
        )
    return next(iter(found), ".")


def _typed(column: Any, plain: Any, rows: FileRows, field: str) -> Any:
    """A column of CSV cells as numbers, booleans or text, by the type of its first value; `plain` has points."""
    import pyarrow as pa

    pc = compute()
    absent = pc.match_substring_regex(plain, _NOTHING)
    filled = pc.index(absent, False).as_py()
    if filled < 0:
        return pa.chunked_array([pa.nulls(len(column), pa.float64())])
    _refuse_infinite(column, rows, field, at=filled)
    first = plain[filled].as_py()
    for pattern, what in ((NUMBER, "a number"), (_TRUTH, "true or false")):
        if not pc.match_substring_regex(pa.array([first]), pattern)[0].as_py():
            continue
        wrong = pc.index(pc.or_(absent, pc.match_substring_regex(plain, pattern)), False).as_py()
        if wrong >= 0:
            _refuse_infinite(column, rows, field, at=wrong)
            raise InvalidInput(
                f"{rows.at(wrong, field)}: {column[wrong].as_py()!r} is not {what}, as the values before it are; "
                f"correct it, or {_read_as_text(field)}"
            )
        values = pc.if_else(absent, pa.scalar(None, column.type), plain)
        return pc.equal(pc.utf8_lower(values), "true") if pattern == _TRUTH else _numbers(values, rows, field)
    _refuse_silent_text(column, plain, absent, rows, field, at=filled)
    return column


def _numbers(values: Any, rows: FileRows, field: str) -> Any:
    import pyarrow as pa

    pc = compute()
    whole = pc.all(pc.match_substring_regex(values, _WHOLE)).as_py()
    try:
        return pc.cast(pc.utf8_ltrim(values, "+"), pa.int64() if whole else pa.float64())
    except pa.ArrowInvalid as error:
        raise InvalidInput(
            f"{rows.files[0]}: field {field!r} has whole numbers beyond 64 bits ({error}); " + _read_as_text(field)
        ) from error


def _read_as_text(field: str) -> str:
    return f"read the column as text: --type {field}=text, or text = [{field!r}] in the options of a loader"


def _refuse_infinite(column: Any, rows: FileRows, field: str, *, at: int) -> None:
    """Refuse a spelled infinity by name: it is neither a number nor a text."""
    import pyarrow as pa

    if compute().match_substring_regex(pa.array([column[at].as_py()]), _INFINITE)[0].as_py():
        raise InvalidInput(
            f"{rows.at(at, field)}: the value is infinite; correct it, leave it empty as missing, "
            f"or {_read_as_text(field)}"
        )


def _refuse_silent_text(column: Any, plain: Any, absent: Any, rows: FileRows, field: str, *, at: int) -> None:
    """Refuse a column of numbers that would become text: after a word, with groups of digits, or another mark."""
    import pyarrow as pa

    pc = compute()
    numbers = pc.sum(pc.match_substring_regex(plain, NUMBER)).as_py() or 0
    first = pa.array([column[at].as_py()])
    reason = (
        "is not a number, as most values of the column are"
        if 2 * numbers > len(column) - pc.sum(absent).as_py()
        else ""
    )
    reason = "groups its digits" if pc.match_substring_regex(first, _GROUPED)[0].as_py() else reason
    has_point = (
        pc.match_substring(plain, "wrong mark")[at].as_py() and pc.match_substring_regex(first, NUMBER)[0].as_py()
    )
    reason = "has another decimal mark" if has_point else reason
    if reason:
        raise InvalidInput(
            f"{rows.at(at, field)}: {column[at].as_py()!r} {reason}; correct it, leave it empty as missing, "
            f"or {_read_as_text(field)}"
        )
