r"""The diary of a site: everything it did, in plain words, one line of JSON each, chained by hashes.

Each line carries the hash of the one before, so a line that is edited, removed or moved is noticed. Like any chain it
can be rewritten from some line on, or cut off at the end, by somebody who may write the file: only a hash
noted elsewhere reveals that.

Characters that would change what a terminal shows are written as escapes, as `\x1b`: a diary quotes what others sent.

A line is on the disk when `write` returns. A process that is killed while it writes leaves a torn line behind; the next
line says so and carries a hash of the torn bytes, so that a crash cannot be mistaken for an edit, or an edit for a
crash. Several processes may write: one at a time holds the file's lock.
"""

import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import io
import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from blindsight.accounting.chain import GENESIS, Verification
from blindsight.fleet.codes import Declined, code_of_failure

__all__ = ["Diary", "DiaryLine"]

_BLOCK = 1 << 16
_LONGEST = 4000  # characters of what happened


@dataclasses.dataclass(frozen=True)
class DiaryLine:
    """One thing that happened. `torn` is the hash of the bytes of a line that was torn before this one."""

    number: int
    time: str
    what: str
    previous: str
    torn: str = ""
    hash: str = ""

    def sealed(self) -> "DiaryLine":
        """The line with its hash."""
        fields = {name: value for name, value in vars(self).items() if name != "hash"}
        return dataclasses.replace(self, hash=hashlib.sha256(_canonical(fields).encode()).hexdigest())

    def to_bytes(self) -> bytes:
        """One line of a file."""
        return _canonical(vars(self)).encode() + b"\n"


def _canonical(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _line_of(data: bytes) -> DiaryLine | None:
    """The line that `to_bytes` wrote, with its newline or, at the end of a file, without; None for anything else."""
    try:
        line = DiaryLine(**json.loads(data))
        return line if line.to_bytes() in (data, data + b"\n") and line.sealed() == line else None
    except (TypeError, ValueError, RecursionError):
        return None


@dataclasses.dataclass(frozen=True)
class Diary:
    """The diary in the file `path`, which the first line creates."""

    path: Path

    def write(self, what: str) -> DiaryLine:
        """Add a line; it is on disk when this returns. On a full disk it declines with `disk_full`."""
        try:
            with self._locked() as file:
                return _append(file, _readable(what[:_LONGEST]))
        except OSError as error:
            raise Declined(
                code_of_failure(error, self.path.parent),
                f"cannot write the diary {self.path} ({error.strerror}), and nothing is done that is not in it: check "
                "its permissions and free some space",
            ) from error

    @contextlib.contextmanager
    def _locked(self) -> Generator[int]:
        is_new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if is_new:
                _sync_folder(self.path.parent)
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)

    def lines(self) -> list[DiaryLine]:
        """All lines that can be read, in order."""
        return [line for line, _ in self._pieces() if line is not None]

    def verify(self, witness: str | None = None) -> Verification:
        """Whether every line is as it was written; `witness` is a hash noted earlier, which must occur."""
        number, last, torn, seen = 0, GENESIS, b"", {GENESIS}
        for line, data in self._pieces():
            if line is None:
                torn += data
                continue
            problem = _flaw(line, number, last, torn)
            if problem:
                return Verification(ok=False, entries=number, head=last, broken=number + 1, problem=problem)
            number, last, torn = line.number, line.hash, b""
            seen.add(last)
        problem = "" if witness is None or witness.strip().lower() in seen else f"{witness.strip()} is not in the diary"
        if not _is_torn(torn):
            problem = f"line {number + 1} was edited: it is whole, and its content and its hash disagree"
        return Verification(ok=not problem, entries=number, head=last, broken=None, problem=problem)

    def _pieces(self) -> Iterator[tuple[DiaryLine | None, bytes]]:
        """The lines of the file; None with the bytes of one that cannot be read."""
        if self.path.exists():
            with self.path.open("rb") as file:
                yield from ((_line_of(data), data) for data in file)


def _flaw(line: DiaryLine, number: int, last: str, torn: bytes) -> str:
    if torn and (line.torn != _mark(torn) or not _is_torn(torn)):
        return f"line {number + 1} was edited: it is not as written, nor as a crash left it"
    if line.torn != _mark(torn):
        return f"line {line.number} says that a torn line was before it, which is not there any more"
    if line.number != number + 1:
        return f"line {number + 1} was removed or moved"
    if line.previous != last:
        return f"line {line.number} does not follow from line {number}: one of them was replaced"
    return ""


def _is_torn(data: bytes) -> bool:
    """Whether bytes that are no line can come from a crash: then they begin a line, and end before it does."""

    def is_whole(piece: bytes) -> bool:
        try:
            return isinstance(json.loads(piece), dict)
        except (ValueError, RecursionError):
            return False

    return not any(is_whole(piece) for piece in data.split(b"\n"))


def _mark(torn: bytes) -> str:
    return hashlib.sha256(torn).hexdigest() if torn else ""


def _readable(what: str) -> str:
    """The words in one line: what others sent may be in them, and must not move a terminal's cursor or begin a line."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in what)


# --- appending, with the lock held


def _append(file: int, what: str) -> DiaryLine:
    """Writes the line, whole or not at all unless this process dies."""
    size = os.fstat(file).st_size
    last, torn = _end(file, size)
    lead = b"\n" if size and os.pread(file, 1, size - 1) != b"\n" else b""
    number, previous = (last.number, last.hash) if last else (0, GENESIS)
    if torn:
        what = f"(the line before was torn by a crash: {len(torn)} bytes) {what}"
    time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    line = DiaryLine(number + 1, time, what, previous, _mark(torn + lead if torn else b"")).sealed()
    try:
        _write_all(file, lead + line.to_bytes())
        os.fsync(file)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file, size)  # nobody was told that the line was written
        raise
    return line


def _end(file: int, size: int) -> tuple[DiaryLine | None, bytes]:
    """The last line that can be read, and the bytes after it."""
    block = _BLOCK
    while True:
        start = max(0, size - block)
        data = os.pread(file, size - start, start)
        pieces = io.BytesIO(data).readlines()
        after = b""
        for place in range(len(pieces) - 1, -1, -1):
            line = _line_of(pieces[place]) if place or not start else None  # the first piece may begin in the middle
            if line is not None:
                return line, after
            after = pieces[place] + after
        if start == 0:
            return None, after
        block *= 2


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
