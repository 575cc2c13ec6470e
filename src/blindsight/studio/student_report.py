"""The report on a student trained on a labelled synthetic set: as JSON, text and one HTML file."""

import dataclasses
import datetime
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import markup
from rich.console import Console, ConsoleOptions, RenderResult

from blindsight import pages
from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.privacy_bar import privacy_bar
from blindsight.pages.bars import BarTable, Row, share_bar
from blindsight.runs import write_whole
from blindsight.wording import counted, percent

__all__ = ["Misread", "StudentReport"]

_Z = 1.959964  # of a 95 % interval


@dataclasses.dataclass(frozen=True)
class Misread:
    """A public example that the student gets wrong, as an enlarged image or as the fields of a row."""

    truth: str
    predicted: str
    score: float
    png: bytes = b""
    row: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the image."""
        return {"truth": self.truth, "predicted": self.predicted, "score": self.score, "row": dict(self.row)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentReport:
    """A student, its training examples and its accuracy.

    **Guarantee**: `guarantee` is the synthetic set's own, which everything computed from it inherits. `public` is
    measured on public data; `simulation_only` on real data without noise, so it is printed with that mark and kept out
    of the HTML. Both have `name`, `examples`, `accuracy` and `confusion`, a row of counts for every true class and a
    column for every predicted one. `misread` are public examples that the student gets wrong, for the page.
    """

    title: str
    model: str
    labels: str
    counts: Mapping[str, int]
    raters: tuple[str, ...]
    ties: int
    unlabelled: int
    guarantee: Guarantee
    public: Mapping[str, Any] | None = None
    simulation_only: Mapping[str, Any] | None = None
    misread: tuple[Misread, ...] = ()
    path: Path | None = None
    created: str = dataclasses.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )

    @property
    def examples(self) -> int:
        """The number of labelled examples it was trained on."""
        return sum(self.counts.values())

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        trained = f"The {self.model} model was trained on {self.examples:,} labelled synthetic examples"
        if self.public is None:
            return f"{trained}; no public data were given to evaluate it on."
        accuracy = f"{percent(self.public['accuracy'], 3)} of {self.public['examples']:,} public examples"
        return f"{trained} and classifies {accuracy} of {self.public['name']} correctly."

    @property
    def about_labels(self) -> str:
        """The source of the labels, and what was left out."""
        source = {
            "raters": f"Labels by majority vote of {counted(len(self.raters), 'rater')}",
            "pre": "Labels as proposed",
            "own": "Labels as requested from the generator",
        }[self.labels]
        return f"{source}; left out: {self.ties:,} ties and {self.unlabelled:,} without a label."

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `blindsight train student --json`."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {"examples": self.examples, "verdict": self.verdict, "guarantee": self.guarantee.to_dict()}
        fields["misread"] = [one.to_dict() for one in self.misread]
        return {**fields, "raters": list(self.raters), "counts": dict(self.counts), "path": str(self.path or "")}

    def save(self, path: str | Path) -> Path:
        """Write the report as one HTML file that loads nothing else and opens anywhere; return the path."""
        return write_whole(path, self.to_html())

    def to_html(self) -> str:
        """The page that `save` writes: all of it under the guarantee, or from public data."""
        return pages.render(
            "student.html",
            bar=privacy_bar(self.guarantee),
            title=self.title,
            created=self.created,
            verdict=self.verdict,
            tone="unmeasured" if self.public is None else "measured",
            labels=self.about_labels,
            counts=list(self.counts.items()),
            public=None if self.public is None else _measured(self.public, tuple(self.counts)),
            misread=self.misread,
        )

    def _repr_html_(self) -> str:
        return pages.embed(self.to_html(), title=self.title)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield f"[bold]{markup.escape(self.title)}[/]"
        yield markup.escape(self.verdict)
        yield f"[dim]{markup.escape(self.about_labels)}[/]"
        if self.simulation_only is not None:
            real = self.simulation_only
            yield (
                f"{percent(real['accuracy'], 3)} of {real['examples']:,} examples of {markup.escape(real['name'])} "
                "classified correctly [yellow]simulation_only[/]"
            )
        yield (
            f"[green]{markup.escape(str(self.guarantee))}[/]" if self.guarantee.is_private else "[red]epsilon = inf[/]"
        )


def _measured(public: Mapping[str, Any], classes: tuple[str, ...]) -> dict[str, Any]:
    """The confusion matrix, its cells shaded by their share of the true class, and the accuracy of every class."""
    rows, bars = list[dict[str, Any]](), list[Row]()
    for place, (name, counts) in enumerate(zip(classes, public["confusion"], strict=True)):
        total = sum(counts)
        cells = [
            {"count": count, "shade": round(9 * count / total) if total else 0, "is_right": other == place}
            for other, count in enumerate(counts)
        ]
        rows.append({"name": name, "cells": cells, "total": total})
        if total:
            low, high = _wilson(counts[place], total)
            bars.append(Row(name, [share_bar(counts[place] / total, 0, low, high)]))
    absent = [row["name"] for row in rows if not row["total"]]
    return {
        "name": public["name"],
        "examples": public["examples"],
        "classes": classes,
        "rows": rows,
        "by_class": BarTable(bars, least=1.0),
        "absent": absent,
    }


def _wilson(right: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, which stays between 0 and 1."""
    share, z2 = right / total, _Z**2 / total
    middle = (share + z2 / 2) / (1 + z2)
    half = _Z * math.sqrt(share * (1 - share) / total + z2 / (4 * total)) / (1 + z2)
    return max(middle - half, 0.0), min(middle + half, 1.0)
