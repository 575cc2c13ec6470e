"""The schema of a private table, inferred from public data: kinds of fields, and the values of categories.

Anyone may read public values, so they provide more than types: a text field with few different values is a category,
and a float column with gaps but without fractions holds integers. Clients are then read by this schema, and `conform`
gives the public data the same columns.
"""

import numpy as np

from blindsight.data.missing import TRUTH, coded_as, is_missing
from blindsight.data.population import TEXT, Population
from blindsight.data.schema import Field, Schema

__all__ = ["conform", "fill_of", "public_schema"]

_MOST_VALUES, _LEAST_EACH = 32, 10  # maximum number of values of a category; minimum mean number of examples of each


def public_schema(public: Population) -> Schema:
    """The schema of public data, by their types and values.

    >>> regions = np.array(["north", "south"] * 50, TEXT)
    >>> ages = np.array([31.0, np.nan] * 50)
    >>> fields = public_schema(Population({"region": regions, "age": ages}, sizes=[100], name="public")).fields
    >>> fields["region"].values, fields["age"].kind
    (('north', 'south'), 'whole')
    """
    fields = {name: _looked_at(public, name, field) for name, field in Schema.of(public).fields.items()}
    return Schema(fields)


def _looked_at(public: Population, name: str, field: Field) -> Field:
    column = public.columns[name]
    if field.kind == "text":
        present = column[~is_missing(column)]
        values, counts = np.unique(present, return_counts=True)
        if 2 <= len(values) <= _MOST_VALUES and len(present) >= _LEAST_EACH * len(values):
            return Field("category", values=tuple(values[np.argsort(-counts, kind="stable")].tolist()))
    if field.kind == "number":
        missing = is_missing(column)
        present = column[~missing]
        is_whole = len(present) and np.all(np.floor(present) == present) and np.max(np.abs(present)) < 2**31
        return Field("whole") if missing.any() and is_whole else field
    return field


def conform(public: Population, fields: dict[str, Field]) -> Population:
    """The public data converted to these fields as `private_table` converts clients' data with gaps."""
    columns, classes = dict(public.columns), dict(public.classes)
    for name, field in fields.items():
        if name not in columns or columns[name].ndim > 1:
            continue
        column, names = columns[name], classes.get(name)
        if field.kind in ("number", "whole") and column.dtype.kind in "biuf" and names is None:
            columns[name] = column.astype(np.float64)
        elif field.kind in ("category", "truth"):
            values = field.values or TRUTH
            if column.dtype.kind == "b":
                column, names = column.astype(np.int32), TRUTH
            if column.dtype == TEXT or column.dtype.kind in "iu":
                columns[name], classes[name] = coded_as(column, values, names), values
    conformed = public.replace(columns)
    conformed.classes.update(classes)
    return conformed


def fill_of(field: Field, name: str, public: Population | None) -> float:
    """What a model reads where this field is missing: as the schema says, or the public median or commonest value.

    Without public data it is the middle of the public range, or 0.
    """
    if field.fill is not None:
        return field.fill
    column = None if public is None else public.columns.get(name)
    if column is not None and column.ndim == 1 and column.dtype.kind in "biuf":
        present = column[np.isfinite(column)] if field.kind in ("number", "whole") else column[column >= 0]
        if len(present):
            is_number = field.kind in ("number", "whole")
            return float(np.median(present) if is_number else np.bincount(present.astype(np.int64)).argmax())
    return sum(field.range) / 2 if field.range is not None else 0.0
