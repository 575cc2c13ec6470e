"""Whether values that a stranger wrote are of the types that dataclasses declare."""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

__all__ = ["misfit"]


def misfit(value: Any, hint: Any, name: str = "") -> str:
    """The first part of `value` that is not of its declared type, by name; empty if all are.

    Numbers must be finite. Types other than plain ones, unions, tuples, mappings and dataclasses are not looked into.

    >>> from blindsight.data.schema import Field
    >>> misfit(Field("whole", 0, 120), Field), misfit(Field("whole", True, 120), Field, "age")
    ('', 'age low')
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        odd = [misfit(value, one, name) for one in arguments]
        return "" if "" in odd else max(odd, key=len)
    if origin is tuple and isinstance(value, tuple):
        parts = typing.cast(tuple[Any, ...], value)
        expected = arguments[:1] * len(parts) if arguments[1:] == (...,) else arguments
        odd = [misfit(part, one, name) for part, one in zip(parts, expected, strict=False)]
        return next(filter(None, odd), "") if len(parts) == len(expected) else name
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
        pairs = typing.cast(Mapping[Any, Any], value).items()
        odd = [misfit(key, arguments[0], name) or misfit(part, arguments[1], f"{name} {key}") for key, part in pairs]
        return next(filter(None, odd), "")
    if isinstance(hint, type) and dataclasses.is_dataclass(value) and isinstance(value, hint):
        hints = typing.get_type_hints(type(value))
        fields = [field.name for field in dataclasses.fields(value)]
        odd = [misfit(getattr(value, field), hints[field], f"{name} {field}".strip()) for field in fields]
        return next(filter(None, odd), "")
    return "" if _is_plain(value, hint, origin, arguments) else name


def _is_plain(value: Any, hint: Any, origin: Any, arguments: tuple[Any, ...]) -> bool:
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if hint in (int, float):
        is_number = type(value) is int or (hint is float and type(value) is float)
        return is_number and math.isfinite(value)
    if hint in (bool, str, types.NoneType):
        return isinstance(value, hint)
    return origin is None and not (isinstance(hint, type) and dataclasses.is_dataclass(hint))
