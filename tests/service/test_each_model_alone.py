"""What is wrong with one model stops that model, and no other."""

import json
import subprocess

import pytest
from waiting import until

from blindsight.service import snapshots
from blindsight.service.pool import first_instances
from blindsight.service.store import SCHEMA, Record


def damaged(folder, task) -> None:
    (folder / f"{task.model}.safetensors").write_bytes(b"damaged")


def of_a_newer_version(folder, task) -> None:
    record = Record(task=task, unknown={"readers": SCHEMA + 1, "schema": SCHEMA + 1})
    snapshots.write(folder, record, first_instances(record))


@pytest.mark.parametrize("kind", ["memory", "redis"])
@pytest.mark.parametrize("spoil", [damaged, of_a_newer_version])
def test_a_snapshot_that_cannot_be_read_stops_its_own_model(request, make_task, tmp_path, kind, spoil):
    address = request.getfixturevalue("redis_server").address if kind == "redis" else "memory"
    folder, task = tmp_path / "kept", make_task(model="other")
    folder.mkdir()
    spoil(folder, task)
    before = (folder / "other.safetensors").read_bytes()
    (tmp_path / "other.json").write_text(json.dumps(task.to_dict()))
    talk = request.getfixturevalue("serving")(store=address, snapshot_s=0.05, tasks=(tmp_path / "other.json",))
    assert talk.update(talk.draw()).status_code == 202
    until(lambda: snapshots.names(folder) == ["other", "phishing"])
    for answer in (
        talk.draw("other"),
        talk.update(talk.draw(), model="other"),
        talk.client.get("/v1/models/other/task"),
        talk.admin.get("/v1/admin/models/other"),
    ):
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")
    assert talk.draw("third").status_code == 404
    ready = talk.client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "degraded", "models_out_of_service": 1})
    assert "other.safetensors" in talk.admin.get("/v1/admin/models").json()["faults"]["other"]
    assert talk.create(task).status_code == talk.create(task, replace=True).status_code == 409
    assert talk.admin.post("/v1/admin/models/other/reset").status_code == 503
    assert (folder / "other.safetensors").read_bytes() == before
    assert talk.admin.delete("/v1/admin/models/other").status_code == 204
    assert talk.client.get("/readyz").json() == {"status": "ready"}
    assert talk.create(task).status_code == 201
    assert talk.draw("other").status_code == 200


def test_a_record_in_redis_that_cannot_be_read_stops_its_own_model(redis_server, serving, make_task):
    talk = serving(store=redis_server.address)
    assert talk.create(make_task(model="other")).status_code == 201
    words = ["redis-cli", "-p", str(redis_server.port), "HSET", "blindsight:models", "other", '{"task": {"x": 1}}']
    subprocess.run(words, check=True, capture_output=True)
    until(lambda: talk.draw("other").status_code == 503)
    assert talk.update(talk.draw()).status_code == 202
    assert talk.client.get("/readyz").json()["status"] == "degraded"
    assert talk.admin.delete("/v1/admin/models/other").status_code == 204
    assert talk.client.get("/readyz").json() == {"status": "ready"}
