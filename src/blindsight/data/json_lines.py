"""JSON Lines: one object for each example, with its client, such as `{"client": "ann", "words": 3}`.

There is no header: every row names its own fields. So private files are read like the other formats without a header:
the schema defines the fields.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from blindsight.data.arrow import arrow_population
from blindsight.data.population import Population
from blindsight.data.reading import FileRows, files_of, table_name_of, unpacked, wanted_columns
from blindsight.data.schema import Field
from blindsight.data.whole import known_as_whole
from blindsight.errors import InvalidInput

__all__ = ["JSONL_SUFFIXES", "client_lines", "jsonl"]

JSONL_SUFFIXES = tuple(f"{name}{packed}" for name in (".jsonl", ".ndjson") for packed in ("", ".gz", ".xz"))

_DIGITS = 400  # no type holds a longer number, and Python refuses to parse one of 4,300 digits


@known_as_whole
def jsonl(
    path: str | Path | Sequence[str | Path],
    *,
    client: str = "client",
    fields: Sequence[str] | None = None,
    classes: Sequence[str] = (),
    name: str | None = None,
) -> Population:
    """The population in files of JSON Lines in UTF-8, plain or compressed as `.gz` or `.xz`.

    All rows have the same types; a field that a row lacks, or null, is a missing value. Lists of one length become
    arrays.

    Args:
        path: File, folder of `.jsonl` or `.ndjson` files, pattern such as `parts/*.jsonl`, or list of files.
        client: Field holding the client id.
        fields: Fields to read; all by default.
        classes: Fields that become labels with named classes.
        name: Name of the population; that of the file or folder by default.
    """
    import pyarrow as pa

    files = files_of(path, *JSONL_SUFFIXES)
    parts = [list(_objects(file)) for file in files]
    rows, read = FileRows(files, [len(part) for part in parts]), [one for part in parts for one in part]
    rows.refuse_none()
    names = list(dict.fromkeys(field for one in read for field in one))
    wanted = wanted_columns(names, client, fields, classes, files[0])
    columns = {field: _column([one.get(field) for one in read], rows, field) for field in (client, *wanted)}
    name = name or table_name_of(path)
    return arrow_population(pa.table(columns), rows, client, classes=classes, name=name)


def _objects(file: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_lines(file), 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{file}, row {number}: the row is not JSON ({error}); correct it") from error
        if not isinstance(value, dict):
            raise InvalidInput(f"{file}, row {number}: not an object with fields; write one such as {{...}} a line")
        yield value


def _lines(file: Path) -> list[str]:
    lines = unpacked(file).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.decode(errors="replace") for line in lines if line.strip()]


def _column(values: list[Any], rows: FileRows, field: str) -> Any:
    """The values as an Arrow column; a row of another type than the rows before it is refused by name."""
    import pyarrow as pa

    first: type | None = None
    for row, value in enumerate(values):
        kind = float if type(value) is int else type(value)
        if kind is dict:
            raise InvalidInput(f"{rows.at(row, field)}: the value is an object; write its parts as separate fields")
        if value is not None and kind is not (first := first or kind):
            words = {float: "a number", str: "text", bool: "true or false", list: "a list"}
            raise InvalidInput(f"{rows.at(row, field)}: {value!r} is not {words[first]}, as the values before it are")
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidInput(
            f"{rows.files[0]}: field {field!r} holds values that one type cannot hold ({error}): leave it out with "
            f"fields=(...)"
        ) from error


# --- private files


def client_lines(
    files: Sequence[Path], fields: Mapping[str, Field], client: str
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Each client's values of these fields; a broken line is an empty example of its client, if it names one."""
    people: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        for line in _lines(file):
            row = _object(line)
            owner = _owner(line, client) if row is None else _id(row.get(client))
            if owner:
                people.setdefault(owner, []).append(row or {})
    for owner, rows in people.items():
        yield owner, {field: [row.get(field) for row in rows] for field in fields}


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line, parse_int=lambda digits: int(digits) if len(digits) < _DIGITS else None, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _id(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _owner(line: str, client: str) -> str:
    """The client that a broken line names, as far as it can be read."""
    match = re.search(rf'{re.escape(json.dumps(client))}\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9]+)', line)
    return "" if match is None else _id((_object(f'{{"id": {match[1]}}}') or {}).get("id"))
