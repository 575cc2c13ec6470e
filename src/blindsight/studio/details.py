"""One run in full: its settings, its guarantee, what was measured, and its files."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.pages.curves import RoundCurve
from blindsight.runs import Run
from blindsight.studio.listing import has_address
from blindsight.studio.notes import FILE as NOTES

__all__ = ["Curves", "file_of", "files_of", "flat", "header_of", "measured", "promise_of"]

_HIDDEN = ("lock", NOTES)
_FIRST = ("accuracy", "loss", "clip")


@dataclasses.dataclass(frozen=True)
class Curves:
    """Curves of a training run by the name of what they show; `unprotected` are measured without noise."""

    curves: Mapping[str, list[tuple[float, float]]]
    unprotected: frozenset[str]
    rounds: int

    def named(self, name: str, label: str, place: int) -> RoundCurve:
        """One of the curves, to be drawn under another name."""
        return label, place, self.curves.get(name, [])


def measured(run: Run) -> Curves:
    """Every number of every round in `metrics.jsonl`. Damaged lines are left out."""
    found: dict[str, list[tuple[float, float]]] = {}
    unprotected: set[str] = set()
    last = 0
    for row in _rows(run.path / "metrics.jsonl"):
        at = row.get("round")
        if not isinstance(at, int):
            continue
        last = max(last, at)
        aside = row.get("simulation_only")
        aside = aside if isinstance(aside, dict) else {}
        unprotected |= aside.keys()
        for name, value in ({key: one for key, one in row.items() if key != "round"} | aside).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(name, []).append((float(at), float(value)))
    order = [*(name for name in _FIRST if name in found), *sorted(found.keys() - {*_FIRST})]
    moving = [name for name in order if name in _FIRST or len({value for _, value in found[name]}) > 1]
    return Curves({name: found[name] for name in moving}, frozenset(unprotected), last)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError:
        return
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def header_of(run: Run) -> dict[str, Any]:
    """The content of `run.json`; a file that cannot be read is refused."""
    try:
        header = run.read("run.json")
    except (OSError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{run.path / 'run.json'} cannot be read: it was edited by hand or damaged") from error
    if not isinstance(header, dict):
        raise InvalidInput(f"{run.path / 'run.json'} is not a run's: it was edited by hand or damaged")
    return header


def flat(settings: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The settings with the path of each, such as `privacy.clip`; those that are not set are left out.

    >>> list(flat({"privacy": {"clip": 1.0, "epsilon": None}, "sizes": [16, 32]}))
    [('privacy.clip', '1.0'), ('sizes', '16, 32')]
    """
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from flat(value, f"{place}.{key}".strip("."))
    elif isinstance(settings, list):
        if settings:
            whole = ", ".join(one if isinstance(one, str) else json.dumps(one) for one in settings)
            yield place, whole if len(whole) <= 300 else whole[:300] + " …"
    elif settings is not None and settings != "":
        yield place, settings if isinstance(settings, str) else json.dumps(settings)


def promise_of(run: Run) -> Any:
    """The run's guarantee, or None if it has none that can be read."""
    from blindsight.accounting.guarantee import Guarantee

    try:
        return Guarantee.from_dict(run.read("guarantee.json"))
    except (BlindsightError, AttributeError, KeyError, TypeError, ValueError, OSError):
        return None


def files_of(run: Run) -> list[tuple[str, int]]:
    """Names and sizes of the files in a run's folder, without those in folders, links and hidden ones."""
    found: list[tuple[str, int]] = []
    for path in sorted(run.path.iterdir()):
        is_shown = has_address(path.name) and not path.name.startswith(".") and path.name not in _HIDDEN
        if is_shown and path.is_file() and not path.is_symlink():
            found.append((path.name, path.stat().st_size))
    return found


def file_of(run: Run, name: str) -> Path:
    """The file of that name, if the run lists it."""
    if name not in (listed for listed, _ in files_of(run)):
        raise InvalidInput(f"the run {run.path.name} has no file {name[:80]!r}")
    return run.path / name
