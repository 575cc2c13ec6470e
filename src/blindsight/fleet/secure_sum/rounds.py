"""Which rounds a site has taken part in: each only once, whatever the coordinator asks and after any restart."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Protocol

from blindsight.errors import BlindsightError
from blindsight.fleet.secure_sum.refusals import Reason, Refused

__all__ = ["RoundBook", "Rounds"]


class Rounds(Protocol):
    """A durable record of the rounds that a site has begun."""

    def claim(self, run: str, round: int) -> None:
        """Record the round on disk, or refuse it if it was recorded before."""
        ...


class RoundBook:
    """The record as an SQLite file of the site's own; safe if several processes use it, and after a crash."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def claim(self, run: str, round: int) -> None:
        """Record the round on disk, or refuse it if it was recorded before."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=30)) as book, book:
                book.execute("PRAGMA synchronous = FULL")
                book.execute("CREATE TABLE IF NOT EXISTS rounds (run TEXT, round INTEGER, PRIMARY KEY (run, round))")
                book.execute("INSERT INTO rounds VALUES (?, ?)", (run, round))
        except sqlite3.IntegrityError as error:
            raise Refused(
                Reason.REPLAYED_ROUND,
                f"this site has already taken part in round {round} of run {run!r}: a second sum of the same data "
                f"would be a second release; begin a new round",
            ) from error
        except sqlite3.Error as error:
            raise BlindsightError(f"I/O error on {self._path} ({error}): check path, permissions and space") from error
