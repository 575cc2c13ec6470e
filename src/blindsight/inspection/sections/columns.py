"""Synthetic rows and texts: some rows of every arm, and a comparison of each column, largest difference first."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from blindsight.pages.bars import BarTable, Row, share_bar
from blindsight.wording import number, percent

__all__ = ["compare"]

ROWS, CATEGORIES, BINS, LETTERS = 12, 6, 24, 240

Arm = tuple[int, str, dict[str, np.ndarray]]
"""Position among all arms, name, columns."""


def compare(arms: Sequence[Arm]) -> dict[str, list[Any]]:
    """Rows of every arm, then every column that the arms share."""
    if not arms:
        return {"tables": []}
    tables = [{"place": place, "name": name, "fields": list(rows), "rows": _first(rows)} for place, name, rows in arms]
    fields = [field for field in arms[0][2] if all(field in rows for _, _, rows in arms)]
    compared = sorted((_column(arms, field) for field in fields), key=lambda pair: -pair[0])
    shown = [column for _, column in compared]
    charts = [column["chart"] for column in shown if column["bars"] is None]
    top = max((float(np.max(shares)) for chart in charts for _, _, shares in chart), default=0.0)
    return {"tables": tables, "columns": [column | {"top": top} for column in shown]}  # one scale for all charts


def _first(rows: dict[str, np.ndarray]) -> list[list[str]]:
    count = min(ROWS, len(next(iter(rows.values()))))
    return [[_cell(column[place]) for column in rows.values()] for place in range(count)]


def _cell(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, float | np.floating):
        return number(float(value), 4)
    text = str(value)
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def _column(arms: Sequence[Arm], field: str) -> tuple[float, dict[str, Any]]:
    """The total variation distance between the arms in a column, and the values to draw."""
    columns = [rows[field] for _, _, rows in arms]
    if columns[0].dtype.kind in "iuf" and len(np.unique(np.concatenate(columns))) > CATEGORIES:
        return _numbers(arms, field, columns)
    if columns[0].dtype.kind == "T" and len(set(columns[0].tolist())) > max(20, len(columns[0]) // 2):
        lengths = [np.strings.str_len(column) for column in columns]
        return _numbers(arms, f"length of {field}, in characters", lengths)
    return _categories(arms, field, columns)


def _numbers(arms: Sequence[Arm], title: str, columns: list[np.ndarray]) -> tuple[float, dict[str, Any]]:
    finite = [column[np.isfinite(column)].astype(np.float64) for column in columns]
    together = np.concatenate(finite)
    low, high = (float(together.min()), float(together.max())) if len(together) else (0.0, 1.0)
    shares = [np.histogram(column, BINS, (low, max(high, low + 1e-9)))[0] / max(1, len(column)) for column in finite]
    names = [name for _, name, _ in arms]
    missing = [1 - len(some) / max(1, len(column)) for some, column in zip(finite, columns, strict=True)]
    gaps = [f"{name}: {percent(share)} missing" for name, share in zip(names, missing, strict=True) if share]
    return _distance(shares) + float(np.ptp(missing)), {
        "title": title,
        "note": " · ".join(gaps),
        "bars": None,
        "chart": [(name, place, share) for (place, name, _), share in zip(arms, shares, strict=True)],
        "ends": (number(low), number(high)),
    }


def _categories(arms: Sequence[Arm], field: str, columns: list[np.ndarray]) -> tuple[float, dict[str, Any]]:
    counts = [_counted(column) for column in columns]
    total = {value: sum(count.get(value, 0) for count in counts) for count in counts for value in count}
    values = sorted(total, key=lambda value: (-total[value], value is None, value))  # ties are ordered too
    shares = [
        np.array([count.get(value, 0) for value in values]) / max(1, len(column))
        for count, column in zip(counts, columns, strict=True)
    ]
    rows = [
        Row(_cell(value), [share_bar(float(s[turn]), place) for (place, _, _), s in zip(arms, shares, strict=True)])
        for turn, value in enumerate(values[:CATEGORIES])
    ]
    rest = f"{len(values) - CATEGORIES} rarer values left out" if len(values) > CATEGORIES else ""
    return _distance(shares), {"title": field, "note": rest, "bars": BarTable(rows, least=1.0)}


def _counted(column: np.ndarray) -> dict[Any, int]:
    """How often each value occurs. A missing number is None: a NaN equals no other, and would be a row in every arm."""
    values, counts = np.unique(column, return_counts=True)
    names = [None if value != value else value for value in values.tolist()]
    return dict(zip(names, counts.tolist(), strict=True))


def _distance(shares: list[np.ndarray]) -> float:
    return max((0.5 * float(np.abs(share - shares[0]).sum()) for share in shares[1:]), default=0.0)
