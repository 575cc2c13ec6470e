"""Clients' tables as a question needs them. The type of every field is fixed before a value is read.

A field has the type that `--type` gives, else that of the public reference, else the one that its role in the question
implies: a number if it has a range or a model reads it, a whole number if it is the class that a model predicts, text
if its values are compared. A field without a type is refused, or not read if nothing needs it.

A Hugging Face data set declares types of its own, which count unless the asker says otherwise.

A table lists its fields in its header. LEAF, HDF5, SQLite and folders of images have none: their fields are those that
`--type` gives, else those of the reference, and any others that the question names.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from blindsight.data.by_client import files_digest, is_by_client
from blindsight.data.catalogue import DATASETS
from blindsight.data.dialect import GIVEN, Dialect
from blindsight.data.embedded import POPULATIONS
from blindsight.data.formats import loader_for, takes
from blindsight.data.population import Population
from blindsight.data.private import column_names, is_table, private_table
from blindsight.data.private_sets import declared
from blindsight.data.reading import exists
from blindsight.data.schema import Field, Schema
from blindsight.data.sources import source
from blindsight.errors import InvalidInput

__all__ = ["content_of_clients", "content_of_table", "header", "is_private_table", "kinds_of", "read_clients"]
__all__ += ["read_others", "schema_of"]


def schema_of(path: str | Path | None, types: Sequence[str], data: str = "") -> Schema:
    """The types of fields as given: a JSON file, and `age=whole:0:120` for single fields.

    Beside them are those that `data` declares, if it is a Hugging Face data set.
    """
    given = (Schema({}) if path is None else Schema.load(path)).updated(types)
    own = declared(data).fields if is_private_table(data) else {}
    return dataclasses.replace(given, fields={**own, **given.fields})


def header(
    data: str, client: str | None, schema: Schema, public: Population | None = None, *, dialect: Dialect | None = None
) -> list[str] | None:
    """The public names of the fields in a file; None for any other population."""
    if not is_private_table(data):
        return None
    return _described(schema, public) if is_by_client(data) else column_names(data, client or "client", dialect)


def read_clients(
    data: str,
    *,
    client: str | None = None,
    clients: int | None = None,
    dialect: Dialect | None = None,
    needed: Mapping[str, Field | None],
    optional: Collection[str] = (),
    schema: Schema,
    public: Population | None = None,
    gaps: Collection[str] = (),
) -> Population:
    """The clients of `data`; of a table only the `needed` fields, each with the type that its role implies.

    **Non-interference**: what is refused here depends on the question, on public data and on a table's header. Other
    data are read whole; the refusal of unreadable data says nothing about their content.

    Args:
        data: Name of the data, or a file or folder.
        client: Column holding the client id, for tables.
        clients: Number of clients, for embedded populations.
        dialect: Separator, encoding and decimal mark, for CSV.
        needed: Fields that the question needs, with the type that their role implies.
        optional: Fields that are read if the header has them, or, where there is none, if they are described.
        schema: Types of fields, from the asker.
        public: Public data of the same type.
        gaps: Fields in which a value that does not fit is missing, and its row stays.
    """
    options: dict[str, Any] = {"clients": clients} if clients else {}
    options |= {"client": client} if client else {}
    if not is_private_table(data):
        return read_others(data, options)
    if clients:
        raise InvalidInput(f"--clients is for embedded populations, and {data} is a file: leave it out")
    if is_by_client(data):
        described = _described(schema, public)
        names = [name for name in needed if name not in optional or name in described]
        needed = {name: needed[name] for name in names}
    else:
        names = column_names(data, client or "client", dialect)
    if not any(name in names for name in needed):
        has = f", which has {', '.join(names)}: name another" if names else ": name a field, --input FIELD"
        raise InvalidInput(f"there is no {next(iter(needed), 'field')!r} in {data}{has}")
    described = Schema({**({} if public is None else Schema.of(public).fields), **schema.fields})
    fields = kinds_of(data, names, needed, described, say="--type {}=number, or whole, text, image:28x28")
    return private_table(data, client=client or "client", dialect=dialect, fields=fields, gaps=gaps)


def _described(schema: Schema, public: Population | None) -> list[str]:
    """The fields that the asker lists; by default those of public data."""
    return list(schema.fields or ({} if public is None else public.fields))


def is_private_table(data: str) -> bool:
    """Whether `data` is a table in a file: the types of its fields must come from elsewhere."""
    return data != "" and data not in POPULATIONS and data not in DATASETS and is_table(data)


def read_others(data: str, options: Mapping[str, Any]) -> Population:
    """The clients of anything but a table; the refusal of an unreadable file says nothing about its content."""
    if data in POPULATIONS or data in DATASETS or not exists(data):
        return source(data, options)
    loader_for(data, options)  # refuses only because of the file's format or the options
    try:
        return source(data, options)
    except Exception:  # what is damaged raises almost anything, and quotes it
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


def content_of_clients(data: str, options: Mapping[str, Any], people: Population) -> str:
    """The digest that identifies clients in a ledger: of the whole file, whichever of its fields a question reads."""
    return content_of_table(data, options) if is_private_table(data) else people.content


def content_of_table(data: str, options: Mapping[str, Any]) -> str:
    """The same of a table in a file."""
    relevant = ("split", "shapes", "client", *GIVEN)
    given = {option: options[option] for option in relevant if options.get(option) and takes(data, option)}
    try:
        return source(data, given).content
    except Exception:  # rows that do not fit, in whatever way: the digest is then of the table as text
        if is_by_client(data):
            return files_digest(data)
        client, dialect = options.get("client") or "client", Dialect.of(options)
        names = column_names(data, client, dialect)
        fields = dict.fromkeys(names, Field("text"))
        return private_table(data, client=client, dialect=dialect, fields=fields).content
