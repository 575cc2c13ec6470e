"""Tombstones: which models were deleted, when, and why.

A model whose snapshot or record is merely absent was not deleted: disks, caches and lists lose things. Only a tombstone
says so. It names the creation of the model, not only its name, so a later model of the same name is not affected. It
holds nothing else about the model. All of a folder's tombstones are in one file.
"""

import datetime
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Tombstones", "new_tombstone", "read_tombstones", "write_tombstones"]

_log = logging.getLogger(__name__)
_NAME = "deleted.json"

Tombstones = Mapping[str, str]
"""JSON by creation."""


def new_tombstone(model: str, reason: str) -> str:
    """The tombstone of a model that is deleted now."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return json.dumps({"model": model, "reason": reason, "on": today})


def read_tombstones(folder: Path) -> dict[str, str]:
    """The tombstones in a folder; none if the file is damaged, since absence never deletes anything."""
    try:
        stored = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        return {str(created): json.dumps(stone) for created, stone in stored.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        _log.error("%s cannot be read (%s): models that were deleted may come back", folder / _NAME, error)
        return {}


def write_tombstones(folder: Path, stones: Tombstones) -> None:
    """Replace the tombstones in a folder, durably."""
    scratch = folder / f"{_NAME}.{os.getpid()}"
    readable = {created: json.loads(stone) for created, stone in stones.items()}
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        json.dump(readable, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    os.replace(scratch, folder / _NAME)
