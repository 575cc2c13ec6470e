"""Tables of horizontal bars, which most sections are made of; the macro `bars` of `macros.html` draws them."""

import dataclasses
import math
from collections.abc import Sequence

from blindsight.pages.filters import arm
from blindsight.wording import number, percent, span

__all__ = ["Bar", "BarTable", "Row", "one_scale", "round_end", "share_bar"]

_ENDS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclasses.dataclass(frozen=True)
class Bar:
    """One bar: its CSS class, the text beside it, and a whisker where its interval is known."""

    value: float
    kind: str
    text: str
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """The bars under one name; a row that stands out is bold."""

    name: str
    bars: Sequence[Bar]
    stands_out: bool = False


@dataclasses.dataclass(frozen=True)
class BarTable:
    """Rows of bars on one scale from `start` to the largest value or interval, or to `least` where all are smaller.

    Values of bars are distances from `start`. `unit` says what the axis counts; shares, where it is empty.
    """

    rows: Sequence[Row]
    least: float = 1e-9
    unit: str = ""
    start: float = 0.0

    @property
    def largest(self) -> float:
        """The end of the scale, a round number at or beyond everything drawn."""
        bars = [bar for row in self.rows for bar in row.bars]
        drawn = max([self.least, *(bar.value if bar.high is None else max(bar.value, bar.high) for bar in bars)])
        return round_end(drawn + self.start) - self.start if drawn > 1e-9 else drawn

    @property
    def ticks(self) -> list[str]:
        """The labels at the beginning, middle and end of the axis."""
        places = [self.start + share * self.largest for share in (0.0, 0.5, 1.0)]
        return [number(place, 3) if self.unit else percent(place, 3) for place in places]


def one_scale(tables: Sequence[BarTable]) -> list[BarTable]:
    """The tables on the scale of the largest of them, for the panels of one section."""
    largest = max((table.largest for table in tables), default=0.0)
    return [dataclasses.replace(table, least=largest) for table in tables]


def round_end(value: float) -> float:
    """The smallest round number that is not below `value`, which is positive.

    >>> round_end(0.34), round_end(0.1), round_end(73), round_end(1.0)
    (0.4, 0.1, 80.0, 1.0)
    """
    if not 0 < value < math.inf:
        return value
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return next((float(f"{end * power:.6g}") for end in _ENDS if end * power >= value * (1 - 1e-9)), value)


def share_bar(
    value: float, place: int | None, low: float | None = None, high: float | None = None, *, told: bool = True
) -> Bar:
    """A share of the arm at `place`, in grey if it belongs to no arm; `told` writes the interval beside it."""
    ends = (low, high) if low is not None and high is not None else None
    note = span(*ends) if told and ends is not None else ""
    return Bar(value, "other" if place is None else arm(place), percent(value, within=ends), low, high, note)
