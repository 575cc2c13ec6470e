"""Curves over rounds as inline SVG, with axes, ticks and units; those of several runs on one scale."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from blindsight.pages.filters import arm
from blindsight.wording import number

__all__ = ["RoundCurve", "curves", "ticks"]

RoundCurve = tuple[str, int, Sequence[tuple[float, float]]]
"""A name, its place among the colours, and points."""

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 520, 190, 58, 36
_MOST = 400  # points of a curve: more than pixels show


def curves(shown: Sequence[RoundCurve], *, across: str, upwards: str) -> Markup:
    """The curves over one pair of axes, which `across` and `upwards` name; points that are not finite are left out."""
    kept = [(name, place, _thinned(points)) for name, place, points in shown]
    values = [point for _, _, points in kept for point in points]
    if not values:
        return Markup("")
    xs, ys = ticks([x for x, _ in values], most=6, whole=True), ticks([y for _, y in values], most=4)
    right, top = _WIDTH - 12, 14
    width, height = right - _LEFT, _HEIGHT - _BOTTOM - top

    def at(x: float, y: float) -> tuple[float, float]:
        over = (x - xs[0]) / (xs[-1] - xs[0])
        above = (y - ys[0]) / (ys[-1] - ys[0])
        return round(_LEFT + width * over, 1), round(top + height * (1 - above), 1)

    drawn = list[Markup]()
    for tick in ys:
        y = at(xs[0], tick)[1]
        drawn += [_line("grid", _LEFT, right, y), _text(number(tick), _LEFT - 7, y + 4, "end")]
    for tick in xs:
        x = at(tick, ys[0])[0]
        drawn.append(_text(number(tick, 6), x, top + height + 17))
    drawn.append(_line("axis", _LEFT, right, top + height))
    drawn.append(_text(across, (_LEFT + right) / 2, _HEIGHT - 3))
    for _, place, points in kept:
        path = " ".join("{},{}".format(*at(x, y)) for x, y in points)
        drawn.append(Markup('<polyline class="curve {}" points="{}"></polyline>').format(arm(place), path))
        if len(points) <= 40:
            dots = Markup("").join(
                Markup('<circle class="point {}" cx="{}" cy="{}" r="2.5"></circle>').format(arm(place), *at(x, y))
                for x, y in points
            )
            drawn.append(dots)
    last = "; ".join(f"{name} {number(points[-1][1])}" for name, _, points in kept if points)
    return Markup('<svg class="chart curves" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, f"{upwards} by {across}: {last}", Markup("").join(drawn)
    )


def ticks(values: Sequence[float], *, most: int, whole: bool = False) -> list[float]:
    """Round numbers in at most `most` equal steps that enclose all values; at least two.

    >>> ticks([0.12, 0.83], most=4), ticks([1, 20], most=6, whole=True)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 5.0, 10.0, 15.0, 20.0])
    """
    low, high = min(values), max(values)
    power = 10.0 ** math.floor(math.log10((high - low or abs(high) or 1.0) / most))
    steps = [factor * power for factor in (1, 2, 2.5, 5, 10, 20, 25, 50, 100)]
    steps = [step for step in steps if not whole or step % 1 == 0] or [1.0]
    ends = [(step, math.floor(low / step), math.ceil(high / step)) for step in steps]
    step, first, last = next((one for one in ends if one[2] - one[1] <= most), ends[-1])
    return [round(place * step, 12) for place in range(first, max(last, first + 1) + 1)]


def _line(kind: str, x1: float, x2: float, y: float) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"></line>').format(kind, x1, y, x2, y)


def _text(words: str, x: float, y: float, anchor: str = "middle") -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(x, y, anchor, words)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Few enough points to draw, the last one among them."""
    finite = [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]
    if len(finite) <= _MOST:
        return finite
    step = -(-len(finite) // _MOST)
    return [*finite[:-1:step], finite[-1]]
