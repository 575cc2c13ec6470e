"""The ASGI application: draw and update are handled directly, everything else by Starlette.

Draw and update are nearly all of the traffic, so they bypass the framework; and if nothing has to be waited for,
because the store is in this process and the whole body is there, they bypass ASGI too (`connections`). They check
token, rate, model, version, length and ticket before reading a body. An update is answered with 202 whether it was
accepted or not: otherwise a sender could find the edge of the spam window.

A request that succeeds leaves only a count. A refused one gets an id, which the log repeats for internal errors.
Addresses, bodies and tickets are never logged.

Only draws are limited by rate and refused under load: whoever has drawn may have paid for the update already, so a
valid ticket is honoured whatever the load, and while a model is frozen it is kept for later.
"""

import asyncio
import logging
from asyncio import current_task
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Router

from blindsight.service.admin import make_routes
from blindsight.service.answers import AsgiMessage, Head, HeaderPairs, Headers, HttpAnswer, Send, refused, whole_number
from blindsight.service.auth import Access
from blindsight.service.listeners import Listener
from blindsight.service.metrics import Totals
from blindsight.service.pool import Pool, replaced
from blindsight.service.protocol import OCTETS, TICKET, VERSION, Refusal, fault_of
from blindsight.service.randomness import random_index
from blindsight.service.registry import Registry
from blindsight.service.settings import Settings
from blindsight.service.store import StoreUnreachable

if TYPE_CHECKING:
    from blindsight.service.admission import Admissions

__all__ = ["Service"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]

_log = logging.getLogger(__name__)
_MODELS = "/v1/models/"
_METHODS = {"draw": "GET", "update": "POST", "task": "GET"}
_TURNS = 8  # checks for late bodies within the time that one may take
_LATE = -1
_OCTETS, _TICKET, _VERSION = OCTETS.encode(), TICKET.lower().encode(), VERSION.lower().encode()
_OPERATORS = ("/v1/admin", "/metrics", "/healthz", "/readyz")
_NOTED = HttpAnswer(Head(202, (b"content-type", b"application/json"), (b"content-length", b"2")), b"{}")
_PREFLIGHT = Head(
    204,
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", f"authorization, content-type, {TICKET}, {VERSION}".lower().encode()),
    (b"access-control-max-age", b"86400"),
    (b"content-length", b"0"),
)
_EXPOSED = (b"access-control-expose-headers", f"{TICKET}, {VERSION}, etag, x-request-id".encode())


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
        began, durations = perf_counter(), None
        path, method = scope["path"], scope["method"]
        headers: Headers = dict(scope["headers"])
        try:
            if method == "GET" and (pool := self.registry.draws.get(path)) is not None:
                answer, durations = await self._draw(pool, headers), self.totals.draw_s
            elif method == "POST" and (pool := self.registry.updates.get(path)) is not None:
                answer, durations = await self._update(pool, headers, receive), self.totals.update_s
            elif path.startswith(_MODELS):
                answer = self._other(path, method, headers)
            elif self.admin_port is not None and self._is_misplaced(path, scope):
                raise Refusal(404, "not found: see /openapi.json")
            else:
                scope["app"] = self  # so that Starlette raises its refusals, which are answered below
                await self._rest(scope, receive, send)
                return
        except _Gone:
            return
        except Exception as error:
            answer = self._refused(error, headers)
        await self._for_page(answer, headers).send(send)
        if durations is not None:
            durations.add(perf_counter() - began)

    def asked(self, method: bytes, path: bytes) -> tuple[Pool, bool] | None:
        """The model of a draw or an update whose answer need not wait, and whether it is a draw."""
        is_draw, registry = method == b"GET", self.registry
        if is_draw and registry.admissions is not None:
            return None
        pool = (registry.draws if is_draw else registry.updates).get(path.decode("latin-1"))
        return (pool, is_draw) if pool is not None and pool.is_here and (is_draw or method == b"POST") else None

    def answer_now(self, asked: tuple[Pool, bool], fields: list[tuple[bytes, bytes]], body: bytes) -> HttpAnswer | None:
        """The answer to a draw or an update that is there as a whole; None, without effect, to a body in chunks."""
        began, (pool, is_draw), headers = perf_counter(), asked, dict(fields)
        if b"transfer-encoding" in headers:
            return None
        try:
            if is_draw:
                self._admit_draw(pool, headers)
                answer, durations = self._drawn(pool, pool.draw_now()), self.totals.draw_s
            else:
                ticket = self._admit_update(pool, headers)
                self._check_room(pool.length)
                pool.offer_now(body, *ticket)
                answer, durations = _NOTED, self.totals.update_s
            durations.add(perf_counter() - began)
        except Exception as error:
            answer = self._refused(error, headers)
        return self._for_page(answer, headers)

    async def _draw(self, pool: Pool, headers: Headers) -> HttpAnswer:
        self._admit_draw(pool, headers)
        if self.registry.admissions is not None:
            await self._use_token(self.registry.admissions, pool, headers)
        return self._drawn(pool, pool.draw_now() if pool.is_here else await pool.draw())

    def _drawn(self, pool: Pool, instance: bytes | None) -> HttpAnswer:
        if instance is None:
            raise replaced("draw")
        return HttpAnswer(pool.head, instance, ((_TICKET, self.registry.tickets.issue(pool.scope)),))

    async def _update(self, pool: Pool, headers: Headers, receive: Receive) -> HttpAnswer:
        ticket = self._admit_update(pool, headers)
        update = await self._body(receive, pool.length)
        if not pool.offer_now(update, *ticket):
            await pool.offer(update, *ticket)
        return _NOTED

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

    def _other(self, path: str, method: str, headers: Headers) -> HttpAnswer:
        """The task of a model; everything else under /v1/models/ is refused."""
        model, _, action = path[len(_MODELS) :].partition("/")
        if action not in _METHODS:
            raise Refusal(404, "not found: see /openapi.json")
        if method == "OPTIONS" and self._origins:
            return HttpAnswer(_PREFLIGHT, b"")
        if method != _METHODS[action]:
            allowed = _METHODS[action]
            raise Refusal(405, f"{action} needs the method {allowed}", headers={"Allow": allowed})
        if self.registry.admissions is None:
            self.access(headers, model)
        pool = self.registry.pool(model)
        tag = b'"' + pool.version + b'"'
        common = (b"etag", tag), (b"cache-control", b"no-cache")
        if headers.get(b"if-none-match") == tag:
            return HttpAnswer(Head(304, *common), b"")
        length = b"content-length", b"%d" % len(pool.task_body)
        return HttpAnswer(Head(200, (b"content-type", b"application/json"), length, *common), pool.task_body)

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

    def _for_page(self, answer: HttpAnswer, headers: Headers) -> HttpAnswer:
        """The answer with what a page of another origin needs to read it, if any may."""
        return answer._replace(more=(*answer.more, *self._cors(headers))) if self._origins else answer

    def _cors(self, headers: Headers) -> HeaderPairs:
        origin = headers.get(b"origin")
        if origin is None or not (b"*" in self._origins or origin in self._origins):
            return ((b"vary", b"origin"),)
        return ((b"access-control-allow-origin", origin), (b"vary", b"origin"), _EXPOSED)

    def _check_room(self, length: int) -> None:
        """Refuse a body if too many others are arriving."""
        if self._receiving + length > max(self._bodies_bytes, length):
            raise Refusal(503, "too many updates are arriving: try again", cause="bodies")

    async def _body(self, receive: Receive, length: int) -> bytes:
        """The whole body of `length` bytes; refused if it is late, or if too many others are arriving."""
        self._check_room(length)
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

    def _refused(self, error: Exception, headers: Headers) -> HttpAnswer:
        """What is answered to a request that failed; only faults of the service are logged."""
        if isinstance(error, HTTPException):
            error = Refusal(error.status_code, error.detail, headers=dict(error.headers or {}))
        elif isinstance(error, StoreUnreachable):  # the registry checks every second, and logs it
            error = Refusal(503, "the store is unreachable: try again", cause="store")
        is_fault = not isinstance(error, Refusal)
        refusal = Refusal(500, "internal error") if is_fault else error
        self.totals.refuse(refusal.cause)
        answer, name = refused(refusal, headers)
        if is_fault:
            _log.error("request %s: %s", name, fault_of(error))
        return answer


class _Gone(Exception):
    """The client disconnected before its body was complete."""


def _refused_length(headers: Headers, length: int) -> Refusal:
    stated = headers.get(b"content-length")
    if stated is None or b"transfer-encoding" in headers:
        return Refusal(411, "Content-Length is required")
    return Refusal(413 if whole_number(stated) > length else 422, f"an update of this model has {length} bytes")
