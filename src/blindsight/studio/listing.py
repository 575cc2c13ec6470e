"""The runs in a folder, as the list shows them. A run is read again only when something in its folder changed."""

import dataclasses
import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.runs import Run
from blindsight.studio.locks import locked_inodes
from blindsight.studio.notes import RunNotes, read_notes

__all__ = ["SORTS", "RunList", "RunRow", "has_address"]

SORTS = ("began", "name", "kind", "epsilon", "state")
_HEAD_BYTES = 16_384  # of a report: what comes before its samples, which may be many megabytes
_TOLD = ("title", "task", "outcome", "tone", "verdict")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run in the list. `state` is running, finished, stopped (at a budget) or unfinished.

    `key` is how entries of a ledger begin to name the run.
    """

    name: str
    kind: str
    began: str
    by: str
    key: str
    state: str
    outcome: str
    verdict: str
    epsilon: float | None
    delta: float | None
    rounds: int | None
    planned: int | None
    notes: RunNotes

    @property
    def promised(self) -> str:
        """Epsilon, rounded up; empty if the run has no guarantee."""
        from blindsight.accounting.guarantee import round_up

        return "" if self.epsilon is None else round_up(self.epsilon)

    def matches(self, words: Sequence[str]) -> bool:
        """Whether every word occurs in the name, the kind, the state, the verdict, a tag, the note or who began it."""
        told = (self.name, self.kind, self.state, self.verdict, self.by, *self.notes.tags, self.notes.text)
        text = " ".join(told).lower()
        return all(word in text for word in words)


class RunList:
    """The runs in `folder`: those with a `run.json`, one level down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, tuple[tuple[int, ...], RunRow]] = {}
        self._reading = threading.Lock()

    def rows(self) -> list[RunRow]:
        """All runs, newest first."""
        busy = locked_inodes()
        with self._reading:
            found = {entry.name: stamp for entry in _entries(self.folder) if (stamp := _stamp(entry)) is not None}
            for name in self._read.keys() - found.keys():
                del self._read[name]
            for name, stamp in found.items():
                if name not in self._read or self._read[name][0] != stamp:
                    self._read[name] = stamp, _row(Run(self.folder / name))
            rows = [row for _, row in self._read.values()]
        live = [
            dataclasses.replace(row, state="running") if is_busy(self.folder / row.name, busy) else row for row in rows
        ]
        return sorted(live, key=lambda row: (row.began, row.name), reverse=True)

    def find(self, name: str) -> Run:
        """The run of that name in the folder; whatever is not the name of one is refused."""
        with self._reading:
            is_one = any(entry.name == name and _stamp(entry) is not None for entry in _entries(self.folder))
        if not is_one:
            raise InvalidInput(f"there is no run {name[:80]!r} in {self.folder}: it may have been deleted")
        return Run(self.folder / name)

    def row(self, run: Run) -> RunRow:
        """The run as the list shows it now."""
        row = _row(run)
        return dataclasses.replace(row, state="running") if is_busy(run.path, locked_inodes()) else row

    def select(
        self, *, words: str = "", kind: str = "", state: str = "", sort: str = "", up: bool = False
    ) -> list[RunRow]:
        """The runs that match, sorted; missing values come last."""
        wanted = words.lower().split()
        rows = [
            row
            for row in self.rows()
            if row.matches(wanted) and (not kind or row.kind == kind) and (not state or row.state == state)
        ]
        if sort not in SORTS or (sort == "began" and not up):
            return rows
        known = [row for row in rows if getattr(row, sort) is not None]
        known.sort(key=lambda row: getattr(row, sort), reverse=not up)
        return known + [row for row in rows if getattr(row, sort) is None]


def is_busy(folder: Path, busy: frozenset[int]) -> bool:
    """Whether a process holds the run's lock."""
    try:
        return bool(busy) and os.stat(f"{folder}/lock").st_ino in busy
    except OSError:
        return False


def has_address(name: str) -> bool:
    """Whether a file's name can be part of an address: one whose bytes are not UTF-8 cannot."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as found:
            named = [entry for entry in found if not entry.name.startswith(".") and has_address(entry.name)]
            return [entry for entry in named if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _stamp(entry: "os.DirEntry[str]") -> tuple[int, ...] | None:
    """Values that change when a file of the run is replaced or metrics are appended; None if it is not a run."""
    try:
        os.stat(f"{entry.path}/run.json")
        changed = entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return None
    try:
        return changed, os.stat(f"{entry.path}/metrics.jsonl").st_size
    except OSError:
        return (changed,)


def _row(run: Run) -> RunRow:
    header, promise, result = (_json(run, file) for file in ("run.json", "guarantee.json", "result.json"))
    settings: Any = header.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    told = _told(run.path / "report.json")
    planned = _inside(settings, "privacy", "rounds")
    rounds = result.get("rounds") if result else _last_round(run.path / "metrics.jsonl")
    return RunRow(
        name=run.path.name,
        kind=kind_of(header, settings),
        began=str(header.get("began", "")),
        by=str(header.get("by", "")),
        key=f"{run.path.name} {header.get('id', '')}",
        state=_state(result, told),
        outcome=_outcome(told),
        verdict=told.get("verdict", ""),
        epsilon=_number(promise.get("epsilon")),
        delta=_number(promise.get("delta")),
        rounds=rounds if isinstance(rounds, int) else None,
        planned=planned if isinstance(planned, int) else None,
        notes=read_notes(run),
    )


def kind_of(header: dict[str, Any], settings: dict[str, Any]) -> str:
    """The kind of a run in a word: its task, or train."""
    task = _inside(settings, "question", "task")
    if isinstance(task, str):
        return task
    is_training = isinstance(settings.get("model"), dict) and isinstance(settings.get("privacy"), dict)
    return "train" if is_training else str(header.get("name") or "run")


def _state(result: dict[str, Any], told: dict[str, str]) -> str:
    if result:
        return "stopped" if result.get("stopped") == "budget" else "finished"
    return "finished" if told else "unfinished"


def _json(run: Run, file: str) -> dict[str, Any]:
    """The object in a file of the run; empty if it is missing or damaged, which the run's own page says."""
    try:
        value = run.read(file)
    except (BlindsightError, OSError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _told(report: Path) -> dict[str, str]:
    """Title, task, outcome and verdict of a report, from its first lines."""
    try:
        with open(report, encoding="utf-8", errors="replace") as file:
            lines = file.read(_HEAD_BYTES).split("\n")
    except OSError:
        return {}
    told: dict[str, str] = {}
    for line in lines[:-1]:
        name, found, value = line.strip().partition(": ")
        if found and name.strip('"') in _TOLD and name.strip('"') not in told and value.startswith('"'):
            told[name.strip('"')] = _text(value.rstrip(","))
    return told or {"verdict": ""}


def _outcome(told: Mapping[str, str]) -> str:
    """What a report's colour stands for; one that found nothing is unmeasured unless it says that it could have."""
    tone = told.get("tone") or told.get("outcome", "").replace(" ", "-")
    return "unmeasured" if tone == "nothing" and "tone" not in told else tone


def _text(value: str) -> str:
    try:
        return str(json.loads(value))
    except ValueError:
        return ""


def _last_round(metrics: Path) -> int | None:
    """The round of the last whole line."""
    try:
        with open(metrics, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            lines = file.read().split(b"\n")
        return json.loads(lines[-2])["round"] if len(lines) > 1 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _inside(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _number(value: Any) -> float | None:
    if value == "inf":
        return math.inf
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value >= 0 else None
