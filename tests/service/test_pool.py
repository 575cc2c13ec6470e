"""One model in service: how often its instances are read, and what happens when they go away."""

import asyncio
import os

import pytest

from blindsight.service.memory import MemoryStore
from blindsight.service.pool import Pool, first_instances
from blindsight.service.protocol import Refusal
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


def test_the_window_is_refreshed_once_in_fifty_updates_however_many_come_at_once(make_task):
    async def check():
        store, record = SlowStore(None), Record(task=make_task())
        await store.put(record, first_instances(record))
        pool = Pool(record, store)

        async def client():
            for _ in range(50):
                await pool.offer(await pool.draw(), os.urandom(12), 2**31)

        await asyncio.gather(*(client() for _ in range(20)))
        await pool.close()
        assert pool.taken > 900  # without noise the instances become one, and those that still differ are refused
        assert 10 <= store.read <= 41  # the first updates, which all came before there was a window, read it each

    asyncio.run(check())


def test_a_model_that_goes_away_meanwhile_takes_nothing(make_task):
    async def check():
        store, record = MemoryStore(None), Record(task=make_task())
        await store.put(record, first_instances(record))
        pool = Pool(record, store)
        update = await pool.draw()
        await store.delete("phishing")
        for asked in (pool.draw, pool.average, lambda: pool.offer(update, os.urandom(12), 2**31)):
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
        update, spam, first = pool.draw_now(), bytes(11) + b"\x7f", os.urandom(12)
        assert update is not None
        assert not pool.offer_now(update, first, 2**31)  # there is no window yet
        await pool.offer(update, first, 2**31)  # so the ticket is still good
        assert (pool.draws, pool.taken, pool.spam, pool.replays) == (1, 1, 0, 0)
        used = os.urandom(12)
        assert pool.offer_now(update, used, 2**31)
        assert pool.offer_now(spam, os.urandom(12), 2**31)
        assert pool.offer_now(b"\x00\x00\xc0\x7f" * 3, os.urandom(12), 2**31)  # not a number
        assert (pool.taken, pool.spam) == (2, 2)
        for again in (first, used):
            with pytest.raises(Refusal) as found:
                pool.offer_now(update, again, 2**31)
            assert found.value.status == 410
        assert pool.replays == 2
        steps = 0
        while pool.offer_now(update, os.urandom(12), 2**31):
            steps += 1
        assert steps == 48  # then the instances are due to be read again
        assert (await store.instances(record))[1] == pool.taken == 50
        await pool.offer(update, os.urandom(12), 2**31)
        assert pool.offer_now(update, os.urandom(12), 2**31)
        await store.delete("phishing")
        assert pool.draw_now() is None
        assert pool.taken == 52

    asyncio.run(check())


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
