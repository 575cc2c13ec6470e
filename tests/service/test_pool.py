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
