"""The OpenAPI document, written by hand since the hot path has no framework to generate it."""

import functools
from typing import Any

from blindsight.service.export import FORMATS
from blindsight.service.protocol import CAUSES, MODEL_NAME, MORE_CAUSES, OCTETS, TICKET, VERSION
from blindsight.service.task_schema import field_schema, task_schema
from blindsight.version import __version__

__all__ = ["document"]

_SENTENCES = {
    201: "created",
    204: "done",
    304: "not modified",
    401: "unknown token",
    404: "no such model, or the token belongs to another",
    405: "wrong method",
    408: "the body did not arrive in time",
    409: "the version is out of date, or the model already exists",
    410: "the ticket has expired or was used",
    411: "Content-Length is missing",
    413: "the body is too long",
    415: "wrong content type",
    422: "invalid body",
    423: "the model is frozen",
    429: "too many draws with this token: Retry-After says when to try again",
    503: "busy, starting, stopping, or without its store: Retry-After says when to try again",
}


_TASK = {"$ref": "#/components/schemas/Task"}
_WEIGHTS: dict[str, Any] = {OCTETS: {"schema": {"type": "string", "format": "binary"}}}


@functools.cache
def document() -> dict[str, Any]:
    """The whole document."""
    paths = {**_client_paths(), **_admin_paths(), **_other_paths()}
    for path, calls in paths.items():
        if "{model}" in path:
            calls["parameters"] = [{"$ref": "#/components/parameters/Model"}]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Blindsight: Draw and Discard", "version": __version__},
        "paths": paths,
        "components": _components(),
    }


def _client_paths() -> dict[str, Any]:
    """What clients call: task, draw and update."""
    ticket, version = _header(TICKET, "the ticket of the draw"), _header(VERSION, "the version of the task")
    drawn = {
        TICKET: {"schema": {"type": "string"}, "description": "one-time ticket to send back with the update"},
        VERSION: {"schema": {"type": "string"}},
    }
    return {
        "/v1/models/{model}/task": {"get": _call("model", "the task", _json(_TASK), 304, 404)},
        "/v1/models/{model}/draw": {
            "get": _call("model", "an instance: little-endian float32", _WEIGHTS, 404, 423, headers=drawn)
        },
        "/v1/models/{model}/update": {
            "post": _call(
                "model",
                "send an updated instance; 202 whether it was accepted or not",
                _json({"type": "object", "maxProperties": 0}),
                *(404, 408, 409, 410, 411, 413, 415, 422, 423),
                body=_WEIGHTS,
                parameters=[ticket, version],
                done=202,
            )
        },
    }


def _admin_paths() -> dict[str, Any]:
    """What the owner of the service calls."""
    one = "/v1/admin/models/{model}"
    about, anything = _json({"$ref": "#/components/schemas/About"}), _json({"type": "object"})
    new_token = _json({"type": "object", "properties": {"token": {"type": "string"}}})
    form = {"name": "format", "in": "query", "schema": {"enum": list(FORMATS), "default": "json"}}
    average = _json({"type": "object"}) | _WEIGHTS
    return {
        "/v1/admin/models": {
            "get": _call("admin", "all models", anything),
            "post": _call(
                "admin",
                "create a model, or restart one with another task",
                about,
                *(201, 408, 409, 413, 422),
                body=_json({"$ref": "#/components/schemas/Creation"}),
            ),
        },
        one: {
            "get": _call("admin", "a model and its task", about, 404),
            "delete": _call("admin", "delete a model", None, 404, done=204),
        },
        f"{one}/freeze": {"post": _call("admin", "stop training", about, 404)},
        f"{one}/thaw": {"post": _call("admin", "resume training", about, 404)},
        f"{one}/reset": {"post": _call("admin", "restart from zeros", about, 404)},
        f"{one}/warm-start": {
            "post": _call(
                "admin",
                "restart from given weights",
                about,
                *(404, 408, 413, 422),
                body=_json({"$ref": "#/components/schemas/Start"}) | _WEIGHTS,
            )
        },
        f"{one}/tokens": {"post": _call("admin", "add a client token", new_token, 404, done=201)},
        f"{one}/average": {
            "get": _call("admin", "the average of the instances, for prediction", average, 404, 422, parameters=[form])
        },
        f"{one}/statistics": {"get": _call("admin", "counts and the spread of the instances", anything, 404)},
    }


def _other_paths() -> dict[str, Any]:
    """What monitors and tools call."""
    anything, text = _json({"type": "object"}), {"text/plain": {"schema": {"type": "string"}}}
    return {
        "/healthz": {"get": _call(None, "the process is alive", anything)},
        "/readyz": {"get": _call(None, "the store answers", anything)},
        "/metrics": {"get": _call("admin", "totals for Prometheus", text)},
        "/openapi.json": {"get": _call(None, "this document", anything)},
    }


def _components() -> dict[str, Any]:
    text, whole, flag = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
    about = {"model": text, "version": text, "family": text, "weights": whole, "instances": whole, "frozen": flag}
    numbers = {"type": "array", "items": {"type": "number"}}
    name = {"type": "string", "pattern": f"^{MODEL_NAME.pattern}$"}
    return {
        "parameters": {"Model": {"name": "model", "in": "path", "required": True, "schema": name}},
        "securitySchemes": {kind: {"type": "http", "scheme": "bearer"} for kind in ("model", "admin")},
        "schemas": {
            "About": {"type": "object", "properties": about, "required": list(about)},
            "Creation": {
                "type": "object",
                "properties": {"task": _TASK, "replace": flag, "start": numbers},
                "required": ["task"],
                "additionalProperties": False,
            },
            "Start": {
                "type": "object",
                "properties": {"weights": numbers},
                "required": ["weights"],
                "additionalProperties": False,
            },
            "Task": task_schema(),
            "Field": field_schema(),
            "Error": {
                "type": "object",
                "properties": {"error": text, "cause": {"enum": sorted({*CAUSES.values(), *MORE_CAUSES, "other"})}},
                "required": ["error", "cause"],
            },
        },
    }


def _call(
    token: str | None,
    summary: str,
    content: dict[str, Any] | None,
    *statuses: int,
    done: int = 200,
    body: dict[str, Any] | None = None,
    headers: dict[str, Any] | None = None,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    answers: dict[str, Any] = {str(done): {"description": summary}}
    if content:
        answers[str(done)]["content"] = content
    if headers:
        answers[str(done)]["headers"] = headers
    for status in sorted({*statuses, 405, 503, *((401, 429) if token else ())}):
        answers[str(status)] = {"description": _SENTENCES[status]}
        if status == 201 and content:
            answers["201"]["content"] = content
        elif status >= 400:
            answers[str(status)]["content"] = _json({"$ref": "#/components/schemas/Error"})
    call: dict[str, Any] = {"summary": summary, "responses": answers}
    if token:
        call["security"] = [{token: []}]
    if body:
        call["requestBody"] = {"required": True, "content": body}
    if parameters:
        call["parameters"] = parameters
    return call


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _header(name: str, what: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": True, "description": what, "schema": {"type": "string"}}
