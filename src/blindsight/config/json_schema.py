"""JSON Schema of RUN.toml and SITE.toml, for editors: from their dataclasses and the comments beside the fields."""

import dataclasses
import inspect
import io
import tokenize
import types
import typing
from typing import Any, Literal

from blindsight.config.run import Config

__all__ = ["json_schema"]

_PLAIN = {int: "integer", float: "number", str: "string", bool: "boolean"}


def json_schema(settings: type[Any] = Config, title: str = "RUN.toml") -> dict[str, Any]:
    """The schema of a whole file of settings, draft 2020-12; what tables must agree on is checked when it is read.

    Args:
        settings: The dataclass of its tables.
        title: Name of the file.
    """
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **_table(settings)}


def _table(kind: type[Any]) -> dict[str, Any]:
    hints, notes = typing.get_type_hints(kind), _comments(kind)
    fields = dataclasses.fields(kind)
    properties = {field.name: _value(hints[field.name]) for field in fields}
    for field in fields:
        if field.name in notes:
            properties[field.name]["description"] = notes[field.name]
        if field.default not in (dataclasses.MISSING, None):
            default: Any = field.default
            properties[field.name]["default"] = list(default) if isinstance(default, tuple) else default
    required = [
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    words = " ".join((kind.__doc__ or "").split())
    return {
        "type": "object",
        "description": words,
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _value(hint: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(hint):
        return _table(typing.cast(type[Any], hint))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:  # TOML has no null
        choices = [_value(part) for part in arguments if part is not types.NoneType]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:  # a single value may stand for a list of one
        return {"anyOf": [{"type": "array", "items": _value(arguments[0])}, _value(arguments[0])]}
    if origin is dict:
        return {"type": "object"} | ({} if arguments[-1] is Any else {"additionalProperties": _value(arguments[-1])})
    return {"type": _PLAIN[hint]}


def _comments(kind: type[Any]) -> dict[str, str]:
    """The comment beside each field of a dataclass, in its source."""
    names, found, first = {field.name for field in dataclasses.fields(kind)}, dict[str, str](), ""
    for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(kind)).readline):
        if token.type == tokenize.NAME and token.start[1] == 4:
            first = token.string
        elif token.type == tokenize.COMMENT and first in names:
            found.setdefault(first, token.string.lstrip("# "))
    return found
