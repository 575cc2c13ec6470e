"""Marks of used admission tokens in memory or in files: one Bloom filter of fixed size per key.

A mapped file survives its process, however it ends; only a power failure can lose marks of the last seconds.
"""

import dataclasses
import mmap
from pathlib import Path

from blindsight.errors import InvalidInput

__all__ = ["FILTER_BYTES", "Admission", "Used"]

FILTER_BYTES = 1 << 24
"""Marks of one key's used tokens: 16 MiB."""


@dataclasses.dataclass(frozen=True)
class Admission:
    """A valid token, not yet used: its key, its marks among the used ones, and when the marks may be forgotten."""

    key_id: str
    marks: tuple[int, ...]
    ends: int


class Used:
    """The used tokens of one process; with a `folder` they survive it."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._filters: dict[str, tuple[mmap.mmap, int]] = {}

    def use(self, admission: Admission) -> bool:
        """Mark a token as used; returns whether it was unused."""
        held = self._filters.get(admission.key_id)
        if held is None:
            held = self._filters[admission.key_id] = self._open(admission.key_id), admission.ends
        marks, is_new = held[0], False
        for place in admission.marks:
            byte, bit = place >> 3, 1 << (place & 7)
            is_new |= not marks[byte] & bit
            marks[byte] |= bit
        return is_new

    def sweep(self, now: float) -> None:
        """Forget keys that have ended."""
        for key_id in [key_id for key_id, (_, ends) in self._filters.items() if ends < now]:
            self._filters.pop(key_id)[0].close()
            if self._folder is not None:
                self._path(key_id).unlink(missing_ok=True)

    def close(self) -> None:
        """Write everything."""
        for marks, _ in self._filters.values():
            marks.flush()
            marks.close()
        self._filters = {}

    def _open(self, key_id: str) -> mmap.mmap:
        if self._folder is None:
            return mmap.mmap(-1, FILTER_BYTES)
        try:
            with open(self._path(key_id), "a+b") as file:
                file.truncate(FILTER_BYTES)
                return mmap.mmap(file.fileno(), FILTER_BYTES)
        except OSError as error:
            raise InvalidInput(
                f"cannot write {self._path(key_id)} ({error.strerror}): check space and rights"
            ) from error

    def _path(self, key_id: str) -> Path:
        return (self._folder or Path()) / f"{key_id[:16]}.used"
