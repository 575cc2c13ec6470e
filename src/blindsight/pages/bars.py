"""Tables of horizontal bars, which most sections are made of; the macro `bars` of `macros.html` draws them."""

import dataclasses
from collections.abc import Sequence

from blindsight.pages.filters import arm
from blindsight.wording import percent, span

__all__ = ["Bar", "BarTable", "Row", "share_bar"]


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
    """Rows of bars on one scale from zero to the largest value or interval, or to `least` where all are smaller."""

    rows: Sequence[Row]
    least: float = 1e-9

    @property
    def largest(self) -> float:
        """The end of the scale."""
        bars = [bar for row in self.rows for bar in row.bars]
        return max([self.least, *(bar.value if bar.high is None else max(bar.value, bar.high) for bar in bars)])


def share_bar(
    value: float, place: int | None, low: float | None = None, high: float | None = None, *, told: bool = True
) -> Bar:
    """A share of the arm at `place`, in grey if it belongs to no arm; `told` writes the interval beside it."""
    note = span(low, high) if told and low is not None and high is not None else ""
    return Bar(value, "other" if place is None else arm(place), percent(value), low, high, note)
