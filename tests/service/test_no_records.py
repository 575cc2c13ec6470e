"""Nothing links a draw to an update or to a client: logs, store, files and metrics are searched for what could."""

import asyncio
import fcntl
import logging
import os
import subprocess

import numpy as np
import pytest

from blindsight.service import snapshots, spam
from blindsight.service.memory import MemoryStore
from blindsight.service.pool import first_instances
from blindsight.service.protocol import decode, encode
from blindsight.service.redis_store import RedisStore
from blindsight.service.store import Record


def spoken(talk) -> dict[str, bytes]:
    """Draws and updates of every kind; what must not be found anywhere afterwards."""
    secrets: dict[str, bytes] = {}
    dice = np.random.default_rng(0)
    for number in range(60):  # the window is refreshed on the way
        drawn = talk.draw()
        # no two sums of steps are equal, or two instances could come to be the same
        sent = encode(decode(drawn.content) + dice.uniform(1e-5, 6e-4, 3).astype(np.float32))
        talk.update(drawn, sent, user_agent=f"agent-{number}", x_request_id=f"mine-{number}")
        secrets[f"ticket {number}"] = drawn.headers["blindsight-ticket"].encode()
        secrets[f"agent {number}"] = f"agent-{number}".encode()
        secrets[f"id {number}"] = f"mine-{number}".encode()
    spam, refused = encode([1234.5, 0, 0]), encode([77.25, 1.5, -3.75])
    talk.update(talk.draw(), spam)
    used = talk.draw()
    talk.update(used, refused)
    talk.update(used, refused)  # 410
    talk.update(used, refused + b"long")  # 413
    talk.client.get("/v1/models/phishing/draw", headers={"Authorization": "Bearer a secret that is wrong"})
    return secrets | {
        "spam": spam,
        "a refused body": refused,
        "a wrong token": b"a secret that is wrong",
        "the clients' token": b"the clients of the tests",
        "the admin token": b"the administrator of the tests",
        "an address": b"127.0.0.1:",
    }


def search(places: dict[str, bytes], secrets: dict[str, bytes]) -> list[str]:
    """Where which secret is found, as it is, in hexadecimal, or as Python would print it."""
    found = []
    for place, content in places.items():
        for name, secret in secrets.items():
            if any(form in content for form in (secret, secret.hex().encode(), repr(secret).encode())):
                found.append(f"{name} in {place}")
    return found


def files(folder) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_nothing_that_could_link_is_kept(store, request, tmp_path, caplog, capfd):
    server = request.getfixturevalue("redis_server") if store == "redis" else None
    serving = request.getfixturevalue("serving")  # later than its Redis, so that it ends first
    with caplog.at_level(logging.DEBUG):
        talk = serving(store=server.address if server else "memory", batch=1)
        secrets = spoken(talk)
        metrics = talk.admin.get("/metrics").content
        statistics = talk.admin.get("/v1/admin/models/phishing/statistics").content
    kept = {talk.draw().content for _ in range(400)}
    pool = talk.service.registry.pools["phishing"]
    inside = {name: repr(value).encode() for name, value in vars(pool).items() if name != "record"}
    places = {
        "the log": "\n".join(
            f"{record.getMessage()} {record.args}" for record in caplog.records if not record.name.startswith("http")
        ).encode(),  # less what the clients in this test log themselves
        "the output": "".join(capfd.readouterr()).encode(),
        "the metrics": metrics,
        "the statistics": statistics,
        **{f"the pool's {name}": text for name, text in inside.items()},
    }
    on_disk = files(tmp_path / "kept")
    if server is not None:
        dump = subprocess.run(
            ["redis-cli", "-p", str(server.port), "--rdb", str(tmp_path / "dump.rdb")], check=True, capture_output=True
        )
        assert dump.returncode == 0
        on_disk["all of Redis"] = (tmp_path / "dump.rdb").read_bytes()
    assert search(places | on_disk, secrets) == []
    assert talk.statistics()["taken"] == 60
    assert len(kept) == 20  # and these are all that is left of sixty updates
    assert search({"itself": b"spam: " + secrets["spam"]}, secrets) == ["spam in itself"]


def test_a_fault_is_logged_without_what_was_sent(serving, caplog, monkeypatch):
    talk = serving()
    drawn = talk.draw()
    body = encode([0.125, 0.25, 0.5])

    def broken(self, update, nonce, ends):
        raise ValueError(f"cannot digest {update!r} of {nonce!r}")

    monkeypatch.setattr("blindsight.service.pool.Pool.offer_now", broken)
    answer = talk.update(drawn, body)
    assert (answer.status_code, answer.json()) == (500, {"error": "internal error", "cause": "fault"})
    log = "\n".join(record.getMessage() for record in caplog.records)
    assert answer.headers["x-request-id"] in log
    assert "ValueError" in log
    assert "digest" not in log
    assert os.fspath(__file__) in log or "test_no_records" in log


def test_a_fault_after_the_answer_is_logged_without_what_was_sent_and_takes_no_other_update_along(
    serving, caplog, monkeypatch
):
    talk = serving()
    body = encode([0.125, 0.25, 0.5])
    measure = spam.Guard.measure

    def broken(self, updates, near, base=None):
        if body in updates:
            raise ValueError(f"cannot digest {updates!r}")
        return measure(self, updates, near, base)

    monkeypatch.setattr(spam.Guard, "measure", broken)
    for sent in (body, None, body, None):
        drawn = talk.draw()
        assert talk.update(drawn, sent or drawn.content).status_code == 202
    assert talk.statistics()["taken"] == 2
    log = "\n".join(record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert log.count("an update: ValueError at") == 2
    assert "digest" not in log


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_what_a_crash_left_behind_is_gone_when_the_service_begins_again(
    make_task, kind, request, tmp_path, monkeypatch
):
    """Also of a model that is deleted before it is ever written again."""
    record = Record(task=make_task())
    server = request.getfixturevalue("redis_server") if kind == "redis" else None

    async def begin():
        store = MemoryStore(tmp_path) if server is None else RedisStore(server.address, tmp_path)
        await store.open()
        return store

    async def check():
        store = await begin()
        await store.put(record, first_instances(record))
        await store.close()
        with monkeypatch.context() as patch:

            def killed(*paths):
                raise KeyboardInterrupt

            patch.setattr(snapshots.os, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                snapshots.write(tmp_path, record, first_instances(record))
        assert len([path for path in tmp_path.iterdir() if path.stem == "phishing"]) == 2
        store = await begin()
        assert [path.name for path in tmp_path.iterdir() if path.stem == "phishing"] == ["phishing.safetensors"]
        await store.delete("phishing")
        await store.close()

    asyncio.run(check())
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "deleted.json"]


def test_what_a_process_leaves_half_written_beside_others_is_gone_with_their_next_snapshot(
    make_task, redis_server, tmp_path
):
    """Processes that share a Redis share a folder too: one begins, or dies, while another is writing."""
    record, half = Record(task=make_task()), tmp_path / "phishing.99999"

    async def check():
        store = RedisStore(redis_server.address, tmp_path)
        tmp_path.joinpath(".lock").touch()
        with open(tmp_path / ".lock") as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            half.write_bytes(b"instances")
            await store.open()
            assert half.exists()  # it is being written
        await store.put(record, first_instances(record))
        half.write_bytes(b"instances")
        await store.snapshot()  # of a model that has not changed since
        assert not half.exists()
        await store.close()

    asyncio.run(check())


def test_a_snapshot_holds_the_instances_of_now_and_one_file_is_all(serving, tmp_path):
    talk = serving(snapshot_s=0.05, batch=1)
    overwritten = []
    for _ in range(100):
        drawn = talk.draw()
        sent = encode(decode(drawn.content) + np.random.default_rng().normal(0, 1e-4, 3))
        talk.update(drawn, sent)
        overwritten.append(sent)
    now = {talk.draw().content for _ in range(500)}
    talk.admin.post("/v1/admin/models/phishing/tokens")  # writes a snapshot
    names = sorted(os.listdir(tmp_path / "kept"))
    assert [name for name in names if not name.startswith(".")] == ["phishing.safetensors"]
    content = (tmp_path / "kept" / "phishing.safetensors").read_bytes()
    assert all(instance in content for instance in now)
    gone = set(overwritten) - now
    assert len(gone) > 50
    assert not any(update in content for update in gone)
