"""The ledger's SQLite file: created atomically, opened for one call, closed, and fully understood or refused.

No connection outlives a call. So threads can share a ledger, it survives a fork, and the write-ahead log is merged into
the file after every call: a copy of the file alone is complete unless it is being written at that moment.
The log needs memory shared between processes: keep the file on a local disk, under one name (no hard links).
"""

import contextlib
import dataclasses
import errno
import os
import sqlite3
import stat
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Literal

from blindsight.accounting.chain import GENESIS, Entry
from blindsight.errors import LedgerCorrupted, LedgerError, LedgerFromTheFuture, LedgerTampered

__all__ = ["LedgerFile", "ends", "entries", "has_its_rules", "head", "insert", "is_whole", "transaction"]

_APPLICATION = 0x424C4E44  # "BLND"
_VERSION = 1
_FIELDS = tuple(field.name for field in dataclasses.fields(Entry))
_COLUMNS = ", ".join(_FIELDS)
_SCHEMA = (
    f"CREATE TABLE entries (number INTEGER PRIMARY KEY, {' TEXT NOT NULL, '.join(_FIELDS[1:])} TEXT NOT NULL)",
    "CREATE TABLE head (only INTEGER PRIMARY KEY CHECK (only = 1), count INTEGER NOT NULL, hash TEXT NOT NULL)",
    "CREATE INDEX composition ON entries (population, kind, unit, relation, split, arm, event)",
    "CREATE TRIGGER in_order BEFORE INSERT ON entries WHEN NEW.number IS NOT (SELECT count + 1 FROM head) "
    "BEGIN SELECT RAISE(ABORT, 'entries are only appended'); END",
    "CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries are only appended'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries are only appended'); END",
    "CREATE TRIGGER head_grows BEFORE UPDATE ON head WHEN NEW.count IS NOT OLD.count + 1 "
    "BEGIN SELECT RAISE(ABORT, 'the chain only grows'); END",
    "CREATE TRIGGER head_stays BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the chain only grows'); END",
)
_DURABLE = ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON")

# SQLite must not be in use during a fork: the child would rely on locks that only its parent holds.
_ONE_AT_A_TIME = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_ONE_AT_A_TIME.acquire,
        after_in_parent=_ONE_AT_A_TIME.release,
        after_in_child=_ONE_AT_A_TIME.release,
    )


@dataclasses.dataclass(frozen=True)
class LedgerFile:
    """Connections to the file at `path`, with an explanation for every failure."""

    path: Path
    timeout_s: float
    announced: bool = False  # print the path of a new ledger

    @contextlib.contextmanager
    def connected(self, *, writing: bool = False) -> Generator[sqlite3.Connection]:
        """A connection for the block; for reading, to an empty ledger in memory if there is no file."""
        with _ONE_AT_A_TIME, self._explained():
            if not _is_there(self.path):
                if not writing:
                    with contextlib.closing(_initialised(sqlite3.connect(":memory:", isolation_level=None))) as db:
                        yield db
                    return
                _create(self.path)
                if self.announced:
                    sys.stderr.write(
                        f"blindsight: started a new, empty ledger at {self.path}. Releases made from another "
                        "folder are in another ledger: set --ledger or BLINDSIGHT_LEDGER to use one file\n"
                    )
            self._refuse_strangers()
            with contextlib.closing(self._open_to_write() if writing else self._open_to_read()) as db:
                yield db

    def _connect(self, query: str) -> sqlite3.Connection:
        uri = f"{self.path.as_uri()}?{query}"
        db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=self.timeout_s)
        db.text_factory = _decoded
        return db

    def _refuse_strangers(self) -> None:
        """Reads the header without locks or logs, so that other programs' files stay untouched."""
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect("mode=ro&immutable=1")) as db:
            self._check_identity(db)

    def _check_identity(self, db: sqlite3.Connection) -> None:
        application, version = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if application != _APPLICATION or version < 1:
            raise self._corrupted("it is empty or belongs to another program")
        if version > _VERSION:
            raise LedgerFromTheFuture(
                f"the ledger {self.path} was written by a newer Blindsight (ledger version {version}, this one knows "
                f"{_VERSION}): nothing was read or recorded; install the newer Blindsight"
            )

    def _open_to_write(self) -> sqlite3.Connection:
        if not os.access(self.path, os.W_OK):  # SQLite would try, and leave a log that the owner cannot use
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        db = self._connect("mode=rw")
        with _closed_on_error(db):
            self._check_identity(db)
            for pragma in _DURABLE:
                db.execute(f"PRAGMA {pragma}")
            if not has_its_rules(db):
                raise LedgerTampered(
                    f"the triggers that keep the ledger {self.path} append-only were changed: nothing was "
                    "recorded; verify it and restore it from a backup"
                )
        return db

    def _open_to_read(self) -> sqlite3.Connection:
        """With write access if this user has it, because only a writer cleans up its log; otherwise read-only."""
        has_log = self.path.with_name(self.path.name + "-wal").exists()
        if not has_log and not (os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)):
            return self._connect("mode=ro&immutable=1")  # nobody is writing: a writer would have a log
        db = self._connect("mode=rw")
        with _closed_on_error(db):
            db.execute("PRAGMA query_only = ON")
            self._check_identity(db)
        return db

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        """Turns every exception of SQLite or the operating system into one that says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._explanation(_code(error), error) from error
        except UnicodeDecodeError as error:  # Python's own, when it reads SQLite's message about a damaged name
            raise self._corrupted("its schema is not text") from error
        except OSError as error:
            raise self._explanation(_SAME_AS.get(error.errno or 0), error) from error

    def _explanation(self, code: int | None, error: Exception) -> LedgerError:
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR):
            return self._corrupted(str(error))
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            why, remedy = "the disk is full or failing", "free some space and try again"
        elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            why = f"another process has locked it for more than {self.timeout_s:g} s"
            remedy = "wait until it has finished and try again"
        elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            why = "this user may not write there"
            remedy = "give it write permission on the file and its folder, or name another ledger in BLINDSIGHT_LEDGER"
        else:
            why, remedy = "the path or the file does not allow it", "name a file in a folder, on a local disk"
        return LedgerError(
            f"the ledger {self.path} could not be used because {why} ({error}): nothing was recorded, so do not use "
            f"the value; {remedy}"
        )

    def _corrupted(self, why: str) -> LedgerCorrupted:
        return LedgerCorrupted(
            f"{self.path} is not a ledger, or is damaged ({why}): it was left unchanged; restore it from a backup"
        )


# --- what is in the file


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Generator[None]:
    """One view of the file (`DEFERRED`), or the only writer (`IMMEDIATE`); an exception undoes everything."""
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def entries(db: sqlite3.Connection, where: str = "", values: tuple[str, ...] = ()) -> Iterator[Entry]:
    """The entries in order; `where` is an SQL clause with `values` for its placeholders."""
    return (Entry(*row) for row in db.execute(f"SELECT {_COLUMNS} FROM entries {where} ORDER BY number, rowid", values))


def head(db: sqlite3.Connection) -> tuple[int, str] | None:
    """The expected number of entries and the hash of the last one."""
    rows = db.execute("SELECT count, hash FROM head").fetchall()
    return rows[0] if len(rows) == 1 else None


def ends(db: sqlite3.Connection, number: int | None = None) -> list[tuple[int, str]]:
    """Number and hash of the last entry, or of entry `number` if it exists; an empty ledger ends with number 0."""
    which = "(SELECT MAX(number) FROM entries)" if number is None else "?"
    rows = db.execute(f"SELECT number, hash FROM entries WHERE number = {which}", () if number is None else (number,))
    return rows.fetchall() or ([(0, GENESIS)] if not number else [])


def insert(db: sqlite3.Connection, entry: Entry) -> None:
    """Appends the entry and moves the head to it."""
    marks = ", ".join("?" for _ in _FIELDS)
    db.execute(f"INSERT INTO entries ({_COLUMNS}) VALUES ({marks})", tuple(vars(entry).values()))
    db.execute("UPDATE head SET count = ?, hash = ?", (entry.number, entry.hash))


def has_its_rules(db: sqlite3.Connection) -> bool:
    """Whether tables, index and triggers are exactly those of `_SCHEMA`."""
    statements = {row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE name NOT GLOB 'sqlite_*'")}
    return statements == set(_SCHEMA)


def is_whole(db: sqlite3.Connection) -> bool:
    """Whether SQLite finds no damage in the file."""
    return db.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)


# --- creation


def _is_there(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        what = "folder" if stat.S_ISDIR(mode) else "device"
        raise LedgerError(f"{path} is a {what}, not a ledger: name a file, for example {path / 'ledger.db'}")
    return True


def _create(path: Path) -> None:
    """Creates an empty ledger at `path`, atomically; keeps one that another process created meanwhile."""
    missing = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-ledger-", dir=path.parent, ignore_cleanup_errors=True) as folder:
        fresh = Path(folder, path.name)
        _initialised(sqlite3.connect(fresh, isolation_level=None)).close()
        _to_disk(fresh)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    for folder in {path.parent, *(folder.parent for folder in missing)}:
        _to_disk(folder)


def _initialised(db: sqlite3.Connection) -> sqlite3.Connection:
    with _closed_on_error(db):
        for statement in (
            *(f"PRAGMA {pragma}" for pragma in _DURABLE),
            "BEGIN",
            *_SCHEMA,
            f"INSERT INTO head VALUES (1, 0, '{GENESIS}')",
            f"PRAGMA application_id = {_APPLICATION}",
            f"PRAGMA user_version = {_VERSION}",
            "COMMIT",
        ):
            db.execute(statement)
    return db


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _closed_on_error(db: sqlite3.Connection) -> Generator[None]:
    try:
        yield
    except BaseException:
        db.close()
        raise


# --- errors

_SAME_AS = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO), sqlite3.SQLITE_FULL) | dict.fromkeys(
    (errno.EACCES, errno.EPERM, errno.EROFS), sqlite3.SQLITE_READONLY
)


def _code(error: sqlite3.Error) -> int | None:
    """SQLite's primary result code; the finer ones share its lowest eight bits."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")  # damaged text must be reported, not stop the reading
