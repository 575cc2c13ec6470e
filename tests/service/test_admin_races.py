"""Admin calls at the same time, through one process or several: no token is lost and no freeze undone."""

import asyncio
import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest
from waiting import HANG_S, until

from blindsight.errors import InvalidInput
from blindsight.service import Settings
from blindsight.service.memory import MemoryStore
from blindsight.service.pool import first_instances
from blindsight.service.redis_store import RedisStore
from blindsight.service.registry import Registry
from blindsight.service.store import Record

ADMIN = {"Authorization": "Bearer administrator-of-the-tests"}


@pytest.mark.parametrize(("kind", "count"), [("memory", 1), ("redis", 2)])
def test_no_token_is_lost_and_no_freeze_undone(processes, request, kind, count):
    address = request.getfixturevalue("redis_server").address if kind == "redis" else "memory"
    services = [processes(address) for _ in range(count)]
    for service in services:
        service.start()
        service.wait()

    def call(number: int, path: str) -> httpx.Response:
        return clients[number % count].post(f"/phishing{path}")

    with contextlib.ExitStack() as open_clients, ThreadPoolExecutor(8) as threads:
        clients = [
            open_clients.enter_context(
                httpx.Client(base_url=f"{one.address}/v1/admin/models", headers=ADMIN, timeout=HANG_S)
            )
            for one in services
        ]
        added = list(threads.map(lambda number: call(number, "/tokens"), range(20)))
        assert [answer.status_code for answer in added] == [201] * 20
        for turn in range(8):
            path, is_frozen = ("/freeze", True) if turn % 2 == 0 else ("/thaw", False)
            calls = [threads.submit(call, turn + number, path if number == 2 else "/tokens") for number in range(6)]
            assert [one.result().is_success for one in calls] == [True] * 6
            until(lambda wanted=is_frozen: all(one.get("/phishing").json()["frozen"] is wanted for one in clients))
            added += [one.result() for one in calls if "token" in one.result().json()]
        assert len(added) == 60
        task = f"{services[0].address}/v1/models/phishing/task"
        for answer in added:  # known here a moment after another process has issued it
            header = {"Authorization": f"Bearer {answer.json()['token']}"}
            until(lambda header=header: clients[0].get(task, headers=header).status_code == 200)


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_record_takes_the_place_of_its_predecessor_only(make_task, tmp_path, request, kind):
    server = request.getfixturevalue("redis_server") if kind == "redis" else None

    async def check():
        store = MemoryStore(tmp_path) if server is None else RedisStore(server.address, tmp_path)
        await store.open()
        record = Record(task=make_task())
        assert await store.put(record, first_instances(record))
        one, other = record.changed(frozen=True), record.changed(tokens=("digest",))
        assert await store.put(one)
        assert not await store.put(other)
        assert not await store.put(record.renewed(), first_instances(record))
        assert not await store.put(record, first_instances(record))
        assert not await store.put(Record(task=make_task()), first_instances(record))
        assert await store.records() == {"phishing": one}
        assert await store.instances(one) != ([], 0)
        await store.delete("phishing")
        assert not await store.put(one.changed(frozen=False))  # deleted meanwhile
        assert await store.records() == {}
        together = [Record(task=make_task()) for _ in range(8)]
        done = await asyncio.gather(*(store.put(one, first_instances(one)) for one in together))
        assert sum(done) == 1
        (found,) = (await store.records()).values()
        assert found == together[done.index(True)]
        assert len((await store.instances(found))[0]) == 20
        await store.close()

    asyncio.run(check())


@pytest.mark.parametrize("is_same", [True, False])
def test_of_processes_that_start_at_once_one_creates_the_model_and_all_serve_it(
    make_task, tmp_path, redis_server, monkeypatch, is_same
):
    def registry(task) -> Registry:
        path = tmp_path / f"{task.version}.json"
        path.write_text(json.dumps(task.to_dict()), encoding="utf-8")
        return Registry(Settings(store=redis_server.address, data=tmp_path / "data", tasks=(path,)))

    slow, quick = registry(make_task()), registry(make_task() if is_same else make_task(epsilon=1.0))
    create = Registry.create

    async def create_last(self, task, **options):
        if self is slow:
            await quick.open()  # after the slow one has looked, and before it creates anything
        return await create(self, task, **options)

    async def check():
        try:
            await slow.open()
            assert slow.pool("phishing").record == quick.pool("phishing").record
        finally:
            await slow.close()
            await quick.close()

    monkeypatch.setattr(Registry, "create", create_last)
    if is_same:
        asyncio.run(check())
    else:
        with pytest.raises(InvalidInput, match="differs from the task"):
            asyncio.run(check())
