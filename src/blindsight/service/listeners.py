"""Listeners: how many connections there may be, and which are closed.

If a listener is full, the oldest connection that has never made a request makes room for a new one, then the oldest
that is between two requests: thousands of silent sockets cost nobody else a request. What a connection may take is
measured by itself (`connections`); all deadlines share one timer (`Listener.sweep`), because a timer per request would
cost as much as a draw.
"""

import asyncio
import dataclasses
from collections import Counter
from typing import Protocol

from blindsight.service.settings import Settings

__all__ = ["ConnectionLimits", "Listener", "Overseen", "limits_of"]

_LOOKED_AT = 32  # busy connections passed over in search of one that can make room
_MOST_REFUSED = 512  # refused connections that may linger to read their answer
_LINGER_S = 2.0
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
_FULL = "the service has no free connection: try again"


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


class Overseen(Protocol):
    """A connection as its listener sees it (`connections`)."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    @property
    def idle(self) -> bool:
        """Whether no request is in progress and everything is written."""
        ...

    def overdue(self, now: float) -> str | None:
        """The cause for which it should be closed, if any; `idle` if it has only been silent between two requests."""
        ...

    def answer(self, status: int, cause: str, sentence: str) -> None:
        """Answer without the application, and read nothing more."""
        ...


class Listener:
    """The connections of one listening socket, oldest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.strangers: dict[Overseen, None] = {}
        """Connections that have not made a request yet."""
        self.known: dict[Overseen, None] = {}
        self.refused: dict[Overseen, float] = {}
        self.accepted = 0
        self.closed: Counter[str] = Counter(dict.fromkeys(_CAUSES, 0))
        """Connections closed by this service, by cause."""

    @property
    def open(self) -> int:
        """The number of connections, refused ones excluded."""
        return len(self.strangers) + len(self.known)

    def enter(self, connection: Overseen) -> None:
        """Admit a connection, at the expense of an idle one if the listener is full."""
        if self.open < self.limits.connections or self._make_room():
            self.accepted += 1
            self.strangers[connection] = None
        else:
            self.refuse(connection, 503, "full", _FULL)

    def leave(self, connection: Overseen) -> None:
        """Forget a connection."""
        self.strangers.pop(connection, None)
        self.known.pop(connection, None)
        self.refused.pop(connection, None)

    def recognise(self, connection: Overseen) -> None:
        """A connection has made its first request."""
        if self.strangers.pop(connection, self) is None:
            self.known[connection] = None

    def refuse(self, connection: Overseen, status: int, cause: str, sentence: str) -> None:
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
            if cause == "idle":
                connection.transport.close()
            elif cause is not None:
                self.close(connection, cause)
        for connection, since in list(self.refused.items()):
            if now - since > _LINGER_S:
                connection.transport.abort()

    def close(self, connection: Overseen, cause: str) -> None:
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
