"""Reads private tables: a client's values affect only its own examples, never a type, an error or a message.

`tables` is for those allowed to see the data: it infers types and names the invalid row. Here types come from a public
`Schema`. A row that does not fit is dropped silently, as its client would drop it; a client stays even without
examples. Errors depend only on the query, the header and the file as a whole, which must be CSV, Parquet, a NumPy
archive, a Hugging Face data set or a format of `by_client`. The latter have no header, so the schema also defines the
fields.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.by_client import conformed, is_by_client, read_by_client
from blindsight.data.conforming import client_ids, conform_column, conform_mixed
from blindsight.data.csv_tables import csv
from blindsight.data.dialect import Dialect
from blindsight.data.formats import loader_of
from blindsight.data.missing import MISSING, TRUTH, UNLISTED
from blindsight.data.population import TEXT, Columns, Population, as_text
from blindsight.data.private_sets import is_saved_set, set_names, set_table
from blindsight.data.reading import exists, first_appearance, table_name, wanted_columns
from blindsight.data.schema import Field
from blindsight.data.tables import RawTable, arrow_of, npz, parquet, read_columns
from blindsight.errors import InvalidInput

__all__ = ["FITS", "column_names", "every_column", "fitting", "is_table", "misfits", "private_rows", "private_table"]

FITS = "(fits)"
"""Field that marks the examples that fit; no real column has this name."""


def is_table(path: str | Path) -> bool:
    """Whether `path` is a table, or a file or folder that stores examples by client."""
    return exists(path) and (loader_of(path) in (csv, parquet, npz) or is_saved_set(path) or is_by_client(path))


def every_column(path: str | Path, client: str = "client", dialect: Dialect | None = None) -> list[str]:
    """Names of all columns of a table; empty for formats without a header."""
    if is_saved_set(path):
        return set_names(path)
    return [] if is_by_client(path) else list(read_columns(path, client=client, dialect=dialect).columns)


def column_names(path: str | Path, client: str = "client", dialect: Dialect | None = None) -> list[str]:
    """Names of a table's columns except the client's; empty for formats without a header."""
    return [] if is_by_client(path) else wanted_columns(every_column(path, client, dialect), client, None, (), path)


def private_table(
    path: str | Path,
    *,
    fields: Mapping[str, Field],
    client: str = "client",
    dialect: Dialect | None = None,
    split: str | None = None,
    name: str | None = None,
    mark_misfits: bool = False,
    gaps: Collection[str] = (),
) -> Population:
    """The population in the table at `path`, with those of these fields that its header lists.

    **Non-interference**: the fields, their types and the other clients' examples do not depend on the rows of any one
    client. With `mark_misfits`, rows that do not fit stay, and the field `FITS` marks those that do: under
    example-level privacy, a dropped example keeps its place; see `fitting`. In the fields `gaps` a value that does not
    fit counts as missing (see `data.missing`), and its row is kept; images cannot be missing.

    Args:
        path: File or folder, or a pattern of files.
        fields: Type of every field.
        client: Column holding the client id.
        dialect: Separator, encoding and decimal mark, for CSV.
        split: Split to read, if the file has several.
        name: Name of the population; that of the file or folder by default.
        mark_misfits: Keep rows that do not fit, marked in the field `FITS`.
        gaps: Fields in which values may be missing.
    """
    if is_by_client(path):
        read = _from_clients(path, fields, split, client)
    else:
        read = _from_rows(_table(path, fields, client, split, dialect), fields, client, str(path))
    own = Path(path).resolve().name if is_saved_set(path) else table_name(path)
    return _population(read, fields, str(path), name or own, mark_misfits=mark_misfits, gaps=gaps)


def _table(
    path: str | Path, fields: Mapping[str, Field], client: str, split: str | None, dialect: Dialect | None
) -> RawTable:
    if not is_saved_set(path):
        return read_columns(path, client=client, dialect=dialect)
    listed = {name: field.values for name, field in fields.items() if field.kind == "category"}
    table = RawTable(set_table(path, split, listed))
    if not len(next(iter(table.columns.values()), ())):
        raise InvalidInput(f"{path} has no rows: there is nothing to read")
    return table


def private_rows(
    table: RawTable, *, fields: Mapping[str, Field], client: str, name: str, gaps: Collection[str] = ()
) -> Population:
    """The population of a table in memory, read as `private_table` reads files, with the same non-interference."""
    return _population(_from_rows(table, fields, client, name), fields, name, name, gaps=gaps)


def _population(
    read: "_Read",
    fields: Mapping[str, Field],
    where: str,
    name: str,
    *,
    mark_misfits: bool = False,
    gaps: Collection[str] = (),
) -> Population:
    columns, owners, ids, fine = read
    if not columns:
        raise InvalidInput(f"{where} has none of the fields {', '.join(fields)}: check their names")
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
        name=name,
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


def _from_rows(table: RawTable, fields: Mapping[str, Field], client: str, where: str) -> _Read:
    wanted = [field for field in wanted_columns(list(table.columns), client, None, (), where) if field in fields]
    ids, fits = client_ids(table.columns[client])
    if not fits.any():
        raise InvalidInput(f"{where} has no rows with a client id: check the file where access to the data is allowed")
    codes, distinct = first_appearance(ids[fits])
    owners = np.full(len(ids), -1)
    owners[fits] = codes
    columns, fine = Columns(), Columns()
    for name in wanted:
        columns[name], fine[name] = _of_column(table, name, fields[name], where)
    return columns, owners, distinct, fine


def _of_column(table: RawTable, name: str, field: Field, where: str) -> tuple[np.ndarray, np.ndarray]:
    column, place = table.columns[name], f"field {name!r} of {where}"
    if isinstance(column, list):  # values of several types, each converted by itself
        return conform_mixed(column, field, place)
    return conform_column(column, field, place, table.decimal)


def _from_clients(path: str | Path, fields: Mapping[str, Field], split: str | None, client: str) -> _Read:
    people = read_by_client(path, fields, split=split, client=client)
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
    return conformed(rows, field, lambda alike, field: conform_column(arrow_of(alike), field, f"field {name!r}"))


def fitting(population: Population) -> Population:
    """The population without the examples marked as not fitting."""
    if FITS not in population.fields:
        return population
    kept = population.keep(population.columns[FITS])
    return kept.replace({field: column for field, column in kept.columns.items() if field != FITS})


def misfits(
    path: str | Path,
    *,
    fields: Mapping[str, Field],
    client: str = "client",
    split: str | None = None,
    dialect: Dialect | None = None,
) -> dict[str, list[int]]:
    """Rows that do not fit, counting from 1, by field. Only for the data's owner.

    Args:
        path: File or folder, or a pattern of files.
        fields: Type of every field.
        client: Column holding the client id.
        split: Split to read, if the file has several.
        dialect: Separator, encoding and decimal mark, for CSV.
    """
    if is_by_client(path):
        people = read_by_client(path, fields, split=split, client=client)
        counts = [max(map(len, own.values()), default=0) for own in people.values()]
        rows = {name: np.flatnonzero(~_of_field(people, counts, name, fields[name])[1]) + 1 for name in fields}
        return {name: misfitting.tolist() for name, misfitting in rows.items() if len(misfitting)}
    table = _table(path, fields, client, split, dialect)
    by_field = {client: np.flatnonzero(~client_ids(table.columns[client])[1]) + 1}
    for field in (field for field in fields if field in table.columns and field != client):
        by_field[field] = np.flatnonzero(~_of_column(table, field, fields[field], str(path))[1]) + 1
    return {field: rows.tolist() for field, rows in by_field.items() if len(rows)}
