"""A site's own clients as a job's question describes them: its columns are renamed, its types fixed by the question.

Nothing here reveals a value: its own client leaves out what does not fit, and a field that is missing or has another
type is refused by a code.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from blindsight.data.dialect import Dialect
from blindsight.data.population import TEXT, Population
from blindsight.data.private import column_names, private_table
from blindsight.data.schema import Field, Schema
from blindsight.errors import BlindsightError
from blindsight.fleet.codes import Code, Declined
from blindsight.fleet.site.settings import SiteSettings
from blindsight.inspection.unknowns.words import joined
from blindsight.jobs.tables import is_private_table, read_others

__all__ = ["check_declared", "clients_of", "read_own", "sides_of_site"]


def clients_of(settings: SiteSettings, schema: Schema, reading: Mapping[str, Any]) -> Population:
    """The site's clients with the fields of `schema`, for a question."""
    clients = (
        sides_of_site(settings, reading) if "side" in reading else read_own(settings, schema.fields, schema.inputs)
    )
    check_declared(settings, clients)
    return clients


def check_declared(settings: SiteSettings, clients: Population) -> None:
    """Refuse data with more clients than the site declares: sums leave room for those."""
    if clients.size > settings.site.clients:
        raise Declined(
            Code.policy, f"[site] clients declares {settings.site.clients:,}, and the data have more: declare more"
        )


def read_own(settings: SiteSettings, fields: Mapping[str, Field], gaps: tuple[str, ...] = ()) -> Population:
    """The site's clients with these fields; those in `gaps` may have missing values."""
    where, options, columns = settings.population, dict(settings.data.options), settings.columns
    try:
        if not is_private_table(where):
            return _as_described(read_others(where, options), fields)
        client = str(options.get("client", "client"))
        named = {columns.get(name, name): field for name, field in fields.items()}
        dialect = Dialect.of(options)
        there = column_names(where, client, dialect)
        if there and (missing := [name for name in named if name not in there]):
            raise Declined(Code.wrong_columns, f"{where} has no column {missing[0]!r}: map it in [columns]")
        table = private_table(
            where,
            fields=named,
            client=client,
            dialect=dialect,
            split=options.get("split"),
            gaps=[columns.get(name, name) for name in gaps],
        )
    except Declined:
        raise
    except BlindsightError as error:
        raise Declined(Code.no_data, str(error)) from error
    return _renamed(table, {columns.get(name, name): name for name in fields})


def _renamed(table: Population, names: Mapping[str, str]) -> Population:
    renamed = table.replace({names.get(column, column): values for column, values in table.columns.items()})
    renamed.classes |= {names.get(column, column): classes for column, classes in table.classes.items()}
    return renamed


def _as_described(population: Population, fields: Mapping[str, Field]) -> Population:
    """The described fields of a population with its own types; a field of another type is refused."""
    described = Schema.of(population).fields
    for name, field in fields.items():
        own = described.get(name)
        if own is None:
            raise Declined(Code.wrong_columns, f"{population.name} has no field {name!r}")
        numbers = ("number", "whole")
        if (own.kind, own.shape) != (field.kind, field.shape) and not (own.kind in numbers and field.kind in numbers):
            raise Declined(
                Code.wrong_columns,
                f"{name!r} of {population.name} is a {own.kind}, and the question needs a {field.kind}",
            )
        if own.values != field.values:
            raise Declined(Code.other_classes, f"{name!r} of {population.name} has other classes than the question")
    return population.replace({name: population.columns[name] for name in fields})


def sides_of_site(settings: SiteSettings, reading: Mapping[str, Any]) -> Population:
    """Texts before and after a change, separated by a field of the site's data."""
    text, side, values = str(reading["text"]), str(reading["side"]), [str(value) for value in reading["values"]]
    whole = read_own(settings, {text: Field("text"), side: Field("text")})
    column = whole.columns[side]

    def of(value: str) -> Population:
        kept = whole.keep(np.asarray(column == np.array(value, TEXT)))
        return kept.replace({"text": kept.columns[text]})

    before, after = (of(value) for value in values)
    return joined(before, after)
