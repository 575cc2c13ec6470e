"""The clients of a run as [data] names them. The type of a table's field is fixed before a value is read.

As in inspections (`jobs.tables`), a field has the type that [data] schema or types gives, else the one that its role in
the run implies: a model reads numbers, labels are whole numbers unless [model] classes lists names, and a language
model reads text. A row that does not fit is silently left out by its own client.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.accounting.ledger import LedgerName
from blindsight.config import Config
from blindsight.data.by_client import is_by_client
from blindsight.data.dialect import Dialect
from blindsight.data.folders import image_folder
from blindsight.data.formats import loader_for, loader_of
from blindsight.data.population import Population
from blindsight.data.private import FITS, column_names, every_column, private_table
from blindsight.data.reading import as_classes, need_column
from blindsight.data.schema import Field, Schema
from blindsight.errors import InvalidInput
from blindsight.jobs.classes import listed_by, reads_label
from blindsight.jobs.tables import content_of_clients, is_private_table, kinds_of, read_others, schema_of

__all__ = ["name_in_ledger", "read_like_run", "read_run", "with_listed_classes"]


def with_listed_classes(config: Config) -> Config:
    """The run with the classes that its schema lists, if [model] lists none."""
    return dataclasses.replace(config, model=listed_by(_schema(config), config.model))


def read_run(config: Config) -> Population:
    """The clients that [data] names; under example-level privacy, examples that do not fit are marked.

    **Non-interference**: what is refused depends on the run's settings and on a table's header alone.
    """
    data, schema = config.data, _schema(config)
    if is_private_table(data.population):
        return _read_table(config, data.population, data.options)
    if schema.fields:
        raise InvalidInput(f"[data] schema and types: {data.population} has its own types; leave them out")
    return read_others(data.population, data.options)


def read_like_run(config: Config, name: str, options: Mapping[str, Any]) -> Population:
    """Other data, read like the run's own; a table uses the same options for the columns that it shares."""
    if not is_private_table(name):
        return read_others(name, options)
    columns, own = every_column(name), config.data.options
    same = {"client": own["client"]} if own.get("client") in columns else {}
    same |= {option: [field for field in own.get(option, ()) if field in columns] for option in ("classes", "text")}
    return _read_table(config, name, {option: value for option, value in {**same, **options}.items() if value})


def name_in_ledger(config: Config, population: Population) -> LedgerName:
    """The clients' name in the ledger, with a digest of their whole table, whichever fields the run reads."""
    data = config.data
    return LedgerName(population.name, content_of_clients(data.population, data.options, population))


def _schema(config: Config) -> Schema:
    return schema_of(config.data.schema, [f"{name}={kind}" for name, kind in config.data.types.items()])


def _read_table(config: Config, file: str, options: Mapping[str, Any]) -> Population:
    reading = _Options.of(file, options)
    needed = _needed(config, reading, has_names=loader_of(file) is image_folder)
    names = list(needed) if is_by_client(file) else _columns(config, file, reading, needed)
    shapes = {field: Field("image", shape=tuple(shape), of_bytes=False) for field, shape in reading.shapes.items()}
    schema = Schema({**schema_of(None, [], file).fields, **shapes, **_schema(config).fields})
    fields = kinds_of(file, names, needed, schema, say='[data] types = {{ {} = "number" }}, or image:28x28')
    given = {option: getattr(reading, option) for option in ("client", "dialect", "split", "name")}
    clients = private_table(file, fields=fields, mark_misfits=config.privacy.unit == "example", **given)
    label = config.model.label
    are_read_off = label in needed and label in reading.classes and not config.model.classes
    return _as_they_occur(label, clients) if are_read_off and fields[label].kind == "text" else clients


def _columns(config: Config, file: str, reading: "_Options", needed: Mapping[str, Field | None]) -> list[str]:
    """The columns that may be read; the needed ones must be among them."""
    every = column_names(file, reading.client, reading.dialect)
    for field in (*(reading.fields or ()), *reading.classes, *reading.text):
        need_column(field, [reading.client, *every], file)
    names = every if reading.fields is None else [name for name in every if name in reading.fields]
    for field in needed:
        if field not in names:
            table = "text" if config.model.is_language else "model"
            raise InvalidInput(f"[{table}] names the field {field!r}, but {file} has {', '.join(names)}")
    return names


@dataclasses.dataclass(frozen=True)
class _Options:
    """[data] options of a table, or of a file that is kept by client."""

    client: str = "client"
    separator: str = ""
    encoding: str = ""
    decimal: str = ""
    name: str | None = None
    split: str | None = None
    fields: Sequence[str] | None = None
    classes: Sequence[str] = ()
    text: Sequence[str] = ()
    shapes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict[str, Sequence[int]])

    @property
    def dialect(self) -> Dialect:
        """How a CSV file is written."""
        return Dialect(self.separator, self.encoding, self.decimal)

    @classmethod
    def of(cls, file: str, options: Mapping[str, Any]) -> "_Options":
        """The options, refused if the loader has not all of them or they are of the wrong type."""
        loader_for(file, options)
        for option, value in options.items():
            if option == "shapes":
                _check_shapes(file, value)
                continue
            is_list = option in ("fields", "classes", "text")
            parts: list[Any] = list(value) if is_list and isinstance(value, list | tuple) else [value]
            if isinstance(value, list | tuple) != is_list or not all(isinstance(part, str) for part in parts):
                what = "a list of columns" if is_list else "text in quotes"
                raise InvalidInput(f"[data] options: {option} of {file} must be {what}, got {value!r}")
        return cls(**options)


def _check_shapes(file: str, shapes: Any) -> None:
    given: list[Any] = list(shapes.values()) if isinstance(shapes, dict) else [None]
    if not all(isinstance(shape, list | tuple) and all(isinstance(length, int) for length in shape) for shape in given):
        raise InvalidInput(f"[data] options: shapes of {file} are spelled {{ pixels = [28, 28] }}, got {shapes!r}")


def _needed(config: Config, reading: _Options, *, has_names: bool) -> dict[str, Field | None]:
    """The fields that a run reads, each with the type that its role implies; None if a schema must give it.

    `has_names` says that labels are the names of folders, not numbers.
    """
    model = config.model
    if model.is_language:
        return {config.text.field: Field("text")}

    def implied(field: str) -> Field | None:
        if field in reading.text:
            return Field("text")
        return None if model.kind in ("cnn", "gan") or field in reading.classes else Field("number")

    needed = {field: implied(field) for field in model.inputs}
    if reads_label(config):
        if has_names and not model.classes:
            raise InvalidInput("list the classes that the folders are named after: [model] classes = [...]")
        is_text = isinstance(model.classes, tuple) or model.label in (*reading.classes, *reading.text)
        needed[model.label] = Field("text" if is_text else "whole")
    return needed


def _as_they_occur(label: str, clients: Population) -> Population:
    """The label as numbers of the names that occur; the guarantee then assumes that these names are public."""
    column = clients.columns[label]
    fits = clients.columns.get(FITS, np.ones(len(column), bool))
    codes, names = as_classes(column[fits], f"field {label!r} of {clients.name}")
    numbers = np.zeros(len(column), np.int32)
    numbers[fits] = codes
    coded = clients.replace({**clients.columns, label: numbers})
    coded.classes[label] = names
    return coded
