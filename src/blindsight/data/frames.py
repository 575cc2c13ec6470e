"""Tables in memory: anything that supports Arrow's PyCapsule interface, dicts of columns, and Hugging Face data sets.

pandas, polars, pyarrow and DuckDB results are read through that interface; none of them is needed here.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.data.arrow import arrow_population
from blindsight.data.arrow_values import compute, is_number
from blindsight.data.population import Population
from blindsight.data.reading import FileRows, wanted_columns
from blindsight.errors import InvalidInput

__all__ = ["arrow_table", "dataset_population", "frame_columns", "is_dataset", "named_labels"]


def arrow_table(frame: Any, name: str) -> Any:
    """The frame as an Arrow table; a column that mixes values of several types is refused by name."""
    import pyarrow as pa

    columns = frame_columns(frame, name)
    for field, column in columns.items():
        if isinstance(column, list):
            kinds = sorted({type(value).__name__ for value in column if value is not None})
            raise InvalidInput(
                f"{name}, field {field!r} mixes values of {' and '.join(kinds)}: convert them to one type, or give "
                f"types={{...}}"
            )
    lengths = {field: len(column) for field, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{field!r} has {length}" for field, length in lengths.items())
        raise InvalidInput(f"the columns of {name} differ in length ({listed}): make them equal")
    return pa.table(columns)


def frame_columns(frame: Any, name: str) -> dict[str, Any]:
    """The columns of a table as Arrow columns; as lists of Python values if one Arrow type cannot hold them."""
    import pyarrow as pa

    speaks_arrow = any(hasattr(frame, one) for one in ("__arrow_c_stream__", "__arrow_c_array__"))
    try:
        if is_dataset(frame):
            read = frame.with_format("arrow")[:]
        elif isinstance(frame, pa.RecordBatch):
            read = pa.Table.from_batches([frame])
        else:
            read = pa.table(frame) if speaks_arrow else None
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # a column that mixes types is found below
        read = None
    if read is not None:
        _refuse_same_names(read.column_names, name)
        return {str(field): read.column(place) for place, field in enumerate(read.column_names)}
    if not isinstance(frame, Mapping) and not (speaks_arrow and hasattr(frame, "columns")):
        raise InvalidInput(
            f"{name} is {type(frame).__name__}, which is not a table: pass a DataFrame of pandas or polars, an Arrow "
            f"table, a Hugging Face data set, or a dict of columns"
        )
    fields = list(frame if isinstance(frame, Mapping) else frame.columns)
    _refuse_same_names(fields, name)
    return {str(field): _column(frame[field], f"{name}, field {str(field)!r}") for field in fields}


def _refuse_same_names(fields: Sequence[Any], name: str) -> None:
    for field, count in collections.Counter(map(str, fields)).items():
        if count > 1:
            raise InvalidInput(f"{name} has {count} columns named {field!r}: name each column once")


def named_labels(frame: Any, values: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Class labels of a Hugging Face data set as names, for the columns where a public list holds class names."""
    import pyarrow as pa

    if not is_dataset(frame):
        return {}
    pc, found = compute(), dict[str, Any]()
    for field, listed in values.items():
        names = getattr(frame.features.get(field), "names", None)
        if names and set(names) & set(listed):
            codes = frame.with_format("arrow")[:].column(field)
            fine = pc.and_(pc.greater_equal(codes, 0), pc.less(codes, len(names)))
            found[field] = pa.chunked_array([pa.array(names)]).take(pc.if_else(fine, codes, None))
    return found


def _column(values: Any, where: str) -> Any:
    import pyarrow as pa

    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidInput(
            f"{where} holds {type(values).__name__}, not a column: give a list of values, one for each row"
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufMm":
        flat = pa.array(values.ravel())
        for length in values.shape[:0:-1]:
            flat = pa.FixedSizeListArray.from_arrays(flat, length)
        return pa.chunked_array([flat])
    listed: list[Any] = [None if _is_gap(value) else _plain(value) for value in values]
    if len(shapes := {np.shape(one) if isinstance(one, np.ndarray) else () for one in listed}) == 1 and shapes != {()}:
        return _column(np.stack(listed), where)
    listed = [one.tolist() if isinstance(one, np.ndarray) else one for one in listed]
    try:
        return pa.chunked_array([pa.array(listed)])
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return listed


def _is_gap(value: Any) -> bool:
    """Whether a value is None, NaN, or pandas' NA or NaT, none of which equals itself."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # NA has no truth value, and an array has too many
        return not hasattr(value, "__len__")


def _plain(value: Any) -> Any:
    """An image as an array; a number that numpy made complex because of another value, as it was before."""
    if isinstance(value, complex) and not value.imag:
        return value.real
    return np.asarray(value) if hasattr(value, "__array_interface__") and np.ndim(value) else value


def is_dataset(frame: Any) -> bool:
    """Whether this is a Hugging Face data set in memory; several splits, and streams, are refused."""
    if isinstance(frame, Mapping) and frame and all(hasattr(part, "features") for part in frame.values()):
        raise InvalidInput(f'choose a split of the data set, such as data["{next(iter(frame))}"]')
    if hasattr(frame, "features") and hasattr(frame, "with_format"):
        if not hasattr(frame, "__len__"):
            raise InvalidInput("the data set is a stream: load it first, without streaming=True")
        return True
    return False


def dataset_population(
    data: Any, where: Any, *, client: str, fields: Sequence[str] | None, name: str, classes: Sequence[str] = ()
) -> Population:
    """The population of a Hugging Face data set in memory.

    Images are decoded, and a `ClassLabel` becomes int32 with its names in `Population.classes`. Infinite numbers are
    missing.

    Args:
        data: The data set.
        where: Where it comes from, for error messages.
        client: Column holding the client id.
        fields: Columns to read; all by default.
        name: Name of the population.
        classes: Columns that become labels with named classes.
    """
    wanted = wanted_columns(data.column_names, client, fields, classes, where)
    table = data.with_format("arrow")[:].select([client, *wanted])
    named = {field: tuple(data.features[field].names) for field in wanted if hasattr(data.features[field], "names")}
    for place, field in enumerate(table.column_names):
        if is_number(table.column(field).type) and field not in named:
            table = table.set_column(place, field, _finite(table.column(field)))
    rows = FileRows([where], [len(table)])
    return arrow_population(table, rows, client, name=name, classes=classes, named=named)


def _finite(column: Any) -> Any:
    import pyarrow as pa

    if not pa.types.is_floating(column.type):
        return column
    return compute().if_else(compute().is_finite(column), column, pa.scalar(None, column.type))
