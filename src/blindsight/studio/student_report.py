"""What became of the labels: a student trained on a labelled synthetic set, in words, as JSON and as one HTML file."""

import base64
import dataclasses
import datetime
import hashlib
import string
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich import markup
from rich.console import Console, ConsoleOptions, RenderResult

from blindsight.accounting.guarantee import Guarantee
from blindsight.runs import write_whole

__all__ = ["StudentReport"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentReport:
    """A student, what it learnt from, and how well it does.

    **Guarantee**: `guarantee` is the synthetic set's own, which whatever is computed from it inherits. `public` is
    measured on public data; `simulation_only` on real data without noise, so it is printed with that mark and is no
    part of the HTML.
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
    path: Path | None = None
    created: str = dataclasses.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )

    @property
    def examples(self) -> int:
        """How many labelled examples it learnt from."""
        return sum(self.counts.values())

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        learnt = f"The {self.model} has learnt from {self.examples:,} labelled synthetic examples"
        if self.public is None:
            return f"{learnt}; no public data were named to measure it on."
        found = f"{100 * self.public['accuracy']:.1f} % of {self.public['examples']:,} public examples"
        return f"{learnt} and names {found} of {self.public['name']} as they are."

    @property
    def about_labels(self) -> str:
        """Whose labels these are, and what was left out."""
        whose = {
            "raters": f"Labels by the majority of {len(self.raters)} rater{'' if len(self.raters) == 1 else 's'}",
            "pre": "Labels as they were proposed",
            "own": "Labels as the generator was asked for",
        }[self.labels]
        return f"{whose}; {self.ties:,} left out for a tie, {self.unlabelled:,} without a label."

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `blindsight train student --json`."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        found |= {"examples": self.examples, "verdict": self.verdict, "guarantee": self.guarantee.to_dict()}
        return {**found, "raters": list(self.raters), "counts": dict(self.counts), "path": str(self.path or "")}

    def save(self, path: str | Path) -> Path:
        """Write the report as one HTML file, which asks for nothing else and opens anywhere; the path."""
        return write_whole(path, self.to_html())

    def to_html(self) -> str:
        """The page that `save` writes: all of it under the guarantee, or from public data."""
        style = files("blindsight.inspection.page").joinpath("report.css").read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
        rows = "".join(
            f"<tr><td data-label=class>{escape(name)}</td><td class=number data-label=examples>{count:,}</td></tr>"
            for name, count in self.counts.items()
        )
        frame = files("blindsight.studio").joinpath("page/student.html").read_text(encoding="utf-8")
        return string.Template(frame).substitute(
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
            style=style,
            title=escape(self.title),
            verdict=escape(self.verdict),
            guarantee=escape(str(self.guarantee)),
            none="" if self.guarantee.is_private else " none",
            explained=escape(self.guarantee.explain()),
            labels=escape(self.about_labels),
            rows=rows,
            created=escape(self.created),
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield f"[bold]{markup.escape(self.title)}[/]"
        yield markup.escape(self.verdict)
        yield f"[dim]{markup.escape(self.about_labels)}[/]"
        if self.simulation_only is not None:
            about = self.simulation_only
            yield (
                f"{100 * about['accuracy']:.1f} % of {about['examples']:,} examples of {markup.escape(about['name'])} "
                "[yellow]simulation_only[/]"
            )
        yield (
            f"[green]{markup.escape(str(self.guarantee))}[/]" if self.guarantee.is_private else "[red]epsilon = inf[/]"
        )
