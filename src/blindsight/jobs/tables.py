"""Clients' tables as a question needs them. The type of every field is known before a value is read.

A field has the type that `--type` or `--schema` gives; else the one it has in the public reference; else the one that
its role implies: an input with a `--range`, or of a model, is a number; the label of a model is a whole number; a field
that is compared by its values is text. A needed field of unknown type is refused; other fields are not read.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blindsight.data.by_client import digest_of, is_by_client
from blindsight.data.catalogue import DATASETS
from blindsight.data.embedded import POPULATIONS
from blindsight.data.formats import loader_for
from blindsight.data.population import Population
from blindsight.data.private import column_names, is_table, private_table
from blindsight.data.schema import Field, Schema
from blindsight.data.sources import source
from blindsight.errors import BlindsightError, InvalidInput

__all__ = ["content_of_clients", "header", "is_private_table", "kinds_of", "read_clients", "read_others", "schema_of"]


def schema_of(path: str | Path | None, types: Sequence[str] | None) -> Schema:
    """The types of fields as given: a JSON file, and `age=whole:0:120` for single fields."""
    return (Schema({}) if path is None else Schema.load(path)).updated(types or ())


def header(data: str, client: str | None) -> list[str] | None:
    """The column names of a table in a file; None for any other population."""
    if not is_private_table(data):
        return None
    return column_names(data, client or "client")


def read_clients(
    data: str,
    *,
    client: str | None = None,
    clients: int | None = None,
    needed: Mapping[str, Field | None],
    schema: Schema,
    public: Population | None = None,
) -> Population:
    """The clients of `data`; of a table only the `needed` fields, each with the type that its role implies.

    **Non-interference**: refusals depend on the question, on public data and on a table's header. Files other than
    tables are read whole, and a refusal says nothing about their content.
    """
    options: dict[str, Any] = {"clients": clients} if clients else {}
    options |= {"client": client} if client else {}
    if not is_private_table(data):
        return read_others(data, options)
    if clients:
        raise InvalidInput(f"--clients is for embedded populations, and {data} is a file: leave it out")
    names = column_names(data, client or "client")
    if not any(name in names for name in needed):
        raise InvalidInput(
            f"there is no {next(iter(needed))!r} in {data}, which has {', '.join(names)}: name one of these"
        )
    merged = Schema({**({} if public is None else Schema.of(public).fields), **schema.fields})
    fields = kinds_of(data, names, needed, merged, say="--type {}=number, or whole, text, image:28x28")
    return private_table(data, client=client or "client", fields=fields)


def is_private_table(data: str) -> bool:
    """Whether `data` is a table in a file, whose types must come from elsewhere."""
    return data not in POPULATIONS and data not in DATASETS and is_table(data)


def read_others(data: str, options: Mapping[str, Any]) -> Population:
    """The clients of anything but a table; the refusal of an unreadable file says nothing about its content."""
    if data in POPULATIONS or data in DATASETS or not Path(data).exists():
        return source(data, **options)
    loader_for(data, options)  # refuses only because of the file's format or the options
    try:
        return source(data, **options)
    except BlindsightError:
        raise InvalidInput(
            f"{data} cannot be read: run blindsight data check {data} to see why, where the data may be looked at"
        ) from None


def kinds_of(
    data: str, names: Sequence[str], needed: Mapping[str, Field | None], schema: Schema, *, say: str
) -> dict[str, Field]:
    """The type of each needed field: as in the schema, else as implied; `say` shows in a refusal how to give one."""
    fields = {name: schema.fields.get(name) or implied for name, implied in needed.items()}
    for name, field in fields.items():
        if name in names and field is None:
            raise InvalidInput(f"give the type of {name!r} in {data}: {say.format(name)}")
    return {name: field for name, field in fields.items() if field is not None}


def content_of_clients(data: str, client: str | None, clients: Population, separator: str = ",") -> str:
    """The digest by which a ledger knows the clients: of the whole table, whichever of its fields a question reads."""
    if not is_private_table(data):
        return clients.content
    options: dict[str, Any] = {"client": client} if client else {}
    options |= {"separator": separator} if separator != "," else {}
    try:
        return source(data, **options).content
    except BlindsightError:  # rows that do not fit: the table is then known by its text
        if is_by_client(data):
            return digest_of(data)
        names = column_names(data, client or "client", separator)
        return private_table(data, **options, fields=dict.fromkeys(names, Field("text"))).content
