"""Decisions about a synthetic set: `labels.jsonl` next to it, one line each.

A line is on disk before the next example is shown, and is never rewritten: undoing a label appends a line too.
`labelling.json` next to it records the set, its classes and the raters' keys.
"""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import math
import os
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.runs import Run, file_name, locked, write_whole
from blindsight.samples.synthetic_set import LABELS, SyntheticSet

__all__ = ["Decision", "Labels", "now"]

ABOUT = "labelling.json"
INSTRUCTIONS = "instructions.txt"
_MOST_INSTRUCTIONS = 10_000
_LONGEST = 100  # letters of a rater's name
_A_DAY = 86_400.0


def now() -> str:
    """The current time, as written in a line."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


@dataclasses.dataclass(frozen=True)
class Decision:
    """One line: rater, sample and label. No label is a skip; `undone` retracts the rater's last decision."""

    sample_id: str
    rater: str
    label: str | None
    seconds: float
    at: str
    undone: bool = False


class Labels:
    """All decisions about a set, and the current ones.

    `classes` defaults to those of the set; once there are labels, it cannot change.
    """

    def __init__(self, dataset: SyntheticSet, classes: Sequence[str] = ()) -> None:
        self.dataset = dataset
        self._run = Run(dataset.folder)
        self._path = dataset.folder / LABELS
        stored = self._about()
        self._standing: dict[str, dict[str, Decision]] = {}
        if stored.get("set", dataset.identity) != dataset.identity:
            raise InvalidInput(
                f"the labels in {dataset.folder} belong to a set that was overwritten: "
                f"move {LABELS} and {ABOUT} away to start over"
            )
        self.classes = _checked_classes(tuple(classes) or tuple(stored.get("classes", ())) or dataset.classes, dataset)
        self.keys: dict[str, Any] = stored.get("keys", {})
        for row in self._rows():
            self._apply(self._checked(row))

    def _about(self) -> dict[str, Any]:
        if not (self.dataset.folder / ABOUT).exists():
            return {}
        stored = self._run.read(ABOUT)
        if not isinstance(stored, dict):
            raise InvalidInput(f"{self.dataset.folder / ABOUT} was edited by hand or damaged: move it away")
        return stored

    @property
    def instructions(self) -> str:
        """What raters should know before they begin."""
        try:
            return (self.dataset.folder / INSTRUCTIONS).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def instruct(self, text: str) -> None:
        """Keep instructions for raters."""
        if len(text) > _MOST_INSTRUCTIONS:
            raise InvalidInput(f"instructions have at most {_MOST_INSTRUCTIONS:,} characters: shorten them")
        write_whole(self.dataset.folder / INSTRUCTIONS, text.replace("\r\n", "\n"))

    @property
    def raters(self) -> tuple[str, ...]:
        """All raters with a current decision, in the order of their first one."""
        return tuple(rater for rater, stands in self._standing.items() if stands)

    def standing(self, rater: str) -> dict[str, Decision]:
        """This rater's current decisions by sample, most recent last."""
        return self._standing.get(rater, {})

    def add(self, decisions: Sequence[Decision]) -> None:
        """Append decisions; all of them are on disk when this returns, or none counts."""
        checked = [self._checked(dataclasses.asdict(decision)) for decision in decisions]
        self._save({})
        text = "".join(json.dumps(dataclasses.asdict(one), allow_nan=False) + "\n" for one in checked)
        try:
            _append(self._path, text.encode())
        except OSError as error:
            raise BlindsightError(
                f"cannot write {self._path} ({error.strerror}): check free space and permissions"
            ) from error
        for one in checked:
            self._apply(one)

    def remember(self, rater: str, keys: Mapping[str, Any]) -> None:
        """Store this rater's keys."""
        self._save({rater: dict(keys)})

    def _save(self, keys: Mapping[str, Any]) -> None:
        """Write the set, the classes and the keys; keeps other raters' keys."""
        kept = self._about()
        self.keys = {**kept.get("keys", {}), **keys}
        current = {"set": self.dataset.identity, "classes": list(self.classes), "keys": self.keys}
        if current != kept:
            self._run.write(ABOUT, current)

    @contextlib.contextmanager
    def alone(self, rater: str) -> Generator[None]:
        """Lock this rater's name until the block ends or this process dies."""
        busy = InvalidInput(f"{rater} is labelling this set in another window: continue there, or use another --rater")
        with locked(self.dataset.folder / f".{file_name(rater)}.lock", busy):
            yield

    def _rows(self) -> list[Any]:
        """The lines; one that was cut off by a crash was never acknowledged and is dropped."""
        if not self._path.exists():
            return []
        try:
            return [json.loads(line) for line in self._path.read_bytes().split(b"\n")[:-1] if line]
        except ValueError as error:
            raise InvalidInput(f"{self._path} has a line that is not JSON: remove that line") from error

    def _checked(self, row: Any) -> Decision:
        """The decision, if it is about a sample of this set and one of its classes."""
        one = _decision(row, str(self._path))
        check_rater(one.rater)
        if one.sample_id not in self.dataset.by_id:
            raise InvalidInput(
                f"there is no sample {one.sample_id[:60]!r} in {self.dataset.folder}: the labels belong to another set"
            )
        if one.label is not None and one.label not in self.classes:
            listed = _listed(self.classes)
            raise InvalidInput(
                f"{one.label[:60]!r} is not one of the classes {listed}: list all of them with --classes"
            )
        return one

    def _apply(self, one: Decision) -> None:
        stands = self._standing.setdefault(one.rater, {})
        stands.pop(one.sample_id, None)
        if not one.undone:
            stands[one.sample_id] = one


def _append(path: Path, lines: bytes) -> None:
    """Append whole lines, atomically: all of them are on disk when this returns, none if it raises."""
    with open(path, "ab+", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several raters may be labelling, each in their own process
        file.seek(0)
        before = file.read()
        whole = before.rfind(b"\n") + 1
        file.truncate(whole)  # drops a line cut off by a crash
        try:
            if file.write(lines) != len(lines):
                raise OSError(errno.ENOSPC, "no space for the whole line")
            os.fsync(file.fileno())
        except OSError:
            file.truncate(whole)
            raise
    if not before:  # a new file also needs its folder on disk
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _decision(row: Any, where: str) -> Decision:
    """The decision in a line, checked."""
    kinds: dict[str, Any] = {"sample_id": str, "rater": str, "label": str | None, "seconds": int | float, "at": str}
    fits = isinstance(row, dict) and set(row) - {"undone"} == set(kinds)
    if not fits or not all(isinstance(row[name], kind) for name, kind in kinds.items()):
        raise InvalidInput(f"{where} has a line that is not a label: {str(row)[:80]}")
    seconds = min(max(float(row["seconds"]), 0.0), _A_DAY) if math.isfinite(row["seconds"]) else 0.0
    fields: dict[str, Any] = {**row, "seconds": round(seconds, 3), "undone": row.get("undone") is True}
    return Decision(**fields)


def check_rater(name: Any) -> None:
    """Refuse a name that does not fit in one line."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise InvalidInput(f"a rater's name must be one line of at most {_LONGEST} characters, got {str(name)[:40]!r}")


def _checked_classes(classes: tuple[str, ...], dataset: SyntheticSet) -> tuple[str, ...]:
    if len(set(classes)) < max(2, len(classes)) or not all(name.strip() and name.isprintable() for name in classes):
        given = f"got {_listed(classes)}" if classes else "and this set lists none"
        raise InvalidInput(f"labelling needs at least two different classes, {given}: list them with --classes yes,no")
    proposed = {name for sample in dataset.samples for name in (sample.proposed,) if name is not None}
    if strange := sorted(proposed - set(classes)):
        raise InvalidInput(
            f"there are proposed labels {_listed(strange)} that --classes does not list: add them, or omit --classes"
        )
    return classes


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
