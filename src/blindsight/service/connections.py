"""Connections: how many there may be, and how long each may be silent, slow or deaf.

uvicorn parses requests but limits neither their head nor a client's silence. A connection here is closed if its first
byte, the rest of its head, or the reading of its response takes too long, and refused if its head is too large. If the
listener is full, the oldest connection that has never made a request makes room for a new one, then the oldest that is
between two requests: thousands of silent sockets cost nobody else a request. Bodies are limited where they are read
(`app`), because only there is their length known. Requests that come before earlier ones are answered wait in a queue
of uvicorn's that has no end, so a connection that sends more than a few of them is closed.

All deadlines share one timer (`Listener.sweep`): a timer per request would cost as much as a draw.
"""

# uvicorn declares fields that a connection gets only later, such as its first request, as always present
# pyright: reportUnnecessaryComparison=false

import asyncio
import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from blindsight.service.settings import Settings

__all__ = ["Connection", "ConnectionLimits", "Listener", "limits_of"]

_MOST_HEADERS = 100
_LOOKED_AT = 32  # busy connections passed over in search of one that can make room
_MOST_REFUSED = 512  # refused connections that may linger to read their answer
_LINGER_S = 2.0
_MOST_PIPELINED = 8  # requests of one connection behind the one in progress

_CAUSES: tuple[str, ...] = (
    "late_first_byte",
    "late_header",
    "late_body",
    "late_write",
    "large_head",
    "pipelined",
    "full",
    "crowded_out",
)
_parse = HttpToolsProtocol.data_received
_FULL = "the service has no free connection: try again"
_LARGE = "the request's head is too large"


@dataclasses.dataclass(frozen=True)
class ConnectionLimits:
    """Limits of a listener's connections."""

    connections: int
    first_byte_s: float
    header_s: float
    header_bytes: int
    body_s: float
    write_s: float


def limits_of(settings: Settings) -> ConnectionLimits:
    """The limits in the settings."""
    return ConnectionLimits(
        **{field.name: getattr(settings, field.name) for field in dataclasses.fields(ConnectionLimits)}
    )


class Listener:
    """The connections of one listening socket, oldest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.strangers: dict[Connection, None] = {}
        """Connections that have not made a request yet."""
        self.known: dict[Connection, None] = {}
        self.refused: dict[Connection, float] = {}
        self.accepted = 0
        self.closed: Counter[str] = Counter(dict.fromkeys(_CAUSES, 0))
        """Connections closed by this service, by cause."""

    @property
    def open(self) -> int:
        """The number of connections, refused ones excluded."""
        return len(self.strangers) + len(self.known)

    def enter(self, connection: "Connection") -> None:
        """Admit a connection, at the expense of an idle one if the listener is full."""
        if self.open < self.limits.connections or self._make_room():
            self.accepted += 1
            self.strangers[connection] = None
        else:
            self.refuse(connection, 503, "full", _FULL)

    def leave(self, connection: "Connection") -> None:
        """Forget a connection."""
        self.strangers.pop(connection, None)
        self.known.pop(connection, None)
        self.refused.pop(connection, None)

    def recognise(self, connection: "Connection") -> None:
        """A connection has made its first request."""
        if self.strangers.pop(connection, self) is None:
            self.known[connection] = None

    def refuse(self, connection: "Connection", status: int, cause: str, sentence: str) -> None:
        """Answer without reading further. The client may read the answer until the next sweeps."""
        self.closed[cause] += 1
        self.leave(connection)
        if len(self.refused) < _MOST_REFUSED:
            self.refused[connection] = asyncio.get_running_loop().time()
            connection.answer(status, cause, sentence)
        else:
            connection.transport.abort()

    def sweep(self, now: float) -> None:
        """Close connections that have been silent, slow or deaf for too long."""
        for connection in [*self.strangers, *self.known]:
            cause = connection.overdue(now)
            if cause is not None:
                self.close(connection, cause)
        for connection, since in list(self.refused.items()):
            if now - since > _LINGER_S:
                connection.transport.abort()

    def close(self, connection: "Connection", cause: str) -> None:
        """Close a connection at once, whatever is still to be written."""
        self.closed[cause] += 1
        self.leave(connection)
        connection.transport.abort()

    def _make_room(self) -> bool:
        if self.strangers:
            self.close(next(iter(self.strangers)), "crowded_out")
            return True
        for _ in range(min(_LOOKED_AT, len(self.known))):
            oldest = next(iter(self.known))
            if oldest.idle:
                self.close(oldest, "crowded_out")
                return True
            self.known[oldest] = self.known.pop(oldest)
        return False


class Connection(HttpToolsProtocol):
    """One connection, of the listener in `listeners` with its port."""

    def __init__(
        self,
        listeners: dict[int, Listener],
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._listeners = listeners
        self.listener: Listener = next(iter(listeners.values()))
        self._most = 0  # bytes of a head
        self._head = 0  # bytes of the next request's head so far
        self._state: tuple[object, str] = (None, "")
        self._since = 0.0
        self._is_refused = False
        self.pipeline = _Pipeline(self._on_too_many)

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Count the connection, or refuse it."""
        super().connection_made(transport)
        port = self.server[1] if self.server else None
        self.listener = self._listeners.get(port or 0, self.listener)
        self._since = self.loop.time()
        self._most = self.listener.limits.header_bytes
        self.listener.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.listener.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes | memoryview) -> None:
        """Parse what came, and limit the part of it that is a request's head."""
        before = self.cycle
        is_body = before is not None and before.more_body
        if is_body and before.response_complete and _is_chunked(before.scope["headers"]):
            self.listener.close(self, "late_body")  # it says no length, and fields may follow it without an end
            return
        if len(data) > self._most and not is_body:
            self._in_pieces(data)
        elif not self._is_refused:
            _parse(self, data)  # pyright: ignore[reportArgumentType]
            if self.cycle is before:
                if not is_body:
                    self._add_to_head(len(data))
            else:
                self._head = 0
                if before is None:
                    self.listener.recognise(self)

    def _in_pieces(self, data: bytes | memoryview) -> None:
        """Parse in pieces, so that no head can be large because it came at once."""
        while data and not self._is_refused and self.parser is not None:
            is_body = self.cycle is not None and self.cycle.more_body
            size = len(data) if is_body else self._most
            self.data_received(memoryview(data)[:size])
            data = memoryview(data)[size:]

    def _on_too_many(self) -> None:
        """uvicorn answers 400 and closes, because its parser fails."""
        self._is_refused = True
        self.listener.closed["pipelined"] += 1

    def _add_to_head(self, size: int) -> None:
        self._head += size
        if self._head > self._most or len(self.headers or ()) > _MOST_HEADERS:
            self.listener.refuse(self, 431, "large_head", _LARGE)

    @property
    def idle(self) -> bool:
        """Whether no request is in progress and everything is written."""
        return self._phase() in ("idle", "first_byte", "header")

    def overdue(self, now: float) -> str | None:
        """The cause for which it should be closed, if any."""
        phase = self._phase()
        state = self.cycle, phase
        if state != self._state:
            self._since = now if phase != "first_byte" else self._since  # counted from when it was made
            self._state = state
        limits = self.listener.limits
        allowed = {
            "first_byte": limits.first_byte_s,
            "header": limits.header_s,
            "body": limits.body_s,
            "write": limits.write_s,
        }.get(phase)
        return f"late_{phase}" if allowed is not None and now - self._since > allowed else None

    def _phase(self) -> str:
        """What the connection waits for; `work` is up to this service."""
        cycle = self.cycle
        if self.transport.get_write_buffer_size():
            return "write"
        if cycle is None or (cycle.response_complete and not cycle.more_body):
            if self._head:
                return "header"
            return "first_byte" if cycle is None else "idle"  # uvicorn closes idle ones after five seconds
        return "body" if cycle.response_complete else "work"

    def answer(self, status: int, cause: str, sentence: str) -> None:
        """Answer from here, without the application, and read nothing more."""
        self._is_refused = True
        body = f'{{"error": "{sentence}", "cause": "{cause}"}}'.encode()
        later = b"retry-after: 1\r\n" if status == 503 else b""
        reason = {431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}[status]
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (status, reason, later, len(body), body)
        )
        if self.transport.can_write_eof():  # closing now would reset the connection before the answer is read
            self.transport.write_eof()
        else:
            self.transport.close()


class _Pipeline(deque[Any]):
    """uvicorn's queue of requests behind the one in progress, with an end."""

    def __init__(self, on_too_many: Callable[[], None]) -> None:
        super().__init__()
        self._on_too_many = on_too_many

    def appendleft(self, x: Any, /) -> None:
        """One more request, unless there are too many: the exception ends the parser."""
        if len(self) >= _MOST_PIPELINED:
            self._on_too_many()
            raise OverflowError("too many requests at once")
        super().appendleft(x)


def _is_chunked(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name == b"transfer-encoding" for name, _ in headers)
