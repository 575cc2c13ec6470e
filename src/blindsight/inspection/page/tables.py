"""Synthetic rows and texts on the page: some side by side, and each column as bars, the most contrasting first."""

from html import escape
from typing import Any

import numpy as np

from blindsight.inspection.page import drawing, words

__all__ = ["compare"]

ROWS, CATEGORIES, BINS = 12, 6, 24
Arm = tuple[int, str, dict[str, np.ndarray]]


def compare(arms: list[Arm]) -> str:
    """Rows of every arm, then every column that the arms share."""
    tables = "".join(_sample(arm) for arm in arms)
    fields = [field for field in arms[0][2] if all(field in rows for _, _, rows in arms)]
    figures = sorted((_figure(arms, field) for field in fields), key=lambda pair: -pair[0])
    keys = " ".join(f'<b class="key arm-{number % 6}">{escape(name)}</b>' for number, name, _ in arms)
    ordered = ", the most contrasting first" if len(arms) > 1 else ""
    return (
        '<section aria-labelledby="rows"><h2 id="rows">Sample rows</h2><p>All of them are synthetic.</p>'
        f'<div class="panels wide">{tables}</div></section>'
        f'<section aria-labelledby="columns"><h2 id="columns">Columns of the samples{ordered}</h2><p>{keys}</p>'
        f'<div class="panels">{"".join(figure for _, figure in figures)}</div></section>'
    )


def _sample(arm: Arm) -> str:
    number, name, rows = arm
    count = min(ROWS, len(next(iter(rows.values()))))
    head = "".join(f"<th scope=col>{escape(field)}</th>" for field in rows)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(column[place]))}</td>" for column in rows.values()) + "</tr>"
        for place in range(count)
    )
    return (
        f'<figure class="arm"><figcaption><b class="key arm-{number % 6}">{escape(name)}</b> '
        f'<span class="stamp">synthetic</span></figcaption><div class="scroll"><table class="rows">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></figure>"
    )


def _cell(value: Any) -> str:
    if isinstance(value, np.floating):
        return words.number(float(value), 4)
    text = str(value)
    return text if len(text) <= 240 else text[:239] + "…"


def _figure(arms: list[Arm], field: str) -> tuple[float, str]:
    """How far the arms are apart in a column (total variation), and its drawing."""
    columns = [rows[field] for _, _, rows in arms]
    if columns[0].dtype.kind in "iuf" and len(np.unique(np.concatenate(columns))) > CATEGORIES:
        return _numbers(arms, field, columns)
    if columns[0].dtype.kind == "T" and len(set(columns[0].tolist())) > max(20, len(columns[0]) // 2):
        lengths = [np.strings.str_len(column) for column in columns]
        return _numbers(arms, f"length of {field}, in characters", lengths)
    return _categories(arms, field, columns)


def _numbers(arms: list[Arm], title: str, columns: list[np.ndarray]) -> tuple[float, str]:
    finite = [column[np.isfinite(column)].astype(np.float64) for column in columns]
    together = np.concatenate(finite)
    low, high = (float(together.min()), float(together.max())) if len(together) else (0.0, 1.0)
    shares = [np.histogram(column, BINS, (low, max(high, low + 1e-9)))[0] / max(1, len(column)) for column in finite]
    chart = drawing.line_chart(
        {name: share for (_, name, _), share in zip(arms, shares, strict=True)},
        label=title,
        ends=(words.number(low), words.number(high)),
    )
    missing = [1 - len(some) / max(1, len(column)) for some, column in zip(finite, columns, strict=True)]
    note = " · ".join(
        f"{name}: {words.percent(share)} missing" for (_, name, _), share in zip(arms, missing, strict=True) if share
    )
    return _apart(shares) + float(np.ptp(missing)), (
        f'<figure class="column"><figcaption><span class=name>{escape(title)}</span> <small>{escape(note)}</small>'
        f"</figcaption>{chart}</figure>"
    )


def _categories(arms: list[Arm], field: str, columns: list[np.ndarray]) -> tuple[float, str]:
    counts = [dict(zip(*(part.tolist() for part in np.unique(c, return_counts=True)), strict=True)) for c in columns]
    values = sorted({value for count in counts for value in count}, key=lambda v: -sum(c.get(v, 0) for c in counts))
    shares = [
        np.array([count.get(value, 0) for value in values]) / max(1, len(column))
        for count, column in zip(counts, columns, strict=True)
    ]
    rows: list[str] = []
    for place, value in enumerate(values[:CATEGORIES]):
        for turn, ((number, _, _), share) in enumerate(zip(arms, shares, strict=True)):
            heading = f'<th scope=row rowspan="{len(arms)}">{escape(_cell(value))}</th>' if turn == 0 else ""
            drawn = drawing.bar(float(share[place]), kind=f"arm-{number % 6}")
            shown = escape(words.percent(float(share[place])))
            rows.append(f"<tr>{heading}<td>{drawn}</td><td class=number>{shown}</td></tr>")
    rest = f" <small>{len(values) - CATEGORIES} rarer values left out</small>" if len(values) > CATEGORIES else ""
    return _apart(shares), (
        f'<figure class="column"><figcaption><span class=name>{escape(field)}</span>{rest}</figcaption>'
        f'<table class="votes"><tbody>{"".join(rows)}</tbody></table></figure>'
    )


def _apart(shares: list[np.ndarray]) -> float:
    return max((0.5 * float(np.abs(share - shares[0]).sum()) for share in shares[1:]), default=0.0)
