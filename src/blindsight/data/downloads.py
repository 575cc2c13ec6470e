"""HTTP downloads that resume, are verified, and never leave a partial file under the final name.

A file is written as `NAME.part` and renamed once its checksum matches. Received bytes survive a broken connection, a
killed process and a reboot; only the missing ones are requested again.
"""

import contextlib
import dataclasses
import hashlib
import http.client
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import IO, Any

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.version import __version__

if sys.platform != "win32":
    import fcntl

__all__ = ["RemoteFile", "Retries", "alone", "check_address", "checksum", "fetch"]

CHUNK = 1 << 16
MOMENTARY = {408, 425, 429, 500, 502, 503, 504}
"""Status codes worth a retry."""

ByteProgress = Callable[[int, int | None], None]
"""Called with the bytes received and the size of the file, if known."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file, its addresses, and its checksum: `sha256:...` or `md5:...`."""

    name: str
    urls: tuple[str, ...]
    checksum: str
    size: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retries:
    """How many attempts may fail in a row without a new byte, and how long each step may take."""

    attempts: int = 4
    wait_s: float = 0.5  # doubled with every failure
    longest_wait_s: float = 30.0
    timeout_s: float = 30.0


class _Unusable(Exception):
    """This address will not serve the file, however often it is asked."""


class _Broken(Exception):
    """This attempt failed; `wait_s` is how long the server asked to wait."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def fetch(
    file: RemoteFile,
    folder: Path,
    *,
    progress: ByteProgress = lambda done, total: None,
    patience: Retries | None = None,
) -> Path:
    """The path of `file` in `folder`, downloaded from the first address that serves it unless it exists already."""
    target, part = folder / file.name, folder / f"{file.name}.part"
    if target.is_file() and checksum(target, file.checksum) == file.checksum:
        progress(target.stat().st_size, file.size)
        return target
    reasons: list[str] = []
    for url in file.urls:
        check_address(url)
        try:
            _obtain(url, file, part, progress, patience or Retries())
        except _Unusable as error:
            reasons.append(str(error))
        else:
            os.replace(part, target)
            _discard(part)  # the note beside it
            return target
    kept = f" ({_size(part):,} bytes are kept, and the same command resumes from there)" if _size(part) else ""
    raise BlindsightError(f"{file.name} could not be downloaded{kept}: {'; '.join(reasons)}")


def check_address(url: str) -> None:
    """Refuse anything but a web address."""
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(f"{url} is not a web address: it must begin with https:// or http://")


def checksum(path: Path, like: str = "sha256:") -> str:
    """The checksum of a file, by the algorithm of `like`: `sha256:...`, `md5:...`."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as opened:
        return f"{algorithm}:{hashlib.file_digest(opened, algorithm).hexdigest()}"


@contextlib.contextmanager
def alone(folder: Path) -> Generator[None]:
    """Lock the folder against downloads by a second process; the lock ends with its process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BlindsightError(f"cannot create {folder} ({error.strerror}): choose another folder") from error
    if sys.platform == "win32":
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlindsightError(f"another process is downloading into {folder}: wait until it is done") from None
        yield
    finally:
        os.close(opened)


# --- one address


def _obtain(url: str, file: RemoteFile, part: Path, progress: ByteProgress, patience: Retries) -> None:
    """Make `part` the complete, verified file. If resumed bytes turn out wrong, start over once."""
    while True:
        resumed = _size(part) > 0
        _complete(url, file, part, progress, patience)
        actual = checksum(part, file.checksum)
        if actual == file.checksum:
            return
        _discard(part)
        if not resumed:
            raise _Unusable(
                f"{url} served a file with checksum {_short(actual)}, but {_short(file.checksum)} was expected; "
                "it was deleted"
            )


def _complete(url: str, file: RemoteFile, part: Path, progress: ByteProgress, patience: Retries) -> None:
    """Bring `part` to its full length, retrying as long as bytes still arrive."""
    failures, most = 0, _size(part)
    while True:
        try:
            return _ask(url, file, part, progress, patience.timeout_s)
        except _Broken as error:
            failures = 0 if _size(part) > most else failures + 1
            most = max(most, _size(part))
            if failures >= patience.attempts:
                raise _Unusable(str(error)) from error
            time.sleep(min(max(patience.wait_s * 2**failures, error.wait_s), patience.longest_wait_s))


def _ask(url: str, file: RemoteFile, part: Path, progress: ByteProgress, timeout_s: float) -> None:
    """Request the missing bytes once and append them to `part` as they arrive."""
    have = _size(part)
    if have == file.size:
        return  # complete; the checksum decides whether it is right
    if file.size is not None and have > file.size:
        _discard(part)
        have = 0
    response = _open(url, part, have, timeout_s)
    if response is None:
        return
    with response:
        start, total = _extent(url, part, response, have)
        if file.size is not None and total is not None and total != file.size:
            raise _Unusable(f"{url} has {total:,} bytes, but {file.size:,} were expected")
        if start == 0:
            _note(part, url, response)
        with part.open("ab" if start else "wb", buffering=0) as opened:
            _receive(url, response, opened, start, file.size or total, progress)


def _open(url: str, part: Path, have: int, timeout_s: float) -> Any:
    """The server's response; None if it reports that `part` is complete."""
    request = urllib.request.Request(url, headers={"User-Agent": f"blindsight/{__version__}"})
    request.add_header("Accept-Encoding", "identity")  # the checksum is of the uncompressed bytes
    if have:
        request.add_header("Range", f"bytes={have}-")
        if validator := _noted(part, url):
            request.add_header("If-Range", validator)  # if the file has changed since, the server sends all of it
    try:
        return urllib.request.urlopen(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        with error:
            answer = f"{url} answered {error.code} {error.reason}"
            if error.code == 416:  # no bytes beyond these: complete, or a different file
                if error.headers.get("Content-Range", "") == f"bytes */{have}":
                    return None
                _discard(part)
                raise _Broken(answer) from error
            if error.code in MOMENTARY:
                wanted = error.headers.get("Retry-After", "")
                raise _Broken(answer, float(wanted) if wanted.isdecimal() else 0.0) from error
            raise _Unusable(answer) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _Broken(f"{url} could not be reached ({_why(error)})") from error


def _extent(url: str, part: Path, response: Any, have: int) -> tuple[int, int | None]:
    """The offset of the first byte of this response, and the size of the whole file."""
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != have:
            _discard(part)  # it cannot be resumed here; the next request asks for the whole file
            raise _Broken(f"{url} sent a different range than requested")
        return have, None if match[2] == "*" else int(match[2])
    if response.status != 200:
        raise _Unusable(f"{url} answered {response.status} {response.reason}")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _receive(url: str, response: Any, opened: IO[bytes], done: int, total: int | None, progress: ByteProgress) -> None:
    progress(done, total)
    while True:
        try:
            chunk = response.read1(CHUNK if total is None else min(CHUNK, total - done))
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(f"{url} broke off after {done:,} bytes ({_why(error)})") from error
        if not chunk:
            break
        try:
            opened.write(chunk)
        except OSError as error:
            raise BlindsightError(f"cannot write {opened.name} ({error.strerror}): make room and try again") from error
        done += len(chunk)
        progress(done, total)
    if total is not None and done < total:
        raise _Broken(f"{url} broke off after {done:,} of {total:,} bytes")
    os.fsync(opened.fileno())


# --- the note beside a part: the address and version that its bytes came from


def _note(part: Path, url: str, response: Any) -> None:
    tag = response.headers.get("ETag", "")
    validator = response.headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag
    _beside(part).write_text(json.dumps({"url": url, "validator": validator}), encoding="utf-8")


def _noted(part: Path, url: str) -> str:
    try:
        note = json.loads(_beside(part).read_text(encoding="utf-8"))
        return str(note["validator"]) if note["url"] == url else ""  # another mirror has other tags
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _beside(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _beside(part).unlink(missing_ok=True)


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _short(checksum: str) -> str:
    algorithm, _, digits = checksum.partition(":")
    return f"{algorithm} {digits[:12]}…"


def _why(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason or type(reason).__name__)
