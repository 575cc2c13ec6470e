"""The report of an audit: what the model memorised of the canaries, and what that proves; as JSON, text and HTML.

Everything in it is computed from the released model and from synthetic canaries. It reveals nothing more about any
client, so it costs no further privacy.
"""

import dataclasses
import datetime
import io
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

from blindsight import pages
from blindsight.accounting.guarantee import Guarantee, round_down, round_up
from blindsight.accounting.privacy_bar import privacy_bar
from blindsight.audit.one_run import LowerBound
from blindsight.runs import write_whole
from blindsight.wording import counted, percent

__all__ = ["KINDS", "AuditReport", "CanaryFate", "Configuration"]

FORMAT = 1
KINDS = {
    "clients": "clients that hold only a canary, scored by the model's loss on it",
    "directions": "clients that send a fixed random vector, scored by the model's projection on it",
}
"""The ways to plant clients for the one-run bound, in words."""


@dataclasses.dataclass(frozen=True)
class CanaryFate:
    """The result for one canary."""

    phrase: str
    clients: int
    copies: int
    times_seen: float
    rank: int
    exposure: float
    extracted: bool


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Canaries shared by equally many clients in equally many copies: a row of Table 4 of Ramaswamy et al. 2020."""

    clients: int
    copies: int
    times_seen: float
    ranks: tuple[int, ...]
    extracted: int

    @property
    def in_words(self) -> str:
        """The ranks in words."""
        return ", ".join(f"{rank:,}" for rank in self.ranks)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AuditReport:
    """The result of an audit.

    `canaries` are those of the Secret Sharer, ranked among `references` random phrases. `bounds` are lower bounds on
    epsilon, one for each way to plant clients, which hold together at `confidence`.
    """

    run: str
    model: str
    guarantee: Guarantee
    rounds: int
    canaries: tuple[CanaryFate, ...] = ()
    references: int = 0
    width: int = 0
    prefix: int = 0
    rate: float = 0.0
    bounds: Mapping[str, LowerBound] = dataclasses.field(default_factory=dict[str, LowerBound])
    confidence: float = 0.95
    notes: tuple[str, ...] = ()
    created: str = dataclasses.field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )

    @property
    def lower_bound(self) -> LowerBound | None:
        """The largest of the lower bounds."""
        return max(self.bounds.values(), key=lambda one: one.epsilon, default=None)

    @property
    def outcome(self) -> Literal["broken", "consistent", "no claim"]:
        """Whether a lower bound contradicts the claim; `consistent` proves nothing."""
        if not self.guarantee.is_private:
            return "no claim"
        bound = self.lower_bound
        return "broken" if bound is not None and bound.epsilon > self.guarantee.epsilon else "consistent"

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        bound = self.lower_bound
        if self.outcome == "broken" and bound is not None:
            return (
                f"The implementation or the claim is broken: epsilon is at least {round_down(bound.epsilon)} at "
                f"{percent(self.confidence, 3)} confidence, but at most {round_up(self.guarantee.epsilon)} was claimed."
            )
        shown = ""
        if bound is not None:
            shown = "The auditor guessed no better than chance. "
            shown = f"Epsilon is at least {round_down(bound.epsilon)}. " if bound.epsilon > 0 else shown
        if self.outcome == "no claim":
            return f"{shown}No privacy was claimed, so nothing can contradict it."
        claimed = f"the claim of {round_up(self.guarantee.epsilon)}"
        if bound is None:
            return f"{shown}No clients were planted at random: {claimed} was not put to the test."
        return f"{shown}That does not contradict {claimed}, and it does not prove it either."

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """The rows of Table 4: canaries by how many clients share them and how many copies each has."""
        ordered = sorted(self.canaries, key=lambda one: (one.clients, one.copies, one.rank))
        rows: list[Configuration] = []
        for (clients, copies), some in itertools.groupby(ordered, key=lambda one: (one.clients, one.copies)):
            fates = list(some)
            ranks, extracted = tuple(one.rank for one in fates), sum(one.extracted for one in fates)
            rows.append(Configuration(clients, copies, fates[0].times_seen, ranks, extracted))
        return tuple(rows)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `blindsight audit --json`."""
        return {
            "format": FORMAT,
            "run": self.run,
            "model": self.model,
            "outcome": self.outcome,
            "verdict": self.verdict,
            "guarantee": self.guarantee.to_dict(),
            "rounds": self.rounds,
            "confidence": self.confidence,
            "bounds": {kind: bound.to_dict() for kind, bound in self.bounds.items()},
            "canaries": [dataclasses.asdict(one) for one in self.canaries],
            "configurations": [dataclasses.asdict(one) for one in self.configurations],
            "references": self.references,
            "width": self.width,
            "prefix": self.prefix,
            "rate": self.rate,
            "notes": list(self.notes),
            "created": self.created,
        }

    def to_html(self) -> str:
        """The page that `save` writes."""
        ranks = "; ".join(f"{row.clients} clients, {row.copies} copies: {row.in_words}" for row in self.configurations)
        return pages.render(
            "audit.html",
            bar=privacy_bar(self.guarantee),
            report=self,
            created=self.created,
            outcome=self.outcome.replace(" ", "-"),
            notes=self.notes,
            bounds=_bounds(self) if self.bounds else None,
            columns=[(counted(row.clients, "client"), str(row.copies), row.ranks) for row in self.configurations],
            ranks_label=f"Ranks of the canaries. {ranks}",
        )

    def save(self, path: str | Path) -> Path:
        """Write the report as one HTML file that loads nothing else and opens anywhere; return the path."""
        return write_whole(path, self.to_html())

    def save_json(self, path: str | Path) -> Path:
        """Write the report as JSON; return the path."""
        return write_whole(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    def __repr__(self) -> str:
        return f"<AuditReport {self.run!r}: {self.verdict}>"

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=120, color_system=None)
        with console.capture() as printed:
            console.print(self)
        return printed.get()

    def _repr_html_(self) -> str:
        return pages.embed(self.to_html(), title=f"Audit of {self.run}")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        colour = {"broken": "bold red", "consistent": "bold", "no claim": "bold yellow"}[self.outcome]
        yield f"[bold]{escape(self.run)}[/]  [dim]audit of {escape(self.model)}, {self.rounds:,} rounds[/]"
        yield f"[{colour}]{escape(self.verdict)}[/]"
        yield f"[dim]claimed: {escape(str(self.guarantee))}[/]\n"
        if self.bounds:
            yield "Lower bounds on epsilon from one run"
            yield _bounds_table(self)
        if self.canaries:
            yield f"\nCanaries: rank of {self.references:,}; extracted by beam search of width {self.width}"
            yield _canaries_table(self)
        for note in self.notes:
            yield f"[dim]{escape(note)}[/]"


def _bounds(report: AuditReport) -> dict[str, object]:
    """The lower bounds on the page: a drawing and a table."""
    claim = report.guarantee.epsilon if report.guarantee.is_private else None
    summary = "; ".join(f"{kind}: at least {round_down(bound.epsilon)}" for kind, bound in report.bounds.items())
    bars = [(kind, one.epsilon, round_down(one.epsilon), one.most) for kind, one in report.bounds.items()]
    claimed = "" if claim is None else f"claimed {round_up(claim)}"
    return {
        "drawing": pages.svg.bounds(bars, claim=claim, claimed=claimed, label=f"Lower bounds on epsilon. {summary}"),
        "claimed": "none" if claim is None else round_up(claim),
        "rows": [
            (kind, KINDS[kind], one, round_down(one.epsilon), round_down(one.most))
            for kind, one in report.bounds.items()
        ],
    }


def _bounds_table(report: AuditReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("planted", "included / all", "correct / guesses", "epsilon at least", "largest possible"):
        table.add_column(heading, justify="left" if heading == "planted" else "right")
    for kind, bound in report.bounds.items():
        table.add_row(
            kind,
            f"{bound.included:,} / {bound.canaries:,}",
            f"{bound.correct:,} / {bound.guesses:,}",
            round_down(bound.epsilon),
            round_down(bound.most),
        )
    return table


def _canaries_table(report: AuditReport) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("clients", "copies", "times seen", "ranks", "extracted"):
        table.add_column(heading, justify="right")
    for row in report.configurations:
        seen = f"{row.times_seen:,.0f}"
        table.add_row(str(row.clients), str(row.copies), seen, row.in_words, f"{row.extracted} / {len(row.ranks)}")
    return table
