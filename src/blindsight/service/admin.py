"""Everything except draw and update: admin calls, health, metrics and the OpenAPI document."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from blindsight.algorithms.draw_and_discard import Task
from blindsight.errors import InvalidInput
from blindsight.service.auth import Access
from blindsight.service.export import FORMATS, export
from blindsight.service.listeners import Listener
from blindsight.service.metrics import Kept, Totals
from blindsight.service.openapi import document
from blindsight.service.pool import Pool
from blindsight.service.protocol import OCTETS, Refusal, decode
from blindsight.service.registry import Registry
from blindsight.service.shown import expected_spread
from blindsight.service.store import DELETED, NotSaved, StoreUnreachable

__all__ = ["make_routes"]

_MOST = 1 << 26  # bytes per body: enough for 2^22 weights as decimal numbers
_BODY_S = 60.0
_LONGEST_REASON = 200  # characters
_LARGEST = 1e15  # initial weight: squares of larger ones overflow, and then nothing would be spam

Endpoint = Callable[[Request], Awaitable[Response]]


class Served(Protocol):
    """The part of the application that these calls use."""

    registry: Registry
    totals: Totals
    listeners: dict[int, Listener]
    shedding: float

    def access(self, headers: dict[bytes, bytes], model: str | None = None) -> Access:
        """The rights of the request's token."""
        ...


def make_routes(service: Served) -> list[BaseRoute]:
    """The routes of everything outside the hot path."""
    calls = _Calls(service)
    one = "/v1/admin/models/{model}"
    return [
        Route("/healthz", calls.healthy),
        Route("/readyz", calls.ready),
        # reveals model names and whether an update was accepted: not for senders
        Route("/metrics", calls.admin(calls.metrics)),
        Route("/openapi.json", calls.openapi),
        Route("/v1/admin/models", calls.admin(calls.models), methods=["GET", "POST"]),
        Route(one, calls.admin(calls.model), methods=["GET", "DELETE"]),
        Route(f"{one}/freeze", calls.admin(calls.freeze), methods=["POST"]),
        Route(f"{one}/thaw", calls.admin(calls.thaw), methods=["POST"]),
        Route(f"{one}/reset", calls.admin(calls.reset), methods=["POST"]),
        Route(f"{one}/warm-start", calls.admin(calls.warm_start), methods=["POST"]),
        Route(f"{one}/tokens", calls.admin(calls.add_token), methods=["POST"]),
        Route(f"{one}/average", calls.admin(calls.average)),
        Route(f"{one}/statistics", calls.admin(calls.statistics)),
    ]


class _Calls:
    """The handlers of one service's routes."""

    def __init__(self, service: Served) -> None:
        self.service, self.registry = service, service.registry

    def admin(self, endpoint: Endpoint) -> Endpoint:
        """The same call, refused without an admin token."""

        async def checked(request: Request) -> Response:
            if not self.service.access(dict(request.scope["headers"])).admin:
                raise Refusal(401, "this call needs an admin token", headers={"WWW-Authenticate": "Bearer"})
            try:
                return await endpoint(request)
            except NotSaved as error:
                raise Refusal(503, f"nothing was changed: {error}", headers={"Retry-After": "30"}) from None

        return checked

    def pool(self, request: Request) -> Pool:
        return self.registry.pool(request.path_params["model"])

    async def list_models(self, _: Request) -> Response:
        models = [_summary(pool) for pool in self.registry.pools.values()]
        faults = dict(self.registry.store.faults)
        return JSONResponse({"models": models} | ({"faults": faults} if faults else {}))

    async def create(self, request: Request) -> Response:
        values = await _json(request, {"task", "replace", "start"})
        task = _task(values.get("task"))
        start = _weights(values["start"], task) if values.get("start") is not None else None
        if not isinstance(values.get("replace", False), bool):
            raise Refusal(422, "replace must be true or false")
        token = await self.registry.create(task, replace=values.get("replace", False), start=start)
        summary = _summary(self.registry.pool(task.model)) | ({"token": token} if token else {})
        return JSONResponse(summary, status_code=201 if token else 200)

    async def show(self, request: Request) -> Response:
        return JSONResponse(_summary(self.pool(request)) | {"task": self.pool(request).record.task.to_dict()})

    async def delete(self, request: Request) -> Response:
        reason = request.query_params.get("reason", DELETED)[:_LONGEST_REASON]
        await self.registry.delete(request.path_params["model"], reason)
        return Response(status_code=204)

    async def freeze(self, request: Request) -> Response:
        await self.registry.freeze(request.path_params["model"], True)
        return JSONResponse(_summary(self.pool(request)))

    async def thaw(self, request: Request) -> Response:
        await self.registry.freeze(request.path_params["model"], False)
        return JSONResponse(_summary(self.pool(request)))

    async def reset(self, request: Request) -> Response:
        await self.registry.restart(request.path_params["model"])
        return JSONResponse(_summary(self.pool(request)))

    async def warm_start(self, request: Request) -> Response:
        task = self.pool(request).record.task
        if request.headers.get("content-type") == OCTETS:
            body = await _body(request)
            weights = _weights(decode(body) if len(body) % 4 == 0 else [], task)
        else:
            weights = _weights((await _json(request, {"weights"})).get("weights"), task)
        await self.registry.restart(request.path_params["model"], weights)
        return JSONResponse(_summary(self.pool(request)))

    async def add_token(self, request: Request) -> Response:
        return JSONResponse({"token": await self.registry.add_token(request.path_params["model"])}, status_code=201)

    async def average(self, request: Request) -> Response:
        name = request.query_params.get("format", "json")
        if name not in FORMATS:
            raise Refusal(422, f"format must be one of {', '.join(FORMATS)}")
        pool = self.pool(request)
        return Response(export(pool.record.task, await pool.average(), name), media_type=FORMATS[name])

    async def statistics(self, request: Request) -> Response:
        pool = self.pool(request)
        spread, count = await pool.spread()
        expected = expected_spread(pool.record.task, pool.batch)
        return JSONResponse(
            {
                "draws": pool.draws,
                "taken": pool.taken,
                "spam": pool.spam,
                "replayed": pool.replays,
                "updates": count,
                "spread": spread,
                "expected_spread": expected,
            }
        )

    async def healthy(self, _: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(self, _: Request) -> Response:
        await self.registry.check()
        faults = len(self.registry.store.faults)
        return JSONResponse({"status": "degraded", "models_out_of_service": faults} if faults else {"status": "ready"})

    async def metrics(self, _: Request) -> Response:
        pools, store = self.registry.pools, self.registry.store
        spreads = dict[str, float]()
        try:
            await self.registry.check()
            spreads = {model: (await pool.spread())[0] for model, pool in list(pools.items())}
            is_ready = True
        except (Refusal, StoreUnreachable):
            is_ready = False
        kept = Kept(is_ready, store.saved_at, store.failures, len(store.faults))
        service = self.service
        text = service.totals.text(pools.values(), service.listeners.values(), service.shedding, kept, spreads)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(document())

    async def models(self, request: Request) -> Response:
        return await (self.create if request.method == "POST" else self.list_models)(request)

    async def model(self, request: Request) -> Response:
        return await (self.delete if request.method == "DELETE" else self.show)(request)


def _summary(pool: Pool) -> dict[str, Any]:
    task = pool.record.task
    return {
        "model": task.model,
        "version": task.version,
        "family": task.family,
        "weights": task.weights,
        "instances": task.instances,
        "frozen": pool.record.frozen,
    }


async def _body(request: Request) -> bytes:
    """The body, unless it is too long or late; the received length is checked because it may not be declared."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > _MOST:
                    raise Refusal(413, f"a body may have at most {_MOST} bytes")
                parts.append(part)
    except TimeoutError:
        raise Refusal(408, "the body did not arrive in time") from None
    return b"".join(parts)


async def _json(request: Request, allowed: set[str]) -> dict[str, Any]:
    try:
        values = json.loads(await _body(request), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Refusal(422, "the body is not JSON") from None
    if not isinstance(values, dict) or set(values) - allowed:
        raise Refusal(422, f"the body must be a JSON object with keys from {', '.join(sorted(allowed))}")
    return values


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _task(values: Any) -> Task:
    try:
        return Task.from_dict(values)
    except InvalidInput as error:
        raise Refusal(422, str(error)) from None


def _weights(values: Any, task: Task) -> np.ndarray:
    try:
        with np.errstate(all="ignore"):
            weights = np.asarray(values, np.float64).astype(np.float32)
    except (ValueError, TypeError, OverflowError):
        weights = np.zeros(0, np.float32)
    if weights.shape != (task.weights,) or not (np.abs(weights) <= _LARGEST).all():
        raise Refusal(422, f"weights must be {task.weights} numbers of magnitude at most {_LARGEST:g}")
    return weights
