"""Reading part of a table does not make it a different table: a ledger identifies it by all of its columns."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from blindsight.data.population import Population

__all__ = ["known_as_whole"]

_CHOICES = ("fields", "classes", "text")

P = ParamSpec("P")


def known_as_whole(read: Callable[P, Population]) -> Callable[P, Population]:
    """The reader, with populations that a ledger identifies by the whole table, whichever columns and types are read.

    Otherwise part of a table under another name would have its own budget. See `Population.content`.
    """

    @functools.wraps(read)
    def reading(*given: P.args, **options: P.kwargs) -> Population:
        found = read(*given, **options)
        if not any(options.get(choice) for choice in _CHOICES):
            return found
        rest: dict[str, Any] = {name: value for name, value in options.items() if name not in _CHOICES}
        return found.part_of(functools.partial(_content, read, given, rest, found.replace(found.columns, name="part")))

    return reading


def _content(read: Callable[..., Population], given: Any, rest: dict[str, Any], part: Population) -> str:
    try:
        return read(*given, **rest).content
    except Exception:  # the other columns cannot be read at all
        return part.content
