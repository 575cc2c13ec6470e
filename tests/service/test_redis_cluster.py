"""Redis Cluster and Sentinel, with real servers on this machine: redirections and failovers are followed."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from waiting import until

from blindsight.errors import InvalidInput
from blindsight.service import snapshots
from blindsight.service.pool import first_instances
from blindsight.service.redis_address import RedisAddress
from blindsight.service.redis_cluster import slot
from blindsight.service.redis_store import RedisStore
from blindsight.service.store import Record, StoreUnreachable

ENDS = 2**31


@pytest.fixture
def servers(redis_server, tmp_path):
    """Starts more Redis servers with options of their own."""
    started = []

    def start(*options: str, config: Path | None = None):
        folder = tmp_path / f"redis-{len(started)}"
        folder.mkdir()
        started.append(type(redis_server)("--dir", str(folder), *options, config=config))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def cli(server, *words: object) -> str:
    command = ["redis-cli", "-p", str(server.port), *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def masters(servers, count: int) -> list:
    """A cluster of so many nodes, each with a part of the slots."""
    nodes = [servers("--cluster-enabled", "yes", "--cluster-node-timeout", "2000") for _ in range(count)]
    for number, node in enumerate(nodes):
        cli(node, "CLUSTER", "ADDSLOTSRANGE", 16384 * number // count, 16384 * (number + 1) // count - 1)
        cli(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        if number:
            cli(node, "CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
    until(lambda: all(is_whole(node, count) for node in nodes))
    return nodes


def is_whole(node, count: int) -> bool:
    info = cli(node, "CLUSTER", "INFO")
    return "cluster_state:ok" in info and f"cluster_known_nodes:{count}" in info


async def looked(store: RedisStore) -> bytes:
    while True:
        try:
            return await store.secret()
        except StoreUnreachable:
            await asyncio.sleep(0.1)


async def exercise(store: RedisStore, record: Record, nonce: bytes) -> None:
    """Draws, updates and tickets, over all instances."""
    instances, count = await store.instances(record)
    assert len(instances) == 20
    for _ in range(30):
        assert await store.draw(record) in instances
        assert await store.replace(record, instances[0])
    assert (await store.instances(record))[1] == count + 30
    assert (await store.spend(record, nonce, ENDS))[0]
    assert not (await store.spend(record, nonce, ENDS))[0]


def test_addresses():
    found = RedisAddress.parse("rediss+sentinel://me:p%40ss@a:1,[::1]:2,c/main/3")
    assert (found.kind, found.hosts) == ("sentinel", (("a", 1), ("::1", 2), ("c", 26379)))
    assert (found.name, found.database, found.user, found.password, found.is_secure) == ("main", 3, "me", "p@ss", True)
    found = RedisAddress.parse("redis+cluster://:x@a,b:7000")
    assert (found.kind, found.hosts, found.password) == ("cluster", (("a", 6379), ("b", 7000)), "x")
    assert RedisAddress.parse("redis://localhost").hosts == (("localhost", 6379),)
    for wrong in (
        *("redis://a,b", "redis+sentinel://a:1", "redis+cluster://a/1", "redis://a:b", "http://a"),
        *("redis://[::1", "redis://a?b=c", "redis:a", "redis://a:1#2", ""),
    ):
        with pytest.raises(InvalidInput):
            RedisAddress.parse(wrong)


def test_a_cluster_holds_models_and_its_redirections_are_followed(servers, make_task, tmp_path):
    nodes = masters(servers, 2)
    record = Record(task=make_task())

    async def check():
        store = RedisStore(f"redis+cluster://127.0.0.1:{nodes[0].port}", tmp_path / "kept")
        await store.open()
        assert await store.put(record, first_instances(record))
        assert await store.put(record.changed(frozen=True))
        found = (await store.records())["phishing"]
        assert found.frozen
        assert all(int(cli(node, "DBSIZE")) > 3 for node in nodes)  # spread over both
        await exercise(store, found, b"a" * 12)

        key = f"blindsight:{found.life}:0"  # its slot moves to the other node while it is in use
        number = slot(key)
        source, target = (nodes[0], nodes[1]) if number < 8192 else (nodes[1], nodes[0])
        ids = {node.port: cli(node, "CLUSTER", "MYID") for node in nodes}
        cli(target, "CLUSTER", "SETSLOT", number, "IMPORTING", ids[source.port])
        cli(source, "CLUSTER", "SETSLOT", number, "MIGRATING", ids[target.port])
        cli(source, "MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        await exercise(store, found, b"b" * 12)  # ASK
        for node in (target, source):
            cli(node, "CLUSTER", "SETSLOT", number, "NODE", ids[target.port])
        await exercise(store, found, b"c" * 12)  # MOVED

        await store.delete("phishing")
        assert await store.records() == {}
        await store.close()

    asyncio.run(check())
    assert not [key for node in nodes for key in cli(node, "KEYS", "*").split() if record.life in key]


def test_a_master_that_sentinels_name(servers, make_task, tmp_path):
    master, sentinel = servers(), sentinel_of(servers, tmp_path)
    cli(sentinel, "SENTINEL", "MONITOR", "main", "127.0.0.1", master.port, 1)
    record = Record(task=make_task())

    async def check():
        store = RedisStore(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/main/2", tmp_path / "kept")
        await store.open()
        assert await store.put(record, first_instances(record))
        await exercise(store, record, b"a" * 12)
        assert int(cli(master, "-n", 2, "DBSIZE")) > 20
        await store.close()
        with pytest.raises(StoreUnreachable, match="knows no master other"):
            await RedisStore(f"redis+sentinel://127.0.0.1:{sentinel.port}/other", None).open()

    asyncio.run(check())


def sentinel_of(servers, tmp_path):
    """A sentinel: a Redis server that writes its own configuration."""
    file = tmp_path / "sentinel.conf"
    file.write_text("")
    return servers("--sentinel", config=file)


@pytest.mark.slow
def test_a_replica_takes_over_from_a_master_of_a_cluster(servers, make_task, tmp_path):
    nodes = masters(servers, 3)
    replica = servers("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
    cli(replica, "CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
    until(lambda: all(is_whole(node, 4) for node in [*nodes, replica]))
    cli(replica, "CLUSTER", "REPLICATE", cli(nodes[1], "CLUSTER", "MYID"))
    until(lambda: "master_link_status:up" in cli(replica, "INFO", "replication"))
    record = Record(task=make_task())

    async def check():
        store = RedisStore(f"redis+cluster://127.0.0.1:{nodes[0].port},127.0.0.1:{nodes[2].port}", tmp_path / "kept")
        first = await store.open()
        assert await store.put(record, first_instances(record))
        await exercise(store, record, b"a" * 12)
        await store.snapshot()
        await asyncio.to_thread(until, lambda: "slave0" in cli(nodes[1], "INFO", "replication"))
        nodes[1].stop()
        second = await looked(store)
        assert second != first  # the replica may lack the last used tickets
        found = (await store.records())["phishing"]
        assert (found.created, found.life == record.life) == (record.created, False)
        await exercise(store, found, b"b" * 12)
        await store.close()

    asyncio.run(check())


@pytest.mark.slow
def test_a_replica_takes_over_from_a_master_that_sentinels_watch(servers, make_task, tmp_path):
    master, sentinel = servers(), sentinel_of(servers, tmp_path)
    replica = servers("--replicaof", f"127.0.0.1 {master.port}")
    until(lambda: "master_link_status:up" in cli(replica, "INFO", "replication"))
    cli(sentinel, "SENTINEL", "MONITOR", "main", "127.0.0.1", master.port, 1)
    cli(sentinel, "SENTINEL", "SET", "main", "down-after-milliseconds", 500)
    until(lambda: f"port={replica.port}" in cli(sentinel, "INFO", "sentinel") or "slaves=1" in cli(sentinel, "INFO"))
    record = Record(task=make_task())

    async def check():
        store = RedisStore(f"redis+sentinel://127.0.0.1:{sentinel.port}/main", tmp_path / "kept")
        first = await store.open()
        assert await store.put(record, first_instances(record))
        await exercise(store, record, b"a" * 12)
        await store.snapshot()
        master.stop()
        assert await looked(store) != first
        found = (await store.records())["phishing"]
        assert found.life != record.life
        await exercise(store, found, b"b" * 12)
        assert "role:master" in cli(replica, "INFO", "replication")
        await store.close()
        assert snapshots.read(tmp_path / "kept", "phishing").record == found

    asyncio.run(check())
