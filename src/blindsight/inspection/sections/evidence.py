"""The evidence: findings of tests on released sums, and the votes of clients on candidate faults."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from blindsight.accounting.guarantee import round_up
from blindsight.inspection.contrast.findings import Diagnosis, Finding
from blindsight.inspection.contrast.released import NONE
from blindsight.inspection.sections import Facts
from blindsight.pages.bars import BarTable, Row, share_bar
from blindsight.samples import as_json
from blindsight.wording import percent

__all__ = ["Findings", "VotesSection", "is_difference"]

QUIET = 4  # findings without a difference that the terminal still lists
WIDE = 110  # columns of a terminal with room for numbers beside the statements, which repeat most of them
MEASURED = ("threshold", "fidelity")
BALLOT = (
    "Each client undid every candidate fault on its own examples and voted for the one whose removal improved the "
    "model's predictions most."
)
BALLOTS = {
    "unknowns": "Each client undid every candidate fault on its own sentences and voted for the one that resolved most "
    "new unknown words."
}


def is_difference(one: Finding) -> bool:
    """Whether a test detected a difference; a threshold or a fidelity is measured, not tested."""
    return one.verdict == "detected" and one.kind not in MEASURED


@dataclasses.dataclass(frozen=True)
class Findings:
    """All tests and measurements."""

    key: ClassVar[str] = "findings"
    template: ClassVar[str] = "sections/findings.html"
    findings: tuple[Finding, ...]

    @property
    def ranked(self) -> tuple[Finding, ...]:
        """Differences first, by effect relative to the width of the interval, then the rest."""

        def place(one: Finding) -> tuple[bool, bool, float]:
            surprise = abs(one.effect) / max(one.high - one.low, 1e-12)
            return not is_difference(one), one.verdict != "detected", -surprise

        return tuple(sorted(self.findings, key=place))

    def to_dict(self) -> list[Any]:
        """Plain values for JSON."""
        return [as_json.plain(one.to_dict()) for one in self.findings]

    @classmethod
    def from_dict(cls, value: Sequence[Mapping[str, Any]]) -> "Findings":
        """The section that `to_dict` was called on."""
        return cls(tuple(map(Finding.from_dict, value)))

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """A table, detected differences first."""
        if not self.findings:
            return
        wide = console.width >= WIDE
        table = Table(box=None, pad_edge=False)
        for heading in ("", "finding", "epsilon", *(("effect", "95 %", "90 % power above") if wide else ())):
            table.add_column(heading, justify="left" if heading in ("finding", "") else "right", overflow="fold")
        loud, quiet = self._split()
        for one in [*loud, *quiet[:QUIET]]:
            effect = [f"{one.effect:+.3g}", f"{one.low:+.3g} to {one.high:+.3g}", _smallest(one)] if wide else []
            result = f"[red]{_result(one)}[/]" if is_difference(one) else _result(one)
            cells = [result, escape(one.statement), round_up(one.epsilon), *effect]
            table.add_row(*cells, style="" if one.verdict == "detected" else "dim")
        if len(quiet) > QUIET:
            table.add_row("", f"and {len(quiet) - QUIET} more not detected", style="dim")
        yield table

    def values(self, report: Facts) -> Mapping[str, object] | None:
        """Detected or measured findings at once, the rest folded."""
        if not self.findings:
            return None
        limits: dict[str, float] = {}
        for one in self.findings:
            limits[one.kind] = max(limits.get(one.kind, 0.0), abs(one.low), abs(one.high))
        loud, quiet = ([_row(one, limits[one.kind]) for one in part] for part in self._split())
        return {
            "loud": loud,
            "quiet": quiet,
            "detected": sum(map(is_difference, self.findings)),
            "tests": sum(one.kind not in MEASURED for one in self.findings),
        }

    def _split(self) -> tuple[list[Finding], list[Finding]]:
        ranked = self.ranked
        loud = [one for one in ranked if one.verdict == "detected"]
        return loud, [one for one in ranked if one.verdict != "detected"]


def _row(one: Finding, limit: float) -> dict[str, object]:
    return {
        "finding": one,
        "limit": limit,
        "is_detected": is_difference(one),
        "subject": f"{one.kind}, {' – '.join(dict.fromkeys(one.arms))}",
        "result": f"{'●' if one.verdict == 'detected' else '○'} {_result(one)}",
        "epsilon": round_up(one.epsilon),
        "smallest": _smallest(one),
    }


def _result(one: Finding) -> str:
    if one.kind in MEASURED:
        return "measured"
    return "detected" if one.verdict == "detected" else "not detected"


def _smallest(one: Finding) -> str:
    if one.smallest is None:
        return "–"
    return percent(one.smallest, 2) + ("" if one.kind == "share" else " of clients")


@dataclasses.dataclass(frozen=True)
class VotesSection:
    """For each arm, the fault that its clients voted for, and all noisy shares."""

    key: ClassVar[str] = "diagnoses"
    template: ClassVar[str] = "sections/votes.html"
    diagnoses: tuple[Diagnosis, ...]

    def to_dict(self) -> list[Any]:
        """Plain values for JSON."""
        return [as_json.plain(one.to_dict()) for one in self.diagnoses]

    @classmethod
    def from_dict(cls, value: Sequence[Mapping[str, Any]]) -> "VotesSection":
        """The section that `to_dict` was called on."""
        return cls(tuple(map(Diagnosis.from_dict, value)))

    def lines(self, report: Facts, console: Console) -> Iterator[RenderableType]:
        """The five largest shares of each arm."""
        for one in self.diagnoses:
            ranked = sorted(one.tally.items(), key=lambda pair: -pair[1])[:5]
            tally = ", ".join(f"{name} {percent(share)}" for name, share in ranked)
            yield f"Votes of {escape(one.arm)}: {escape(tally)}"

    def values(self, report: Facts) -> Mapping[str, object] | None:
        """A panel of bars for each arm."""
        if not self.diagnoses:
            return None
        return {"intro": BALLOTS.get(report.task, BALLOT), "panels": [_panel(report, one) for one in self.diagnoses]}


def _panel(report: Facts, one: Diagnosis) -> dict[str, object]:
    names = [view.name for view in report.arms]
    place = names.index(one.arm) if one.arm in names else None
    tested = {f.name: (f.low, f.high) for f in report.findings if f.kind == "votes" and set(f.arms) == {one.arm}}
    intervals = tested | {one.fault: (one.low, one.high)}
    rows = list[Row]()
    for name, share in sorted(one.tally.items(), key=lambda pair: -pair[1]):
        wins = name == one.fault
        bar = share_bar(share, place if wins else None, *intervals.get(name, (None, None)))
        rows.append(Row(name, [bar], stands_out=wins))
    colour = share_bar(0.0, place).kind
    most = "Most votes: " if report.explanation is not None and one.fault != NONE else ""  # what explains is elsewhere
    explained = report.explanation is None or one.fault in [NONE, *(known.fault for known in report.named)]
    but = "" if explained else " It does not predict everything that was released."
    return {"arm": one.arm, "colour": colour, "statement": most + one.statement + but, "table": BarTable(rows)}
