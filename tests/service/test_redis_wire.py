"""The connection to Redis: passwords, pipelines, and a Redis that is lost or hangs."""

import asyncio
import contextlib
import signal
import socket

import pytest
from waiting import HANG_S

from blindsight.errors import InvalidInput
from blindsight.service.redis_wire import Redis
from blindsight.service.store import StoreUnreachable


def test_answers_come_in_the_order_of_commands(redis_server):
    async def check():
        redis = Redis(redis_server.address)
        await redis.ask(("SET", "a", b"1"), ("SET", "b", b"x" * 500_000))
        asked = [redis.ask(("GET", "b" if number % 2 else "a"), ("INCR", "n")) for number in range(40)]
        for number, found in enumerate(await asyncio.gather(*asked)):
            assert found == [b"x" * 500_000 if number % 2 else b"1", number + 1]
        await redis.close()

    asyncio.run(check())


def test_what_redis_refuses_is_raised_and_the_connection_goes_on(redis_server):
    async def check():
        redis = Redis(redis_server.address)
        with pytest.raises(StoreUnreachable, match="refused a command"):
            await redis.ask(("HGETALL", "a"), ("NOTHING",))
        assert await redis.ask(("PING",)) == [b"PONG"]
        await redis.close()

    asyncio.run(check())


def test_passwords_and_databases(redis_server):
    guarded = type(redis_server)("--requirepass", "p@ss word")

    async def check():
        redis = Redis(f"redis://:p%40ss%20word@127.0.0.1:{guarded.port}/3")
        await redis.ask(("SET", "a", b"1"))
        assert await redis.ask(("GET", "a")) == [b"1"]
        await redis.close()
        for address in (guarded.address, f"redis://:wrong@127.0.0.1:{guarded.port}/0"):
            with pytest.raises(InvalidInput, match="check the password"):
                await Redis(address).ask(("PING",))

    try:
        asyncio.run(check())
    finally:
        guarded.stop()
    with pytest.raises(InvalidInput, match="redis://"):
        Redis("redis://host/number")


def test_a_redis_that_hangs_counts_as_lost_and_is_found_again(redis_server, monkeypatch):
    monkeypatch.setattr("blindsight.service.redis_wire._ANSWER_S", 0.2)

    async def check():
        redis = Redis(redis_server.address)
        await redis.ask(("SET", "a", b"1"))
        redis_server.process.send_signal(signal.SIGSTOP)
        with pytest.raises(StoreUnreachable, match="went away"):
            await redis.ask(("GET", "a"))
        redis_server.process.send_signal(signal.SIGCONT)
        assert await redis.ask(("GET", "a")) == [b"1"]
        redis_server.stop()
        for _ in range(3):
            with pytest.raises(StoreUnreachable):
                await redis.ask(("GET", "a"))
        redis_server.start()
        while True:  # it looks for its Redis again after a moment
            with contextlib.suppress(StoreUnreachable):
                assert await redis.ask(("GET", "a")) == [None]
                break
            await asyncio.sleep(0.02)
        await redis.close()

    asyncio.run(check())


def test_who_is_cancelled_while_redis_is_away_stops(monkeypatch):
    """At whatever turn of the loop: a service that looks for its Redis again and again must still be able to end."""
    monkeypatch.setattr("blindsight.service.redis_wire._TRY_AGAIN_S", -1.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"redis://127.0.0.1:{free.getsockname()[1]}/0"

    async def look() -> None:
        redis = Redis(address)
        while True:
            with contextlib.suppress(StoreUnreachable):
                await redis.ask(("PING",))

    async def check():
        for turns in range(40):
            looking = asyncio.create_task(look())
            for _ in range(turns):
                await asyncio.sleep(0)
            looking.cancel()
            _, still = await asyncio.wait([looking], timeout=HANG_S)
            for task in still:
                task.cancel()
            assert not still, f"cancelled after {turns} turns, and went on"

    asyncio.run(check())
