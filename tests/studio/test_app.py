"""Who may see and post what: nobody without the token, nobody from elsewhere, nothing that is not a label."""

import base64
import hashlib
import re

import pytest
from starlette.testclient import TestClient

from blindsight.studio.app import make_app
from blindsight.studio.labels import Labels
from blindsight.studio.queue import Queue

TOKEN = "the-token"


@pytest.fixture
def queue(make_set) -> Queue:
    return Queue(Labels(make_set()), "anna")


@pytest.fixture
def client(queue) -> TestClient:
    return TestClient(make_app(queue, TOKEN), base_url="http://127.0.0.1:8000")


def test_the_page_allows_itself_nothing_but_its_own(client):
    answer = client.get(f"/{TOKEN}/")
    policy = answer.headers["content-security-policy"]
    assert answer.status_code == 200
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert (answer.headers["cache-control"], answer.headers["referrer-policy"]) == ("no-store", "no-referrer")
    assert "http://" not in answer.text
    assert "https://" not in answer.text


@pytest.mark.parametrize("path", ["/", "/state", "/wrong/", "/wrong/state", "/the-toke/state", f"/{TOKEN}x/state"])
def test_without_the_token_there_is_nothing(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "anna" not in answer.text


@pytest.mark.parametrize("path", ["label", "undo", "keys"])
def test_nobody_else_can_post(client, queue, path):
    said = {"sample_id": "everyone/00001", "label": "cat", "seconds": 1}
    assert client.post(f"/wrong/{path}", json=said).status_code == 404
    assert client.post(f"/{TOKEN}/{path}", json=said, headers={"Host": "evil.example:8000"}).status_code == 404
    as_text = {"content-type": "text/plain"}  # what a form of another page could send without asking
    assert client.post(f"/{TOKEN}/{path}", content=b"{}", headers=as_text).status_code == 415
    assert queue.labels.raters == ()


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:9", "[::1]:8000", "localhost"])
def test_this_machine_has_several_names(client, host):
    assert client.get(f"/{TOKEN}/state", headers={"Host": host}).status_code == 200


def test_a_label_is_answered_with_what_comes_next(client, queue):
    first = client.get(f"/{TOKEN}/state").json()["sample"]["id"]
    answer = client.post(f"/{TOKEN}/label", json={"sample_id": first, "label": "cat", "seconds": 1.25}).json()
    assert answer["labelled"] == 1
    assert answer["sample"]["id"] != first
    assert queue.labels.standing("anna")[first].seconds == 1.25
    again = client.post(f"/{TOKEN}/label", json={"sample_id": first, "label": "dog", "seconds": 1})
    assert again.status_code == 409
    assert "already labelled" in again.json()["error"]
    assert again.json()["sample"]["id"] == answer["sample"]["id"]  # so the page can go on
    back = client.post(f"/{TOKEN}/undo", json={}).json()
    assert (back["labelled"], back["sample"]["id"]) == (0, first)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{]", 400),
        (b"{}", 409),
        (b'{"sample_id": "everyone/00001"}', 409),
        (b'{"sample_id": ["x"], "label": "cat"}', 409),
        (b'{"sample_id": "nobody", "label": "cat"}', 409),
        (b'{"sample_id": "everyone/00001", "label": "cow"}', 409),
        (b'{"sample_id": "everyone/00001", "label": 3}', 409),
        (b" " * 200_000, 413),
    ],
)
def test_what_is_no_label_is_refused_and_nothing_is_saved(client, queue, body, status):
    answer = client.post(f"/{TOKEN}/label", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["error"]
    assert queue.labels.raters == ()


def test_a_full_disk_is_said_and_the_page_stays(client, queue, monkeypatch):
    from blindsight.errors import BlindsightError

    def full(*_: object) -> None:
        raise BlindsightError("cannot write labels.jsonl (No space left on device): free some space")

    monkeypatch.setattr(queue.labels, "add", full)
    answer = client.post(f"/{TOKEN}/label", json={"sample_id": "everyone/00001", "label": "cat", "seconds": 1})
    assert answer.status_code == 500
    assert "No space left" in answer.json()["error"]
    assert "sample" not in answer.json()
