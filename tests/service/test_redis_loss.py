"""A Redis that loses things: absence is never deletion, and nothing that was used once is used again."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile

import pytest
from waiting import until

from blindsight.errors import PrivacyError
from blindsight.service import snapshots
from blindsight.service.pool import first_instances
from blindsight.service.redis_store import RedisStore
from blindsight.service.store import Record, StoreUnfit, StoreUnreachable
from blindsight.service.tombstones import read_tombstones

ENDS = 2**31


def cli(server, *words: str) -> bytes:
    return subprocess.run(["redis-cli", "-p", str(server.port), *words], check=True, capture_output=True).stdout


async def opened(server, folder) -> RedisStore:
    store = RedisStore(server.address, folder, snapshot_s=1000)
    await store.open()
    return store


async def again(store: RedisStore) -> bytes:
    """A look at the Redis, as the registry takes one every second; and the minute's care."""
    store._cared_at = -1e9
    while True:
        try:
            return await store.secret()
        except StoreUnfit:
            raise
        except StoreUnreachable:
            await asyncio.sleep(0.05)


@pytest.fixture
def record(make_task) -> Record:
    return Record(task=make_task(), tokens=("digest",))


def test_the_emptiest_host_starts_first_and_loses_nothing(redis_server, record, tmp_path):
    """A cold cluster: the host without files fills it with nothing; the others' files are not out of date."""
    instances = first_instances(record)
    snapshots.write(tmp_path / "full", record, instances, 5)

    async def check():
        empty = await opened(redis_server, tmp_path / "empty")
        full = await opened(redis_server, tmp_path / "full")
        await full.snapshot()
        assert snapshots.names(tmp_path / "full") == ["phishing"]
        (found,) = (await empty.records()).values()
        assert (found.created, found.tokens) == (record.created, record.tokens)
        assert await empty.instances(found) == (instances, 5)
        await empty.close()
        await full.close()

    asyncio.run(check())


@pytest.mark.parametrize("words", [["DEL", "blindsight:models"], ["FLUSHALL"], ["DEL", "blindsight:secret"]])
def test_what_is_deleted_from_redis_by_hand_comes_back(redis_server, record, tmp_path, words):
    async def check():
        store = await opened(redis_server, tmp_path)
        assert await store.put(record, first_instances(record))
        await store.replace(record, b"\1" * 12)
        await store.snapshot()
        await store.replace(record, b"\2" * 12)
        before, _ = await store.instances(record)
        cli(redis_server, *words)
        await store.snapshot()
        assert snapshots.names(tmp_path) == ["phishing"]
        await again(store)
        (found,) = (await store.records()).values()
        kept, count = await store.instances(found)
        assert (found.created, len(kept)) == (record.created, 20)
        if words[0] == "FLUSHALL":
            assert count == 1  # as of the snapshot
        else:
            assert (kept, count) == (before, 2)  # Redis still had it all
        await store.close()

    asyncio.run(check())


@pytest.mark.parametrize("lost", [1, 9, 12, 20])
@pytest.mark.parametrize("has_file", [True, False])
def test_evicted_instances_are_restored(redis_server, record, tmp_path, lost, has_file):
    """A few of them in place; most of them, and the model as a whole is that of the snapshot."""
    instances = first_instances(record)

    async def check():
        store = await opened(redis_server, tmp_path if has_file else None)
        assert await store.put(record, instances)
        keys = [f"blindsight:{record.life}:{number}" for number in range(lost)]
        cli(redis_server, "DEL", *keys, f"blindsight:{record.life}:count")
        await store.instances(record)  # whoever asks notices, and the next look repairs it
        await store.secret()
        (found,) = (await store.records()).values()
        kept, _ = await store.instances(found)
        if has_file:
            assert kept == instances
            assert (found.life == record.life) == (lost < 10)
        elif lost < 20:
            assert set(kept) == set(instances[lost:])
        else:
            assert kept == []
            assert "no snapshot" in store.faults["phishing"]
        assert await store.replace(found, b"\1" * 12) == bool(kept)
        await store.close()

    asyncio.run(check())


def test_a_deleted_model_stays_deleted_wherever_its_files_are(redis_server, record, make_task, tmp_path):
    later = Record(task=make_task())

    async def check():
        one, other = [await opened(redis_server, tmp_path / name) for name in ("one", "other")]
        assert await one.put(record, first_instances(record))
        await other.snapshot()
        shutil.copytree(tmp_path / "other", tmp_path / "away")  # a host that is off while the model is deleted
        await one.delete("phishing", "the task was wrong")
        await other.snapshot()
        assert snapshots.names(tmp_path / "one") == snapshots.names(tmp_path / "other") == []
        (stone,) = read_tombstones(tmp_path / "other").values()
        assert "the task was wrong" in stone
        away = await opened(redis_server, tmp_path / "away")
        await away.snapshot()
        assert await away.records() == {}
        assert snapshots.names(tmp_path / "away") == []
        assert await one.put(later, first_instances(later))  # another one of that name is not affected
        await again(away)
        assert await away.records() == {"phishing": later}
        cli(redis_server, "FLUSHALL")
        shutil.copytree(tmp_path / "other", tmp_path / "away", dirs_exist_ok=True)
        await again(one)
        (found,) = (await one.records()).values()
        assert found.created == later.created
        for store in (one, other, away):
            await store.close()

    asyncio.run(check())


def test_a_crash_of_redis_makes_no_used_ticket_good_again(redis_server, record, tmp_path):
    """With snapshots of its own, as Redis has them by default, it comes back as it was some time ago."""
    folder = tempfile.mkdtemp(dir=tmp_path)
    server = type(redis_server)("--dir", folder, "--save", "3600 1")
    try:

        async def check():
            store = await opened(server, tmp_path / "kept")
            assert await store.put(record, first_instances(record))
            first = store._known_secret
            cli(server, "SAVE")
            changed = record.changed(frozen=True)
            assert await store.put(changed)  # since Redis wrote its file
            assert await store.spend(changed, b"a" * 12, ENDS) == (True, 0)
            server.stop()
            server.start()
            await asyncio.sleep(0.3)  # a Redis that was away is dialled again
            with pytest.raises(StoreUnreachable):
                await store.spend(changed, b"a" * 12, ENDS)
            assert await again(store) != first  # every ticket is void, used or not
            (found,) = (await store.records()).values()
            assert found.frozen  # the snapshot here is newer than Redis's own
            assert found.life != record.life
            assert len((await store.instances(found))[0]) == 20
            await store.close()

        asyncio.run(check())
    finally:
        server.stop()


def test_a_redis_that_becomes_unfit_takes_nothing_more_until_it_is_fit_again(redis_server, record, tmp_path):
    async def check():
        store = await opened(redis_server, tmp_path)
        assert await store.put(record, first_instances(record))
        for setting, bad, good, says in (
            ("appendonly", "yes", "no", "append-only"),
            ("maxmemory-policy", "allkeys-lru", "noeviction", "evicts"),
            ("maxmemory-policy", "volatile-ttl", "noeviction", "evicts"),
            ("maxmemory", "1000kb", "1gb", "no memory"),
        ):
            cli(redis_server, "CONFIG", "SET", "maxmemory", "1gb")
            cli(redis_server, "CONFIG", "SET", setting, bad)
            with pytest.raises(StoreUnfit, match=says) as found:
                await again(store)
            assert isinstance(found.value, PrivacyError) == (setting == "appendonly")
            for call in (store.check(), store.draw(record), store.replace(record, b"\1" * 12)):
                with pytest.raises(StoreUnreachable):
                    await call
            cli(redis_server, "CONFIG", "SET", setting, good)
            await again(store)
            await store.check()
            assert await store.replace(record, b"\1" * 12)
        await store.close()

    asyncio.run(check())


def test_a_redis_that_evicts_is_refused_at_the_start(redis_server):
    from blindsight.errors import InvalidInput

    cli(redis_server, "CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(InvalidInput, match="maxmemory-policy noeviction"):
        asyncio.run(RedisStore(redis_server.address, None).open())


def test_what_a_crash_left_of_a_life_is_deleted(redis_server, record, tmp_path):
    async def check():
        store = await opened(redis_server, tmp_path)
        assert await store.put(record, first_instances(record))
        await store._recovery.begin(record.renewed(), first_instances(record))  # and then the process died
        assert len(cli(redis_server, "KEYS", "blindsight:*:0").split()) == 2
        await again(store)
        assert len(cli(redis_server, "KEYS", "blindsight:*:0").split()) == 2  # it may still be at work
        await again(store)
        assert cli(redis_server, "KEYS", "blindsight:*:0").split() == [f"blindsight:{record.life}:0".encode()]
        await store.close()

    asyncio.run(check())


def test_a_clock_of_redis_that_jumps_voids_all_tickets(redis_server, record, tmp_path):
    """Redis forgets used tickets by its own clock. Here this process's view of that clock is moved instead."""

    async def check():
        one, other = [await opened(redis_server, tmp_path / name) for name in ("one", "other")]
        first = await one.secret()
        assert one._skew is not None
        one._skew -= 3600
        assert other._skew is not None
        other._skew -= 3600
        second = await one.secret()
        assert second != first
        assert await other.secret() == second  # once, however many processes notice
        assert abs(one.now() - other.now()) < 5
        await one.close()
        await other.close()

    asyncio.run(check())


def test_a_process_with_a_wrong_clock_has_that_of_redis(redis_server):
    code = (
        "import asyncio, sys, time; real = time.time; time.time = lambda: real() + 7200\n"
        "from blindsight.service.redis_store import RedisStore\n"
        "async def main():\n    store = RedisStore(sys.argv[1], None)\n    await store.open()\n"
        "    print(store.now() - real())\n    await store.close()\n"
        "asyncio.run(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, redis_server.address], capture_output=True, text=True, check=True, env=os.environ
    )
    assert abs(float(done.stdout)) < 30


def test_readiness_tells_of_a_redis_that_becomes_unfit(redis_server, serving):
    talk = serving(store=redis_server.address)
    drawn = talk.draw()
    assert talk.client.get("/readyz").status_code == 200
    cli(redis_server, "CONFIG", "SET", "appendonly", "yes")
    until(lambda: talk.client.get("/readyz").status_code == 503)
    assert talk.update(drawn).status_code == 503
    until(lambda: talk.draw().status_code == 503)  # what a draw shows may be a second old
    assert talk.client.get("/healthz").status_code == 200
    cli(redis_server, "CONFIG", "SET", "appendonly", "no")
    until(lambda: talk.client.get("/readyz").status_code == 200)
    assert talk.update(drawn).status_code == 202
