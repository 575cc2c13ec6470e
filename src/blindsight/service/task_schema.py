"""JSON schemas of tasks and their fields, for the OpenAPI document.

A schema says what a task looks like. Whether its noise suits its epsilon follows from its numbers: clients compute it
again (`Task.from_dict`, `clients/js`) and refuse a task that states anything else.
"""

from typing import Any, get_args

from blindsight.algorithms.draw_and_discard_task import Noise, TaskUnit
from blindsight.models import glm

__all__ = ["field_schema", "task_schema"]

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_POSITIVE: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}
_FIELD = {"$ref": "#/components/schemas/Field"}


def task_schema() -> dict[str, Any]:
    """A task; `version`, `weights`, `norm` and the numbers of `noise` may be left out when a model is created."""
    features = _object(
        {
            "fields": {"type": "array", "items": _FIELD, "minItems": 1},
            "crosses": {"type": "array", "items": {"type": "array", "items": _TEXT, "minItems": 2, "maxItems": 2}},
            "intercept": {"type": "boolean"},
        },
        required=["fields"],
    )
    noise = _object(
        {
            "kind": {"enum": list(get_args(Noise))},
            "scale": {"type": "number", "minimum": 0, "description": "of the noise in every weight"},
            "grid": {"type": ["number", "null"], "description": "size of a step: an update is whole steps"},
            "bound": {"type": ["integer", "null"], "description": "most steps of a client's change, before noise"},
        },
        required=["kind"],
    )
    fields = {
        "model": _TEXT,
        "version": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
        "family": {"enum": [*glm.FAMILIES, "custom"]},
        "weights": {**_COUNT, "maximum": 1 << 22},
        "features": {"anyOf": [features, {"type": "null"}]},
        "response": {"anyOf": [_FIELD, {"type": "null"}]},
        "learning_rate": _POSITIVE,
        "clip": _POSITIVE,
        "unit": {"enum": list(get_args(TaskUnit)), "description": "what epsilon protects: one weight, or the client"},
        "norm": {"enum": [1, 2, None]},
        "noise": noise,
        "epsilon": {"anyOf": [_POSITIVE, {"const": "inf"}], "description": "the cost of one update"},
        "delta": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        "instances": {**_COUNT, "maximum": 10_000},
        "participations": {**_COUNT, "description": "updates that one client may send"},
    }
    return _object(fields, required=["model", "family", "unit", "noise", "epsilon"])


def field_schema() -> dict[str, Any]:
    """A field of a client's rows, by kind."""
    texts = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    sizes = {"type": "array", "items": _COUNT, "minItems": 1}
    number = _field("number", {"low": {"type": "number"}, "high": {"type": "number"}})
    category = _field("category", {"categories": texts}, {"drop_first": {"type": "boolean"}})
    ngrams = _field("ngrams", {"sizes": sizes, "buckets": _COUNT})
    return {"oneOf": [number, _field("boolean", {}), category, ngrams]}


def _field(kind: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    fields = {"name": _TEXT, "kind": {"const": kind}, **required, **(optional or {})}
    return _object(fields, required=["name", "kind", *required])


def _object(properties: dict[str, Any], *, required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
