"""Generated examples that take seconds to draw are kept on disk, so that the next command reads them instead.

They lie in the cache folder, one folder for each recipe, and are mapped into memory. What is kept is taken only if its
recipe, the code that draws and NumPy are the same, and its checksums are right; otherwise the examples are drawn again.
A folder gets its name when it is complete, so that two processes do not disturb each other. The oldest folders are
removed when all together take more than two gigabytes. A cache that cannot be read or written is none.
"""

import contextlib
import functools
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.datasets import cache_folder
from blindsight.data.population import Columns
from blindsight.keys import digest_of

__all__ = ["kept_or_drawn"]

_LEAST, _MOST = 48 << 20, 1 << 30  # bytes: less is drawn in less than a second, more would surprise on a disk
_ALL = 2 << 30
_FACTS = "columns.json"


def kept_or_drawn(recipe: Any, nbytes: int, draw: Callable[[], Columns]) -> Columns:
    """`draw()`, or what it returned for the same recipe before; kept if about `nbytes` bytes are worth it."""
    code = _code()
    if not (_LEAST <= nbytes <= _MOST and code):
        return draw()
    folder = cache_folder() / "generated" / digest_of([recipe, code, np.__version__])
    found = _read(folder)
    if found is not None:
        return found
    drawn = draw()
    with contextlib.suppress(OSError):
        _write(folder, drawn)
        _make_room(folder)
    return drawn


@functools.cache
def _code() -> str:
    """A digest of everything that draws; empty if it cannot be read, as in a zip file."""
    here = Path(__file__).parent
    files = sorted([*(here / "embedded").glob("*.py"), *here.glob("*.py")])
    digest = hashlib.blake2b(digest_size=16)
    try:
        for file in files:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    except OSError:
        return ""
    return digest.hexdigest() if files else ""


def _read(folder: Path) -> Columns | None:
    """The columns in a folder, mapped into memory; None if something is missing or not as it was."""
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        columns = {name: np.load(folder / f"{place}.npy", mmap_mode="r") for place, name in enumerate(facts)}
        if any(zlib.crc32(_bytes(column)) != facts[name] for name, column in columns.items()):
            return None
        os.utime(folder)  # used last now
    except (OSError, ValueError, EOFError):
        return None
    return columns


def _write(folder: Path, columns: Columns) -> None:
    if any(column.dtype.hasobject or column.dtype.kind == "T" for column in columns.values()):
        return  # texts are drawn again
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix="part-"))
    try:
        for place, column in enumerate(columns.values()):
            np.save(part / f"{place}.npy", np.ascontiguousarray(column))
        facts = {name: zlib.crc32(_bytes(column)) for name, column in columns.items()}
        (part / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # one that is damaged
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _make_room(newest: Path) -> None:
    """Remove the folders used longest ago until the others fit, but never the newest."""
    ages: list[tuple[float, Path, int]] = []
    for folder in newest.parent.iterdir():
        size = sum(file.stat().st_size for file in folder.iterdir())
        ages.append((folder.stat().st_mtime, folder, size))
    left = sum(size for _, _, size in ages)
    for _, folder, size in sorted(ages):
        if left > _ALL and folder != newest:
            shutil.rmtree(folder, ignore_errors=True)
            left -= size


def _bytes(column: np.ndarray) -> memoryview:
    return np.ascontiguousarray(column).reshape(-1).view(np.uint8).data
