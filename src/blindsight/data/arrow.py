"""Arrow tables as populations: each column becomes one array, and rows are placed with their clients.

Values are first converted to plain types (`arrow_values`), and image files to pixels. In a column of numbers a missing
value (null) becomes NaN, and the column holds floats; in a column of text it becomes an empty text. A column of
booleans with a missing value becomes codes of the classes `TRUTH`, with `MISSING` for that value. Images and lists must
be complete.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from blindsight.data.arrow_values import compute, is_list, is_number, is_picture, is_text, plain
from blindsight.data.missing import MISSING, TRUTH
from blindsight.data.pictures import pictures_of
from blindsight.data.population import TEXT, Columns, Population, as_text
from blindsight.data.reading import FileRows, placed, refuse_infinite, refuse_nan
from blindsight.errors import InvalidInput

__all__ = ["arrow_column", "arrow_population", "no_client"]

_TEXT_STEP = 1 << 16  # strings pass through Python this many at a time, never all at once


def arrow_population(
    table: Any,
    rows: FileRows,
    client: str,
    *,
    name: str,
    classes: Sequence[str] = (),
    named: Mapping[str, tuple[str, ...]] | None = None,
) -> Population:
    """The population of a table, grouped by its column `client`.

    Args:
        table: Arrow table.
        rows: Where its rows come from, for error messages.
        client: Column holding the client id.
        name: Name of the population.
        classes: Columns that become labels with named classes.
        named: Class names of columns that hold codes already.
    """
    rows.refuse_none()
    owners, ids = _owners(table.column(client), rows, client)
    order = np.argsort(owners, kind="stable") if np.any(owners[1:] < owners[:-1]) else None
    columns, named = Columns(), dict(named or {})
    for field in table.column_names:
        if field == client:
            continue
        column = plain(table.column(field))
        if is_picture(column.type):
            columns[field] = _moved(pictures_of(column, rows, field), order)
            continue
        if _is_truth(column.type) and column.null_count and field not in named:
            columns[field], named[field] = _moved(_truth_codes(column), order), TRUTH
            continue
        if order is not None and is_text(column.type) and not column.null_count:
            columns[field] = arrow_column(column.cast("large_string").take(order), rows, field)  # numpy is slower
            continue
        array = arrow_column(column, rows, field)
        refuse_nan(array, rows, field)
        refuse_infinite(array, rows, field)
        if field in named:
            array = _coded(array, named[field], rows, field)
        columns[field] = _moved(array, order)
    whole = placed(columns, _moved(owners, order), ids, rows.files[0], name=name, classes=classes, named=named)
    return whole.with_types_of(True)


def _moved(column: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    return column if order is None else column[order]


def _coded(codes: np.ndarray, names: tuple[str, ...], rows: FileRows, field: str) -> np.ndarray:
    if len(odd := np.flatnonzero((codes < 0) | (codes >= len(names)))):
        raise InvalidInput(
            f"{rows.at(int(odd[0]), field)}: the label is not one of the {len(names)} classes; label the row first"
        )
    return codes.astype(np.int32)


def no_client(rows: FileRows, row: int, client: str) -> NoReturn:
    """Refuse a row without a client id."""
    raise InvalidInput(f"{rows.at(row, client)}: the row has no client id; fill it in or leave the row out")


def arrow_column(column: Any, rows: FileRows, field: str, width: int = 0) -> np.ndarray:
    """An Arrow column as an array; inside lists each row has `width` of its values, none of which may be missing."""
    import pyarrow as pa

    pc = compute()
    kind, is_single, width = column.type, width == 0, max(width, 1)
    if (simple := plain(column)) is not column:
        return arrow_column(simple, rows, field, 0 if is_single else width)
    if column.null_count and is_single and is_number(kind):
        return column.cast(pa.float64()).to_numpy()
    if column.null_count and is_single and is_text(kind):
        return _text(pc.fill_null(column, ""))
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py() // width
        raise InvalidInput(f"{rows.at(row, field)}: the value is missing; fill it in or leave the row out")
    if isinstance(kind, pa.FixedShapeTensorType):
        return arrow_column(_storage(column), rows, field, width).reshape(len(column), *kind.shape)
    if isinstance(kind, pa.BaseExtensionType):
        return arrow_column(_storage(column), rows, field, width)
    if is_list(kind):
        length = _common_length(pc.list_value_length(column).to_numpy(), rows, field, width)
        inner = arrow_column(pc.list_flatten(column), rows, field, width * max(length, 1))
        return inner.reshape(len(column), length, *inner.shape[1:])
    if is_text(kind):
        return _text(column)
    if pa.types.is_boolean(kind) or is_number(kind):
        return column.to_numpy()
    raise InvalidInput(
        f"{rows.files[0]}: field {field!r} holds {kind}; turn it into numbers, booleans or text, or leave it out with "
        f"fields=(...)"
    )


def _is_truth(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_boolean(kind)


def _truth_codes(column: Any) -> np.ndarray:
    import pyarrow as pa

    return np.asarray(compute().fill_null(column.cast(pa.int32()), MISSING), np.int32)


def _storage(column: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([chunk.storage for chunk in column.chunks], type=column.type.storage_type)


def _common_length(lengths: np.ndarray, rows: FileRows, field: str, width: int) -> int:
    if not len(lengths):
        return 0
    if len(odd := np.flatnonzero(lengths != lengths[0])):
        row = int(odd[0])
        raise InvalidInput(
            f"{rows.at(row // width, field)}: the list has {lengths[row]} values where the first one has {lengths[0]}; "
            f"cut or pad the lists to one length"
        )
    return int(lengths[0])


def _text(column: Any) -> np.ndarray:
    texts = np.empty(len(column), TEXT)
    for start in range(0, len(column), _TEXT_STEP):
        texts[start : start + _TEXT_STEP] = column.slice(start, _TEXT_STEP).to_numpy()
    return texts


def _owners(column: Any, rows: FileRows, client: str) -> tuple[np.ndarray, np.ndarray]:
    """The client of each row as a code, and the ids, in order of first appearance."""
    import pyarrow as pa

    pc, column = compute(), _whole_ids(column)
    if column.null_count:
        no_client(rows, pc.index(column.is_null(), True).as_py(), client)
    if is_text(column.type):
        if (empty := pc.index(column, pa.scalar("", column.type)).as_py()) >= 0:
            no_client(rows, empty, client)
    elif not pa.types.is_integer(column.type):
        raise InvalidInput(
            f"{rows.files[0]}: client ids are whole numbers or text, but column {client!r} holds {column.type}"
        )
    coded = column.dictionary_encode()
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks])
    distinct = pa.chunked_array([coded.chunk(0).dictionary])  # one dictionary, shared by all chunks
    return codes, as_text(arrow_column(distinct, rows, client))


def _whole_ids(column: Any) -> Any:
    """Client ids; those that are floats only because one is missing are whole numbers again."""
    import pyarrow as pa

    column = plain(column)
    if pa.types.is_floating(column.type):
        numbers = column.to_numpy()
        if (np.isnan(numbers) | (np.floor(numbers) == numbers)).all():
            absent = np.isnan(numbers)
            return pa.chunked_array([pa.array(np.where(absent, 0, numbers).astype(np.int64), mask=absent)])
    return column
