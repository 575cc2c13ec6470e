"""One model in service: how often its instances are read, and what happens when they go away."""

import asyncio
import hashlib
import itertools
import os
import subprocess

import numpy as np
import pytest
from waiting import HANG_S

from blindsight.service.memory import MemoryStore
from blindsight.service.pool import Pool, first_instances
from blindsight.service.protocol import Refusal, decode, encode
from blindsight.service.redis_store import RedisStore
from blindsight.service.spam import Guard
from blindsight.service.store import Record


class SlowStore(MemoryStore):
    """A store that others share: everything takes a turn of the loop, and reading all instances is counted."""

    shared = True
    read = 0

    async def instances(self, record):
        self.read += 1
        await asyncio.sleep(0.001)
        return await super().instances(record)

    async def spend(self, record, nonce, ends):
        await asyncio.sleep(0)
        return await super().spend(record, nonce, ends)

    async def replace(self, record, update):
        await asyncio.sleep(0)
        return await super().replace(record, update)


def test_a_shared_store_is_asked_for_instances_only_to_inspect_them(make_task):
    async def check():
        store, record = SlowStore(None), Record(task=make_task())
        await store.put(record, first_instances(record))
        pool = Pool(record, store)

        async def client():
            for _ in range(50):
                await pool.offer(await pool.draw(), os.urandom(12), 2**31)

        await asyncio.gather(*(client() for _ in range(20)))
        await pool.close()
        assert pool.taken == 1000
        assert store.read <= 2

    asyncio.run(check())


def test_a_model_that_goes_away_meanwhile_takes_nothing(make_task):
    async def check():
        store, record = MemoryStore(None), Record(task=make_task())
        await store.put(record, first_instances(record))
        pool = Pool(record, store)
        update = await pool.draw()
        await store.delete("phishing")
        await pool.offer(update, os.urandom(12), 2**31)
        for asked in (pool.draw, pool.average):
            with pytest.raises(Refusal) as found:
                await asked()
            assert found.value.status == 503
        assert await pool.spread() == (0.0, 0)
        assert pool.taken == 0

    asyncio.run(check())


def test_without_waiting_the_same_is_done_in_fewer_steps(make_task):
    async def check():
        store, record = MemoryStore(None), Record(task=make_task())
        await store.put(record, first_instances(record))
        pool = Pool(record, store)
        update, spam, used = pool.draw_now(), bytes(11) + b"\x7f", os.urandom(12)
        assert update is not None
        assert pool.offer_now(update, used, 2**31)
        assert pool.offer_now(spam, os.urandom(12), 2**31)
        assert pool.offer_now(b"\x00\x00\xc0\x7f" * 3, os.urandom(12), 2**31)  # not a number
        with pytest.raises(Refusal) as found:
            pool.offer_now(update, used, 2**31)
        assert found.value.status == 410
        assert (pool.draws, pool.taken, pool.spam, pool.replays) == (1, 0, 0, 1)
        await asyncio.sleep(0)
        assert (pool.taken, pool.spam) == (1, 2)
        for _ in range(119):
            assert pool.offer_now(update, os.urandom(12), 2**31)
        await pool.average()  # sees what waits
        assert (await store.instances(record))[1] == pool.taken == 120
        assert pool.offer_now(update, os.urandom(12), 2**31)
        await pool.close()
        assert pool.taken == 121
        assert pool.offer_now(update, os.urandom(12), 2**31)
        await store.delete("phishing")
        assert pool.draw_now() is None
        await asyncio.sleep(0)
        assert (pool.taken, pool.spam) == (121, 2)

    asyncio.run(check())


def test_updates_wait_for_the_rest_of_their_batch_and_not_for_long(make_task):
    """Together they take a fifth of the time; a draw after a whole batch shows the next mixture at once."""

    async def check():
        store, record = MemoryStore(None), Record(task=make_task())
        await store.put(record, first_instances(record))
        pool = Pool(record, store, batch=5)
        update = pool.draw_now()
        assert update is not None
        for number in range(13):
            assert pool.offer_now(update, os.urandom(12), 2**31)
            assert pool.taken == (number + 1) // 5 * 5
            shown = pool.draw_now()
            assert (shown != update) == (number >= 4)
        async with asyncio.timeout(HANG_S):
            while pool.taken < 13:
                await asyncio.sleep(0.002)
        large = make_task(model="large", family="custom", features=None, response=None, weights=70_000, instances=2)
        record = Record(task=large)
        await store.put(record, first_instances(record))
        pool = Pool(record, store, batch=5)
        assert pool.offer_now(pool.draw_now() or b"", os.urandom(12), 2**31)
        assert pool.taken == 1  # a few of them would be as large as all others together

    asyncio.run(check())


def test_updates_of_one_turn_are_stored_as_one_at_a_time(make_task, monkeypatch):
    """The same updates are spam, and the same instances result, however many come at once."""
    monkeypatch.setattr("blindsight.service.memory.random_index", lambda count: 0)
    record = Record(task=make_task())
    instances = first_instances(record)
    updates = [encode(decode(instances[7]) + number * 1e-5) for number in range(150)]
    updates[::7] = [encode(decode(instances[7]) + 1e6)] * len(updates[::7])

    async def counts(at_once):
        store = MemoryStore(None)
        await store.put(record, instances)
        pool = Pool(record, store)
        for number, update in enumerate(updates):
            pool.offer_now(update, os.urandom(12), 2**31)
            if number % at_once == at_once - 1:
                await asyncio.sleep(0)
        await pool.close()
        return pool.taken, pool.spam, await store.instances(record)

    first = asyncio.run(counts(1))
    assert first[:2] == (128, 22)
    for at_once in (7, 64, 1000):
        assert asyncio.run(counts(at_once)) == first


def test_the_same_is_done_for_updates_that_are_taken_and_for_those_that_are_not(make_task, monkeypatch):
    """Else a sender could tell by how long its next request waits which of its updates was taken."""
    done = list[str]()

    class Watched(Guard):
        def measure(self, updates, near, base=None):
            done.append("measure")
            return super().measure(updates, near, base)

    def index(count):
        done.append("draw an index")
        return 0

    monkeypatch.setattr("blindsight.service.pool.Guard", Watched)
    monkeypatch.setattr("blindsight.service.memory.random_index", index)
    record = Record(task=make_task())
    instances = first_instances(record)

    async def steps(update):
        done.clear()
        store = MemoryStore(None)
        await store.put(record, instances)
        pool = Pool(record, store)
        for _ in range(130):
            pool.offer_now(update, os.urandom(12), 2**31)
        await pool.close()
        return tuple(done), pool.taken, (await store.instances(record))[0] == instances

    honest, spam = encode(np.mean([decode(one) for one in instances], axis=0)), encode(decode(instances[0]) + 1e6)
    taken, refused = asyncio.run(steps(honest)), asyncio.run(steps(spam))
    assert taken[1:] == (130, False)
    assert refused[1:] == (0, True)
    assert taken[0] == refused[0]
    assert taken[0].count("draw an index") == 130


def sent(server) -> tuple[dict[str, int], int]:
    """How often a Redis was sent which command, and how many bytes in all, since it was asked last."""

    def say(*words: str) -> dict[str, str]:
        done = subprocess.run(["redis-cli", "-p", str(server.port), *words], check=True, capture_output=True, text=True)
        return dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)

    commands = {
        name: int(about.split("calls=")[1].split(",")[0]) for name, about in say("INFO", "commandstats").items()
    }
    bytes_in = int(say("INFO", "stats")["total_net_input_bytes"])
    say("CONFIG", "RESETSTAT")
    return {name: calls for name, calls in commands.items() if "info" not in name and "config" not in name}, bytes_in


def test_redis_is_sent_the_same_for_updates_that_are_taken_and_for_those_that_are_not(
    make_task, redis_server, monkeypatch
):
    """Command for command and byte for byte: who shares the network or the Redis could count them otherwise."""
    places = itertools.count()
    monkeypatch.setattr("blindsight.service.redis_store.random_index", lambda count: next(places) % count)
    monkeypatch.setattr("blindsight.service.redis_store._KNOWN_FOR_S", 1e9)  # however slow this machine is today
    task = make_task(instances=12)  # places of one digit and of two

    async def steps(update, ends):
        store, record = RedisStore(redis_server.address, None), Record(task=task)
        nonces = (hashlib.sha256(b"%d" % number).digest()[:12] for number in itertools.count())  # of equal lengths
        await store.put(record, instances)
        pool = Pool(record, store)
        await pool.offer(update, next(nonces), ends)  # the first reads all instances
        sent(redis_server)
        found = list[tuple[dict[str, int], int]]()
        for number in (*[1] * 12, 118):
            for _ in range(number):
                await pool.offer(update, next(nonces), ends)
                await asyncio.sleep(0.001)
            found.append(sent(redis_server))
        after, count = await store.instances(record)
        await store.delete(record.model)
        await pool.close()
        await store.close()
        return found, (pool.taken, pool.spam, count, after == instances)

    instances = first_instances(Record(task=task))
    honest, spam = encode(np.mean([decode(one) for one in instances], axis=0)), encode(decode(instances[0]) + 1e6)
    taken, how = asyncio.run(steps(honest, 2**31))
    places = itertools.count()
    refused, how_not = asyncio.run(steps(spam, 2**31 + 60))
    assert (how, how_not) == ((131, 0, 131, False), (0, 131, 0, True))
    assert taken == refused
    one, more = taken[0], taken[-1]
    assert one[0] == {"cmdstat_set": 1, "cmdstat_incrby": 1, "cmdstat_bitfield": 1, "cmdstat_expire": 1}
    assert set(more[0]) == set(one[0])  # nothing is read for them


def test_an_update_to_a_life_that_is_over_leaves_nothing_in_redis(make_task, redis_server):
    async def check():
        store, record = RedisStore(redis_server.address, None), Record(task=make_task())
        instances = first_instances(record)
        await store.put(record, instances)
        await store.delete(record.model)
        for _ in range(3):
            assert not await store.replace(record, instances[0])
            await store.decline(record, instances[0])
        await store.close()

    asyncio.run(check())
    keys = subprocess.run(["redis-cli", "-p", str(redis_server.port), "KEYS", "*"], check=True, capture_output=True)
    assert keys.stdout.split() == [b"blindsight:deleted"]


def test_a_store_that_others_share_is_always_waited_for(make_task):
    async def check():
        store, record = SlowStore(None), Record(task=make_task())
        await store.put(record, first_instances(record))
        pool = Pool(record, store)
        update = await pool.draw()
        await pool.offer(update, os.urandom(12), 2**31)
        assert pool.draw_now() is None
        assert not pool.offer_now(update, os.urandom(12), 2**31)
        assert (pool.draws, pool.taken) == (1, 1)
        await pool.close()

    asyncio.run(check())


def test_draws_that_wait_for_redis_at_the_same_time_ask_it_once(make_task, redis_server):
    """Its answer comes after all of them; the next draw asks again, and one that is given up stops no other."""

    async def check():
        store, record = RedisStore(redis_server.address, None), Record(task=make_task())
        await store.put(record, first_instances(record))
        await store.check()
        sent(redis_server)
        waiting = [asyncio.ensure_future(store.check()) for _ in range(16)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        assert [type(one) for one in await asyncio.gather(*waiting, return_exceptions=True)][1:] == [type(None)] * 15
        assert sent(redis_server)[0] == {"cmdstat_hlen": 1}
        await store.check()
        assert sent(redis_server)[0] == {"cmdstat_hlen": 1}
        await store.close()

    asyncio.run(check())


def test_updates_of_one_turn_are_measured_together_over_redis_too(make_task, redis_server, monkeypatch):
    """And each is stored before it is answered."""
    sizes = list[int]()

    class Watched(Guard):
        def judge(self, differences, base=None):
            sizes.append(len(differences.updates))
            return super().judge(differences, base)

    monkeypatch.setattr("blindsight.service.pool.Guard", Watched)

    async def check():
        store, record = RedisStore(redis_server.address, None), Record(task=make_task())
        await store.put(record, first_instances(record))
        pool = Pool(record, store, batch=1000)
        honest, spam = await pool.draw(), encode([1e6, 0, 0])
        updates = [honest, spam] * 8
        await asyncio.gather(*(pool.offer(update, os.urandom(12), 2**31) for update in updates))
        assert (pool.taken, pool.spam, (await store.instances(record))[1]) == (8, 8, 8)
        await pool.close()
        await store.close()

    asyncio.run(check())
    assert sum(sizes) == 16
    assert max(sizes) > 1
