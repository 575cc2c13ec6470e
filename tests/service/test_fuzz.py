"""Requests that nobody would send: from the OpenAPI document, and updates of any bytes."""

import numpy as np
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from blindsight.service.openapi import document
from blindsight.service.protocol import decode

ADMIN, CLIENT = "the administrator of the tests", "the clients of the tests"


def is_whole(talk) -> None:
    """The model is there, every instance finite and of its length, and training goes on."""
    found = [decode(talk.draw().content) for _ in range(100)]
    assert all(weights.shape == (3,) and np.isfinite(weights).all() for weights in found)
    before = talk.statistics()["updates"]
    assert talk.update(talk.draw()).status_code == 202
    assert talk.statistics()["updates"] == before + 1


def fuzz(talk, operation, examples: int, part: int) -> int:
    """Requests to one operation, with and without a model that exists and a token that opens it."""
    sent = 0
    session = requests.Session()

    @seed(part)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(case=operation.as_strategy(), exists=st.booleans(), token=st.sampled_from([ADMIN, CLIENT, "nobody"]))
    def ask(case, exists, token):
        nonlocal sent
        if exists and "{model}" in operation.path:
            case.path_parameters["model"] = "phishing"
        answer = case.call(base_url=talk.address, headers={"Authorization": f"Bearer {token}"}, session=session)
        sent += 1
        assert answer.status_code < 500, (answer.request.method, answer.request.url, answer.text)
        documented = {int(status) for status in operation.definition.raw["responses"]}
        assert answer.status_code in documented | {400, 404}, (answer.request.method, answer.request.url)

    ask()
    session.close()
    return sent


def fuzz_all(talk, examples: int, part: int = 0) -> int:
    sent = 0
    for found in schemathesis.openapi.from_dict(document()).get_all_operations():
        operation = found.ok()  # pyright: ignore[reportAttributeAccessIssue]
        if operation.method.upper() != "DELETE":  # a model that was deleted on purpose is lost
            sent += fuzz(talk, operation, examples, part)
            talk.admin.post("/v1/admin/models/phishing/thaw")
    return sent


def test_requests_made_from_the_document_break_nothing(talk):
    assert fuzz_all(talk, 12) >= 120
    is_whole(talk)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, 6))
def test_ten_thousand_requests_made_from_the_document_break_nothing(talk, part):
    """In parts, no two of which are alike."""
    assert fuzz_all(talk, 200, part) >= 2000
    is_whole(talk)


def test_updates_of_any_bytes_break_nothing(talk):
    @settings(max_examples=80, deadline=None, database=None)
    @given(
        body=st.one_of(st.binary(min_size=12, max_size=12), st.binary(max_size=40)),
        ticket=st.one_of(st.none(), st.text("0123456789abcdefxyz", max_size=70)),
        version=st.one_of(st.none(), st.text("0123456789abcdef", max_size=20)),
    )
    def send(body, ticket, version):
        changes = {"blindsight_ticket": ticket, "blindsight_version": version}
        answer = talk.update(talk.draw(), body, **{name: value for name, value in changes.items() if value is not None})
        assert answer.status_code in (202, 409, 410, 413, 422)
        assert answer.status_code == 202 or (len(body) != 12 or ticket is not None or version is not None)

    send()
    is_whole(talk)
