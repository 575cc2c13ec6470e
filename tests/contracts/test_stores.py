"""What every store of the service must do, on a real Redis too."""

import asyncio
import dataclasses
import subprocess
from collections import Counter

import pytest

from blindsight.algorithms.draw_and_discard import Task
from blindsight.codings.specs import BooleanField, FeatureSpec, NumberField, Response
from blindsight.service import snapshots
from blindsight.service.memory import MemoryStore
from blindsight.service.pool import first_instances
from blindsight.service.redis_store import RedisStore
from blindsight.service.store import Record, StoreUnreachable
from blindsight.service.used import Admission

TASK = Task(
    model="m",
    family="logistic",
    features=FeatureSpec((NumberField("length", 0, 10), BooleanField("https"))),
    response=Response(BooleanField("phishing")),
    unit="feature",
    epsilon=1.0,
    instances=4,
)
ENDS = 2**31


def new(task: Task = TASK) -> tuple[Record, list[bytes]]:
    record = Record(task=task, tokens=("digest",))
    return record, first_instances(record)


@pytest.fixture(params=["memory", "redis"])
def make_store(request, tmp_path):
    """Makes the store; a second one is what a restarted service has."""
    if request.param == "memory":
        return lambda: MemoryStore(tmp_path / "kept")
    server = request.getfixturevalue("redis_server")
    return lambda: RedisStore(server.address, tmp_path / "kept")


def test_what_is_put_can_be_drawn_and_listed(make_store):
    async def check():
        store = make_store()
        secret = await store.open()
        assert len(secret) == 32
        assert await store.secret() == secret
        assert await store.records() == {}
        record, instances = new()
        await store.put(record, instances)
        assert await store.records() == {"m": record}
        assert await store.instances(record) == (instances, 0)
        drawn = Counter([await store.draw(record) for _ in range(80)])
        assert set(drawn) == set(instances)  # 4 instances: one is missed once in 10^9 runs
        await store.close()

    asyncio.run(check())


def test_an_update_replaces_one_instance_and_is_counted(make_store):
    async def check():
        store = make_store()
        await store.open()
        record, instances = new()
        await store.put(record, instances)
        places = Counter()
        for number in range(80):
            before, _ = await store.instances(record)
            update = bytes([number]) * 12
            assert await store.replace(record, update)
            after, count = await store.instances(record)
            assert count == number + 1
            changed = [place for place in range(4) if before[place] != after[place]]
            assert len(changed) == 1
            assert after[changed[0]] == update
            places[changed[0]] += 1
        assert set(places) == {0, 1, 2, 3}
        await store.close()

    asyncio.run(check())


def test_a_ticket_is_spent_once(make_store):
    async def check():
        store = make_store()
        await store.open()
        record, instances = new()
        await store.put(record, instances)
        assert await store.spend(record, b"a" * 12, ENDS) == (True, 0)
        await store.replace(record, instances[0])
        assert await store.spend(record, b"a" * 12, ENDS) == (False, 1)
        assert await store.spend(record, b"b" * 12, ENDS) == (True, 1)
        together = await asyncio.gather(*(store.spend(record, b"c" * 12, ENDS) for _ in range(20)))
        assert sum(unused for unused, _ in together) == 1
        await store.close()

    asyncio.run(check())


def test_a_sample_is_of_different_instances(make_store):
    async def check():
        store = make_store()
        await store.open()
        record, instances = new()
        await store.put(record, instances)
        sampled, count = await store.sample(record)
        assert (sorted(sampled), count) == (sorted(instances), 0)
        assert len({tuple((await store.sample(record))[0]) for _ in range(40)}) > 5  # in any order
        assert await store.sample(record.renewed()) == ([], 0)
        await store.close()

    asyncio.run(check())


def test_an_admission_token_is_used_once(make_store):
    async def check():
        store = make_store()
        await store.open()
        one, other = Admission("a" * 64, (1, 2, 3, 4), ENDS), Admission("a" * 64, (1, 2, 3, 5), ENDS)
        assert [await store.use(one), await store.use(one), await store.use(other)] == [True, False, True]
        assert await store.use(Admission("b" * 64, one.marks, ENDS))  # of another key
        third = Admission("a" * 64, (9, 8, 7, 6), ENDS)
        assert sum(await asyncio.gather(*(store.use(third) for _ in range(20)))) == 1
        await store.close()
        again = make_store()
        await again.open()
        assert not await again.use(third)
        await again.close()

    asyncio.run(check())


def test_a_life_that_is_over_takes_and_gives_nothing(make_store):
    async def check():
        store = make_store()
        await store.open()
        record, instances = new()
        await store.put(record, instances)
        again = record.renewed()
        fresh = first_instances(again)
        await store.put(again, fresh)
        assert await store.draw(record) is None
        assert await store.instances(record) == ([], 0)
        assert not await store.replace(record, instances[0])
        assert await store.instances(again) == (fresh, 0)
        await store.decline(again, instances[0])
        assert await store.instances(again) == (fresh, 0)
        await store.delete("m")
        assert not await store.replace(again, instances[0])
        assert await store.draw(again) is None
        assert await store.records() == {}
        await store.close()

    asyncio.run(check())


def test_a_record_changes_without_its_instances(make_store):
    async def check():
        store = make_store()
        await store.open()
        record, instances = new()
        await store.put(record, instances)
        await store.replace(record, b"\1" * 12)
        assert await store.put(record.changed(frozen=True))
        assert (await store.records())["m"].frozen
        found, count = await store.instances(record)
        assert count == 1
        assert b"\1" * 12 in found
        await store.close()

    asyncio.run(check())


def test_everything_is_there_after_a_restart_of_the_service(make_store, tmp_path):
    async def check():
        store = make_store()
        await store.open()
        record, instances = new()
        await store.put(record, instances)
        gone, its_instances = new(dataclasses.replace(TASK, model="gone"))
        await store.put(gone, its_instances)
        await store.replace(record, b"\1" * 12)
        await store.delete("gone")
        kept, _ = await store.instances(record)
        await store.close()
        assert snapshots.names(tmp_path / "kept") == ["m"]
        assert snapshots.read(tmp_path / "kept", "m") == (record, kept, 1)

        other = make_store()
        await other.open()
        assert await other.records() == {"m": record}
        assert (await other.instances(record))[0] == kept
        await other.close()

    asyncio.run(check())


def test_a_redis_that_forgot_everything_is_filled_from_the_snapshots(redis_server, tmp_path):
    async def check():
        store = RedisStore(redis_server.address, tmp_path)
        first = await store.open()
        record, instances = new()
        await store.put(record, instances)
        assert await store.spend(record, b"a" * 12, ENDS) == (True, 0)
        redis_server.stop()
        redis_server.start()
        await asyncio.sleep(0.3)
        with pytest.raises(StoreUnreachable):
            await store.snapshot()  # of a Redis that has nothing: the files must not be believed to be out of date
        assert snapshots.names(tmp_path) == ["m"]
        second = await store.secret()
        assert second != first  # tickets of before are worth nothing: nobody knows which were used
        (again,) = (await store.records()).values()
        assert again.life != record.life
        assert dataclasses.replace(again, life=record.life, revision=1) == record
        assert (await store.instances(again))[0] == instances
        assert await store.draw(record) is None
        await store.close()

    asyncio.run(check())


def test_two_processes_fill_an_empty_redis_once(redis_server, tmp_path):
    async def check():
        snapshots.write(tmp_path, *new())
        stores = [RedisStore(redis_server.address, tmp_path) for _ in range(4)]
        secrets = await asyncio.gather(*(store.open() for store in stores))
        assert len(set(secrets)) == 1
        lives = [(await store.records())["m"].life for store in stores]
        assert len(set(lives)) == 1
        for store in stores:
            await store.close()

    asyncio.run(check())


def test_redis_keeps_the_instances_and_nothing_of_the_past(redis_server, tmp_path):
    async def check():
        store = RedisStore(redis_server.address, tmp_path)
        await store.open()
        record, instances = new()
        await store.put(record, instances)
        for number in range(30):
            await store.spend(record, bytes([number]) * 12, ENDS)
            await store.replace(record, bytes([number + 1]) * 12)
        await store.put(record.renewed(), instances)
        await store.close()

    asyncio.run(check())
    cli = ["redis-cli", "-p", str(redis_server.port), "--scan"]
    keys = Counter(
        line.split(":")[1]
        for line in subprocess.run(cli, capture_output=True, text=True, check=True).stdout.splitlines()
    )
    assert keys.pop("spent") <= 30  # parts of one filter
    assert [keys.pop(name) for name in ("models", "secret", "runs", "lives", "alive")] == [1] * 5
    assert list(keys.values()) == [5]  # four instances and their count, of one life


def test_a_redis_with_an_append_only_file_is_refused(append_only_redis):
    from blindsight.errors import PrivacyError

    with pytest.raises(PrivacyError, match="append-only"):
        asyncio.run(RedisStore(append_only_redis.address, None).open())


def test_a_redis_that_is_not_there_is_one_sentence():
    with pytest.raises(StoreUnreachable, match="cannot be reached"):
        asyncio.run(RedisStore("redis://127.0.0.1:1/0", None).open())
