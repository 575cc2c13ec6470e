"""The evidence: findings of tests on released sums, and the votes of clients on candidate faults."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from blindsight.accounting.guarantee import round_up
from blindsight.inspection.contrast.released import NONE
from blindsight.inspection.finding import Diagnosis, Finding
from blindsight.inspection.sections import Facts
from blindsight.pages.bars import BarTable, Row, one_scale, round_end, share_bar
from blindsight.samples import as_json
from blindsight.wording import number, percent, points, signed, span

__all__ = ["Findings", "VotesSection", "is_difference"]

CLOSEST = 3  # findings without a difference that are listed, closest to a detection first; the rest is folded
SHOWN = 3  # votes of an arm; those that are near zero beyond these are folded
NEAR_ZERO = 0.05
WIDE = 110  # columns of a terminal with room for numbers beside the statements, which repeat most of them
MEASURED = ("threshold", "fidelity")
_SHARES = ("votes", "share")  # kinds whose effects are shares of clients; others have the unit of what they measure
BALLOT = (
    "Each client undid every candidate fault on its own examples and voted for the one whose removal improved the "
    "model's predictions most."
)
BALLOTS = {
    "unknowns": "Each client undid every candidate fault on its own sentences and voted for the one that resolved most "
    "new unknown words. Votes on the sentences before the change are subtracted."
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
        """Differences first, by effect relative to the width of the interval, then the rest, likeliest first."""

        def place(one: Finding) -> tuple[bool, bool, float, float]:
            beyond = one.effect - one.usual
            beyond = beyond if one.kind == "votes" else abs(beyond)  # fewer votes than usual are no evidence
            surprise = beyond / max(one.high - one.low, 1e-12)
            chance = 0.0 if one.verdict == "detected" or one.p_value is None else one.p_value
            return not is_difference(one), one.verdict != "detected", chance, -surprise

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
        for one in [*loud, *quiet[:CLOSEST]]:
            effect = [*_effect(one), _smallest(one)] if wide else []
            result = f"[red]{_result(one)}[/]" if is_difference(one) else _result(one)
            cells = [result, escape(one.statement), round_up(one.epsilon), *effect]
            table.add_row(*cells, style="" if one.verdict == "detected" else "dim")
        if len(quiet) > CLOSEST:
            table.add_row("", f"and {len(quiet) - CLOSEST} more not detected", style="dim")
        yield table

    def values(self, report: Facts) -> Mapping[str, object] | None:
        """Detected or measured findings at once, the closest misses where nothing is detected, the rest folded."""
        if not self.findings:
            return None
        limits: dict[str, float] = {}
        for one in self.findings:
            limits[one.kind] = max(limits.get(one.kind, 0.0), abs(one.low), abs(one.high))
        loud, quiet = ([_row(one, limits[one.kind]) for one in part] for part in self._split())
        detected = sum(map(is_difference, self.findings))
        closest = 0 if detected else CLOSEST
        return {
            "loud": loud,
            "closest": quiet[:closest],
            "quiet": quiet[closest:],
            "kinds": list(dict.fromkeys(one.kind for one in self.findings)),
            "detected": detected,
            "tests": sum(one.kind not in MEASURED for one in self.findings),
        }

    def _split(self) -> tuple[list[Finding], list[Finding]]:
        ranked = self.ranked
        loud = [one for one in ranked if one.verdict == "detected"]
        return loud, [one for one in ranked if one.verdict != "detected"]


def _row(one: Finding, limit: float) -> dict[str, object]:
    text, ends = _effect(one)
    limit = round_end(limit)
    start = 0.0 if one.kind == "votes" and one.low >= 0 else -limit
    return {
        "finding": one,
        "json": json.dumps(as_json.plain(one.to_dict())),
        "effect": text,
        "ends": ends,
        "axis": (start, limit),
        "ticks": tuple(_tick(one.kind, place) for place in (start, one.usual, limit)),
        "is_detected": is_difference(one),
        "subject": f"{one.kind}, {' – '.join(dict.fromkeys(one.arms))}",
        "result": f"{'●' if one.verdict == 'detected' else '○'} {_result(one)}",
        "epsilon": round_up(one.epsilon),
        "smallest": _smallest(one),
    }


def _effect(one: Finding) -> tuple[str, str]:
    """The effect and its interval, in the units and with the rounding of the statement."""
    if one.kind == "votes" and one.low >= 0:
        return percent(one.effect, within=(one.low, one.high)), f"{span(one.low, one.high)} %"
    if one.kind in _SHARES:
        return f"{points(one.effect)} points", f"{points(one.low)} to {points(one.high)}"
    return signed(one.effect), f"{signed(one.low)} to {signed(one.high)}"


def _tick(kind: str, value: float) -> str:
    return percent(value, 2) if kind in _SHARES else number(value, 2)


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
            yield escape(f"Votes of {one.arm}: {tally}" if tally else one.statement)

    def values(self, report: Facts) -> Mapping[str, object] | None:
        """A panel of bars for each arm."""
        if not self.diagnoses:
            return None
        panels = [_panel(report, one) for one in self.diagnoses]
        scaled = one_scale([panel[part] for panel in panels for part in ("first", "rest")])
        for place, panel in enumerate(panels):
            panel["first"], panel["rest"] = scaled[2 * place : 2 * place + 2]
        return {"intro": BALLOTS.get(report.task, BALLOT), "panels": panels}


def _panel(report: Facts, one: Diagnosis) -> dict[str, Any]:
    """One arm's votes: the largest, and beyond these all that are not near zero; the others are folded."""
    names = [view.name for view in report.arms]
    place = names.index(one.arm) if one.arm in names else None
    tested = {f.name: (f.low, f.high) for f in report.findings if f.kind == "votes" and set(f.arms) == {one.arm}}
    intervals = tested | {one.fault: (one.low, one.high)}
    first, rest = list[Row](), list[Row]()
    for name, share in sorted(one.tally.items(), key=lambda pair: -pair[1]):
        wins = name == one.fault
        bar = share_bar(share, place if wins else None, *intervals.get(name, (None, None)))
        is_first = len(first) < SHOWN or wins or share >= NEAR_ZERO
        (first if is_first else rest).append(Row(name, [bar], stands_out=wins))
    colour = share_bar(0.0, place).kind
    most = "Most votes: " if report.explanation is not None and one.fault != NONE else ""  # it has its own section
    explained = report.explanation is None or one.fault in [NONE, *(diagnosis.fault for diagnosis in report.named)]
    but = "" if explained else " It does not predict everything that was released."
    tables = {"first": BarTable(first), "rest": BarTable(rest)}
    return {"arm": one.arm, "colour": colour, "statement": most + one.statement + but, **tables}
