"""Arrow tables as populations: each column becomes one array, and rows are placed with their clients.

A missing value (null) becomes NaN in a column of numbers, which are then floats, and an empty text. A column of
booleans with a missing value becomes codes of the classes `TRUTH`, with `MISSING` for it. Images and lists must be
complete.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from blindsight.data.missing import MISSING, TRUTH
from blindsight.data.population import TEXT, Columns, Population, as_text
from blindsight.data.reading import FileRows, placed, refuse_nan
from blindsight.errors import InvalidInput

__all__ = ["arrow_column", "arrow_population", "compute", "no_client"]

_TEXT_STEP = 1 << 16  # strings pass through Python this many at a time, never all at once


def compute() -> Any:
    """Arrow's compute functions, which it generates on import, where type checkers cannot see them."""
    import pyarrow.compute

    return pyarrow.compute


def arrow_population(
    table: Any,
    rows: FileRows,
    client: str,
    *,
    name: str,
    classes: Sequence[str] = (),
    named: Mapping[str, tuple[str, ...]] | None = None,
    pictures: Columns | None = None,
) -> Population:
    """The population of a table, grouped by its column `client`, with `pictures` as further columns.

    Args:
        table: Arrow table.
        rows: Where its rows come from, for error messages.
        client: Column holding the client id.
        name: Name of the population.
        classes: Columns that become labels with named classes.
        named: Class names of columns that hold codes already.
        pictures: Further columns, such as decoded images.
    """
    rows.refuse_none()
    owners, ids = _owners(table.column(client), rows, client)
    order = np.argsort(owners, kind="stable") if np.any(owners[1:] < owners[:-1]) else None
    columns = {field: _moved(picture, order) for field, picture in (pictures or {}).items()}
    named = dict(named or {})
    for field in table.column_names:
        column = table.column(field)
        if field == client:
            continue
        if _is_truth(column.type) and column.null_count and field not in named:
            columns[field], named[field] = _moved(_truth_codes(column), order), TRUTH
            continue
        if order is not None and _is_text(column.type) and not column.null_count:
            columns[field] = arrow_column(column.cast("large_string").take(order), rows, field)  # numpy is slower
            continue
        array = arrow_column(column, rows, field)
        refuse_nan(array, rows, field)
        if field in named:
            array = _coded(array, named[field], rows, field)
        columns[field] = _moved(array, order)
    return placed(columns, _moved(owners, order), ids, rows.files[0], name=name, classes=classes, named=named)


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
    if pa.types.is_dictionary(kind):
        return arrow_column(column.cast(kind.value_type), rows, field, width)
    if column.null_count and is_single and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column.cast(pa.float64()).to_numpy()
    if column.null_count and is_single and _is_text(kind):
        return _text(pc.fill_null(column, ""))
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py() // width
        raise InvalidInput(f"{rows.at(row, field)}: the value is missing; fill it in or leave the row out")
    if isinstance(kind, pa.FixedShapeTensorType):
        return arrow_column(_storage(column), rows, field, width).reshape(len(column), *kind.shape)
    if isinstance(kind, pa.BaseExtensionType):
        return arrow_column(_storage(column), rows, field, width)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        length = _common_length(pc.list_value_length(column).to_numpy(), rows, field, width)
        inner = arrow_column(pc.list_flatten(column), rows, field, width * max(length, 1))
        return inner.reshape(len(column), length, *inner.shape[1:])
    if _is_text(kind):
        return _text(column)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
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


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


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

    pc = compute()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        no_client(rows, pc.index(column.is_null(), True).as_py(), client)
    if _is_text(column.type):
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
