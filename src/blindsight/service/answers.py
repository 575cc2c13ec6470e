"""Answers: a status, headers and a body, sent through ASGI or written to a connection, the same either way."""

import json
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

from blindsight.service.protocol import Refusal

__all__ = ["AsgiMessage", "Head", "HeaderPairs", "Headers", "HttpAnswer", "Send", "lines_of", "refused", "whole_number"]

AsgiMessage = MutableMapping[str, Any]
Send = Callable[[AsgiMessage], Awaitable[None]]
Headers = dict[bytes, bytes]
HeaderPairs = tuple[tuple[bytes, bytes], ...]

_MOST_READ = 1 << 24  # bytes of 2^22 weights, the maximum of a task


class Head:
    """A status and headers that many answers share: their lines are made once."""

    def __init__(self, status: int, *pairs: tuple[bytes, bytes]) -> None:
        self.status = status
        self.pairs: HeaderPairs = pairs
        self.lines = lines_of(pairs)


class HttpAnswer(NamedTuple):
    """An answer: its head, its body, and the headers that only it has."""

    head: Head
    body: bytes
    more: HeaderPairs = ()

    async def send(self, send: Send) -> None:
        """Send it through ASGI."""
        head, body, more = self
        await send({"type": "http.response.start", "status": head.status, "headers": [*head.pairs, *more]})
        await send({"type": "http.response.body", "body": body})


def lines_of(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as lines.

    >>> lines_of([(b"a", b"b"), (b"c", b"d")])
    b'a: b\\r\\nc: d\\r\\n'
    """
    return b"".join(b"%b: %b\r\n" % pair for pair in pairs)


def refused(refusal: Refusal, request: Headers) -> tuple[HttpAnswer, str]:
    """A status, one sentence, and an id to search the log for; the id too."""
    name = secrets.token_hex(8)
    body = json.dumps(refusal.to_dict()).encode()
    head = Head(
        refusal.status,
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", name.encode()),
        *((key.lower().encode(), value.encode()) for key, value in refusal.headers.items()),
        *([] if _worth_reading(request) else [(b"connection", b"close")]),
    )
    return HttpAnswer(head, body), name


def whole_number(digits: bytes) -> int:
    """A stated length; very large if it is none."""
    return int(digits) if digits.isdigit() and len(digits) < 16 else 1 << 60


def _worth_reading(request: Headers) -> bool:
    """Whether the rest of a refused request is read, so that its connection can be used again."""
    return b"transfer-encoding" not in request and whole_number(request.get(b"content-length", b"0")) <= _MOST_READ
