"""Small drawings as inline SVG: positions are attributes and colours are classes, as inline style is forbidden."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from blindsight.pages.bars import round_end
from blindsight.pages.filters import arm
from blindsight.wording import percent, span

__all__ = ["bands", "bar", "bounds", "dot_columns", "grouped_bars", "interval", "line_chart"]

Estimated = tuple[float, float, float]
"""A value with the ends of its interval."""


def interval(
    effect: float,
    low: float,
    high: float,
    *,
    axis: tuple[float, float],
    usual: float,
    ticks: tuple[str, str, str],
    detected: bool,
    label: str,
) -> Markup:
    """An effect as a dot on its interval, on an axis with a line where it would be `usual` if nothing were wrong.

    Args:
        effect: The value of the dot.
        low: Lower end of its interval.
        high: Upper end of its interval.
        axis: Beginning and end of the axis.
        usual: The value where nothing is wrong.
        ticks: The beginning of the axis, the usual value and the end of the axis in words.
        detected: Whether it stands out.
        label: All of it in words.
    """
    if not np.all(np.isfinite([effect, low, high])):
        return Markup("")
    left, width, (start, end) = 16.0, 148.0, axis

    def at(value: float) -> float:
        return round(left + width * max(0.0, min(1.0, (value - start) / (end - start) if end > start else 0.5)), 1)

    drawn = [
        _line("base", left, 19, left + width, 19),
        _line("axis", at(usual), 1, at(usual), 19),
        _line("range", at(low), 10, at(high), 10),
        _line("range", at(low), 6, at(low), 14),
        _line("range", at(high), 6, at(high), 14),
        _element("circle", class_="dot", cx=at(effect), cy=10, r=4),
        _text(ticks[0], at(start), 30),
        _text(ticks[2], at(end), 30),
    ]
    if min(at(usual) - at(start), at(end) - at(usual)) > 36:  # else they would touch
        drawn.append(_text(ticks[1], at(usual), 30))
    kind = f"interval {'detected' if detected else 'quiet'}"
    return _svg(drawn, kind=kind, box=(0, 0, 180, 33), label=label, width=180, height=33)


def bar(
    share: float, *, kind: str, low: float | None = None, high: float | None = None, largest: float = 1.0
) -> Markup:
    """A share as a bar from zero, with a whisker where its interval is known."""

    def at(value: float) -> float:
        return round(200 * max(0.0, min(1.0, value / largest if largest > 0 else 0.0)), 1)

    drawn = [
        _element("rect", class_="track", x=0, y=2, width=200, height=12, rx=2),
        _element("rect", class_=kind, x=0, y=2, width=at(share), height=12, rx=2),
    ]
    if low is not None and high is not None:
        drawn.append(_line("whisker", at(low), 8, at(high), 8))
        drawn += [_line("whisker", at(end), 4, at(end), 12) for end in (low, high)]
    attributes = {"class": "bar", "viewBox": "0 0 204 16", "preserveAspectRatio": "none", "aria-hidden": "true"}
    return _element("svg", *drawn, **attributes)


def line_chart(
    arms: Sequence[tuple[str, int, np.ndarray]], *, label: str, ends: Sequence[str], across: str, top: float = 0.0
) -> Markup:
    """Histograms of arms (name, place, shares) as stepped lines over one another.

    `ends` are at the ends of the horizontal axis and `across` says what it measures; the vertical one reaches at least
    `top`, so that charts beside one another can have one scale.
    """
    left, width, height = 44, 420, 150
    top = round_end(max([1e-3, top, *(float(np.max(shares)) for _, _, shares in arms)]))
    drawn = _shares_axis((0.0, top / 2, top), top, left=left, width=width, height=height)
    for _, place, values in arms:
        levels = height - height * np.asarray(values, np.float64) / top
        steps = np.linspace(left, width, len(levels) + 1).repeat(2)
        points = zip(steps, [height, *levels.repeat(2), height], strict=True)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        drawn.append(_element("polygon", class_=f"area {arm(place)}", points=path))
    drawn += _across(ends, across, left=left, width=width, height=height)
    names = " and ".join(name for name, _, _ in arms)
    return _svg(drawn, kind="chart", box=(0, -8, width, height + 26), label=f"{label}: {names}")


def grouped_bars(
    shares: Mapping[str, Sequence[Estimated]],
    names: Sequence[str],
    *,
    label: str,
    dots: Mapping[str, Sequence[float]],
    across: str = "",
) -> Markup:
    """Upright bars of several arms side by side at each name, with whiskers, on an axis in per cent from zero.

    `dots` are drawn over the bars of the arm of that name; they may be fewer than the bars. `across` says what the
    names are.
    """
    width, height, left = 760, 220, 44
    highs = [high for rates in shares.values() for _, _, high in rates]
    peak = max([0.01, *highs, *(dot for listed in dots.values() for dot in listed)])
    step = next(one for one in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0) if peak / one <= 5)
    top = step * math.ceil(peak / step)
    slot = (width - left) / len(names)
    wide = 0.7 * slot / len(shares)

    def at(share: float) -> float:
        return round(height - height * min(max(share / top, 0.0), 1.0), 1)

    drawn = list[Markup]()
    for tick in range(round(top / step) + 1):
        y = at(tick * step)
        drawn.append(_line("grid" if tick else "axis", left, y, width, y))
        drawn.append(_text(percent(tick * step, 3), left - 6, y + 4, anchor="end"))
    for place, name in enumerate(names):
        begin = left + (place + 0.15) * slot
        drawn.append(_text(name, round(begin + 0.35 * slot, 1), height + 16))
        for number, (who, rates) in enumerate(shares.items()):
            value, low, high = rates[place]
            x, middle = round(begin + number * wide, 1), round(begin + (number + 0.5) * wide, 1)
            words = _element("title", f"{who}, {name}: {percent(value, within=(low, high))} ({span(low, high)})")
            size = {"width": round(wide - 2, 1), "height": round(height - at(value), 1)}
            drawn.append(_element("rect", words, class_=arm(number), x=x, y=at(value), **size))
            drawn.append(_line("whisker", middle, at(low), middle, at(high)))
            if place < len(dots.get(who, ())):
                drawn.append(_element("circle", class_=arm(number), cx=middle, cy=at(dots[who][place]), r=4))
    drawn.append(_text(across, (left + width) / 2, height + 34, kind="unit"))
    box = (0, -8, width, height + 48)
    return _svg(drawn, kind="chart bars", box=box, label=f"{label}: {' and '.join(shares)}")


def bands(
    curves: Sequence[tuple[str, int, Sequence[Estimated]]], *, label: str, ends: Sequence[str], across: str
) -> Markup:
    """Rising curves (name, place, points) from 0 to 1 as lines in the bands of their intervals."""
    left, width, height = 44, 420, 150
    drawn = _shares_axis((0.0, 0.5, 1.0), 1.0, left=left, width=width, height=height)
    for _, place, points in curves:
        places = np.linspace(left, width, len(points)).round(1).tolist()
        value, low, high = (
            [f"{x},{height * (1 - end):.1f}" for x, end in zip(places, side, strict=True)]
            for side in zip(*points, strict=True)
        )
        drawn.append(_element("polygon", class_=f"area band {arm(place)}", points=" ".join([*low, *high[::-1]])))
        drawn.append(_element("polyline", class_=f"curve {arm(place)}", points=" ".join(value)))
    drawn += _across(ends, across, left=left, width=width, height=height)
    names = " and ".join(name for name, _, _ in curves)
    return _svg(drawn, kind="chart", box=(0, -8, width, height + 26), label=f"{label}: {names}")


def dot_columns(columns: Sequence[tuple[str, str, Sequence[int]]], *, most: int, label: str) -> Markup:
    """Whole numbers from 1 to `most` on a log axis, smallest on top: columns of (group, name, values) side by side."""
    width, left, top, height = 860, 74, 14, 250
    step = (width - left - 10) / len(columns)

    def at(value: float) -> float:
        return round(top + height * math.log(max(value, 1)) / math.log(most + 1), 1)

    drawn = list[Markup]()
    for power in range(math.floor(math.log10(most)) + 1):
        y = at(10**power)
        drawn += [_line("grid", left, y, width - 10, y), _text(f"{10**power:,}", left - 8, y + 4, anchor="end")]
    drawn.append(_text("rank", left - 8, top + height + 20, anchor="end", kind="unit"))
    drawn.append(_text("copies per client", width - 10, top + height + 62, anchor="end", kind="unit"))
    groups = dict[str, list[float]]()
    for number, (group, name, values) in enumerate(columns):
        x = left + (number + 0.5) * step
        groups.setdefault(group, []).append(x)
        gap = min(14.0, step / (len(values) + 1))
        colour = arm(list(groups).index(group))
        for place, value in enumerate(values):
            across = round(x + (place - (len(values) - 1) / 2) * gap, 1)
            drawn.append(_element("circle", class_=colour, cx=across, cy=at(value), r=5))
        drawn.append(_text(name, round(x, 1), top + height + 20))
    for number, (group, places) in enumerate(groups.items()):
        drawn.append(_text(group, round(sum(places) / len(places), 1), top + height + 42, kind="group"))
        if number:
            x = round(places[0] - step / 2, 1)
            drawn.append(_line("divider", x, top, x, top + height + 48))
    return _svg(drawn, kind="plot", box=(0, 0, width, top + height + 70), label=label)


def bounds(rows: Sequence[tuple[str, float, str, float]], *, claim: float | None, claimed: str, label: str) -> Markup:
    """Rows of (name, value, value in words, attainable value) as bars from zero, and the claim as a vertical line."""
    left, width, top, row = 110, 690, 14, 34
    most = round_end(1.02 * max([attainable for *_, attainable in rows] + ([] if claim is None else [claim]) + [1e-9]))
    bottom = top + row * len(rows)

    def at(value: float) -> float:
        return round(left + width * min(value, most) / most, 1)

    drawn = [_line("axis", left, bottom + 2, left + width, bottom + 2)]
    for tick in (0.0, most / 2, most):
        drawn += [_line("grid", at(tick), top, at(tick), bottom + 2), _text(f"{tick:g}", at(tick), bottom + 18)]
    drawn.append(_text("epsilon", left - 10, bottom + 18, anchor="end", kind="unit"))
    for number, (name, value, words, attainable) in enumerate(rows):
        y = top + row * number
        colour = "bad" if claim is not None and value > claim else "fine"
        size = {"height": 20, "rx": 3}
        drawn += [
            _text(name, left - 10, y + 18, anchor="end"),
            _element("rect", class_="track", x=left, y=y + 4, width=round(at(attainable) - left, 1), **size),
            _element("rect", class_=colour, x=left, y=y + 4, width=round(max(at(value) - left, 1.0), 1), **size),
            _text(words, at(value) + 6, y + 19, anchor="start"),
        ]
    if claim is not None:
        drawn.append(_line("claim", at(claim), top - 4, at(claim), bottom + 2))
        drawn.append(_text(claimed, at(claim), bottom + 36))
    return _svg(drawn, kind="plot", box=(0, 0, left + width + 60, bottom + 44), label=label)


def _shares_axis(ticks: Sequence[float], top: float, *, left: int, width: int, height: int) -> list[Markup]:
    """Lines across a chart at shares from zero to `top`, each with its number."""
    drawn = list[Markup]()
    for tick in ticks:
        y = round(height * (1 - tick / top), 1)
        drawn.append(_line("grid" if tick else "axis", left, y, width, y))
        drawn.append(_text(percent(tick, 3), left - 4, y + 4, anchor="end"))
    return drawn


def _across(ends: Sequence[str], name: str, *, left: int, width: int, height: int) -> list[Markup]:
    """The ends of a horizontal axis, and between them what it measures."""
    return [
        _text(ends[0], left, height + 15, anchor="start"),
        _text(name, (left + width) / 2, height + 15, kind="unit"),
        _text(ends[1], width, height + 15, anchor="end"),
    ]


def _svg(drawn: Sequence[Markup], *, kind: str, box: tuple[int, int, int, int], label: str, **more: object) -> Markup:
    attributes = {"class": kind, "viewBox": " ".join(map(str, box)), "role": "img", "aria-label": label}
    return _element("svg", *drawn, **attributes, **more)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return _element("line", class_=kind, x1=x1, y1=y1, x2=x2, y2=y2)


def _text(text: str, x: float, y: float, *, anchor: str = "middle", kind: str = "") -> Markup:
    named = {"class": kind} if kind else {}
    return _element("text", text, x=x, y=y, **{"text-anchor": anchor}, **named)


def _element(name: str, *children: str, **attributes: object) -> Markup:
    """An element; children that are not `Markup` and all attributes are escaped."""
    listed = Markup("").join(Markup(' {}="{}"').format(key.rstrip("_"), value) for key, value in attributes.items())
    return Markup("<{0}{1}>{2}</{0}>").format(name, listed, Markup("").join(children))
