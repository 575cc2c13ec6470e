"""Reading and writing RUN.toml: every key is a field of a dataclass, and its type says which values are valid."""

import dataclasses
import difflib
import json
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from blindsight.config.run import Config
from blindsight.errors import InvalidInput

__all__ = ["as_toml", "from_table", "load", "parse", "read_toml", "without_nulls"]

_Settings = TypeVar("_Settings")


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The table in a TOML file; `what` says in a refusal which kind of file to name."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}): name {what}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from error


def load(path: str | Path) -> Config:
    """The configuration in the file `path`."""
    table = read_toml(path, "a configuration such as RUN.toml")
    try:
        return parse(table)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def from_table(kind: type[_Settings], table: Mapping[str, Any]) -> _Settings:
    """The dataclass `kind` from a table as TOML gives it: keys are its fields, and its own checks say the rest."""
    return _build(kind, table, "")


def parse(table: Mapping[str, Any]) -> Config:
    """The configuration in a table as TOML gives it."""
    return from_table(Config, table)


def without_nulls(settings: Any) -> Any:
    """The settings of a `run.json` as TOML has them: TOML has no null, so keys that were left out are dropped."""
    if not isinstance(settings, Mapping):
        return settings
    table = typing.cast(Mapping[str, Any], settings)
    return {key: without_nulls(value) for key, value in table.items() if value is not None}


def as_toml(config: Config) -> str:
    """The configuration as text that `load` reads; only keys that differ from their defaults."""

    def written(value: Any) -> str:
        if isinstance(value, Mapping):
            pairs = typing.cast(Mapping[str, Any], value).items()
            return "{ " + ", ".join(f"{json.dumps(key)} = {written(part)}" for key, part in pairs) + " }"
        return json.dumps(value, ensure_ascii=False)

    lines = [f"{key} = {written(value)}" for key in ("name", "seed") if (value := getattr(config, key)) is not None]
    for field in dataclasses.fields(config):
        table = getattr(config, field.name)
        if not dataclasses.is_dataclass(table):
            continue
        changed = [
            f"{part.name} = {written(getattr(table, part.name))}"
            for part in dataclasses.fields(table)
            if getattr(table, part.name) != _default(part)
        ]
        is_needed = changed or field.default is None  # an optional table means something even if it is empty
        lines += ["", f"[{field.name}]", *changed] if is_needed else []
    return "\n".join(lines) + "\n"


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _build(kind: type[Any], table: Mapping[str, Any], where: str) -> Any:
    """A dataclass from a table, every key checked against the fields."""
    fields, hints = {field.name: field for field in dataclasses.fields(kind)}, typing.get_type_hints(kind)
    for key in table:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(fields)}"
            raise InvalidInput(f"{where or 'the top level'} has no {key!r}: {hint}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in table:
            what = f"a table [{name}]" if dataclasses.is_dataclass(hints[name]) else f"{name!r}"
            raise InvalidInput(f"{where or 'the top level'} needs {what}")
    return kind(**{key: _value(hints[key], value, where, key) for key, value in table.items()})


def _value(hint: Any, value: Any, where: str, key: str) -> Any:
    """A TOML value as the type of its field, or a refusal that names the place."""
    place = f"{where} {key}".strip()
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{place} must be a table, [{key}], got {value!r}")
        return _build(typing.cast(type[Any], hint), value, f"[{key}]")
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:  # `X | None`, of which TOML can write X; or `int | tuple | None`, the one that fits
        choices = [part for part in arguments if part is not types.NoneType]
        return _value(choices[-1] if isinstance(value, list) else choices[0], value, where, key)
    if origin is Literal:
        if value not in arguments:
            raise InvalidInput(f"{place} must be one of {', '.join(map(str, arguments))}, got {value!r}")
        return value
    if origin is tuple:
        values = value if isinstance(value, list) else [value]
        return tuple(_value(arguments[0], part, where, key) for part in values)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{place} must be a table, got {value!r}")
        if arguments[-1] is Any:
            return {name: _plain(part, f"{place} {name}") for name, part in value.items()}
        return {name: _value(arguments[-1], part, place, name) for name, part in value.items()}
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint or (hint is float and not math.isfinite(value)):
        words = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
        raise InvalidInput(f"{place} must be {words[hint]}, got {value!r}")
    return value


def _plain(value: Any, place: str) -> Any:
    """A value that JSON can hold too, since settings are saved in `run.json`."""
    if isinstance(value, list):
        return [_plain(part, place) for part in typing.cast(list[Any], value)]
    if isinstance(value, Mapping):
        return {name: _plain(part, place) for name, part in typing.cast(Mapping[str, Any], value).items()}
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidInput(f"{place} must be text, a number, true or false, or a list or table of them, got {value}")
    return value
