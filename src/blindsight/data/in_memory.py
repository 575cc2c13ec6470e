"""`data.table`: the clients of a table in memory."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from blindsight.data.arrow import arrow_population
from blindsight.data.frames import arrow_table, dataset_population, frame_columns, is_dataset, named_labels
from blindsight.data.population import Population
from blindsight.data.private import private_rows
from blindsight.data.reading import FileRows, need_column, wanted_columns
from blindsight.data.schema import Field, Schema
from blindsight.data.tables import RawTable
from blindsight.errors import InvalidInput

__all__ = ["table"]


def table(
    frame: Any,
    *,
    client: str = "client",
    fields: Sequence[str] | None = None,
    classes: Sequence[str] = (),
    types: Mapping[str, str] | Schema | None = None,
    gaps: Sequence[str] = (),
    name: str = "table",
) -> Population:
    """The population of a table in memory.

    The table is a DataFrame of pandas or polars, an Arrow table, a DuckDB result or anything else that supports Arrow's
    PyCapsule interface, a Hugging Face data set, or a dict of columns.

    Without `types`, columns keep their types, and a value that cannot be stored is refused with its row and field. This
    is for users allowed to see the data. With `types`, values are read like private files: the fields and their types
    are those given, and a row that does not fit is silently dropped, whatever type the library that made the table
    chose for its column.

    Args:
        frame: The table.
        client: Column holding the client id.
        fields: Columns to read; all by default.
        classes: Columns that become labels with named classes.
        types: Types of the fields, {"age": "whole:0:120", "region": "category:north,south"}, or a public `Schema`.
        gaps: With `types`, fields in which a value that does not fit counts as missing, so its row is kept.
        name: Name of the population, under which a ledger counts what is spent on it.

    >>> people = table({"client": ["ann", "bob", "ann"], "age": [31, 44, 30]})
    >>> people.ids.tolist(), people["ann"]["age"].tolist()
    (['ann', 'bob'], [31, 30])
    >>> table({"client": ["ann", "bob"], "age": [31, "n/a"]}, types={"age": "whole"}).sizes.tolist()
    [1, 0]
    """
    if types is None:
        if gaps:
            raise InvalidInput("gaps are for tables that are read by types: give types=... too")
        if is_dataset(frame):
            return dataset_population(frame, name, client=client, fields=fields, name=name, classes=classes)
        read = arrow_table(frame, name)
        wanted = wanted_columns(read.column_names, client, fields, classes, name)
        rows = FileRows([name], [len(read)])
        found = arrow_population(read.select([client, *wanted]), rows, client, name=name, classes=classes)
        return found if fields is None else found.part_of(functools.partial(_content, frame, client, name))
    if fields is not None or classes:
        raise InvalidInput("types says which fields to read and lists their classes: leave out fields and classes")
    schema = types if isinstance(types, Schema) else Schema().updated([f"{one}={kind}" for one, kind in types.items()])
    return _private(frame, schema, client, gaps, name).part_of(functools.partial(_content, frame, client, name))


def _content(frame: Any, client: str, name: str) -> str:
    """The digest of the whole table, whichever fields are read and by whatever types; as text if that cannot be done.

    A ledger identifies the table by it: reading it with other types must not give the same people a second budget.
    """
    try:
        return table(frame, client=client, name=name).content
    except Exception:  # some value cannot be placed without types
        read = frame_columns(frame, name)
        fields = {field: Field("text") for field in read if field != client}
        return private_rows(RawTable(read), fields=fields, client=client, name=name).content


def _private(frame: Any, schema: Schema, client: str, gaps: Sequence[str], name: str) -> Population:
    """Refusals depend on the frame's column names and on the schema alone."""
    listed = {field: one.values for field, one in schema.fields.items() if one.kind == "category"}
    read = frame_columns(frame, name) | named_labels(frame, listed)
    need_column(client, read, name)
    for field in schema.fields:
        need_column(field, read, name)
    if not len(read[client]):
        raise InvalidInput(f"{name} has no rows: there is nothing to read")
    return private_rows(RawTable(read), fields=schema.fields, client=client, name=name, gaps=gaps)
