"""Checks of the fields of events: a field has the type and range that its event states, or the event does not exist."""

import math
import numbers
from typing import Any, ClassVar, Protocol

from blindsight.errors import InvalidInput

__all__ = ["check_epsilon", "check_flag", "check_rate", "check_real", "check_whole", "require"]


class Named(Protocol):
    """An event, of which the checks read the name and the fields."""

    name: ClassVar[str]


def require(holds: bool, event: Named, field: str, rule: str) -> None:
    """Refuse the event unless `holds`, saying which rule its field breaks."""
    if not holds:
        raise InvalidInput(f"{field} of a {event.name} event must be {rule}, got {getattr(event, field)!r}")


def check_real(event: Named, field: str) -> None:
    """Check that a field is a finite number >= 0, and store it as a float."""
    value: Any = getattr(event, field)
    try:
        number = float(value) if _is(value, numbers.Real) else math.nan
    except OverflowError:  # a whole number too large for a float
        number = math.nan
    require(0 <= number < math.inf, event, field, "a finite number >= 0")
    if isinstance(value, int | float):
        object.__setattr__(event, field, number + 0.0)  # no minus zero


def check_whole(event: Named, field: str, least: int) -> None:
    """Check that a field is a whole number >= `least`, and store it as an int."""
    value: Any = getattr(event, field)
    require(_is(value, numbers.Integral) and value >= least, event, field, f"a whole number >= {least}")
    object.__setattr__(event, field, int(value))


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def check_flag(event: Named, field: str) -> None:
    """Check that a field is true or false."""
    require(isinstance(getattr(event, field), bool), event, field, "true or false")


def check_rate(event: Named) -> None:
    """Check that `rate` is a probability."""
    check_real(event, "rate")
    require(getattr(event, "rate") <= 1, event, "rate", "in [0, 1]")  # noqa: B009


def check_epsilon(event: Named) -> None:
    """Check that `epsilon` is a number >= 0, which may be infinite."""
    if getattr(event, "epsilon") != math.inf:  # noqa: B009
        check_real(event, "epsilon")
