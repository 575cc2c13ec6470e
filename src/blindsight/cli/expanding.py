"""Commands with many options: those that belong together are the fields of one dataclass."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["expanded"]


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """The function as Typer takes it: a parameter that is a dataclass becomes one option for each of its fields."""
    parameters = inspect.signature(function).parameters.values()
    groups: dict[str, Any] = {
        one.name: one.annotation for one in parameters if dataclasses.is_dataclass(one.annotation)
    }

    @functools.wraps(function)
    def _command(**options: Any) -> None:
        given = {
            name: kind(**{field.name: options.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        function(**given, **options)

    options = [option for one in parameters for option in (_options(groups[one.name]) if one.name in groups else [one])]
    by_name = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    vars(_command)["__signature__"] = inspect.Signature(by_name)
    _command.__annotations__ = {option.name: option.annotation for option in by_name}  # Typer reads both
    del vars(_command)["__wrapped__"]
    return _command


def _options(kind: Any) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=field.type,
        )
        for field in dataclasses.fields(kind)
    ]
