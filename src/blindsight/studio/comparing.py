"""Two runs side by side: what their reports say, their samples and curves, and which parameters differ."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from blindsight.errors import BlindsightError
from blindsight.runs import Run
from blindsight.studio.details import flat, header_of

__all__ = ["ComparedFinding", "Told", "differing", "findings_of_both", "told_by"]

_TILES = 40  # samples of an arm that are shown


@dataclasses.dataclass(frozen=True)
class Told:
    """The content of a report, read from its JSON without the library that wrote it."""

    verdict: str
    outcome: str
    findings: Mapping[tuple[str, str], Mapping[str, Any]]
    arms: Sequence[Mapping[str, Any]]
    classes: tuple[str, ...]

    def tiles(self, arm: Mapping[str, Any], only: str) -> list[tuple[str, str]]:
        """Image and class of an arm's samples, all or those of one class."""
        pictures, labels = _inside(arm, "samples", "png"), _inside(arm, "labels", "values")
        pictures = pictures if isinstance(pictures, list) else []
        labels = labels if isinstance(labels, list) and len(labels) == len(pictures) else [None] * len(pictures)
        named = [(str(png), self._class(label)) for png, label in zip(pictures, labels, strict=True)]
        chosen = [one for one in named if only in ("", one[1])]
        step = max(1, len(chosen) // _TILES)
        return chosen[::step][:_TILES]

    def _class(self, label: Any) -> str:
        if isinstance(label, int) and 0 <= label < len(self.classes):
            return self.classes[label]
        return "" if label is None else str(label)


def told_by(run: Run) -> Told | None:
    """The content of the run's report; None if it has none that can be read."""
    try:
        report = run.read("report.json")
    except (BlindsightError, OSError, RecursionError, UnicodeDecodeError):
        return None
    if not isinstance(report, dict):
        return None
    findings = [one for one in _listed(report.get("findings")) if isinstance(one.get("name"), str)]
    classes = _inside(report, "population", "classes")
    if isinstance(classes, dict):
        classes = next(iter(classes.values()), ())
    return Told(
        verdict=str(report.get("verdict", "")),
        outcome=str(report.get("outcome", "")),
        findings={(str(one.get("kind", "")), _subject(one)): one for one in findings},
        arms=_listed(report.get("arms")),
        classes=tuple(map(str, classes)) if isinstance(classes, list) else (),
    )


class Effect(NamedTuple):
    """The effect of a finding, its interval, the effect where nothing is wrong, and whether it was detected."""

    value: float
    low: float
    high: float
    usual: float
    is_detected: bool


@dataclasses.dataclass(frozen=True)
class ComparedFinding:
    """A finding of either report: its effect in both; None where one lacks it."""

    name: str
    kind: str
    both: tuple[Effect | None, Effect | None]

    @property
    def is_detected(self) -> bool:
        """Whether either report detected it."""
        return any(one is not None and one.is_detected for one in self.both)

    @property
    def distance(self) -> float:
        """How far apart the effects are; missing ones count as zero."""
        first, second = (0.0 if one is None else one.value for one in self.both)
        return abs(first - second)

    @property
    def disagree(self) -> bool:
        """Whether the intervals have nothing in common."""
        first, second = self.both
        return first is not None and second is not None and (first.high < second.low or second.high < first.low)


def findings_of_both(first: Told, second: Told) -> list[ComparedFinding]:
    """Every finding of either, detected ones first, then those that differ most."""
    keys = [*first.findings, *(key for key in second.findings if key not in first.findings)]
    rows = [
        ComparedFinding(key[1], key[0], (_effect(first.findings.get(key)), _effect(second.findings.get(key))))
        for key in keys
    ]
    known = [row for row in rows if row.both != (None, None)]
    return sorted(known, key=lambda row: (not row.is_detected, -row.distance, row.name))


def differing(first: Run, second: Run) -> list[tuple[str, str, str, bool]]:
    """Every parameter of either run with both values, and whether they differ."""
    one, other = (dict(flat(header_of(run).get("settings"))) for run in (first, second))
    names = [*one, *(name for name in other if name not in one)]
    return [(name, one.get(name, ""), other.get(name, ""), one.get(name) != other.get(name)) for name in names]


def _effect(finding: Mapping[str, Any] | None) -> Effect | None:
    if finding is None:
        return None
    try:
        effect, low, high = (float(finding[name]) for name in ("effect", "low", "high"))
        usual = float(finding.get("usual", 0.0))  # older reports lack it
    except (KeyError, TypeError, ValueError):
        return None
    if not all(map(math.isfinite, (effect, low, high, usual))):
        return None
    return Effect(effect, low, high, usual, finding.get("verdict") == "detected")


def _subject(finding: Mapping[str, Any]) -> str:
    arms = finding.get("arms")
    listed = " and ".join(map(str, arms)) if isinstance(arms, list) else ""
    return f"{finding['name']} ({listed})" if listed else str(finding["name"])


def _listed(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _inside(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
