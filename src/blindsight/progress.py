"""Progress of a long call: a callable that receives each step."""

from collections.abc import Callable

__all__ = ["Progress", "quiet"]

Progress = Callable[[str, int, int], None]
"""Called with the step under way, how many are done, and how many there are."""


def quiet(doing: str, done: int, total: int) -> None:
    """Report no progress."""
