"""Commands with many options: those that belong together are the fields of one dataclass."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["expanded", "parameters_of"]


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """The function in the form that Typer reads: a dataclass parameter becomes one option for each of its fields."""
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

    listed = [parameters_of(groups[one.name]) if one.name in groups else [one] for one in parameters]
    by_name = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for options in listed for option in options]
    vars(_command)["__signature__"] = inspect.Signature(by_name)
    _command.__annotations__ = {option.name: option.annotation for option in by_name}  # Typer reads both
    del vars(_command)["__wrapped__"]
    return _command


def parameters_of(kind: Any, annotations: Mapping[str, Any] | None = None) -> list[inspect.Parameter]:
    """A keyword parameter for each field of a dataclass, annotated as the field is unless `annotations` has its name.

    An empty default is None, as Typer expects.
    """

    def default(field: dataclasses.Field[Any]) -> Any:
        if field.default is dataclasses.MISSING:
            return inspect.Parameter.empty
        return None if field.default in ((), "") else field.default

    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default(field),
            annotation=(annotations or {}).get(field.name, field.type),
        )
        for field in dataclasses.fields(kind)
    ]
