"""Synthetic samples of every arm: images side by side, means and differences, rows and their columns."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from rich.console import Console, RenderableType
from rich.markup import escape

from blindsight.errors import InvalidInput
from blindsight.inspection.sections import Facts, columns
from blindsight.samples import gallery
from blindsight.samples.views import ArmView

__all__ = ["Samples", "chosen"]

SHOWN = 120  # samples of an arm on the page; all of them are in the JSON and the Parquet
PAIRED = (
    "Sample i of every arm has the same latent and class: what differs between neighbours differs between the arms."
)
ALONE = "Drawn from a generator fitted to the releases."
UNPAIRED = {"bias": "Drawn from a generator fitted to the releases: over-represented samples beside typical ones."}

Shown = list[tuple[int, ArmView, np.ndarray]]
"""The arms with images: position among all arms, view, images."""


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """The samples of each arm; sample i of one arm belongs beside sample i of every other."""

    key: ClassVar[str] = "arms"
    template: ClassVar[str] = "sections/samples.html"
    arms: tuple[ArmView, ...]

    def __post_init__(self) -> None:
        _check(self.arms)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Which arms' samples show little but noise, if any do."""
        is_alone = len(self.arms) == 1
        return tuple(arm.warning if is_alone else f"{arm.name}: {arm.warning}" for arm in self.arms if arm.warning)

    def to_dict(self) -> list[Any]:
        """Plain values for JSON; images as PNG in base64."""
        return [arm.to_dict() for arm in self.arms]

    @classmethod
    def from_dict(cls, value: Sequence[Mapping[str, Any]]) -> "Samples":
        """The section that `to_dict` was called on."""
        return cls(tuple(map(ArmView.from_dict, value)))

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """Warnings, then the arms' mean images and the difference of the first two, if they fit."""
        yield from (f"[yellow]{escape(words)}[/]" for words in self.warnings)
        shown = [(arm.name, arm.mean) for arm in self.arms if arm.mean is not None]
        if not shown or any(mean.shape != shown[0][1].shape for _, mean in shown):
            return
        images, names = [mean for _, mean in shown], [name for name, _ in shown]
        if len(shown) > 1:
            signed = gallery.luminance((images[1] - images[0])[None])[0]
            images.append(gallery.diverging(signed, max(0.05, float(np.abs(signed).max()))))
            names.append(f"{names[1]} − {names[0]} (red is brighter, blue darker)")
        row = gallery.side_by_side(images)
        if row.shape[1] > console.width or console.color_system is None:
            return
        yield gallery.Pixels(row)
        yield f"[dim]synthetic means: {escape(', '.join(names))}[/]"

    def values(self, report: Facts) -> Mapping[str, object] | None:
        """Grids of images, mean images, brightness, rows and columns."""
        shown: Shown = [(place, arm, arm.samples) for place, arm in enumerate(self.arms) if arm.samples is not None]
        brightness = [(arm.name, place, gallery.histogram(samples)) for place, arm, samples in shown]
        rows = [(place, arm.name, _named(report, arm.rows)) for place, arm in enumerate(self.arms) if arm.rows]
        means = _means(report, self.arms, shown)
        drawn = {"means": means, "brightness": brightness, **columns.compare(rows)}
        return {**_grids(report, shown), **drawn, "warnings": self.warnings}


def chosen(labels: np.ndarray | None, count: int) -> np.ndarray:
    """The samples to show: the first of every class, equally many."""
    if labels is None or count <= SHOWN:
        return np.arange(min(count, SHOWN))
    each = max(1, SHOWN // len(np.unique(labels)))
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]))


def _grids(report: Facts, arms: Shown) -> dict[str, object]:
    """A grid for every arm, all in the same order."""
    if not arms:
        return {"grids": []}
    labels, count = arms[0][1].labels, len(arms[0][2])
    shown = chosen(labels, count)
    rank = np.empty(len(shown), np.int64)
    rank[np.argsort(-gallery.contrast([samples[shown] for _, _, samples in arms]), kind="stable")] = range(len(shown))
    present = None if labels is None else np.unique(labels[shown]).tolist()
    unpaired = UNPAIRED.get(report.task)
    return {
        "title": "Samples, side by side" if len(arms) > 1 else "Samples",
        "intro": unpaired or (PAIRED if len(arms) > 1 else ALONE),
        "is_paired": len(arms) > 1 and unpaired is None,
        "shown": len(shown),
        "total": count,
        "classes": None if present is None else [(label, report.class_name(label)) for label in present],
        "grids": [
            {"name": arm.name, "place": place, "tiles": list(_tiles(report, arm, samples, shown, rank))}
            for place, arm, samples in arms
        ],
    }


def _tiles(
    report: Facts, arm: ArmView, samples: np.ndarray, shown: np.ndarray, rank: np.ndarray
) -> Iterator[dict[str, object]]:
    for index, place in zip(shown.tolist(), rank.tolist(), strict=True):
        label = "" if arm.labels is None else int(arm.labels[index])
        name = "" if label == "" else report.class_name(int(label))
        alt = f"synthetic sample {index} of {arm.name}" + (f", class {name}" if name else "")
        png = gallery.png(gallery.stamped(samples[index]))
        yield {"index": index, "rank": place, "label": label, "name": name, "alt": alt, "png": png}


def _means(report: Facts, arms: Sequence[ArmView], shown: Shown) -> dict[str, object] | None:
    """Mean images of every arm, by class if there are samples, and signed differences from the first arm."""
    averages = {place: arm.mean for place, arm in enumerate(arms) if arm.mean is not None}
    if shown:
        averages = {place: averages[place] for place, _, _ in shown}
    if not averages:
        return None
    by_class = {place: gallery.class_means(samples, arm.labels) for place, arm, samples in shown}
    classes = list(by_class[shown[0][0]]) if shown and shown[0][1].labels is not None else []
    images = {place: [mean, *(by_class[place][label] for label in classes)] for place, mean in averages.items()}
    first, *others = images
    signed = {
        other: [gallery.luminance((image - images[first][place])[None])[0] for place, image in enumerate(images[other])]
        for other in others
    }
    limit = max([0.05, *(float(np.abs(image).max()) for row in signed.values() for image in row)])
    names = [arm.name for arm in arms]
    labels = ["", *classes]
    captions = ["all classes", *(f"class {report.class_name(label)}" for label in classes)]

    def row(name: str, place: int | None, cells: Sequence[np.ndarray], alt: str) -> dict[str, object]:
        pngs = [gallery.png(gallery.stamped(image, width=84)) for image in cells]
        drawn = [
            {"label": label, "png": png, "alt": f"{alt}, {which}"}
            for label, png, which in zip(labels, pngs, captions, strict=True)
        ]
        return {"name": name, "place": place, "cells": drawn}

    rows = [row(names[one], one, cells, f"mean synthetic image of {names[one]}") for one, cells in images.items()]
    for other, cells in signed.items():
        coloured = [gallery.diverging(image, limit) for image in cells]
        alt = f"signed difference {names[other]} minus {names[first]}"
        rows.append(row(f"{names[other]} − {names[first]}", None, coloured, alt))
    ramp = gallery.diverging(np.linspace(-limit, limit, 121)[None].repeat(10, axis=0), limit)
    return {
        "rows": rows,
        "classes": [(label, report.class_name(label)) for label in classes],
        "limit": limit if others else None,
        "ramp": gallery.png(ramp),
    }


def _named(report: Facts, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The rows with class names instead of numbers, if the population lists them."""
    classes = report.population.get("classes")
    listed: Mapping[str, Sequence[str]] = classes if isinstance(classes, Mapping) else {}
    named: dict[str, np.ndarray] = {}
    for field, column in rows.items():
        names = listed.get(field, [])
        if column.dtype.kind in "iu" and column.size > 0 and column.min() >= 0 and column.max() < len(names):
            column = np.array([str(names[value]) for value in column.tolist()], dtype=np.dtypes.StringDType())
        named[field] = column
    return named


def _check(arms: tuple[ArmView, ...]) -> None:
    names = [arm.name for arm in arms]
    if not arms or len(set(names)) < len(names):
        raise InvalidInput(f"a report needs at least one arm, and distinct names of arms, got {names}")
    shown = [arm for arm in arms if arm.samples is not None]
    if len({None if arm.samples is None else arm.samples.shape for arm in shown}) > 1:
        raise InvalidInput("samples of all arms are paired: draw the same number, of the same size, for each")
    if any(not _same(arm.labels, shown[0].labels) for arm in shown):
        raise InvalidInput("samples of all arms are paired: draw them with the same labels")


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))
