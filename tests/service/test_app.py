"""Draw, update, task: what any sender sees, and what it never sees."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import numpy as np
import pytest
from waiting import until

from blindsight.algorithms.draw_and_discard import Task, client_update
from blindsight.keys import reproducible
from blindsight.service.memory import MemoryStore
from blindsight.service.protocol import decode, encode


def raw(talk, request: bytes) -> bytes:
    """What comes back to bytes that no HTTP library would send."""
    host, port = talk.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 5) as sock:
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        found = b""
        while part := sock.recv(65536):
            found += part
        return found


def test_a_model_is_there_with_all_its_calls_or_not_at_all(serving, make_task, monkeypatch):
    """While it is being created or restored, a draw once got the task, and a paid update was lost."""
    is_begun, may_go_on, instances = threading.Event(), threading.Event(), MemoryStore.instances

    async def slowly(store, record):
        is_begun.set()
        while not may_go_on.is_set():
            await asyncio.sleep(0.01)
        return await instances(store, record)

    talk = serving(None)
    monkeypatch.setattr(MemoryStore, "instances", slowly)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(talk.create, make_task())
        until(is_begun.is_set)
        early = talk.draw()
        may_go_on.set()
        assert made.result().status_code == 201
    assert early.status_code == 404
    assert decode(talk.draw().content).shape == (3,)


def test_a_draw_gives_an_instance_and_an_update_replaces_one(serving):
    talk = serving(batch=1)
    drawn = talk.draw()
    assert drawn.status_code == 200
    assert drawn.headers["content-type"] == "application/octet-stream"
    assert drawn.headers["cache-control"] == "no-store"
    weights = decode(drawn.content)
    assert weights.shape == (3,)
    sent = encode(weights + np.float32(0.0001))
    answer = talk.update(drawn, sent)
    assert (answer.status_code, answer.json()) == (202, {})
    assert talk.statistics()["taken"] == 1
    found = {talk.draw().content for _ in range(400)}
    assert sent in found
    assert len(found) == 20


def test_the_task_is_served_as_it_was_given(talk, make_task):
    task = make_task()
    answer = talk.client.get("/v1/models/phishing/task")
    assert Task.from_dict(answer.json()) == task
    assert answer.headers["etag"] == f'"{task.version}"'
    assert talk.draw().headers["blindsight-version"] == task.version
    again = talk.client.get("/v1/models/phishing/task", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_spam_is_answered_like_any_update_and_not_taken(talk):
    honest = talk.update(talk.draw())
    for spam in ([1e9, 0, 0], [np.nan, 0, 0], [0, np.inf, 0], [0, 0, -np.inf], [3.4e38, -3.4e38, 0]):
        answer = talk.update(talk.draw(), encode(spam))
        assert (answer.status_code, answer.content) == (honest.status_code, honest.content)
        same = {name: value for name, value in answer.headers.items() if name != "date"}
        assert same == {name: value for name, value in honest.headers.items() if name != "date"}
    signalling = b"\x01\x00\x80\x7f" + bytes(8)
    assert talk.update(talk.draw(), signalling).status_code == 202
    found = talk.statistics()
    assert (found["taken"], found["spam"]) == (1, 6)
    assert np.isfinite(np.stack([decode(talk.draw().content) for _ in range(100)])).all()


def test_a_ticket_works_once_and_only_for_its_model(talk, make_task):
    drawn = talk.draw()
    assert talk.update(drawn).status_code == 202
    assert talk.update(drawn).status_code == 410
    assert talk.create(make_task(model="other")).status_code == 201
    foreign = talk.client.get("/v1/models/other/draw")
    assert talk.update(foreign, blindsight_version=talk.draw().headers["blindsight-version"]).status_code == 410
    for forged in ("", "0" * 64, "zz", foreign.headers["blindsight-ticket"][:-1], "00" * 40):
        assert talk.update(talk.draw(), blindsight_ticket=forged).status_code == 410
    assert talk.statistics()["replayed"] == 1
    assert talk.statistics()["taken"] == 1


def test_a_ticket_sent_twenty_times_at_once_is_taken_once(talk):
    drawn = talk.draw()
    with ThreadPoolExecutor(20) as threads:
        answers = [found.status_code for found in threads.map(lambda _: talk.update(drawn), range(20))]
    assert sorted(answers) == [202] + [410] * 19
    assert talk.statistics()["taken"] == 1


def test_what_is_malformed_is_refused_before_the_body_is_read(talk):
    drawn = talk.draw()
    cases = {
        413: {"body": bytes(16)},
        422: {"body": bytes(8)},
        415: {"content_type": "application/json"},
        409: {"blindsight_version": "0" * 16},
    }
    for status, changes in cases.items():
        answer = talk.update(drawn, **changes)
        assert answer.status_code == status
        assert list(answer.json()) == ["error", "cause"]
        assert len(answer.headers["x-request-id"]) == 16
    assert talk.update(drawn).status_code == 202  # none of them used the ticket up


def test_the_length_must_be_stated(talk):
    drawn = talk.draw()
    request = (
        f"POST /v1/models/phishing/update HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {'the clients of the tests'}\r\n"
        f"Content-Type: application/octet-stream\r\nBlindsight-Ticket: {drawn.headers['blindsight-ticket']}\r\n"
        f"Blindsight-Version: {drawn.headers['blindsight-version']}\r\n"
    )
    chunked = raw(
        talk, (request + "Transfer-Encoding: chunked\r\n\r\nc\r\n").encode() + drawn.content + b"\r\n0\r\n\r\n"
    )
    assert chunked.startswith(b"HTTP/1.1 411 ")
    assert raw(talk, (request + "\r\n").encode()).startswith(b"HTTP/1.1 411 ")
    huge = raw(talk, (request + "Content-Length: 99999999999\r\n\r\n").encode())
    assert huge.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in huge  # nobody reads a hundred gigabytes to be polite
    raw(talk, (request + "Content-Length: 12\r\n\r\n").encode() + b"half")  # and then it hangs up
    raw(talk, b"\x00\xff not http at all\r\n\r\n")
    assert talk.update(drawn).status_code == 202
    assert talk.statistics()["taken"] == 1


def test_a_body_that_never_comes_is_not_waited_for(serving):
    talk = serving(body_s=0.2)
    drawn = talk.draw()
    request = (
        f"POST /v1/models/phishing/update HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {'the clients of the tests'}\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: 12\r\n"
        f"Blindsight-Ticket: {drawn.headers['blindsight-ticket']}\r\n"
        f"Blindsight-Version: {drawn.headers['blindsight-version']}\r\n\r\n1234"
    )
    host, port = talk.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 5) as sock:
        sock.sendall(request.encode())
        assert sock.recv(65536).startswith(b"HTTP/1.1 408 ")
    assert talk.update(drawn).status_code == 202


def test_a_token_opens_its_models_and_nothing_else(talk, make_task):
    model = talk.create(make_task(model="third")).json()
    assert talk.client.get("/v1/models/third/draw").status_code == 404
    assert talk.client.get("/v1/models/nothing/draw").status_code == 404
    own = {"Authorization": f"Bearer {model['token']}"}
    assert httpx.get(f"{talk.address}/v1/models/third/draw", headers=own).status_code == 200
    assert httpx.get(f"{talk.address}/v1/models/phishing/draw", headers=own).status_code == 404
    assert httpx.get(f"{talk.address}/v1/admin/models", headers=own).status_code == 401
    for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic " + model["token"]}):
        answer = httpx.get(f"{talk.address}/v1/models/third/draw", headers=header)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert talk.admin.get("/v1/models/third/draw").status_code == 404  # an administrator is no client


def test_a_token_that_comes_too_often_has_to_wait(serving):
    talk = serving(rate_per_s=5.0)
    assert [talk.draw().status_code for _ in range(10)] == [200] * 10
    until(lambda: talk.draw().status_code == 429)
    assert talk.admin.get("/v1/admin/models").status_code == 200  # others are not made to
    until(lambda: talk.draw().status_code == 200)


def test_a_frozen_model_neither_gives_nor_takes(talk):
    drawn = talk.draw()
    assert talk.admin.post("/v1/admin/models/phishing/freeze").json()["frozen"]
    assert talk.draw().status_code == 423
    assert talk.update(drawn).status_code == 423
    assert talk.admin.get("/v1/admin/models/phishing/average").status_code == 200
    assert not talk.admin.post("/v1/admin/models/phishing/thaw").json()["frozen"]
    assert talk.update(drawn).status_code == 202


def test_scripts_of_named_pages_may_be_clients(serving):
    talk = serving(origins=("https://page.example",))
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    before = httpx.options(f"{talk.address}/v1/models/phishing/update", headers=asked)
    assert before.status_code == 204
    assert before.headers["access-control-allow-origin"] == "https://page.example"
    assert "blindsight-ticket" in before.headers["access-control-allow-headers"]
    drawn = talk.client.get("/v1/models/phishing/draw", headers={"Origin": "https://page.example"})
    assert drawn.headers["access-control-allow-origin"] == "https://page.example"
    assert "Blindsight-Ticket" in drawn.headers["access-control-expose-headers"]
    refused = httpx.get(f"{talk.address}/v1/models/phishing/draw", headers={"Origin": "https://page.example"})
    assert (refused.status_code, "access-control-allow-origin" in refused.headers) == (401, True)
    other = talk.client.get("/v1/models/phishing/draw", headers={"Origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers
    noted = talk.update(drawn, origin="https://page.example")
    assert (noted.status_code, noted.headers["access-control-allow-origin"]) == (202, "https://page.example")
    noted = talk.update(other)  # what one page may read is not said to the next
    assert (noted.status_code, "access-control-allow-origin" in noted.headers) == (202, False)


def test_wrong_methods_and_paths_are_said_so(talk):
    for method, path, status in (
        ("POST", "/v1/models/phishing/draw", 405),
        ("GET", "/v1/models/phishing/update", 405),
        ("GET", "/v1/models/phishing/nothing", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/phishing/draw/", 404),
        ("PATCH", "/v1/admin/models", 405),
        ("GET", "/nothing", 404),
    ):
        answer = talk.client.request(method, path)
        assert (answer.status_code, list(answer.json())) == (status, ["error", "cause"]), path


def test_what_is_learned_is_what_the_algorithm_computes(serving, make_task):
    """One instance and no noise: every update is the next state, so service and simulation agree to the last bit."""
    task = make_task(noise="none", epsilon=float("inf"), instances=1, learning_rate=0.1)
    talk = serving(task)
    rng = np.random.default_rng(0)
    weights = decode(talk.draw().content)
    for step in range(30):
        rows = [{"length": int(rng.integers(100)), "https": bool(rng.integers(2)), "phishing": bool(step % 2)}]
        drawn = talk.draw()
        assert drawn.content == encode(weights)
        weights = client_update(task, weights, *task.encode(rows), key=reproducible(step))
        assert talk.update(drawn, encode(weights)).status_code == 202
    average = np.array(talk.admin.get("/v1/admin/models/phishing/average").json()["weights"], np.float32)
    assert average.tobytes() == encode(weights)
    assert talk.statistics()["taken"] == 30


@pytest.mark.parametrize("instances", [1, 2, 20])
def test_honest_clients_are_taken_from_the_first_to_the_last(serving, instances, make_task):
    task = make_task(instances=instances)
    talk = serving(task)
    for step in range(120):
        drawn = talk.draw()
        rows = [{"length": step % 100, "https": step % 3 == 0, "phishing": step % 2 == 0}]
        update = client_update(task, decode(drawn.content), *task.encode(rows), key=reproducible(step))
        assert talk.update(drawn, encode(update)).status_code == 202
    assert talk.statistics()["spam"] <= 3
