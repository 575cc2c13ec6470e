"""The clients of a run as [data] names them: of a table, what a field holds is known before a value is read.

As in inspections (`jobs.tables`): a field's kind is what [data] schema or types says, else what its part in the run is.
A model reads numbers, whole numbers are classes unless [model] classes lists names, and a language model reads text. A
row that does not fit is left out by its own client, and nothing says so.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.accounting.ledger import Known
from blindsight.config import Config
from blindsight.data.by_client import is_by_client
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
    """The clients that [data] names; where examples are protected one by one, those that do not fit are marked.

    **Non-interference**: what is refused depends on the run's settings and on a table's header alone.
    """
    data, schema = config.data, _schema(config)
    if is_private_table(data.population):
        return _read_table(config, data.population, data.options)
    if schema.fields:
        raise InvalidInput(f"[data] schema and types: {data.population} has types of its own; leave them out")
    return read_others(data.population, data.options)


def read_like_run(config: Config, name: str, options: Mapping[str, Any]) -> Population:
    """Other data with the fields of the run's own, and in a table with the same columns for clients, if it has them."""
    if not is_private_table(name):
        return read_others(name, options)
    there, said = every_column(name), config.data.options
    same = {"client": said["client"]} if said.get("client") in there else {}
    same |= {option: [field for field in said.get(option, ()) if field in there] for option in ("classes", "text")}
    return _read_table(config, name, {option: value for option, value in {**same, **options}.items() if value})


def name_in_ledger(config: Config, population: Population) -> Known:
    """What the ledger calls the clients, and all of their table to know it by, whichever fields the run reads."""
    data = config.data
    return Known(population.name, content_of_clients(data.population, data.options, population))


def _schema(config: Config) -> Schema:
    return schema_of(config.data.schema, [f"{name}={kind}" for name, kind in config.data.types.items()])


def _read_table(config: Config, file: str, options: Mapping[str, Any]) -> Population:
    said = _Options.of(file, options)
    needed = _needed(config, said, has_names=loader_of(file) is image_folder)
    names = list(needed) if is_by_client(file) else _columns(config, file, said, needed)
    shapes = {field: Field("image", shape=tuple(shape), of_bytes=False) for field, shape in said.shapes.items()}
    schema = Schema({**shapes, **_schema(config).fields})
    fields = kinds_of(file, names, needed, schema, say='[data] types = {{ {} = "number" }}, or image:28x28')
    about = {option: getattr(said, option) for option in ("client", "separator", "split", "name")}
    people = private_table(file, fields=fields, mark_misfits=config.privacy.unit == "example", **about)
    label = config.model.label
    are_read_off = label in needed and label in said.classes and not config.model.classes
    return _as_they_occur(label, people) if are_read_off and fields[label].kind == "text" else people


def _columns(config: Config, file: str, said: "_Options", needed: Mapping[str, Field | None]) -> list[str]:
    """The columns that may be read, among which those that are needed have to be."""
    every = column_names(file, said.client, said.separator)
    for field in (*(said.fields or ()), *said.classes, *said.text):
        need_column(field, [said.client, *every], file)
    names = every if said.fields is None else [name for name in every if name in said.fields]
    for field in needed:
        if field not in names:
            table = "text" if config.model.is_language else "model"
            raise InvalidInput(f"[{table}] names the field {field!r}, but {file} has {', '.join(names)}")
    return names


@dataclasses.dataclass(frozen=True)
class _Options:
    """[data] options of a table, or of a file that is kept by client."""

    client: str = "client"
    separator: str = ","
    name: str | None = None
    split: str | None = None
    fields: Sequence[str] | None = None
    classes: Sequence[str] = ()
    text: Sequence[str] = ()
    shapes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict[str, Sequence[int]])

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
                what = "a list of columns" if is_list else "a text"
                raise InvalidInput(f"[data] options: {option} of {file} is {what}, got {value!r}")
        return cls(**options)


def _check_shapes(file: str, shapes: Any) -> None:
    given: list[Any] = list(shapes.values()) if isinstance(shapes, dict) else [None]
    if not all(isinstance(shape, list | tuple) and all(isinstance(length, int) for length in shape) for shape in given):
        raise InvalidInput(f"[data] options: shapes of {file} are spelled {{ pixels = [28, 28] }}, got {shapes!r}")


def _needed(config: Config, said: _Options, *, has_names: bool) -> dict[str, Field | None]:
    """The fields that a run reads, each with the kind that its part there has; None where it has to be said.

    `has_names` says that labels are the names of folders: numbers only if somebody says so.
    """
    model = config.model
    if model.is_language:
        return {config.text.field: Field("text")}

    def part_of(field: str) -> Field | None:
        if field in said.text:
            return Field("text")
        return None if model.kind in ("cnn", "gan") or field in said.classes else Field("number")

    needed = {field: part_of(field) for field in model.inputs}
    if reads_label(config):
        if has_names and not model.classes:
            raise InvalidInput("list the classes that the folders are named after: [model] classes = [...]")
        is_text = isinstance(model.classes, tuple) or model.label in (*said.classes, *said.text)
        needed[model.label] = Field("text" if is_text else "whole")
    return needed


def _as_they_occur(label: str, people: Population) -> Population:
    """The label as numbers of the names that occur, of which the guarantee then says that they have to be public."""
    column = people.columns[label]
    fits = people.columns.get(FITS, np.ones(len(column), bool))
    codes, names = as_classes(column[fits], f"field {label!r} of {people.name}")
    numbers = np.zeros(len(column), np.int32)
    numbers[fits] = codes
    found = people.replace({**people.columns, label: numbers})
    found.classes[label] = names
    return found
