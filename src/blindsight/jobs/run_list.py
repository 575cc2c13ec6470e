"""`blindsight runs list`: the runs in a folder, and what each promised."""

import dataclasses
from pathlib import Path
from typing import Any

from blindsight import runs
from blindsight.accounting.guarantee import Guarantee, round_up
from blindsight.errors import InvalidInput

__all__ = ["ListedRun", "list_runs"]


@dataclasses.dataclass(frozen=True)
class ListedRun:
    """One run; epsilon and delta are empty if it has released nothing yet."""

    path: Path
    name: str
    began: str
    epsilon: str = ""
    delta: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**dataclasses.asdict(self), "path": str(self.path)}


def list_runs(folder: str | Path = "runs") -> list[ListedRun]:
    """All runs in `folder`, oldest first."""
    if not Path(folder).is_dir():
        raise InvalidInput(f"there is no folder {folder}: name the folder that holds the runs")
    return sorted(map(_listed, runs.find(folder)), key=lambda one: one.began)


def _listed(run: runs.Run) -> ListedRun:
    header = run.read("run.json")
    listed = ListedRun(run.path, str(header.get("name", "")), str(header.get("began", "")))
    if not (run.path / "guarantee.json").is_file():
        return listed
    promise = Guarantee.from_dict(run.read("guarantee.json"))
    epsilon = round_up(promise.epsilon) if promise.is_private else "inf"
    return dataclasses.replace(listed, epsilon=epsilon, delta=f"{promise.delta:.3g}")
