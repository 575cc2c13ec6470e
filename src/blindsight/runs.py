"""The run directory: everything a run writes and viewers read. Does not import JAX.

::

    runs/demo-20260131-120000/
      run.json            name, id, version, start time, who began it, settings
      guarantee.json      the guarantee (written before the first value)
      metrics.jsonl       one line per round or release, appended
      ...                 pictures and reports
"""

import contextlib
import dataclasses
import datetime
import fcntl
import getpass
import json
import os
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from blindsight.errors import BlindsightError, InvalidInput, Unanswered
from blindsight.version import __version__

__all__ = ["SITES", "Run", "begin", "create", "file_name", "find", "locked", "new_folder", "open_run", "write_whole"]


SITES = "sites.json"
"""What each site of a fleet said to the run's question: {"job": ..., "sites": {site: code}}."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run's directory. Files are written whole or not at all; lines are appended durably."""

    path: Path

    def write(self, file: str, value: Any) -> Path:
        """Write `value` as JSON, atomically: a reader sees the old file or the new one."""
        return self._replace(file, json.dumps(value, indent=2, allow_nan=False) + "\n")

    def _replace(self, file: str, text: str) -> Path:
        target = self.path / file
        scratch = target.with_name(f".{file}.{os.getpid()}")
        try:
            with open(scratch, "w", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.replace(scratch, target)
        except OSError as error:
            scratch.unlink(missing_ok=True)
            raise BlindsightError(
                f"cannot write {target} ({error.strerror}): free some space or choose another folder"
            ) from error
        return target

    def write_sites(self, job: str, said: Mapping[str, str]) -> None:
        """Note what each site of a fleet has said to the run's question so far."""
        self.write(SITES, {"job": job, "sites": dict(said)})

    def append(self, file: str, row: dict[str, Any]) -> None:
        """Append `row` as one line of JSON, on disk when this returns."""
        line = json.dumps(row, allow_nan=False) + "\n"
        try:
            with open(self.path / file, "a", encoding="utf-8") as out:
                out.write(line)
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise BlindsightError(
                f"cannot write {self.path / file} ({error.strerror}): free some space or choose another folder"
            ) from error

    def read(self, file: str) -> Any:
        """The JSON of `file`."""
        try:
            return json.loads((self.path / file).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise InvalidInput(f"the run {self.path} has no {file}") from error
        except ValueError as error:
            raise InvalidInput(f"{self.path / file} is not JSON: it was edited by hand or damaged") from error

    def settings(self, *, less: tuple[str, ...] = ()) -> Any:
        """The settings that the run began with, without the one at path `less`, such as ("privacy", "rounds")."""
        return _without(self.read("run.json").get("settings"), less)

    def rows(self, file: str) -> list[dict[str, Any]]:
        """The lines of a `.jsonl` file; a last line cut off by a crash is dropped."""
        try:
            lines = (self.path / file).read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return []
        try:
            return [json.loads(line) for line in lines[:-1] if line]  # a line cut off by a crash has no newline
        except ValueError as error:
            raise InvalidInput(f"{self.path / file} has a line that is not JSON: remove that line") from error

    def keep_rows(self, file: str, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Keep only the wanted lines of a `.jsonl` file: a resumed run repeats the others."""
        rows = self.rows(file)
        if (self.path / file).exists():
            self._replace(file, "".join(json.dumps(row) + "\n" for row in rows if wanted(row)))

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """Lock this run against other processes until the block ends or this process dies."""
        busy = BlindsightError(f"another process is using {self.path}: wait for it, or choose another folder")
        with locked(self.path / "lock", busy):
            yield

    @contextlib.contextmanager
    def taken_back_if_refused(self, has_released: Callable[[], bool], *, also: Sequence[str] = ()) -> Generator[None]:
        """Remove `run.json` and the files in `also` if the block is refused before anything is released.

        The run then never began: the next run in this folder may have other settings. One that is `Unanswered` stays,
        since people elsewhere decide on this run and on no other.
        """
        try:
            yield
        except BlindsightError as error:
            if not isinstance(error, Unanswered) and not has_released():
                for file in ("run.json", *also):
                    (self.path / file).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def locked(path: Path, busy: BlindsightError) -> Generator[None]:
    """Hold the lock file `path` until the block ends or this process dies; raise `busy` if another process has it."""
    try:
        lock = open(path, "w", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise BlindsightError(f"cannot write {path} ({error.strerror}): check its permissions") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise busy from None
        yield


def write_whole(path: str | Path, text: str) -> Path:
    """Write a file atomically; creates its folder if needed."""
    target = Path(path)
    if not target.name or target.is_dir():
        raise BlindsightError(f"cannot write {target}, which is a folder: choose another file")
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, target)
    except OSError as error:
        if scratch.is_file():
            scratch.unlink()
        raise BlindsightError(f"cannot write {target} ({error.strerror}): choose another file") from error
    return target


def file_name(name: str) -> str:
    """A population's name, made safe for file names."""
    return "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in name)


def begin(path: str | Path, name: str, settings: dict[str, Any], *, may_differ: tuple[str, ...] = ()) -> Run:
    """The run in folder `path`: new, or an existing one with these settings (except the one at `may_differ`)."""
    run = Run(Path(path))
    if not (run.path / "run.json").exists():
        return _new(run.path, name, settings)
    header = run.read("run.json")
    stored = header.get("settings") if isinstance(header, dict) else None
    now = json.loads(json.dumps(settings))  # tuples become lists
    before, after = (_without(value, may_differ) for value in (stored, now))
    if before != after:
        raise InvalidInput(
            f"{path} holds a run with other settings ({', '.join(_changed(before, after))}): "
            f"choose another folder, or delete this one"
        )
    return run


def create(name: str, settings: dict[str, Any], *, folder: str | Path = "runs") -> Run:
    """A new run directory `folder/name-DATE-TIME`; never reuses an existing one."""
    if not name or Path(name).name != name or name.startswith("."):
        raise InvalidInput(f"a run's name is one word without slashes or a leading dot, got {name!r}")
    path, began = new_folder(name, folder)
    return _new(path, name, settings, began)


def new_folder(name: str, folder: str | Path = "runs") -> tuple[Path, datetime.datetime]:
    """A new, empty folder `folder/name-DATE-TIME` for a run, and that time."""
    began = datetime.datetime.now(datetime.UTC)
    stem = f"{name}-{began:%Y%m%d-%H%M%S}"
    for attempt in range(1000):
        path = Path(folder) / (stem if attempt == 0 else f"{stem}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise BlindsightError(f"cannot create {path} ({error.strerror}): choose another folder") from error
        return path, began
    raise BlindsightError(f"there are a thousand runs {stem} already: choose another name")


def _new(path: Path, name: str, settings: dict[str, Any], began: datetime.datetime | None = None) -> Run:
    """A run in `path`; its id differs from that of any earlier run deleted there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BlindsightError(f"cannot create {path} ({error.strerror}): choose another folder") from error
    run, began = Run(path), began or datetime.datetime.now(datetime.UTC)
    header = {"name": name, "id": secrets.token_hex(8), "version": __version__, "began": began.isoformat()}
    run.write("run.json", {**header, "by": _user(), "settings": settings})
    return run


def _user() -> str:
    """Who began the run, for whoever reads the ledger; empty in a container whose user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _without(settings: Any, path: tuple[str, ...]) -> Any:
    """The settings without the one at `path`."""
    if not path or not isinstance(settings, dict) or path[0] not in settings:
        return settings
    return {
        key: value if key != path[0] else _without(value, path[1:])
        for key, value in settings.items()
        if (key, len(path)) != (path[0], 1)
    }


def _changed(before: Any, after: Any, place: str = "") -> list[str]:
    """The paths of the settings that differ, such as `privacy.clip`."""
    if before == after:
        return []
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [place]
    keys = [*after, *(key for key in before if key not in after)]
    return [path for key in keys for path in _changed(before.get(key), after.get(key), f"{place}.{key}".strip("."))]


def open_run(path: str | Path) -> Run:
    """The existing run in `path`."""
    if not (Path(path) / "run.json").is_file():
        raise InvalidInput(f"{path} is not a run: it has no run.json")
    return Run(Path(path))


def find(folder: str | Path = "runs") -> list[Run]:
    """All runs under `folder`, oldest first."""
    return [Run(path.parent) for path in sorted(Path(folder).glob("*/run.json"), key=lambda p: (p.stat().st_mtime, p))]
