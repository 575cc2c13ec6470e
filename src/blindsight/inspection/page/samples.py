"""What the page shows of the samples: grids side by side, means and differences, rows and their columns."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from blindsight.inspection.page import drawing, tables
from blindsight.samples import gallery

if TYPE_CHECKING:
    from blindsight.inspection.report import Report
    from blindsight.samples.views import ArmView

__all__ = ["differences", "pictures", "rows"]

SHOWN = 120  # pairs on the page; all of them are in the JSON and the Parquet


def _with_samples(report: "Report") -> list[tuple[int, "ArmView", np.ndarray]]:
    return [(number, arm, arm.samples) for number, arm in enumerate(report.arms) if arm.samples is not None]


def chosen(labels: np.ndarray | None, count: int) -> np.ndarray:
    """Which samples are shown: as many of every class, the first of each."""
    if labels is None or count <= SHOWN:
        return np.arange(min(count, SHOWN))
    each = max(1, SHOWN // len(np.unique(labels)))
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]))


def pictures(report: "Report") -> str:
    """A grid for every arm, under one control."""
    arms = _with_samples(report)
    if not arms:
        return ""
    labels, count = arms[0][1].labels, len(arms[0][2])
    shown = chosen(labels, count)
    order = np.argsort(-gallery.contrast([samples[shown] for _, _, samples in arms]), kind="stable")
    rank = np.empty(len(shown), np.int64)
    rank[order] = np.arange(len(shown))
    grids = "".join(_grid(report, number, arm, samples, shown, rank) for number, arm, samples in arms)
    left_out = f" {len(shown):,} of {count:,} are shown; all are in the files." if len(shown) < count else ""
    about = "Drawn from the same latents in the same order of classes: what differs between neighbours is what differs "
    about = f"{about}between the arms." if len(arms) > 1 else "Drawn from a generator fitted to what was released."
    if report.bias is not None:
        about = "From a generator of what was released: what is denser in serving, kind by kind, beside what is usual."
    title = "Samples, side by side" if len(arms) > 1 else "Samples"
    return (
        f'<section aria-labelledby="samples"><h2 id="samples">{title}</h2><p>{about}{left_out}</p>'
        f"{_controls(report, labels, shown, 1 if report.bias is not None else len(arms))}"
        f'<div class="columns columns-{min(len(arms), 4)}">{grids}</div></section>'
    )


def _controls(report: "Report", labels: np.ndarray | None, shown: np.ndarray, arms: int) -> str:
    """One control for all grids; it appears where there is a script to move it."""
    parts: list[str] = []
    if labels is not None:
        options = "".join(
            f'<option value="{label}">{escape(report.class_name(label))}</option>'
            for label in np.unique(labels[shown]).tolist()
        )
        parts.append(f'<label>class <select id="class"><option value="">all</option>{options}</select></label>')
    if arms > 1:
        parts.append(
            '<label>order <select id="order"><option value="index">by class</option>'
            '<option value="rank">most contrasting first</option></select></label>'
        )
    parts.append('<label>size <input id="zoom" type="range" min="48" max="176" step="16" value="80"></label>')
    status = f'<output id="status" aria-live="polite">{len(shown):,} of {len(shown):,}</output>'
    return f'<div class="controls" role="group" aria-label="Samples" hidden>{"".join(parts)}{status}</div>'


def _grid(
    report: "Report", number: int, arm: "ArmView", samples: np.ndarray, shown: np.ndarray, rank: np.ndarray
) -> str:
    tiles: list[str] = []
    for place, index in enumerate(shown.tolist()):
        label = None if arm.labels is None else int(arm.labels[index])
        name = "" if label is None else report.class_name(label)
        alt = f"synthetic sample {index} of {arm.name}" + (f", class {name}" if name else "")
        image = drawing.picture(gallery.png(gallery.stamped(samples[index])), alt=alt)
        tiles.append(
            f'<li data-index="{index}" data-rank="{rank[place]}" data-class="{"" if label is None else label}">'
            f"{image}<span>{escape(name)}</span></li>"
        )
    return (
        f'<figure class="arm"><figcaption><b class="key arm-{number % 6}">{escape(arm.name)}</b></figcaption>'
        f'<ol class="tiles">{"".join(tiles)}</ol></figure>'
    )


def differences(report: "Report") -> str:
    """Mean images by class, signed differences from the first arm, and histograms of brightness."""
    arms = _with_samples(report)
    if not arms:
        return _given_means(report)
    labels = arms[0][1].labels
    means = {number: gallery.class_means(samples, arm.labels) for number, arm, samples in arms}
    averages = {number: arm.mean for number, arm, _ in arms if arm.mean is not None}
    classes = [] if labels is None else list(means[arms[0][0]])
    return _strip(report, means, averages, classes) + _histograms(arms)


def _given_means(report: "Report") -> str:
    """The means alone, where an arm has no samples to show."""
    averages = {number: arm.mean for number, arm in enumerate(report.arms) if arm.mean is not None}
    return _strip(report, {}, averages, []) if averages else ""


def _strip(
    report: "Report", means: dict[int, dict[int, np.ndarray]], averages: dict[int, np.ndarray], classes: list[int]
) -> str:
    first, *others = list(averages)
    title = "Means and differences" if others else "Mean image"
    signed: dict[tuple[int, int | None], np.ndarray] = {}
    for other in others:
        signed[other, None] = gallery.luminance((averages[other] - averages[first])[None])[0]
        for label in classes:
            signed[other, label] = gallery.luminance((means[other][label] - means[first][label])[None])[0]
    limit = max([0.05, *(float(np.abs(values).max()) for values in signed.values())])
    names = {number: arm.name for number, arm in enumerate(report.arms)}
    head = "<th scope=col>all classes</th>" if classes else "<th scope=col>mean</th>"
    head += "".join(f'<th scope=col data-class="{label}">{escape(report.class_name(label))}</th>' for label in classes)

    def row(title: str, cells: dict[int | None, np.ndarray], alt: str) -> str:
        drawn = "".join(
            f'<td data-class="{"" if label is None else label}">'
            + drawing.picture(gallery.png(gallery.stamped(image, width=84)), alt=f"{alt}, {_of(report, label)}")
            + "</td>"
            for label, image in cells.items()
        )
        return f"<tr><th scope=row>{title}</th>{drawn}</tr>"

    rows = "".join(
        row(
            f'<b class="key arm-{number % 6}">{escape(names[number])}</b>',
            {None: average, **{label: means[number][label] for label in classes}},
            f"mean synthetic image of {names[number]}",
        )
        for number, average in averages.items()
    )
    rows += "".join(
        row(
            f"{escape(names[other])} − {escape(names[first])}",
            {label: gallery.diverging(values, limit) for (arm, label), values in signed.items() if arm == other},
            f"signed difference {names[other]} minus {names[first]}",
        )
        for other in others
    )
    return (
        f'<section aria-labelledby="means"><h2 id="means">{title}</h2>'
        f'<div class="scroll"><table class="strip"><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"</div>{_legend(limit) if others else ''}</section>"
    )


def _of(report: "Report", label: int | None) -> str:
    return "all classes" if label is None else f"class {report.class_name(label)}"


def _legend(limit: float) -> str:
    ramp = gallery.diverging(np.linspace(-limit, limit, 121)[None].repeat(10, axis=0), limit)
    scale = drawing.picture(gallery.png(ramp), alt="from blue over white to red")
    return (
        f'<p class="legend"><span>−{limit:.2f} darker</span>{scale}<span>+{limit:.2f} brighter</span> '
        "<small>than the first arm; brightness runs from 0 to 1</small></p>"
    )


def _histograms(arms: "list[tuple[int, ArmView, np.ndarray]]") -> str:
    shares = {arm.name: gallery.histogram(samples) for _, arm, samples in arms}
    keys = " ".join(f'<b class="key arm-{number % 6}">{escape(arm.name)}</b>' for number, arm, _ in arms)
    chart = drawing.line_chart(shares, label="brightness of pixels in the samples", ends=("black", "white"))
    return (
        '<section aria-labelledby="brightness"><h2 id="brightness">Brightness of pixels</h2>'
        f'<p>{keys}</p><div class="chart-box">{chart}</div></section>'
    )


def rows(report: "Report") -> str:
    """Sample rows or texts side by side, and every column compared."""
    arms = [(number, arm.name, _named(report, arm.rows)) for number, arm in enumerate(report.arms) if arm.rows]
    return tables.compare(arms) if arms else ""


def _named(report: "Report", rows: "Mapping[str, np.ndarray]") -> dict[str, np.ndarray]:
    """The rows with names for numbers where the population says what they stand for."""
    classes = report.population.get("classes")
    known: dict[str, list[str]] = classes if isinstance(classes, dict) else {}
    named: dict[str, np.ndarray] = {}
    for field, column in rows.items():
        names = known.get(field, [])
        if column.dtype.kind in "iu" and column.size > 0 and column.min() >= 0 and column.max() < len(names):
            column = np.array([str(names[value]) for value in column.tolist()], dtype=np.dtypes.StringDType())
        named[field] = column
    return named
