"""What draws show: never an update byte for byte, the same to everybody, with the mean and spread of the instances."""

import asyncio
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from waiting import until

from blindsight.algorithms.draw_and_discard import Task
from blindsight.service import shown
from blindsight.service.memory import MemoryStore
from blindsight.service.pool import Pool, first_instances
from blindsight.service.protocol import decode, encode
from blindsight.service.redis_store import RedisStore
from blindsight.service.store import Record

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def polling():
    """The module of the experiment."""
    if not EXPERIMENTS.exists():
        pytest.skip("the experiments are not part of this installation")
    spec = importlib.util.spec_from_file_location("service_polling", EXPERIMENTS / "service_polling.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_mixtures_have_the_mean_and_the_variance_of_instances():
    random = np.random.default_rng(0)
    rows = random.standard_normal((20, 500)).astype(np.float32) + 3
    bodies = [encode(row) for row in rows]
    mixed = np.stack([decode(shown.mixture([bodies[at] for at in shown.random_indices(20)])) for _ in range(4000)])
    assert np.abs(mixed.mean(axis=0) - rows.mean(axis=0)).max() < 0.15  # by chance 0.05; 1.5 if a term were missing
    assert mixed.var(axis=0).mean() / rows.var(axis=0).mean() == pytest.approx(1, abs=0.02)
    assert not {row.tobytes() for row in mixed} & set(bodies)


def test_indices_differ_and_are_uniform():
    for count, wanted in ((1, 1), (3, 1), (4, 4), (20, 4)):
        found = [shown.random_indices(count) for _ in range(400)]
        assert all(len(set(one)) == wanted for one in found)
        assert set().union(*found) == set(range(count))


@pytest.mark.parametrize(("instances", "batch"), [(20, 10), (20, 20), (6, 6)])
def test_the_spread_is_the_one_expected(instances, batch):
    """Noise alone, in a real pool. The spread fluctuates, because all weights of an instance are replaced together."""

    async def spread() -> float:
        task = Task(model="m", family="custom", weights=400, unit="feature", epsilon=1.0, instances=instances)
        record, store = Record(task=task), MemoryStore(None)
        await store.put(record, first_instances(record))
        pool, random, found = Pool(record, store, batch), np.random.default_rng(1), []
        for step in range(1500):
            drawn = decode(pool.draw_now() or b"")
            pool._waiting.append(encode(drawn + random.laplace(0, task.scale, 400)))
            pool.settle()
            if step >= 500 and step % 10 == 0:
                found.append((await pool.spread())[0] ** 2)
        assert pool.spam <= 2
        return float(np.mean(found)) / shown.expected_spread(task, batch) ** 2

    assert asyncio.run(spread()) == pytest.approx(1, abs=0.3)


def test_a_poller_sees_no_update(polling):
    seen = asyncio.run(polling.poll(20, 1000, 0, draws_each=2))
    assert (seen["bytes"], seen["parent"]) == (0, 0)
    assert seen["own"] < 0.4


def test_without_batches_a_poller_sees_nearly_everything(polling):
    """The same measurement, of the paper's algorithm: it would notice if batches stopped helping."""
    seen = asyncio.run(polling.poll(1, 600, 0))
    assert seen["bytes"] > 0.9
    assert seen["parent"] > 0.8
    assert seen["own"] > 0.7


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_draws_over_http_change_with_batches_only(request, store):
    server = request.getfixturevalue("redis_server") if store == "redis" else None  # before, so that it ends after
    talk = request.getfixturevalue("serving")(store=server.address if server else "memory", batch=10)
    sent, seen, random = set(), [], np.random.default_rng(0)
    for _ in range(100):
        drawn = talk.draw()
        update = encode(decode(drawn.content) + 1e-4 * random.standard_normal(3))  # equal ones mix to themselves
        assert talk.update(drawn, update).status_code == 202
        sent.add(update)
        seen.extend(talk.draw().content for _ in range(3))
    assert not sent & set(seen)
    assert 10 <= len(set(seen)) <= 12
    assert talk.statistics()["taken"] == 100


def test_an_update_counts_in_full_whichever_process_gets_it(redis_server, make_task):
    """Each process shows its own mixtures. Behind a proxy, most draws and their updates go to different ones."""

    async def run() -> tuple[int, int, list[int]]:
        changes = {"family": "custom", "features": None, "response": None, "weights": 100, "unit": "feature"}
        record, random = Record(task=make_task(**changes)), np.random.default_rng(0)
        stores = [RedisStore(redis_server.address, None) for _ in range(2)]
        for store in stores:
            await store.open()
        assert await stores[0].put(record, first_instances(record))
        pools = [Pool(record, store, 10) for store in stores]
        for number in range(300):
            drawn = decode(await pools[number % 2].draw())
            update = encode(drawn + random.laplace(0, record.task.scale, 100))
            await pools[1 - number % 2].offer(update, os.urandom(12), 2**31)
        taken = sum(pool.taken for pool in pools)
        lengths = [len(pool._recent) for pool in pools]
        for pool, store in zip(pools, stores, strict=True):
            await pool.close()
            await store.close()
        return taken, sum(pool.guard.shortened for pool in pools), lengths

    taken, shortened, lengths = asyncio.run(run())
    assert taken == 300
    assert shortened <= 5  # it is half of them if processes do not tell one another what they show
    assert all(10 <= length <= 60 for length in lengths)


def test_draws_of_a_redis_that_is_gone_are_refused_before_anyone_pays(redis_server, serving):
    talk = serving(store=redis_server.address)
    assert talk.draw().status_code == 200
    redis_server.stop()
    until(lambda: talk.draw().status_code == 503)
    assert talk.draw().headers["retry-after"]
    redis_server.start()
    until(lambda: talk.draw().status_code == 200)


def test_a_restarted_model_shows_nothing_of_the_old_one(talk):
    talk.draw()
    talk.admin.post("/v1/admin/models/phishing/warm-start", json={"weights": [5.0, 5.0, 5.0]})
    assert decode(talk.draw().content).min() > 4
