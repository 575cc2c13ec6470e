"""Parties in their own processes: started, asked in parallel, awaited; they may die.

Each process is spawned, so it shares no memory with the others. It receives its `VotingParty`, opens its own data, and
answers requests over one pipe with the bytes of `wire`. `Here` does the same without a process, for simulations.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from blindsight.algorithms.parties import wire
from blindsight.algorithms.parties.party import PartyFailed, PartySession, VotingParty
from blindsight.errors import InvalidInput

__all__ = ["Here", "Process", "Reached", "Reply"]


@dataclasses.dataclass(frozen=True, eq=False)
class Reply:
    """A party's answer."""

    header: dict[str, Any]
    array: np.ndarray | None


class Reached(Protocol):
    """A party that can be asked, wherever it runs."""

    def ask(self, header: dict[str, Any], array: np.ndarray | None = None) -> None:
        """Send a request and do not wait."""
        ...

    def reply(self, until: float) -> Reply:
        """The answer to the request, or `PartyFailed` with the reason. `until` is a time of `time.monotonic`."""
        ...

    def close(self) -> None:
        """End the party's work; its data and ledger stay where they are."""
        ...


class Process:
    """The party in its own process."""

    def __init__(self, party: VotingParty) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_serve, args=(party, far), name=f"party {party.name}", daemon=True)
        try:
            self._process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise PartyFailed(
                f"it cannot be sent to its own process ({type(error).__name__}): its functions and classes must "
                f"be importable by name, or pass processes=False"
            ) from error
        self._sender: threading.Thread | None = None
        far.close()  # otherwise the end of the process would go unnoticed

    @property
    def pid(self) -> int | None:
        """The id of the process."""
        return self._process.pid

    def ask(self, header: dict[str, Any], array: np.ndarray | None = None) -> None:
        """Send a request; a process that has died or hangs is detected when its answer is awaited."""
        message = wire.encode(header, array)
        self._sender = threading.Thread(target=self._send, args=(message,), daemon=True)
        self._sender.start()

    def reply(self, until: float) -> Reply:
        """The answer; a process that does not answer in time is killed."""
        try:
            if not self._pipe.poll(max(0.0, until - time.monotonic())):
                self.close()
                raise PartyFailed("it did not answer in time and was killed")
            message = self._pipe.recv_bytes(wire.MOST_BYTES)
        except (EOFError, OSError):
            self._process.join(5)
            raise PartyFailed(f"its process ended (exit code {self._process.exitcode})") from None
        return _read(message)

    def close(self) -> None:
        """Kill the process; its ledger is intact at any time."""
        self._process.kill()
        self._process.join()
        if self._sender is not None:
            self._sender.join(5)  # the pipe has no reader left, so it ends
        self._pipe.close()

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(message)


class Here:
    """The party in this process: for simulations, which then have access to its data."""

    def __init__(self, party: VotingParty) -> None:
        self._session: PartySession | PartyFailed = _opened(party)
        self._message = b""

    def ask(self, header: dict[str, Any], array: np.ndarray | None = None) -> None:
        """Answer at once."""
        self._message = _answered(self._session, wire.encode(header, array))

    def reply(self, until: float) -> Reply:
        """The answer."""
        del until
        return _read(self._message)

    def close(self) -> None:
        """Nothing is open."""


def _serve(party: VotingParty, pipe: Connection) -> None:
    """Main loop of a party's process; it ends when the pipe closes."""
    _keep_to_itself(party)
    session = _opened(party)
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pipe.send_bytes(_answered(session, pipe.recv_bytes(wire.MOST_BYTES)))


def _keep_to_itself(party: VotingParty) -> None:
    """Redirect output to a log beside the ledger, because it may contain the party's data."""
    path = party.ledger_path.with_suffix(".log")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def _opened(party: VotingParty) -> PartySession | PartyFailed:
    try:
        return PartySession(party)
    except PartyFailed as error:
        return error
    except Exception as error:  # its message may contain the party's data, so it stays here
        traceback.print_exc()
        return PartyFailed(f"its data could not be opened ({type(error).__name__}); the reason is in its own log")


def _answered(session: PartySession | PartyFailed, request: bytes) -> bytes:
    if isinstance(session, PartyFailed):
        return wire.encode({"error": str(session)})
    return wire.answer(session, request)


def _read(message: bytes) -> Reply:
    try:
        header, array = wire.decode(message)
    except InvalidInput as error:
        raise PartyFailed(str(error)) from None
    if "error" in header:
        raise PartyFailed(str(header["error"])[:500])
    return Reply(header, array)
