"""What Flower carries: parcels of messages, between a socket of the coordinator's machine and one of each site's.

Flower's processes call this, in their own environment (deploy/fleet/flower): the ServerApp runs `relay`, and
a ClientApp calls `hand_over` once for each message of Flower's. Nothing but the standard library is imported here, and
a parcel is never opened on its way: what is in it is signed and masked by those who sent it.

A coordinator connected to the relay's socket exchanges messages with every site, as on a NATS server. While no
coordinator is connected, no site is visited and messages from sites are lost.
"""

import collections
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

__all__ = ["Courier", "hand_over", "listening", "pack", "read_frame", "relay", "unpack", "write_frame"]

_FRAME = struct.Struct("<HQ")  # length of a name, length of the data
_LENGTH = struct.Struct("<Q")
_LARGEST = 1 << 31
_ANSWER_S = 60.0  # for a site's agent to take a parcel


class Courier(Protocol):
    """Takes parcels to sites: one at a time to each, and brings back one for each."""

    def take(self, site: str, parcel: bytes) -> None:
        """Send a parcel on its way to a site."""
        ...

    def back(self) -> Mapping[str, bytes]:
        """The parcels returned since the last call; empty if a site was not reached."""
        ...


def pack(messages: Sequence[bytes]) -> bytes:
    """Messages as one parcel.

    >>> unpack(pack([b"one", b""]))
    [b'one', b'']
    """
    return b"".join(part for data in messages for part in (_LENGTH.pack(len(data)), data))


def unpack(parcel: bytes) -> list[bytes]:
    """The messages in a parcel; none if it is damaged."""
    messages, place = list[bytes](), 0
    while place < len(parcel):
        if place + _LENGTH.size > len(parcel):
            return []
        (length,) = _LENGTH.unpack_from(parcel, place)
        place += _LENGTH.size
        if length > len(parcel) - place:
            return []
        messages.append(parcel[place : place + length])
        place += length
    return messages


def write_frame(line: socket.socket, name: str, data: bytes) -> None:
    """Write a name and bytes to a local socket."""
    line.sendall(_FRAME.pack(len(name.encode()), len(data)) + name.encode())
    line.sendall(data)


def read_frame(stream: BinaryIO) -> tuple[str, bytes] | None:
    """The next name and bytes of a local socket; None at its end, or if they are not what `write_frame` writes."""
    head = stream.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    name_length, length = _FRAME.unpack(head)
    if length > _LARGEST:
        return None
    name, data = stream.read(name_length), stream.read(length)
    return None if len(data) < length else (name.decode(errors="replace"), data)


@contextlib.contextmanager
def listening(path: Path) -> Generator[socket.socket]:
    """A local socket for this user and its group, in place of one that was left behind."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        os.chmod(path, 0o660)
        listener.listen()
        listener.settimeout(0.2)  # closing a socket does not wake a thread that waits on it
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def hand_over(path: str | Path, parcel: bytes) -> bytes:
    """Give a parcel to the agent that listens at `path` and return its reply; nothing if no agent is there."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_ANSWER_S)
        line.connect(str(path))
        write_frame(line, "", parcel)
        answer = read_frame(line.makefile("rb"))
        return b"" if answer is None else answer[1]
    return b""


def relay(
    path: Path, sites: Sequence[str], courier: Courier, *, is_over: Callable[[], bool], pause_s: float = 0.1
) -> None:
    """Carry messages between the coordinators at a local socket and the sites, until stopped."""
    desk = _Desk(sites)
    with listening(path) as listener:
        thread = threading.Thread(target=desk.admit, args=(listener, is_over), daemon=True)
        thread.start()
        while not is_over():
            for site, parcel in courier.back().items():
                desk.returned(site, unpack(parcel))
            for site in desk.to_visit():
                courier.take(site, pack(desk.collected(site)))
            time.sleep(pause_s)
        thread.join()
        desk.dismiss()


class _Desk:
    """The coordinators that are connected, and what they have for sites."""

    def __init__(self, sites: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._lines = list[socket.socket]()
        self._waiting = {site: list[bytes]() for site in sites}
        self._taken, self._returned = collections.Counter[str](), collections.Counter[str]()
        self._flushes = list[tuple[socket.socket, bytes, dict[str, int]]]()

    def admit(self, listener: socket.socket, is_over: Callable[[], bool]) -> None:
        """Accept coordinators until stopped."""
        while not is_over():
            with contextlib.suppress(TimeoutError):
                line, _ = listener.accept()
                line.settimeout(None)
                with self._lock:
                    self._lines.append(line)
                threading.Thread(target=self._hear, args=(line,), daemon=True).start()

    def dismiss(self) -> None:
        """Hang up on everybody."""
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def to_visit(self) -> list[str]:
        """The sites without a parcel in transit; none while no coordinator is connected."""
        with self._lock:
            if not self._lines:
                for messages in self._waiting.values():
                    messages.clear()
                return []
            return [site for site in self._waiting if self._taken[site] == self._returned[site]]

    def collected(self, site: str) -> list[bytes]:
        """The messages to send to this site now."""
        with self._lock:
            self._taken[site] += 1
            messages, self._waiting[site] = self._waiting[site], []
        return messages

    def returned(self, site: str, messages: Sequence[bytes]) -> None:
        """A parcel came back from a site."""
        with self._lock:
            self._returned[site] = self._taken[site]  # one is on its way at a time; an earlier relay's counts as none
            lines = list(self._lines)
        for line in lines:
            for data in messages:
                self._say(line, site, data)
        self._answer_flushes()

    def _hear(self, line: socket.socket) -> None:
        with line, line.makefile("rb") as stream, contextlib.suppress(OSError):
            while (frame := read_frame(stream)) is not None:
                site, data = frame
                with self._lock:
                    if site in self._waiting:
                        self._waiting[site].append(data)
                    elif site == "":  # asks to be told when everything it sent has reached the sites
                        self._flushes.append((line, data, self._visits_left()))
                self._answer_flushes()
        with self._lock:
            self._lines = [one for one in self._lines if one is not line]
            self._flushes = [one for one in self._flushes if one[0] is not line]

    def _visits_left(self) -> dict[str, int]:
        return {site: self._taken[site] + bool(messages) for site, messages in self._waiting.items()}

    def _answer_flushes(self) -> None:
        def is_done(visits: Mapping[str, int]) -> bool:
            return all(self._returned[site] >= count for site, count in visits.items())

        with self._lock:
            done = [one for one in self._flushes if is_done(one[2])]
            self._flushes = [one for one in self._flushes if not is_done(one[2])]
        for line, data, _ in done:
            self._say(line, "", data)

    def _say(self, line: socket.socket, site: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            write_frame(line, site, data)
