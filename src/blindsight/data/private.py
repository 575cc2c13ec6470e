"""Reads private tables: a client's values affect only its own examples, never a type, an error or a message.

`tables` is for those allowed to see the data: it infers types and names the invalid row. Here types come from a public
`Schema`. A row that does not fit is dropped silently, as its client would drop it; a client stays even without
examples. Errors depend only on the query, the header and the file as a whole, which must be CSV, Parquet, a NumPy
archive or a format of `by_client`. The latter have no header, so the schema also defines the fields.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.arrow import compute
from blindsight.data.by_client import conformed, is_by_client, read_by_client
from blindsight.data.formats import loader_of
from blindsight.data.missing import MISSING, TRUTH, UNLISTED
from blindsight.data.population import TEXT, Columns, Population, as_text
from blindsight.data.reading import first_appearance, wanted_columns
from blindsight.data.schema import Field
from blindsight.data.tables import NUMBER, arrow_of, csv, npz, parquet, read_columns
from blindsight.errors import InvalidInput

__all__ = ["FITS", "column_names", "every_column", "fitting", "is_table", "misfits", "private_table"]

FITS = "(fits)"
"""Field that marks the examples that fit; no real column has this name."""

_LARGEST = 3.4e38  # float32


def is_table(path: str | Path) -> bool:
    """Whether `path` is a table, or a file or folder that stores examples by client."""
    return Path(path).exists() and (loader_of(path) in (csv, parquet, npz) or is_by_client(path))


def every_column(path: str | Path, client: str = "client", separator: str = ",") -> list[str]:
    """Names of all columns of a table; empty for formats without a header."""
    return [] if is_by_client(path) else list(read_columns(path, client=client, separator=separator))


def column_names(path: str | Path, client: str = "client", separator: str = ",") -> list[str]:
    """Names of a table's columns except the client's; empty for formats without a header."""
    return [] if is_by_client(path) else wanted_columns(every_column(path, client, separator), client, None, (), path)


def private_table(
    path: str | Path,
    *,
    fields: Mapping[str, Field],
    client: str = "client",
    separator: str = ",",
    split: str | None = None,
    name: str | None = None,
    mark_misfits: bool = False,
    gaps: Collection[str] = (),
) -> Population:
    """The population in the table at `path`, with those of these fields that its header lists.

    **Non-interference**: the fields, their types and the other clients' examples do not depend on the rows of any one
    client. With `mark_misfits`, rows that do not fit stay, and the field `FITS` marks those that do: under
    example-level privacy, a dropped example keeps its place; see `fitting`. In fields with `gaps` a value that does not
    fit is missing, as `data.missing` says, and its row stays; images have none.

    Args:
        path: File or folder.
        fields: Type of every field.
        client: Column holding the client id.
        separator: Separator between the cells of a line, for CSV.
        split: Split to read, if the file has several.
        name: Name of the population; the file's name by default.
        mark_misfits: Keep rows that do not fit, marked in the field `FITS`.
        gaps: Fields in which values may be missing.
    """
    is_kept_by_client = is_by_client(path)
    read = _from_clients(path, fields, split) if is_kept_by_client else _from_rows(path, fields, client, separator)
    columns, owners, ids, fine = read
    if not columns:
        raise InvalidInput(f"{path} has none of the fields {', '.join(fields)}: check their names")
    gapped = {name for name in columns if name in gaps and fields[name].kind != "image"}
    strict = [fits for name, fits in fine.items() if name not in gapped]
    fits = functools.reduce(np.logical_and, strict, owners >= 0)
    if mark_misfits:
        columns[FITS], fits = fits, owners >= 0
    columns |= {name: _gapped(columns[name], fine[name], fields[name]) for name in gapped}
    named = {name: field.values for name, field in fields.items() if name in columns and field.kind == "category"}
    named |= {name: TRUTH for name in gapped if fields[name].kind == "truth"}
    order = np.flatnonzero(fits)[np.argsort(owners[fits], kind="stable")]
    return Population(
        {field: column[order] for field, column in columns.items()},
        sizes=np.bincount(owners[fits], minlength=len(ids)),
        ids=as_text(ids),
        name=name or Path(path).name.partition(".")[0],
        classes=named,
    )


_Read = tuple[Columns, np.ndarray, np.ndarray, Columns]
"""Columns, client index of each row (-1 for none), client ids, and for each column which rows fit.

In a category that does not fit, the code says whether the value is missing or unlisted.
"""


def _gapped(column: np.ndarray, fits: np.ndarray, field: Field) -> np.ndarray:
    """The column without the values that do not fit; its type depends on the field alone."""
    if field.kind == "text":
        return np.where(fits, column, np.array("", TEXT))
    if field.kind in ("number", "whole"):
        return np.where(fits, column.astype(np.float64), np.nan)
    return np.where(fits, column.astype(np.int32), np.where(column == UNLISTED, UNLISTED, MISSING))


def _from_rows(path: str | Path, fields: Mapping[str, Field], client: str, separator: str) -> _Read:
    table = read_columns(path, client=client, separator=separator)
    wanted = [field for field in wanted_columns(list(table), client, None, (), path) if field in fields]
    ids, fits = _ids(table[client])
    if not fits.any():
        raise InvalidInput(f"{path} has no rows with a client id: check the file where access to the data is allowed")
    codes, distinct = first_appearance(ids[fits])
    owners = np.full(len(ids), -1)
    owners[fits] = codes
    columns, fine = Columns(), Columns()
    for field in wanted:
        columns[field], fine[field] = _conform(table[field], fields[field], f"field {field!r} of {path}")
    return columns, owners, distinct, fine


def _from_clients(path: str | Path, fields: Mapping[str, Field], split: str | None) -> _Read:
    people = read_by_client(path, fields, split=split)
    counts = [max(map(len, own.values()), default=0) for own in people.values()]
    owners = np.repeat(np.arange(len(people)), counts)
    columns, fine = Columns(), Columns()
    for name, field in fields.items():
        columns[name], fine[name] = _of_field(people, counts, name, field)
    return columns, owners, np.array(list(people), object), fine


def _of_field(
    people: Mapping[str, Mapping[str, list[Any]]], counts: Sequence[int], name: str, field: Field
) -> tuple[np.ndarray, np.ndarray]:
    """A field of all clients, with None where a client has fewer examples of it than of another field."""
    rows: list[Any] = []
    for own, count in zip(people.values(), counts, strict=True):
        values = own.get(name, [])
        rows += [*values, *[None] * (count - len(values))]
    return conformed(rows, field, lambda alike, field: _conform(arrow_of(alike), field, f"field {name!r}"))


def fitting(population: Population) -> Population:
    """The population without the examples marked as not fitting."""
    if FITS not in population.fields:
        return population
    kept = population.keep(population.columns[FITS])
    return kept.replace({field: column for field, column in kept.columns.items() if field != FITS})


def misfits(
    path: str | Path, *, fields: Mapping[str, Field], client: str = "client", split: str | None = None
) -> dict[str, list[int]]:
    """Rows that do not fit, counting from 1, by field. Only for the data's owner."""
    if is_by_client(path):
        people = read_by_client(path, fields, split=split)
        counts = [max(map(len, own.values()), default=0) for own in people.values()]
        rows = {name: np.flatnonzero(~_of_field(people, counts, name, fields[name])[1]) + 1 for name in fields}
        return {name: misfitting.tolist() for name, misfitting in rows.items() if len(misfitting)}
    table = read_columns(path, client=client)
    by_field = {client: np.flatnonzero(~_ids(table[client])[1]) + 1}
    for field in (field for field in fields if field in table and field != client):
        by_field[field] = np.flatnonzero(~_conform(table[field], fields[field], f"field {field!r} of {path}")[1]) + 1
    return {field: rows.tolist() for field, rows in by_field.items() if len(rows)}


def _ids(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """The client id of each row as text, and whether the row has one."""
    import pyarrow as pa

    pc = compute()
    if pa.types.is_floating(column.type):  # integer ids become floats when a file is written with one missing
        numbers = column.to_numpy()
        fine = np.isfinite(numbers) & (np.floor(numbers) == numbers) & (np.abs(numbers) < 2**53)
        return np.where(fine, numbers, 0).astype(np.int64).astype(str), fine
    texts = pc.fill_null(_as_strings(column), "")
    return as_text(np.asarray(texts.to_pylist(), dtype=object)), np.asarray(pc.not_equal(texts, ""))


def _conform(column: Any, field: Field, where: str) -> tuple[np.ndarray, np.ndarray]:
    """The column in its field's type, and which rows fit; the others hold arbitrary values of that type."""
    import pyarrow as pa

    pc = compute()
    if field.kind == "image":
        return _images(column, field, where)
    if _is_nested(column.type):
        raise InvalidInput(f"{where} holds lists: give its shape as its type, such as image:28x28, or leave it out")
    if field.kind in ("number", "whole"):
        return _numbers(column, is_whole=field.kind == "whole")
    texts = _as_strings(column)
    fine = np.asarray(pc.is_valid(texts))
    texts = pc.fill_null(texts, "")
    if field.kind == "text":
        return as_text(np.asarray(texts.to_pylist(), dtype=object)), fine
    if field.kind == "truth":
        lower = pc.utf8_lower(texts)
        return np.asarray(pc.equal(lower, "true")), fine & np.asarray(pc.is_in(lower, pa.array(["true", "false"])))
    if field.values == TRUTH:
        texts = pc.utf8_lower(texts)
    places = pc.index_in(texts, pa.array(field.values, pa.large_string()))
    codes = np.asarray(pc.fill_null(places, UNLISTED), np.int32)
    codes = np.where(np.asarray(pc.equal(pc.utf8_trim_whitespace(texts), "")) & (codes < 0), MISSING, codes)
    return codes, fine & (codes >= 0)


def _numbers(column: Any, *, is_whole: bool) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow as pa

    pc = compute()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        cast = pc.cast(column, pa.float64(), safe=False) if not pa.types.is_boolean(column.type) else column
        numbers = np.asarray(pc.fill_null(pc.cast(cast, pa.float64(), safe=False), float("nan")), np.float64)
    else:
        texts = pc.fill_null(_as_strings(column), "")
        is_number = pc.match_substring_regex(texts, NUMBER)
        spelled = pc.if_else(is_number, pc.utf8_ltrim(texts, "+"), "nan")
        numbers = np.asarray(pc.cast(spelled, pa.float64()), np.float64)
    fine = np.isfinite(numbers) & (np.abs(numbers) <= _LARGEST)
    numbers = np.where(fine, numbers, 0.0)
    if not is_whole:
        return numbers, fine
    fine &= (np.floor(numbers) == numbers) & (np.abs(numbers) < 2**31)
    return np.where(fine, numbers, 0.0).astype(np.int64), fine


def _images(column: Any, field: Field, where: str) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], type=kind.storage_type)
    if not _is_nested(column.type):
        raise InvalidInput(f"{where} does not hold lists of numbers, so it cannot be an image: choose another type")
    flat = not _is_nested(column.type.value_type)
    values, fine = _lists(column, (int(np.prod(field.shape)),) if flat else field.shape, where)
    values = values.reshape(len(column), *field.shape)
    if field.of_bytes:
        whole = (np.floor(values) == values) & (values >= 0) & (values <= 255)
        fine &= whole.reshape(len(values), -1).all(axis=1)
        return np.where(fine.reshape(-1, *[1] * len(field.shape)), values, 0).astype(np.uint8), fine
    return values.astype(np.float32), fine


def _lists(column: Any, shape: tuple[int, ...], where: str) -> tuple[np.ndarray, np.ndarray]:
    """Lists of lists as one array, with zeros for rows of another shape or with a value that is not a number."""
    import pyarrow as pa

    pc = compute()
    length = next(iter(shape))
    if not _is_nested(column.type) or _is_nested(column.type.value_type) != (len(shape) > 1):
        raise InvalidInput(f"{where} holds lists of another depth than its shape: choose another shape")
    fine = np.asarray(pc.fill_null(pc.list_value_length(column), -1)) == length
    inner = pc.list_flatten(column.filter(pa.array(fine)))
    values, all_fine = _lists(inner, shape[1:], where) if len(shape) > 1 else _numbers(inner, is_whole=False)
    array = np.zeros((len(column), *shape))
    array[fine] = values.reshape(-1, *shape)
    fine[fine] = all_fine.reshape(-1, length).all(axis=1)
    return array, fine


def _is_nested(kind: Any) -> bool:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _is_nested(kind.storage_type)
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _as_strings(column: Any) -> Any:
    """Any column as text: the type that a file's writer chose may depend on a single value."""
    import pyarrow as pa

    pc = compute()
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        numbers = column.to_numpy()
        texts = [None if value != value else f"{value:.17g}" for value in numbers.tolist()]
        return pa.chunked_array([pa.array(texts, pa.large_string())])
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        texts = [None if value is None else value.decode(errors="replace") for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.large_string())])
    return pc.cast(column, pa.large_string())
