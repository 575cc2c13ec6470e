"""The ASGI application: draw and update are handled directly, everything else by Starlette.

Draw and update are nearly all of the traffic, so they bypass the framework. They check token, rate, model, version,
length and ticket before reading a body. An update is answered with 202 whether it was accepted or not: otherwise a
sender could find the edge of the spam window.

A request that succeeds leaves only a count. A refused one gets an id, which the log repeats for internal errors.
Addresses, bodies and tickets are never logged.

Only draws are limited by rate and refused under load: whoever has drawn may have paid for the update already, so a
valid ticket is honoured whatever the load, and while a model is frozen it is kept for later.
"""

import asyncio
import json
import logging
import secrets
from asyncio import current_task
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Router

from blindsight.service.admin import make_routes
from blindsight.service.auth import Access
from blindsight.service.connections import Listener
from blindsight.service.metrics import Totals
from blindsight.service.pool import Pool
from blindsight.service.protocol import OCTETS, TICKET, VERSION, Refusal, fault_of
from blindsight.service.randomness import random_index
from blindsight.service.registry import Registry
from blindsight.service.settings import Settings
from blindsight.service.store import StoreUnreachable

if TYPE_CHECKING:
    from blindsight.service.admission import Admissions

__all__ = ["Service"]

Scope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]

Headers = dict[bytes, bytes]
HeaderList = list[tuple[bytes, bytes]]

_log = logging.getLogger(__name__)
_MODELS = "/v1/models/"
_METHODS = {"draw": "GET", "update": "POST", "task": "GET"}
_TURNS = 8  # checks for late bodies within the time that one may take
_LATE = -1
_MOST_READ = 1 << 24  # bytes of 2^22 weights, the maximum of a task
_OCTETS, _TICKET, _VERSION = OCTETS.encode(), TICKET.lower().encode(), VERSION.lower().encode()
_NOTED: AsgiMessage = {
    "type": "http.response.start",
    "status": 202,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"2")],
}
_OPERATORS = ("/v1/admin", "/metrics", "/healthz", "/readyz")
_NOTHING_MORE: AsgiMessage = {"type": "http.response.body", "body": b"{}"}
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", f"authorization, content-type, {TICKET}, {VERSION}".lower().encode()),
    (b"access-control-max-age", b"86400"),
    (b"content-length", b"0"),
]
_EXPOSED = (b"access-control-expose-headers", f"{TICKET}, {VERSION}, etag, x-request-id".encode())

_SAME_ORIGIN: HeaderList = []  # CORS headers if no other origin is allowed


class Service:
    """The application. `routes` are added to its own, for example the pages of a demo."""

    def __init__(self, registry: Registry, routes: Sequence[BaseRoute] = ()) -> None:
        self.registry = registry
        self.totals = Totals()
        self.failure: Exception | None = None  # at startup or shutdown
        self.admin_port: int | None = None
        """Port of the listener that alone serves admin calls, metrics and health, if it exists."""
        self.listeners: dict[int, Listener] = {}
        """The listeners by port."""
        self.shedding = 0.0
        """Share of draws to refuse because the event loop is late."""
        self._receiving = 0  # bytes of bodies
        self.use(registry.settings)
        self._reading: dict[asyncio.Task[Any] | None, int] = {}  # requests that wait for a body, and since which turn
        self._turn = 0
        self._rest = Router([*make_routes(self), *routes], redirect_slashes=False)

    def use(self, settings: Settings) -> None:
        """Use these settings from now on."""
        self._origins = frozenset(origin.encode() for origin in settings.origins)
        self._body_s = settings.body_s
        self._bodies_bytes = settings.bodies_bytes

    async def reload(self, settings: Settings) -> None:
        """Use the files' current tokens, keys and settings; those that need a restart stay as they are."""
        await self.registry.use(settings)
        self.use(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._live(receive, send)
            return
        began = perf_counter()
        path, method = scope["path"], scope["method"]
        headers: Headers = dict(scope["headers"])
        cors = self._cors(headers) if self._origins else _SAME_ORIGIN
        try:
            # inline, since another coroutine per request would cost as much as looking up its model
            if method == "GET" and (pool := self.registry.draws.get(path)) is not None:
                self._admit_draw(pool, headers)
                if self.registry.admissions is not None:
                    await self._use_token(self.registry.admissions, pool, headers)
                instance = pool.draw_now() or await pool.draw()
                ticket = _TICKET, self.registry.tickets.issue(pool.scope)
                await send({"type": "http.response.start", "status": 200, "headers": [*pool.headers, ticket, *cors]})
                await send({"type": "http.response.body", "body": instance})
                self.totals.draw_s.add(perf_counter() - began)
            elif method == "POST" and (pool := self.registry.updates.get(path)) is not None:
                ticket = self._admit_update(pool, headers)
                update = await self._body(receive, pool.length)
                if not pool.offer_now(update, *ticket):
                    await pool.offer(update, *ticket)
                await send(dict(_NOTED, headers=[*_NOTED["headers"], *cors]) if cors else _NOTED)
                await send(_NOTHING_MORE)
                self.totals.update_s.add(perf_counter() - began)
            elif path.startswith(_MODELS):
                await self._other(path, method, headers, cors, send)
            elif self.admin_port is not None and self._is_misplaced(path, scope):
                raise Refusal(404, "not found: see /openapi.json")
            else:
                scope["app"] = self  # so that Starlette raises its refusals, which are answered below
                await self._rest(scope, receive, send)
        except Refusal as refusal:
            await self.refuse(send, refusal, headers, cors)
        except HTTPException as error:
            await self.refuse(
                send, Refusal(error.status_code, error.detail, headers=dict(error.headers or {})), headers, cors
            )
        except StoreUnreachable:  # the registry checks every second, and logs it
            away = Refusal(503, "the store is unreachable: try again", cause="store")
            await self.refuse(send, away, headers, cors)
        except _Gone:
            pass
        except Exception as error:
            await self.refuse(send, Refusal(500, "internal error"), headers, cors, fault_of(error))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.registry.open()
        except Exception as error:
            self.failure = error
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        hurry = asyncio.create_task(self._hurry())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        hurry.cancel()
        try:
            await self.registry.close()
        except Exception as error:
            self.failure = error
            await send({"type": "lifespan.shutdown.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})

    def _is_misplaced(self, path: str, scope: Scope) -> bool:
        """Whether a call for operators came to the clients' listener."""
        return path.startswith(_OPERATORS) and scope["server"][1] != self.admin_port

    def _admit_draw(self, pool: Pool, headers: Headers) -> None:
        if self.shedding and random_index(1 << 20) < self.shedding * (1 << 20):
            raise Refusal(503, "the service is busy: try again", cause="busy")
        if self.registry.admissions is None:
            self.access(headers, pool.model)
        if pool.record.frozen:
            raise Refusal(423, "the model is frozen: there is nothing to train")

    async def _use_token(self, admissions: "Admissions", pool: Pool, headers: Headers) -> None:
        """Use the draw's admission token, after everything else that could refuse the draw."""
        admission = admissions.check(headers.get(b"authorization", b""), pool.model)
        if not await self.registry.store.use(admission):
            raise admissions.used(pool.model)

    def _admit_update(self, pool: Pool, headers: Headers) -> tuple[bytes, int]:
        """The ticket's random number and its expiry, after all checks."""
        if self.registry.admissions is None:  # otherwise the ticket alone admits: only a token gave it away
            self.access(headers, pool.model, is_paid=True)
        if headers.get(b"content-type") != _OCTETS:
            raise Refusal(415, f"an update must be sent as {OCTETS}")
        if headers.get(_VERSION) != pool.version:
            raise Refusal(409, "the task has changed: fetch it and draw again")
        if headers.get(b"content-length") != pool.length_stated or b"transfer-encoding" in headers:
            raise _refused_length(headers, pool.length)
        ticket = self.registry.tickets.check(headers.get(_TICKET, b""), pool.scope)
        if ticket is None:
            raise Refusal(410, "the ticket has expired, or was not issued for this model: draw again")
        if pool.record.frozen:  # the ticket is not used, so the same update can be sent later
            raise Refusal(423, "the model is frozen: send the update later", headers={"Retry-After": "60"})
        return ticket

    async def _other(self, path: str, method: str, headers: Headers, cors: HeaderList, send: Send) -> None:
        """The task of a model; everything else under /v1/models/ is refused."""
        model, _, action = path[len(_MODELS) :].partition("/")
        if action not in _METHODS:
            raise Refusal(404, "not found: see /openapi.json")
        if method == "OPTIONS" and cors:
            await _answer(send, 204, [*_PREFLIGHT, *cors], b"")
            return
        if method != _METHODS[action]:
            allowed = _METHODS[action]
            raise Refusal(405, f"{action} needs the method {allowed}", headers={"Allow": allowed})
        if self.registry.admissions is None:
            self.access(headers, model)
        pool = self.registry.pool(model)
        tag = b'"' + pool.version + b'"'
        common = [(b"etag", tag), (b"cache-control", b"no-cache"), *cors]
        if headers.get(b"if-none-match") == tag:
            await _answer(send, 304, common, b"")
        else:
            length = (b"content-length", b"%d" % len(pool.task_body))
            await _answer(send, 200, [(b"content-type", b"application/json"), length, *common], pool.task_body)

    def access(self, headers: Headers, model: str | None = None, *, is_paid: bool = False) -> Access:
        """The rights of the request's token; refuses with 401, with 429 above its rate, or with 404 for another model.

        A token therefore learns nothing about other models. What `is_paid` for is not limited.
        """
        given = headers.get(b"authorization", b"")
        rights = self.registry.seen.get(given) or self.registry.admit(given)
        if rights is None:
            raise Refusal(401, "a valid token is required", headers={"WWW-Authenticate": "Bearer"})
        if rights.limited and not is_paid and not rights.takes():
            raise Refusal(429, "too many requests with this token: slow down")
        if model is not None and model not in rights.models:
            raise Refusal(404, "there is no such model")
        return rights

    def _cors(self, headers: Headers) -> HeaderList:
        origin = headers.get(b"origin")
        if origin is None or not (b"*" in self._origins or origin in self._origins):
            return [(b"vary", b"origin")]
        return [(b"access-control-allow-origin", origin), (b"vary", b"origin"), _EXPOSED]

    async def _body(self, receive: Receive, length: int) -> bytes:
        """The whole body of `length` bytes; refused if it is late, or if too many others are arriving."""
        if self._receiving + length > max(self._bodies_bytes, length):
            raise Refusal(503, "too many updates are arriving: try again", cause="bodies")
        self._receiving += length
        task = current_task()
        self._reading[task] = self._turn
        try:
            message = await receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body"):
                parts, size = [body], len(body)
                while message.get("more_body") and size <= length:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                body = b"".join(parts)
        except asyncio.CancelledError:
            if self._reading[task] != _LATE:
                raise
            raise Refusal(408, "the body did not arrive in time") from None
        finally:
            self._receiving -= length
            del self._reading[task]
        if len(body) != length:
            if message["type"] == "http.disconnect":
                raise _Gone
            raise Refusal(422, f"an update of this model has {length} bytes")  # most HTTP servers already check this
        return body

    async def _hurry(self) -> None:
        """Cancel requests with a late body. One timer for all: a timer per request costs as much as a draw."""
        while True:
            await asyncio.sleep(self._body_s / _TURNS)
            self._turn += 1
            for task, since in self._reading.items():
                if task is not None and since != _LATE and self._turn - since > _TURNS:
                    self._reading[task] = _LATE
                    task.cancel()

    async def refuse(
        self,
        send: Send,
        refusal: Refusal,
        request_headers: Headers,
        more: Sequence[tuple[bytes, bytes]] = (),
        fault: str | None = None,
    ) -> None:
        """Answer with a status, one sentence, and an id to search the log for."""
        self.totals.refuse(refusal.cause)
        name = secrets.token_hex(8)
        if fault is not None:
            _log.error("request %s: %s", name, fault)
        body = json.dumps(refusal.to_dict()).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", name.encode()),
            *((key.lower().encode(), value.encode()) for key, value in refusal.headers.items()),
            *([] if _worth_reading(request_headers) else [(b"connection", b"close")]),
            *more,
        ]
        await _answer(send, refusal.status, headers, body)


class _Gone(Exception):
    """The client disconnected before its body was complete."""


def _refused_length(headers: Headers, length: int) -> Refusal:
    stated = headers.get(b"content-length")
    if stated is None or b"transfer-encoding" in headers:
        return Refusal(411, "Content-Length is required")
    return Refusal(413 if _whole(stated) > length else 422, f"an update of this model has {length} bytes")


def _worth_reading(headers: Headers) -> bool:
    return b"transfer-encoding" not in headers and _whole(headers.get(b"content-length", b"0")) <= _MOST_READ


def _whole(digits: bytes) -> int:
    return int(digits) if digits.isdigit() and len(digits) < 16 else 1 << 60


async def _answer(send: Send, status: int, headers: HeaderList, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
