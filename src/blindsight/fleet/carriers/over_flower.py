"""Lines over Flower, for sites that already run it: slow, and with the same promises as any carrier.

A site's agent listens at a local socket; the ClientApp that the site's SuperNode starts brings it a parcel
of messages and takes one back. The coordinator connects to the socket of the ServerApp. Flower itself is in an
environment of its own and never imported here (`fleet.carriers.flower_relay`, deploy/fleet/flower).

Whoever may open these sockets can speak to a site as the coordinator, or be the coordinator: they belong to this user
and its group alone. Which site a message is from is Flower's word, by the key of the SuperNode that brought it.
"""

import contextlib
import os
import queue
import socket
import threading
import time
from pathlib import Path

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet.carriers.carrier import COORDINATOR, Delivery, check_line, check_site_name
from blindsight.fleet.carriers.flower_relay import listening, pack, read_frame, unpack, write_frame

__all__ = ["CoordinatorOverFlower", "SiteOverFlower"]

_HOLD_S = 3.0  # each of Flower's visits costs a process, so it waits for something to take back
_KEPT_S = 60.0  # messages that nobody has fetched by then are lost
_AGAIN_S = 1.0
_LONGEST_PATH = 100  # of a local socket, in bytes


class SiteOverFlower:
    """A site's end: Flower's visits bring what the coordinator says and fetch what the site has to say."""

    def __init__(self, name: str, path: Path) -> None:
        check_site_name(name)
        self._name, self._path = name, _checked(path)
        self._inbox: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        self._closing, self._failed = threading.Event(), list[OSError]()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name=f"flower {name}", daemon=True)
        self._thread.start()
        ready.wait()
        if self._failed:
            raise BlindsightError(f"cannot listen at {path} ({self._failed[0].strerror}): choose another socket")

    @property
    def name(self) -> str:
        """The party at this end."""
        return self._name

    def send(self, receiver: str, data: bytes) -> None:
        """As `Carrier.send`."""
        check_line(self._name, receiver, len(data))
        if self._closing.is_set():
            raise InvalidInput("this end of the line is closed: connect again")
        self._drop_what_nobody_fetched()
        self._outbox.put((time.monotonic(), bytes(data)))

    def receive(self, timeout_s: float) -> Delivery | None:
        """As `Carrier.receive`."""
        with contextlib.suppress(queue.Empty):
            return self._inbox.get(timeout=timeout_s)
        return None

    def close(self) -> None:
        """As `Carrier.close`."""
        self._closing.set()
        self._thread.join()

    def _serve(self, ready: threading.Event) -> None:
        try:
            with listening(self._path) as listener:
                ready.set()
                while not self._closing.is_set():
                    with contextlib.suppress(OSError):  # no visit, or one that broke off: its parcel is lost
                        line, _ = listener.accept()
                        with line:
                            line.settimeout(_KEPT_S)
                            self._visited(line)
        except OSError as error:
            self._failed.append(error)
            ready.set()

    def _visited(self, line: socket.socket) -> None:
        frame = read_frame(line.makefile("rb"))
        if frame is None:
            return
        for data in unpack(frame[1]):
            self._inbox.put(Delivery(COORDINATOR, data))
        write_frame(line, "", pack(self._outgoing()))

    def _outgoing(self) -> list[bytes]:
        """The messages to send now; waits briefly for one."""
        self._drop_what_nobody_fetched()
        messages = list[bytes]()
        end = time.monotonic() + _HOLD_S
        while not self._closing.is_set():
            with contextlib.suppress(queue.Empty):
                messages.append(self._outbox.get(timeout=0.05)[1])
                continue
            if messages or time.monotonic() > end:
                break
        return messages

    def _drop_what_nobody_fetched(self) -> None:
        kept = list[tuple[float, bytes]]()
        with contextlib.suppress(queue.Empty):
            while True:
                kept.append(self._outbox.get_nowait())
        for one in kept:
            if time.monotonic() - one[0] < _KEPT_S:
                self._outbox.put(one)


class CoordinatorOverFlower:
    """The coordinator's end, connected to the ServerApp's socket, again and again if need be."""

    def __init__(self, path: Path) -> None:
        self._path = _checked(path)
        self._inbox: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._flushed: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._closing, self._lock = threading.Event(), threading.Lock()
        try:
            self._line = self._connected()
        except OSError as error:
            raise BlindsightError(
                f"nothing answers at {path} ({error.strerror}): start Flower's run of deploy/fleet/flower, which "
                f"listens there"
            ) from error
        self._thread = threading.Thread(target=self._listen, name="flower coordinator", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The party at this end."""
        return COORDINATOR

    def send(self, receiver: str, data: bytes) -> None:
        """As `Carrier.send`; without a connection, the message is lost."""
        check_line(COORDINATOR, receiver, len(data))
        if self._closing.is_set():
            raise InvalidInput("this end of the line is closed: connect again")
        self._write(receiver, data)

    def receive(self, timeout_s: float) -> Delivery | None:
        """As `Carrier.receive`."""
        with contextlib.suppress(queue.Empty):
            return self._inbox.get(timeout=timeout_s)
        return None

    def flush(self, timeout_s: float) -> bool:
        """Wait until every message was delivered to its site or failed; returns whether that happened in time."""
        mark = os.urandom(8)
        self._write("", mark)
        with contextlib.suppress(queue.Empty):
            while self._flushed.get(timeout=timeout_s) != mark:
                pass
            return True
        return False

    def close(self) -> None:
        """As `Carrier.close`."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._line.close()

    def _write(self, receiver: str, data: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):
            write_frame(self._line, receiver, data)

    def _listen(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(OSError), self._line.makefile("rb") as stream:
                while (frame := read_frame(stream)) is not None:
                    site, data = frame
                    if site == "":
                        self._flushed.put(data)
                    else:
                        self._inbox.put(Delivery(site, data))
            if not self._closing.wait(_AGAIN_S):
                self._reconnect()

    def _reconnect(self) -> None:
        with contextlib.suppress(OSError):
            line = self._connected()
            with self._lock:
                self._line.close()
                self._line = line
            if self._closing.is_set():  # closed meanwhile
                line.shutdown(socket.SHUT_RDWR)

    def _connected(self) -> socket.socket:
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(str(self._path))
        except OSError:
            line.close()
            raise
        return line


def _checked(path: Path) -> Path:
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise InvalidInput(f"the path of a socket has at most {_LONGEST_PATH} bytes, got {path}: choose a shorter one")
    return path
