"""Why a site does not answer: a fixed code for the coordinator, one sentence for the site's own log.

A code never depends on a value of a client. The sentence may name files and columns, so it stays at the site.
"""

import enum
import errno
import sqlite3
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from blindsight.errors import BlindsightError

__all__ = ["Code", "Declined", "code_of_failure", "code_said"]


class Code(enum.StrEnum):
    """What a site may say instead of answering; `meaning` is for people at the coordinator."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        """A code with its meaning."""
        code = str.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code

    not_approved = "not_approved", "The site's officer denied the question."
    pending = "pending", "The site has not decided yet, or it is outside the hours in which it answers."
    policy = "policy", "The site's policy does not allow a question like this one, or from this asker."
    budget = "budget", "The question costs more than the site, this asker or the question itself may still spend."
    version = "version", "The site has a version of Blindsight that does not speak the protocol of the question."
    task = "task", "The site's policy does not allow this task."
    too_few_clients = "too_few_clients", "The site declares fewer clients than its policy asks for."
    wrong_columns = "wrong_columns", "The site's data lack a column that the question needs, or it has another type."
    other_classes = "other_classes", "The site's data have other classes than the question names."
    no_data = "no_data", "The site's data are not where its settings say, or they have no clients."
    io_error = "io_error", "The site could not read or write one of its files."
    disk_full = "disk_full", "The site's disk is full, and nothing is answered that cannot be recorded."
    clock = "clock", "The clocks of the site and the coordinator differ too much."
    revoked = "revoked", "The certificate of the site or of the coordinator was revoked or has expired."
    not_supported = "not_supported", "The site's installation lacks something that the question needs."
    too_large = "too_large", "The question or its model is larger than the site accepts."
    malformed = "malformed", "The site could not read the message."
    busy = "busy", "The site is working on another question."
    restarted = "restarted", "The site was restarted, and its secrets of the sum are gone."


class Declined(BlindsightError):
    """A site does not answer: `code` crosses the network, the sentence goes into the site's log."""

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def code_said(head: Mapping[str, Any]) -> Code:
    """The code in a site's message; any other word is discarded, so that none can come from data."""
    said = head.get("code")
    return Code(said) if isinstance(said, str) and said in set(Code) else Code.malformed


def code_of_failure(error: BaseException, folder: Path | None = None) -> Code:
    """`disk_full`, `busy` or `io_error`: the cause of a failure to write in a folder, however it was wrapped."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _FULL:
            return Code.disk_full
        if isinstance(cause, sqlite3.Error):
            code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                return Code.busy
            if code == sqlite3.SQLITE_FULL or (code in _UNSURE and folder is not None and _is_full(folder)):
                return Code.disk_full
        cause = cause.__cause__
    return Code.io_error


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_UNSURE = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
_SOME = 1 << 16


def _is_full(folder: Path) -> bool:
    """Whether a small file does not fit: SQLite does not always say why it could not write."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(_SOME))
            return file.tell() < _SOME
    except OSError as error:
        return error.errno in _FULL
