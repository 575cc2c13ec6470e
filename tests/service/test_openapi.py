"""The OpenAPI document describes tasks: what the service sends fits it, and what the service refuses does not."""

import functools
import json
from pathlib import Path

import jsonschema_rs
import pytest

from blindsight.service.addresses import make_task
from blindsight.service.openapi import document

GOLDEN = Path(__file__).parents[1] / "golden" / "draw_and_discard.json"


@functools.cache
def validator() -> jsonschema_rs.Draft202012Validator:
    schema = {"$ref": "#/components/schemas/Task", "components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(schema)


def check(values) -> None:
    validator().validate(values)


def tasks() -> list[dict]:
    found = []

    def look(value) -> None:
        if isinstance(value, dict):
            if {"model", "family", "noise"} <= set(value):
                found.append(value)
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(json.loads(GOLDEN.read_text(encoding="utf-8")))
    return found


def test_every_task_of_the_golden_vectors_fits():
    assert len(tasks()) >= 5
    for task in [*tasks(), make_task().to_dict()]:
        check(task)


def test_the_task_that_the_service_sends_fits(talk):
    check(talk.client.get("/v1/models/phishing/task").json())


@pytest.mark.parametrize(
    "wrong",
    [
        {"family": "forest"},
        {"epsilon": 0},
        {"epsilon": "much"},
        {"delta": 1},
        {"noise": {"kind": "uniform"}},
        {"noise": {}},
        {"weights": 0},
        {"unit": "row"},
        {"more": 1},
        {"features": {"fields": [{"name": "x", "kind": "number", "low": 0}]}},
        {"response": {"kind": "boolean"}},
    ],
)
def test_what_is_no_task_does_not_fit(talk, wrong):
    values = make_task().to_dict() | wrong
    with pytest.raises(jsonschema_rs.ValidationError):
        check(values)
    assert talk.admin.post("/v1/admin/models", json={"task": values}).status_code == 422


def test_every_cause_of_a_refusal_is_listed(talk):
    causes = document()["components"]["schemas"]["Error"]["properties"]["cause"]["enum"]
    for path in ("/nothing", "/v1/models/phishing/nothing", "/v1/models/other/draw", "/v1/admin/models/x/freeze"):
        assert talk.client.get(path).json()["cause"] in causes
