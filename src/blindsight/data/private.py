"""Tables of clients whose values may change nothing but their own examples: no type, no refusal, no message.

`tables` reads for who may look: it guesses types and names the row at fault. Here kinds come from a public `Schema`. A
row that does not fit it is left out as its own client would leave it out, and nothing says so; a client stays, be it
without examples. What is refused hangs on the question, the header and the file as a whole: that it is CSV, Parquet
or a NumPy archive, or one of the formats in `by_client`, which have no header: there the schema names the fields too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.arrow import compute
from blindsight.data.by_client import conformed, is_by_client, read_by_client
from blindsight.data.formats import loader_of
from blindsight.data.population import Columns, Population, as_text
from blindsight.data.reading import first_appearance, wanted_columns
from blindsight.data.schema import Field
from blindsight.data.tables import NUMBER, arrow_of, csv, npz, parquet, read_columns
from blindsight.errors import InvalidInput

__all__ = ["FITS", "column_names", "every_column", "fitting", "is_table", "misfits", "private_table"]

FITS = "(fits)"
"""The field that marks which examples fit; no column of a table that anyone trains on is called so."""

_LARGEST = 3.4e38  # of 32-bit floating point


def is_table(path: str | Path) -> bool:
    """Whether there is a table at `path`, or examples that are kept by client."""
    return Path(path).exists() and (loader_of(path) in (csv, parquet, npz) or is_by_client(path))


def every_column(path: str | Path, client: str = "client", separator: str = ",") -> list[str]:
    """The names of all columns of a table; none where there is no header to say them."""
    return [] if is_by_client(path) else list(read_columns(path, client=client, separator=separator))


def column_names(path: str | Path, client: str = "client", separator: str = ",") -> list[str]:
    """The names of a table's columns, less the client's; none where there is no header to say them."""
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
) -> Population:
    """The population in the table at `path` with these fields, as far as its header has them.

    **Non-interference**: whatever the rows of one client hold, the fields, their types and the other clients' examples
    are the same. With `mark_misfits` rows that do not fit stay, with a field `FITS` that says which do: where every
    example is protected by itself, one that is left out leaves a place, see `fitting`.

    Args:
        path: File or folder.
        fields: Type of every field.
        client: Column holding the client id.
        separator: What separates the cells of a line, for CSV.
        split: Split to read, where the file holds several.
        name: Name of the population; that of the file by default.
        mark_misfits: Keep rows that do not fit, marked in the field `FITS`.
    """
    read = _from_clients(path, fields, split) if is_by_client(path) else _from_rows(path, fields, client, separator)
    columns, owners, ids, fits = read
    if not columns:
        raise InvalidInput(f"{path} has none of the fields {', '.join(fields)}: check their names")
    if mark_misfits:
        columns[FITS], fits = fits, owners >= 0
    order = np.flatnonzero(fits)[np.argsort(owners[fits], kind="stable")]
    return Population(
        {field: column[order] for field, column in columns.items()},
        sizes=np.bincount(owners[fits], minlength=len(ids)),
        ids=as_text(ids),
        name=name or Path(path).name.partition(".")[0],
        classes={name: field.values for name, field in fields.items() if name in columns and field.kind == "category"},
    )


_Read = tuple[Columns, np.ndarray, np.ndarray, np.ndarray]
"""The columns, whose each row is (nobody's: -1), the clients, and which rows fit."""


def _from_rows(path: str | Path, fields: Mapping[str, Field], client: str, separator: str) -> _Read:
    table = read_columns(path, client=client, separator=separator)
    wanted = [field for field in wanted_columns(list(table), client, None, (), path) if field in fields]
    ids, fits = _ids(table[client])
    if not fits.any():
        raise InvalidInput(f"{path} has no rows with a client: check the file where the data may be looked at")
    codes, distinct = first_appearance(ids[fits])
    owners = np.full(len(ids), -1)
    owners[fits] = codes
    columns: Columns = {}
    for field in wanted:
        columns[field], fine = _conform(table[field], fields[field], f"field {field!r} of {path}")
        fits = fits & fine
    return columns, owners, distinct, fits


def _from_clients(path: str | Path, fields: Mapping[str, Field], split: str | None) -> _Read:
    people = read_by_client(path, fields, split=split)
    counts = [max(map(len, own.values()), default=0) for own in people.values()]
    owners = np.repeat(np.arange(len(people)), counts)
    columns: Columns = {}
    fits = np.ones(len(owners), bool)
    for name, field in fields.items():
        columns[name], fine = _of_field(people, counts, name, field)
        fits &= fine
    return columns, owners, np.array(list(people), object), fits


def _of_field(
    people: Mapping[str, Mapping[str, list[Any]]], counts: Sequence[int], name: str, field: Field
) -> tuple[np.ndarray, np.ndarray]:
    """A field of all clients, with nothing where a client has fewer examples of it than of another field."""
    rows: list[Any] = []
    for own, count in zip(people.values(), counts, strict=True):
        found = own.get(name, [])
        rows += [*found, *[None] * (count - len(found))]
    return conformed(rows, field, lambda alike, field: _conform(arrow_of(alike), field, f"field {name!r}"))


def fitting(population: Population) -> Population:
    """The population without the examples that do not fit, where these are marked."""
    if FITS not in population.fields:
        return population
    kept = population.keep(population.columns[FITS])
    return kept.replace({field: column for field, column in kept.columns.items() if field != FITS})


def misfits(
    path: str | Path, *, fields: Mapping[str, Field], client: str = "client", split: str | None = None
) -> dict[str, list[int]]:
    """The rows, counting from 1, that do not fit, by field: for the data's owner alone."""
    if is_by_client(path):
        people = read_by_client(path, fields, split=split)
        counts = [max(map(len, own.values()), default=0) for own in people.values()]
        rows = {name: np.flatnonzero(~_of_field(people, counts, name, fields[name])[1]) + 1 for name in fields}
        return {name: found.tolist() for name, found in rows.items() if len(found)}
    table = read_columns(path, client=client)
    found = {client: np.flatnonzero(~_ids(table[client])[1]) + 1}
    for field in (field for field in fields if field in table and field != client):
        found[field] = np.flatnonzero(~_conform(table[field], fields[field], f"field {field!r} of {path}")[1]) + 1
    return {field: rows.tolist() for field, rows in found.items() if len(rows)}


def _ids(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """The client of each row as text, and whether there is one."""
    import pyarrow as pa

    pc = compute()
    if pa.types.is_floating(column.type):  # whole numbers, of which one was missing when the file was written
        numbers = column.to_numpy()
        fine = np.isfinite(numbers) & (np.floor(numbers) == numbers) & (np.abs(numbers) < 2**53)
        return np.where(fine, numbers, 0).astype(np.int64).astype(str), fine
    texts = pc.fill_null(_as_strings(column), "")
    return as_text(np.asarray(texts.to_pylist(), dtype=object)), np.asarray(pc.not_equal(texts, ""))


def _conform(column: Any, field: Field, where: str) -> tuple[np.ndarray, np.ndarray]:
    """The column as its field says, and which rows fit; the others hold anything of the same type."""
    import pyarrow as pa

    pc = compute()
    if field.kind == "image":
        return _images(column, field, where)
    if _is_nested(column.type):
        raise InvalidInput(f"{where} holds lists: say its shape as its type, such as image:28x28, or leave it out")
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
    places = pc.fill_null(pc.index_in(texts, pa.array(field.values, pa.large_string())), -1)
    codes = np.asarray(places, np.int32)
    return np.maximum(codes, 0), fine & (codes >= 0)


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
        raise InvalidInput(f"{where} holds no lists of numbers, so no images: say another kind")
    flat = not _is_nested(column.type.value_type)
    values, fine = _lists(column, (int(np.prod(field.shape)),) if flat else field.shape, where)
    values = values.reshape(len(column), *field.shape)
    if field.of_bytes:
        whole = (np.floor(values) == values) & (values >= 0) & (values <= 255)
        fine &= whole.reshape(len(values), -1).all(axis=1)
        return np.where(fine.reshape(-1, *[1] * len(field.shape)), values, 0).astype(np.uint8), fine
    return values.astype(np.float32), fine


def _lists(column: Any, shape: tuple[int, ...], where: str) -> tuple[np.ndarray, np.ndarray]:
    """Lists of lists as one array, zeros where a row has another shape or holds what is no number."""
    import pyarrow as pa

    pc = compute()
    length = next(iter(shape))
    if not _is_nested(column.type) or _is_nested(column.type.value_type) != (len(shape) > 1):
        raise InvalidInput(f"{where} holds lists of another depth than its shape says: say another shape")
    fine = np.asarray(pc.fill_null(pc.list_value_length(column), -1)) == length
    inner = pc.list_flatten(column.filter(pa.array(fine)))
    values, all_fine = _lists(inner, shape[1:], where) if len(shape) > 1 else _numbers(inner, is_whole=False)
    found = np.zeros((len(column), *shape))
    found[fine] = values.reshape(-1, *shape)
    fine[fine] = all_fine.reshape(-1, length).all(axis=1)
    return found, fine


def _is_nested(kind: Any) -> bool:
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _is_nested(kind.storage_type)
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _as_strings(column: Any) -> Any:
    """Numbers and words alike as text: what a file's writer made of a column may hang on one value in it."""
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
