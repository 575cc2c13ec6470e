"""The ASGI application: draw and update by hand, everything else by Starlette.

Draw and update come before any framework, since they are nearly all of the traffic. They check token, rate, model,
version, length and ticket before a byte of a body is looked at, and answer an update with 202 whether it was taken or
not: a sender that is told would find the edge of the window for spam.

A request that succeeds leaves nothing but a count. One that is refused gets an id, which the log repeats where the
fault is the service's own. Neither addresses nor bodies nor tickets are ever logged.
"""

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Router

from blindsight.service.auth import Access
from blindsight.service.metrics import Totals
from blindsight.service.pool import Pool
from blindsight.service.protocol import OCTETS, TICKET, VERSION, Refusal
from blindsight.service.registry import Registry
from blindsight.service.store import StoreUnreachable

__all__ = ["Service"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_log = logging.getLogger(__name__)
_MODELS = "/v1/models/"
_MOST_READ = 1 << 24  # bytes: of 2^22 weights, the most that a task may have
_OCTETS, _TICKET, _VERSION = OCTETS.encode(), TICKET.lower().encode(), VERSION.lower().encode()
_DRAWN = [(b"content-type", _OCTETS), (b"cache-control", b"no-store")]
_NOTED = [(b"content-type", b"application/json"), (b"content-length", b"2")]
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", f"authorization, content-type, {TICKET}, {VERSION}".lower().encode()),
    (b"access-control-max-age", b"86400"),
    (b"content-length", b"0"),
]
_EXPOSED = (b"access-control-expose-headers", f"{TICKET}, {VERSION}, etag, x-request-id".encode())


class Service:
    """The application. `routes` are added to its own (pages of a demo, say)."""

    def __init__(self, registry: Registry, routes: Sequence[BaseRoute] = ()) -> None:
        from blindsight.service.admin import make_routes

        self.registry = registry
        self.totals = Totals()
        self.failure: Exception | None = None  # to start
        self._origins = frozenset(origin.encode() for origin in registry.settings.origins)
        self._body_s = registry.settings.body_s
        self._rest = Router([*make_routes(self), *routes], redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.registry.open()
        except Exception as error:
            self.failure = error
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.registry.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        cors = self._cors(headers) if self._origins else []
        if not _worth_reading(headers):  # what is left of the body, after a refusal
            cors = [*cors, (b"connection", b"close")]
        began = time.perf_counter()
        try:
            if not path.startswith(_MODELS):
                scope["app"] = self  # so that Starlette raises what it refuses, and it is answered below
                await self._rest(scope, receive, send)
                return
            model, _, action = path[len(_MODELS) :].partition("/")
            method = scope["method"]
            if method == "OPTIONS" and cors and action in ("draw", "update", "task"):
                await _answer(send, 204, [*_PREFLIGHT, *cors], b"")
                return
            if action == "draw" and method == "GET":
                await self._draw(model, headers, cors, send)
                self.totals.draw_s.add(time.perf_counter() - began)
            elif action == "update" and method == "POST":
                await self._update(model, headers, cors, receive, send)
                self.totals.update_s.add(time.perf_counter() - began)
            elif action == "task" and method == "GET":
                await self._task(model, headers, cors, send)
            elif action in ("draw", "update", "task"):
                allowed = "POST" if action == "update" else "GET"
                raise Refusal(405, f"{action} is asked for with {allowed}", headers={"Allow": allowed})
            else:
                raise Refusal(404, "there is nothing here: see /openapi.json")
        except Refusal as refusal:
            await self.refuse(send, refusal, cors)
        except HTTPException as error:
            await self.refuse(send, Refusal(error.status_code, error.detail, headers=dict(error.headers or {})), cors)
        except StoreUnreachable as error:
            _log.warning("%s", error)
            await self.refuse(send, Refusal(503, "the store is away: try again", headers={"Retry-After": "1"}), cors)
        except _Gone:
            pass
        except Exception as error:  # its text could quote a body, so the kind and the place have to do
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else "?"
            await self.refuse(send, Refusal(500, "a fault of the service"), cors, f"{type(error).__name__} at {where}")

    async def _draw(self, model: str, headers: dict[bytes, bytes], cors: list[tuple[bytes, bytes]], send: Send) -> None:
        pool = self._pool(model, headers)
        if pool.record.frozen:
            raise Refusal(423, "the model is frozen: there is nothing to train")
        instance = await pool.draw()
        ticket = self.registry.tickets.issue(pool.about)
        found = [*_DRAWN, (_TICKET, ticket), (_VERSION, pool.version), (b"content-length", b"%d" % pool.length)]
        await _answer(send, 200, found + cors, instance)

    async def _update(
        self,
        model: str,
        headers: dict[bytes, bytes],
        cors: list[tuple[bytes, bytes]],
        receive: Receive,
        send: Send,
    ) -> None:
        pool = self._pool(model, headers)
        if headers.get(b"content-type") != _OCTETS:
            raise Refusal(415, f"an update is {OCTETS}")
        if headers.get(_VERSION) != pool.version:
            raise Refusal(409, "the task has another version: fetch it, and draw again")
        _check_length(headers, pool.length)
        ticket = self.registry.tickets.check(headers.get(_TICKET, b""), pool.about)
        if ticket is None:
            raise Refusal(410, "the ticket has expired, or was not issued for this model: draw again")
        if pool.record.frozen:
            raise Refusal(423, "the model is frozen: there is nothing to train")
        update = await self._body(receive, pool.length)
        await pool.offer(update, *ticket)
        await _answer(send, 202, _NOTED + cors, b"{}")

    async def _task(self, model: str, headers: dict[bytes, bytes], cors: list[tuple[bytes, bytes]], send: Send) -> None:
        pool = self._pool(model, headers)
        tag = b'"' + pool.version + b'"'
        found = [(b"etag", tag), (b"cache-control", b"no-cache"), *cors]
        if headers.get(b"if-none-match") == tag:
            await _answer(send, 304, found, b"")
        else:
            length = (b"content-length", b"%d" % len(pool.task_body))
            await _answer(send, 200, [(b"content-type", b"application/json"), length, *found], pool.task_body)

    def _pool(self, model: str, headers: dict[bytes, bytes]) -> Pool:
        """The model, if the token is good for it: one that is not learns nothing about which models there are."""
        if model not in self.access(headers).models:
            raise Refusal(404, "there is no such model")
        return self.registry.pool(model)

    def access(self, headers: dict[bytes, bytes]) -> Access:
        """What the request's token opens, or 401; 429 where it came too often."""
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        found = self.registry.access.get(hashlib.sha256(token).hexdigest())
        if found is None or scheme.lower() != b"bearer":
            raise Refusal(401, "a valid token is needed", headers={"WWW-Authenticate": "Bearer"})
        if not found.takes():
            raise Refusal(429, "too many requests with this token: wait", headers={"Retry-After": "1"})
        return found

    def _cors(self, headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        origin = headers.get(b"origin")
        if origin is None or not (b"*" in self._origins or origin in self._origins):
            return [(b"vary", b"origin")]
        return [(b"access-control-allow-origin", origin), (b"vary", b"origin"), _EXPOSED]

    async def _body(self, receive: Receive, length: int) -> bytes:
        """The whole body of `length` bytes, within the time there is for it."""
        try:
            async with asyncio.timeout(self._body_s):
                message = await receive()
                body: bytes = message.get("body", b"")
                if message.get("more_body"):
                    parts, size = [body], len(body)
                    while message.get("more_body") and size <= length:
                        message = await receive()
                        parts.append(message.get("body", b""))
                        size += len(parts[-1])
                    body = b"".join(parts)
        except TimeoutError:
            raise Refusal(408, "the body did not arrive in time") from None
        if message["type"] == "http.disconnect":
            raise _Gone
        if len(body) != length:  # HTTP servers see to this; a store must not depend on it
            raise Refusal(422, f"an update of this model has {length} bytes")
        return body

    async def refuse(
        self, send: Send, refusal: Refusal, more: Sequence[tuple[bytes, bytes]] = (), fault: str | None = None
    ) -> None:
        """Answer with a status, one sentence, and an id by which the log can be searched."""
        self.totals.refuse(refusal.status)
        name = secrets.token_hex(8)
        if fault is not None:
            _log.error("request %s: %s", name, fault)
        body = json.dumps(refusal.to_dict()).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", name.encode()),
            *((key.lower().encode(), value.encode()) for key, value in refusal.headers.items()),
            *more,
        ]
        await _answer(send, refusal.status, headers, body)


class _Gone(Exception):
    """The client left before it had said everything."""


def _check_length(headers: dict[bytes, bytes], length: int) -> None:
    stated = headers.get(b"content-length")
    if stated is None or b"transfer-encoding" in headers:
        raise Refusal(411, "the length of the body must be stated")
    size = _whole(stated)
    if size != length:
        status = 413 if size > length else 422
        raise Refusal(status, f"an update of this model has {length} bytes")


def _worth_reading(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" not in headers and _whole(headers.get(b"content-length", b"0")) <= _MOST_READ


def _whole(digits: bytes) -> int:
    return int(digits) if digits.isdigit() and len(digits) < 16 else 1 << 60


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
