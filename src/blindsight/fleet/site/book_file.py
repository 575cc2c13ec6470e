"""The SQLite file of a site's book: created by the first question, and only ever added to."""

import contextlib
import dataclasses
import datetime
import json
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blindsight.accounting.events import Relation, Unit, from_json
from blindsight.fleet.codes import Code, Declined, code_of_failure
from blindsight.fleet.site.policy import Asked, Ruling, Standing

if TYPE_CHECKING:  # it takes seconds to load
    from blindsight.accounting.composition import Share

__all__ = ["BookFile", "JobRecord", "jobs_like", "last_ruling", "record_of", "shares_of"]

_VERSION = 1
_SCHEMA = (
    "CREATE TABLE jobs (job TEXT PRIMARY KEY, asked TEXT NOT NULL) STRICT",
    "CREATE TABLE rulings (number INTEGER PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs, state TEXT NOT NULL, "
    "code TEXT NOT NULL, sentence TEXT NOT NULL, officer TEXT NOT NULL, time TEXT NOT NULL) STRICT",
    "CREATE TABLE payments (number INTEGER PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs, event TEXT NOT NULL, "
    "unit TEXT NOT NULL, relation TEXT NOT NULL, split TEXT NOT NULL, arm TEXT NOT NULL, note TEXT NOT NULL, "
    "entry TEXT NOT NULL, time TEXT NOT NULL) STRICT",
    "CREATE INDEX rulings_of ON rulings (job, number)",
    "CREATE INDEX payments_of ON payments (job, event, unit, relation, split, arm)",
    "CREATE TABLE spent (name TEXT PRIMARY KEY, epsilon REAL NOT NULL) STRICT",  # as the ledger said last, to show
    *(
        f"CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, 'the book only grows'); END"
        for table in ("jobs", "rulings", "payments")
        for verb in ("update", "delete")
    ),
)


@dataclasses.dataclass(frozen=True)
class JobRecord:
    """A question with its state, who decided and when, and how often it was paid for."""

    asked: Asked
    ruling: Ruling
    officer: str  # empty if it was the policy
    time: datetime.datetime
    by_hand: Standing | None  # what an officer said last
    payments: int

    @property
    def waits(self) -> bool:
        """Whether an officer has to decide."""
        return self.ruling.state is Standing.PENDING and self.by_hand is None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        ruling = {"state": self.ruling.state.value, "code": self.ruling.code, "sentence": self.ruling.sentence}
        decided = {"officer": self.officer, "decided_at": self.time.isoformat(), "payments": self.payments}
        return {"asked": self.asked.to_dict(), **ruling, **decided}


@dataclasses.dataclass(frozen=True)
class BookFile:
    """Connections to the file at `path`, with a sentence for every failure; none outlives its block."""

    path: Path
    timeout_s: float

    @contextlib.contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """The only writer until the block ends: all of it is on the disk then, or none if it raises."""
        with self._explained():
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.closing(self._connected()) as db:
                db.execute("BEGIN IMMEDIATE")
                if _is_new(db):
                    for statement in (*_SCHEMA, f"PRAGMA user_version = {_VERSION}"):
                        db.execute(statement)
                yield db  # closing without COMMIT undoes everything
                db.execute("COMMIT")

    @contextlib.contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """One view of the file until the block ends; of an empty book if there is none."""
        with self._explained():
            if self.path.exists():
                with contextlib.closing(self._connected()) as db:
                    db.execute("BEGIN")
                    if not _is_new(db):  # else a process died while it created the file
                        yield db
                        return
            with contextlib.closing(sqlite3.connect(":memory:")) as db:
                for statement in _SCHEMA:
                    db.execute(statement)
                yield db

    def _connected(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=self.timeout_s, isolation_level=None)
        with contextlib.ExitStack() as unless_fine:
            unless_fine.callback(db.close)
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
                db.execute(f"PRAGMA {pragma}")
            if db.execute("PRAGMA user_version").fetchone()[0] > _VERSION:
                raise Declined(Code.io_error, f"{self.path} was written by a newer Blindsight: install that one")
            unless_fine.pop_all()
        return db

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise Declined(
                code_of_failure(error, self.path.parent),
                f"the book {self.path} could not be used ({error}), so nothing was decided or paid: check its "
                "permissions and free some space",
            ) from error


def _is_new(db: sqlite3.Connection) -> bool:
    return db.execute("PRAGMA user_version").fetchone()[0] == 0


def jobs_like(db: sqlite3.Connection, start: str) -> list[str]:
    """Digests with this beginning, in the order of arrival."""
    return [
        row[0]
        for row in db.execute("SELECT job FROM jobs WHERE substr(job, 1, ?) = ? ORDER BY rowid", (len(start), start))
    ]


def last_ruling(
    db: sqlite3.Connection, job: str, *, by_hand: bool = False
) -> tuple[Ruling, str, datetime.datetime] | None:
    """The newest ruling, of anybody or of an officer; who gave it, empty for the policy; and when."""
    where = "job = ? AND officer <> ''" if by_hand else "job = ?"
    query = f"SELECT state, code, sentence, officer, time FROM rulings WHERE {where} ORDER BY number DESC LIMIT 1"
    row = db.execute(query, (job,)).fetchone()
    if row is None:
        return None
    state, code, sentence, officer, time = row
    ruling = Ruling(Standing(state), Code(code) if code else None, sentence)
    return ruling, officer, datetime.datetime.fromisoformat(time)


def record_of(db: sqlite3.Connection, job: str) -> JobRecord:
    """The question with this digest."""
    asked = Asked.from_dict(json.loads(db.execute("SELECT asked FROM jobs WHERE job = ?", (job,)).fetchone()[0]))
    waits = Ruling(Standing.PENDING, Code.pending, "nobody has decided about it")
    ruling, officer, time = last_ruling(db, job) or (waits, "", asked.received_at)
    payments = db.execute("SELECT count(*) FROM payments WHERE job = ?", (job,)).fetchone()[0]
    by_hand = last_ruling(db, job, by_hand=True)
    return JobRecord(asked, ruling, officer, time, by_hand and by_hand[0].state, payments)


def shares_of(db: sqlite3.Connection, job: str) -> "list[Share]":
    """What was paid for the question, equal payments together."""
    from blindsight.accounting.composition import Share

    columns = "event, unit, relation, split, arm"
    query = f"SELECT {columns}, count(*) FROM payments WHERE job = ? GROUP BY {columns}"
    return [
        Share(from_json(event), Unit(unit), Relation(relation), split, arm, times)
        for event, unit, relation, split, arm, times in db.execute(query, (job,))
    ]
