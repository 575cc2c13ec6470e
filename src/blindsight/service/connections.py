"""One connection: what it may take of time and memory, and answers that need no task.

uvicorn parses requests but limits neither their head nor a client's silence. A connection here is closed if its first
byte, the rest of its head, or the reading of its response takes too long, and refused if its head is too large. Bodies
are limited where they are read (`app`), because only there is their length known. Requests that come before earlier
ones are answered wait in a queue of uvicorn's that has no end, so a connection that sends more than a few of them is
closed. Which connections there are is up to their listener (`listeners`).

A draw or an update that arrives as a whole, before anything else, is answered at once, in the parser's last call for
it (`Service.answer_now`): uvicorn's way through a task and ASGI takes longer than the answer. All others go that way,
which are most of what a test can think of and hardly any of the traffic, and get the same answers.
"""

# uvicorn declares fields that a connection gets only later, such as its first request, as always present, and the
# parser, which calls the methods below, as perhaps absent
# pyright: reportUnnecessaryComparison=false, reportOptionalMemberAccess=false

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from blindsight.service.answers import HttpAnswer, lines_of
from blindsight.service.listeners import Listener

__all__ = ["Connection", "Prompt"]

_MOST_HEADERS = 100
_MOST_PIPELINED = 8  # requests of one connection behind the one in progress
_MOST_JOINED = 1 << 14  # bytes of a body that are copied behind its head rather than written by themselves
_LARGE = "the request's head is too large"
_parse = HttpToolsProtocol.data_received


class Prompt(Protocol):
    """A service with answers that need not wait."""

    def asked(self, method: bytes, path: bytes) -> Any:
        """What a request asks for, if its answer need not wait; otherwise None."""
        ...

    def answer_now(self, asked: Any, fields: list[tuple[bytes, bytes]], body: bytes) -> HttpAnswer | None:
        """The answer to headers and a body; None, without effect, if the connection cannot stay open."""
        ...


class Connection(HttpToolsProtocol):
    """One connection, of the listener in `listeners` with its port."""

    def __init__(
        self,
        listeners: dict[int, Listener],
        service: Prompt,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._listeners = listeners
        self._service = service
        self.listener: Listener = next(iter(listeners.values()))
        self._most = 0  # bytes of a head
        self._head = 0  # bytes of the next request's head so far
        self._requests = 0  # whose heads are complete
        self._is_first = False  # whether the next request is the first of what has arrived
        self._held: Any = None  # what the request in progress asks for, if it may be answered at once
        self._parts = list[bytes]()  # of its body
        self._state: tuple[int, str] = (0, "")
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

    def data_received(self, data: bytes) -> None:
        """Parse what came, and limit the part of it that is a request's head."""
        cycle = self.cycle
        if self._is_in_body and cycle.response_complete and _is_chunked(cycle.scope["headers"]):
            self.listener.close(self, "late_body")  # it says no length, and fields may follow it without an end
            return
        self._is_first = True
        if len(data) > self._most:
            self._in_pieces(data)
        else:
            self._take(data)
        if self._held is not None:  # the rest of its body may take a while
            self._hand_over()

    def _in_pieces(self, data: bytes) -> None:
        """Parse in pieces, so that no head can be large because it came at once; a body is one piece."""
        at = 0
        while at < len(data) and self.parser is not None:
            end = len(data)
            if not self._is_in_body:
                head_end = data.find(b"\r\n\r\n", at, at + self._most)
                end = at + self._most if head_end < 0 else head_end + 4
            self._take(memoryview(data)[at:end])
            at = end

    def _take(self, data: bytes | memoryview) -> None:
        if self._is_refused:
            return
        before, is_in_body = self._requests, self._is_in_body
        _parse(self, data)  # pyright: ignore[reportArgumentType]
        if self._requests > before:
            self._head = 0
            if not before:
                self.listener.recognise(self)
        elif not is_in_body:
            self._add_to_head(len(data))

    @property
    def _is_in_body(self) -> bool:
        """Whether what comes next belongs to a request's body."""
        return self._held is not None or (self.cycle is not None and self.cycle.more_body)

    def on_message_begin(self) -> None:
        """A request begins; what ASGI needs besides is made if it is handed over."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """Hold the request if it may be answered at once, or hand it over."""
        self._requests += 1
        if self._is_first and self._is_plain():
            self._held = self._service.asked(self.parser.get_method(), self.url)
        self._is_first = False
        if self._held is not None:
            self.cycle = None  # pyright: ignore[reportAttributeAccessIssue]
        else:
            self._hand_over()

    def _is_plain(self) -> bool:
        """Whether there is nothing to do but to answer, on a connection that stays open and waits for nothing else."""
        cycle, parser = self.cycle, self.parser
        return (
            (cycle is None or cycle.response_complete)
            and not self.flow.write_paused
            and not self.expect_100_continue
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
        )

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        if self._held is not None:
            self._parts.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Answer a held request, or hand it over after all."""
        if self._held is not None:
            answer = self._service.answer_now(self._held, self.headers, b"".join(self._parts))
            if answer is not None:
                self._held = None
                self._parts.clear()
                self._write(answer)
                return
            self._hand_over()
        super().on_message_complete()

    def _hand_over(self) -> None:
        """Let uvicorn serve the request, as far as it has come."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        self._held = None
        super().on_headers_complete()
        for part in self._parts:
            super().on_body(part)
        self._parts.clear()

    def _write(self, answer: HttpAnswer) -> None:
        """Write an answer as uvicorn does."""
        head, body, more = answer
        lines = [STATUS_LINE[head.status], lines_of(self.server_state.default_headers), head.lines, lines_of(more)]
        if len(body) <= _MOST_JOINED:
            self.transport.write(b"".join((*lines, b"\r\n", body)))
        else:
            self.transport.writelines((b"".join((*lines, b"\r\n")), body))
        self.on_response_complete()

    def on_response_complete(self) -> None:
        """Begin with the next request. Unlike in uvicorn, the listener's sweeps end idle connections, not a timer."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())

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
        """The cause for which it should be closed, if any; `idle` if it has only been silent between two requests."""
        phase = self._phase()
        state = self._requests, phase
        if state != self._state:
            self._since = now if phase != "first_byte" else self._since  # counted from when it was made
            self._state = state
        limits = self.listener.limits
        allowed = {
            "first_byte": limits.first_byte_s,
            "header": limits.header_s,
            "body": limits.body_s,
            "write": limits.write_s,
            "idle": self.timeout_keep_alive,
        }.get(phase)
        if allowed is None or now - self._since <= allowed:
            return None
        return phase if phase == "idle" else f"late_{phase}"

    def _phase(self) -> str:
        """What the connection waits for; `work` is up to this service."""
        cycle = self.cycle
        if self.transport.get_write_buffer_size():
            return "write"
        if cycle is None or (cycle.response_complete and not cycle.more_body):
            if self._head:
                return "header"
            return "idle" if self._requests else "first_byte"
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
