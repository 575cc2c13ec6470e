"""Small drawings as inline SVG: positions are attributes and colours classes, for the policy forbids inline style."""

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from blindsight.inspection.page import words

__all__ = ["bar", "grouped_bars", "interval", "line_chart", "picture"]


def interval(effect: float, low: float, high: float, *, limit: float, found: bool) -> str:
    """An effect as a dot on its interval, on an axis from -limit to limit with a line at zero."""
    if not np.all(np.isfinite([effect, low, high])):
        return ""
    middle, half, height = 80.0, 74.0, 20

    def at(value: float) -> float:
        return round(middle + half * max(-1.0, min(1.0, value / limit if limit > 0 else 0.0)), 1)

    label = f"{words.signed(effect)}, 95 % from {words.signed(low)} to {words.signed(high)}"
    return (
        f'<svg class="interval {"found" if found else "quiet"}" viewBox="0 0 160 {height}" width="160" '
        f'height="{height}" role="img" aria-label="{escape(label)}">'
        f'<line class="axis" x1="{middle}" y1="1" x2="{middle}" y2="{height - 1}"/>'
        f'<line class="range" x1="{at(low)}" y1="10" x2="{at(high)}" y2="10"/>'
        f'<line class="range" x1="{at(low)}" y1="6" x2="{at(low)}" y2="14"/>'
        f'<line class="range" x1="{at(high)}" y1="6" x2="{at(high)}" y2="14"/>'
        f'<circle class="dot" cx="{at(effect)}" cy="10" r="4"/></svg>'
    )


def bar(share: float, *, kind: str, low: float | None = None, high: float | None = None, largest: float = 1.0) -> str:
    """A share as a bar from zero, with a whisker where its interval is known."""

    def at(value: float) -> float:
        return round(200 * max(0.0, min(1.0, value / largest if largest > 0 else 0.0)), 1)

    whisker = ""
    if low is not None and high is not None:
        whisker = (
            f'<line class="whisker" x1="{at(low)}" y1="8" x2="{at(high)}" y2="8"/>'
            f'<line class="whisker" x1="{at(low)}" y1="4" x2="{at(low)}" y2="12"/>'
            f'<line class="whisker" x1="{at(high)}" y1="4" x2="{at(high)}" y2="12"/>'
        )
    return (
        '<svg class="bar" viewBox="0 0 204 16" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" x="0" y="2" width="200" height="12" rx="2"/>'
        f'<rect class="{escape(kind)}" x="0" y="2" width="{at(share)}" height="12" rx="2"/>{whisker}</svg>'
    )


def line_chart(shares: Mapping[str, np.ndarray], *, label: str, ends: Sequence[str]) -> str:
    """Histograms of several arms as stepped lines over one another, `ends` at the ends of the axis."""
    width, height = 420, 150
    top = max([1e-12, *(float(np.max(values)) for values in shares.values())])
    paths: list[str] = []
    for arm, values in enumerate(shares.values()):
        edges = np.linspace(0, width, len(values) + 1)
        points = [(0.0, float(height))]
        for left, right, value in zip(edges[:-1], edges[1:], values, strict=True):
            level = height - (height - 8) * float(value) / top
            points += [(float(left), level), (float(right), level)]
        points.append((float(width), float(height)))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        paths.append(f'<polygon class="area arm-{arm % 6}" points="{path}"/>')
    names = " and ".join(shares)
    return (
        f'<svg class="chart" viewBox="0 -2 {width} {height + 20}" role="img" '
        f'aria-label="{escape(f"{label}: {names}")}">{"".join(paths)}'
        f'<line class="axis" x1="0" y1="{height}" x2="{width}" y2="{height}"/>'
        f'<text x="0" y="{height + 15}">{escape(ends[0])}</text>'
        f'<text x="{width}" y="{height + 15}" text-anchor="end">{escape(ends[1])}</text></svg>'
    )


def grouped_bars(
    shares: Mapping[str, Sequence[tuple[float, float, float]]],
    names: Sequence[str],
    *,
    label: str,
    dots: Mapping[str, Sequence[float]],
) -> str:
    """Upright bars of several arms side by side at each name, with whiskers, on an axis in per cent from zero.

    Every share is (value, low, high); `dots` are drawn over the bars of the arm of that name, as many as there are.
    """
    width, height, left = 760, 220, 44
    peak = max(
        [0.01, *(high for rates in shares.values() for _, _, high in rates), *(d for s in dots.values() for d in s)]
    )
    step = next(one for one in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0) if peak / one <= 5)
    top = step * math.ceil(peak / step)
    slot = (width - left) / len(names)
    wide = 0.7 * slot / len(shares)

    def at(share: float) -> float:
        return round(height - height * min(max(share / top, 0.0), 1.0), 1)

    drawn = list[str]()
    for tick in range(round(top / step) + 1):
        y = at(tick * step)
        drawn.append(f'<line class="{"axis" if tick == 0 else "grid"}" x1="{left}" y1="{y}" x2="{width}" y2="{y}"/>')
        drawn.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{100 * tick * step:.0f} %</text>')
    for place, name in enumerate(names):
        begin = left + (place + 0.15) * slot
        drawn.append(
            f'<text x="{begin + 0.35 * slot:.1f}" y="{height + 16}" text-anchor="middle">{escape(name)}</text>'
        )
        for arm, (who, rates) in enumerate(shares.items()):
            value, low, high = rates[place]
            x, middle = round(begin + arm * wide, 1), round(begin + (arm + 0.5) * wide, 1)
            tall = round(height - at(value), 1)
            drawn.append(
                f'<rect class="arm-{arm % 6}" x="{x}" y="{at(value)}" width="{wide - 2:.1f}" height="{tall}">'
                f"<title>{escape(f'{who}, {name}: {words.percent(value)} ({words.span(low, high)})')}</title></rect>"
                f'<line class="whisker" x1="{middle}" y1="{at(low)}" x2="{middle}" y2="{at(high)}"/>'
            )
            if place < len(dots.get(who, ())):
                drawn.append(f'<circle class="arm-{arm % 6}" cx="{middle}" cy="{at(dots[who][place])}" r="4"/>')
    arms = " and ".join(shares)
    return (
        f'<svg class="chart bars" viewBox="0 -8 {width} {height + 32}" role="img" '
        f'aria-label="{escape(f"{label}: {arms}")}">{"".join(drawn)}</svg>'
    )


def picture(data: bytes, *, alt: str, extra: str = "") -> str:
    """A PNG inside the page."""
    coded = base64.b64encode(data).decode("ascii")
    return f'<img src="data:image/png;base64,{coded}" alt="{escape(alt)}"{extra}>'
