"""Two versions of the code on one Redis, and what an earlier version left behind."""

import json
import shutil
import subprocess
from pathlib import Path

import httpx2 as httpx
import pytest
from waiting import HANG_S, until

from blindsight.errors import InvalidInput
from blindsight.service import snapshots, store
from blindsight.service.protocol import encode
from blindsight.service.store import Record

EARLIER = Path(__file__).with_name("schema_1")
NEWER = Path(__file__).with_name("newer_child.py")
ADMIN = {"Authorization": "Bearer administrator-of-the-tests"}


def test_what_the_first_version_wrote_is_read(tmp_path):
    record = Record.from_json((EARLIER / "record.json").read_text())
    assert (record.frozen, record.tokens, record.life) == (True, ("digest",), "0123456789abcdef")
    assert (record.created, record.revision) == (record.life, 0)
    shutil.copy(EARLIER / "phishing.safetensors", tmp_path)
    assert snapshots.read(tmp_path, "phishing") == (record, [encode([n, 0, -n]) for n in range(20)], 0)
    changed = record.changed(frozen=False)
    assert changed.follows(record)
    assert Record.from_json(changed.to_json()) == changed


def test_the_first_version_could_read_what_this_one_writes(make_task):
    fields = json.loads(Record(task=make_task()).to_json())
    assert fields["readers"] == 1
    assert set(json.loads((EARLIER / "record.json").read_text())) <= set(fields)


def test_fields_of_a_newer_version_are_kept(make_task):
    newer = json.loads(Record(task=make_task()).to_json()) | {"schema": 9, "colour": "blue"}
    written = json.loads(Record.from_json(json.dumps(newer)).changed(frozen=True).to_json())
    assert (written["schema"], written["colour"], written["frozen"]) == (9, "blue", True)


@pytest.mark.parametrize(
    "change",
    [{"readers": store.SCHEMA + 1}, {"task": {"unheard": 1}}, {"tokens": 3}, {"life": None, "task": None}],
)
def test_what_may_not_be_read_is_refused(make_task, change):
    fields = json.loads(Record(task=make_task()).to_json()) | change
    if "unheard" in str(change):
        fields["task"] = make_task().to_dict() | change["task"]
    with pytest.raises(InvalidInput, match="newer version"):
        Record.from_json(json.dumps(fields))


def call(service, method: str, path: str, **more) -> httpx.Response:
    address = f"{service.address}/v1/admin/models{path}"
    return httpx.request(method, address, headers=ADMIN, timeout=HANG_S, **more)


def test_this_version_and_the_next_share_a_redis(processes, redis_server, make_task):
    def stored(model: str) -> dict:
        words = ["redis-cli", "-p", str(redis_server.port), "HGET", "blindsight:models", model]
        return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)

    newer, older = processes(redis_server.address), processes(redis_server.address)
    newer.start(NEWER)
    newer.wait()
    older.start()
    older.wait()
    with newer.load(1), older.load(1):
        newer.until_taken(20)
        older.until_taken(20)
        assert stored("phishing")["schema"] == store.SCHEMA + 1
        assert call(older, "POST", "/phishing/freeze").json()["frozen"] is True
        assert call(older, "POST", "/phishing/tokens").status_code == 201
        assert (stored("phishing")["colour"], stored("phishing")["schema"]) == ("blue", store.SCHEMA + 1)
        until(lambda: call(newer, "GET", "/phishing").json()["frozen"] is True)
        assert call(newer, "POST", "/phishing/thaw").json()["frozen"] is False
        until(lambda: call(older, "GET", "/phishing").json()["frozen"] is False)
        assert len(stored("phishing")["tokens"]) == 2
        newer.until_taken(20)
        older.until_taken(20)

        breaking = make_task(model="breaking").to_dict()
        assert call(newer, "POST", "", json={"task": breaking}).status_code == 201
        until(lambda: call(older, "GET", "/breaking").status_code == 503)
        ready = httpx.get(f"{older.address}/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert "newer version" in call(older, "GET", "").json()["faults"]["breaking"]
        assert call(older, "POST", "", json={"task": breaking, "replace": True}).status_code == 409
        assert call(newer, "GET", "/breaking").status_code == 200
        newer.until_taken(20)
        older.until_taken(20)
    for service in (newer, older):
        assert set(service.answers) <= {202, 410, 423, 503}


@pytest.mark.slow
def test_a_redis_is_filled_by_the_older_of_two_versions(processes, redis_server, make_task):
    """It restores what it understands, and leaves the rest alone for those who do."""
    newer, older = processes(redis_server.address), processes(redis_server.address)
    process = newer.start(NEWER)
    newer.wait()
    assert call(newer, "POST", "", json={"task": make_task(model="breaking").to_dict()}).status_code == 201
    process.terminate()
    assert process.wait(HANG_S) == 0
    kept = (newer.folder / "breaking.safetensors").read_bytes()
    subprocess.run(["redis-cli", "-p", str(redis_server.port), "FLUSHALL"], check=True, capture_output=True)
    older.start()
    older.wait()
    with older.load(1):
        older.until_taken(20)
    assert "breaking" in call(older, "GET", "").json()["faults"]
    assert (newer.folder / "breaking.safetensors").read_bytes() == kept
    newer.start(NEWER)
    newer.wait()
    until(lambda: call(newer, "GET", "/breaking").status_code == 200)  # restored with its first look
    until(lambda: "faults" in call(older, "GET", "").json())  # in Redis now, and still not readable
