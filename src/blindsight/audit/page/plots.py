"""The two pictures of an audit as inline SVG: positions are attributes and colours classes."""

import math
from html import escape
from typing import TYPE_CHECKING

from blindsight.accounting.guarantee import round_down, round_up

if TYPE_CHECKING:
    from blindsight.audit.report import AuditReport

__all__ = ["bounds", "ranks"]

WIDTH, LEFT, TOP, HEIGHT = 860, 74, 14, 250


def ranks(report: "AuditReport") -> str:
    """Ranks on a log axis, one column for each number of copies, grouped by how many clients share a canary."""
    rows = report.configurations
    most = max(report.references, 2)
    step = (WIDTH - LEFT - 10) / len(rows)

    def height(rank: float) -> float:
        return round(TOP + HEIGHT * math.log(max(rank, 1)) / math.log(most + 1), 1)

    parts: list[str] = []
    for power in range(math.floor(math.log10(most)) + 1):
        y = height(10**power)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{WIDTH - 10}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{10**power:,}</text>')
    groups: dict[int, list[float]] = {}
    for number, row in enumerate(rows):
        x = LEFT + (number + 0.5) * step
        groups.setdefault(row.clients, []).append(x)
        tone = list(groups).index(row.clients) % 3
        for place, rank in enumerate(row.ranks):
            at = round(x + (place - (len(row.ranks) - 1) / 2) * min(14.0, step / (len(row.ranks) + 1)), 1)
            parts.append(f'<circle class="tone-{tone}" cx="{at}" cy="{height(rank)}" r="5"/>')
        parts.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{row.copies}</text>')
    for clients, places in groups.items():
        middle = sum(places) / len(places)
        words = f"{clients} client{'' if clients == 1 else 's'}"
        parts.append(
            f'<text class="group" x="{middle:.1f}" y="{TOP + HEIGHT + 42}" text-anchor="middle">{words}</text>'
        )
        if places is not next(iter(groups.values())):
            x = round(places[0] - step / 2, 1)
            parts.append(f'<line class="axis" x1="{x}" y1="{TOP}" x2="{x}" y2="{TOP + HEIGHT + 48}"/>')
    said = "; ".join(f"{row.clients} clients, {row.copies} copies: {', '.join(map(str, row.ranks))}" for row in rows)
    return (
        f'<figure><svg class="plot" viewBox="0 0 {WIDTH} {TOP + HEIGHT + 54}" role="img" '
        f'aria-label="{escape(f"Ranks of the canaries. {said}")}">{"".join(parts)}</svg>'
        "<figcaption>Rank of each canary, log axis, the likeliest at the top; by copies on a client, and by how many "
        "clients share it.</figcaption></figure>"
    )


def bounds(report: "AuditReport") -> str:
    """Lower bounds as bars from zero, with what so many canaries could have shown, and the claim as a line."""
    claim = report.guarantee.epsilon if report.guarantee.is_private else None
    most = max([bound.most for bound in report.bounds.values()] + ([claim] if claim is not None else []) + [1e-9])
    left, width, row = 110, WIDTH - 170, 34

    def at(epsilon: float) -> float:
        return round(left + width * min(epsilon, 1.05 * most) / (1.05 * most), 1)

    bottom = TOP + row * len(report.bounds)
    parts: list[str] = []
    for number, (kind, bound) in enumerate(report.bounds.items()):
        y = TOP + row * number
        tone = "bad" if claim is not None and bound.epsilon > claim else "fine"
        parts.append(f'<text x="{left - 10}" y="{y + 18}" text-anchor="end">{escape(kind)}</text>')
        parts.append(
            f'<rect class="track" x="{left}" y="{y + 4}" width="{at(bound.most) - left:.1f}" height="20" rx="3"/>'
        )
        length = max(at(bound.epsilon) - left, 1.0)
        parts.append(f'<rect class="{tone}" x="{left}" y="{y + 4}" width="{length:.1f}" height="20" rx="3"/>')
        parts.append(f'<text x="{at(bound.epsilon) + 6}" y="{y + 19}">{escape(round_down(bound.epsilon, 3))}</text>')
    if claim is not None:
        x = at(claim)
        parts.append(f'<line class="claim" x1="{x}" y1="{TOP - 4}" x2="{x}" y2="{bottom + 2}"/>')
        parts.append(
            f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">claimed {escape(round_up(claim, 3))}</text>'
        )
    said = "; ".join(f"{kind}: at least {round_down(bound.epsilon)}" for kind, bound in report.bounds.items())
    return (
        f'<figure><svg class="plot" viewBox="0 0 {WIDTH} {bottom + 26}" role="img" '
        f'aria-label="{escape(f"Lower bounds on epsilon. {said}")}">{"".join(parts)}</svg>'
        "<figcaption>Epsilon is at least the dark bar; the pale one is what so many canaries could have shown."
        "</figcaption></figure>"
    )
