"""Tickets: signed, for one thing, for a while, and used once."""

import asyncio
import dataclasses
import os
import re
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from blindsight.service import Settings, memory, randomness, redis_store
from blindsight.service import tickets as tickets_module
from blindsight.service.store import Record
from blindsight.service.tickets import SKEW_S, Spent, Tickets

SECRET = b"s" * 32


class Clock:
    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_a_ticket_is_good_for_what_it_was_issued_for():
    tickets = Tickets(SECRET, 600)
    ticket = tickets.issue(b"a")
    assert tickets.check(ticket, b"a") is not None
    assert tickets.check(ticket, b"b") is None
    assert Tickets(b"t" * 32, 600).check(ticket, b"a") is None


def test_no_bit_of_a_ticket_can_be_changed():
    tickets = Tickets(SECRET, 600)
    raw = bytes.fromhex(tickets.issue(b"a").decode())
    for place in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[place // 8] ^= 1 << place % 8
        assert tickets.check(bytes(changed).hex().encode(), b"a") is None
    for wrong in (b"", b"x", raw, raw.hex().encode()[:-2], raw.hex().encode() + b"00", b"\xff" * 64):
        assert tickets.check(wrong, b"a") is None


def test_a_ticket_ends_and_clocks_may_differ_by_a_minute():
    clock = Clock()
    tickets = Tickets(SECRET, 600, clock)
    ticket = tickets.issue(b"a")
    clock.now += 600
    assert tickets.check(ticket, b"a") is not None
    clock.now += 60 + SKEW_S + 1
    assert tickets.check(ticket, b"a") is None
    behind = Tickets(SECRET, 600, Clock(clock.now - 700 - SKEW_S))  # another host, whose clock is behind
    assert behind.check(ticket, b"a") is not None


def test_a_ticket_says_in_which_minute_it_ends_and_no_more():
    ends = set()
    for second in range(60):
        found = Tickets(SECRET, 600, Clock(1_000_020.0 + second)).check(
            Tickets(SECRET, 600, Clock(1_000_020.0 + second)).issue(b"a"), b"a"
        )
        assert found is not None
        ends.add(found[1])
    assert len(ends) == 1
    assert ends.pop() % 60 == 0
    assert len({Tickets(SECRET, 600).issue(b"a") for _ in range(1000)}) == 1000


def test_tickets_in_stock_are_of_the_minute_in_which_they_are_handed_out():
    clock = Clock(1_000_000.0)
    tickets = Tickets(SECRET, 90, clock)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(3000):
        clock.now += rng.exponential(0.5) - (100 if rng.random() < 0.002 else 0)  # clocks are set back, too
        ticket = tickets.issue(rng.choice([b"a", b"b"]).tobytes())
        assert int.from_bytes(bytes.fromhex(ticket[:8].decode()), "little") == 60 * (int(clock.now + 90) // 60 + 1)
        seen.add(ticket)
    assert len(seen) == 3000


def test_a_ticket_is_used_once():
    spent = Spent(Clock(0.0))
    nonces = [os.urandom(12) for _ in range(20_000)]
    assert all(spent.spend(nonce, 60) for nonce in nonces)
    assert not any(spent.spend(nonce, 60) for nonce in nonces)


@pytest.mark.parametrize(("count", "least", "most"), [(600_000, 0, 4), (3_000_000, 600, 820)])
def test_unused_tickets_are_refused_as_rarely_as_is_said(count, least, most):
    """After a minute of 10,000 updates a second 3 in a million, which is 0.3 of these; of 50,000, 0.7 %."""
    spent = Spent(Clock(0.0))
    _fill(spent, count)
    refused = sum(not spent.spend(os.urandom(12), 60) for _ in range(100_000))
    assert least <= refused <= most


def _fill(spent, count):
    """As many used tickets as that, marked in one go as `spend` marks them."""
    spent.spend(os.urandom(12), 60)
    words = np.frombuffer(spent._filters[60], np.uint64)  # of the filter itself
    random = np.random.default_rng(0)
    bits = np.bitwise_or.reduce(np.uint64(1) << random.integers(0, 64, (4, count)).astype(np.uint64))
    for _ in range(2):
        np.bitwise_or.at(words, random.integers(0, words.size, count), bits)


def test_a_minute_of_tickets_ends_when_the_next_begins():
    """The end of a ticket is kept from one to the next, and still follows the clock, backwards too."""
    clock = Clock(1_000_019.0)
    tickets = Tickets(SECRET, 600, clock)
    times, ends = (1_000_019.0, 1_000_020.5, 1_000_079.9, 1_000_080.0, 1_000_019.0, 2_000_000.0), []
    for clock.now in times:
        found = tickets.check(tickets.issue(b"a"), b"a")
        assert found is not None
        ends.append(found[1])
    assert ends == [
        (int(now + 600) // 60 + 1) * 60 for now in (1_000_019, 1_000_020, 1_000_079, 1_000_080, 1_000_019, 2_000_000)
    ]


def test_marks_are_forgotten_when_their_tickets_have_ended_and_not_before():
    clock = Clock(0.0)
    spent = Spent(clock)
    for minute in range(1, 200):
        clock.now = 60.0 * minute
        ends = 60 * (minute + 10)
        assert spent.spend(b"x" * 12, ends)
        assert not spent.spend(b"x" * 12, ends)
        if minute > 11:
            assert not spent.spend(b"x" * 12, 60 * minute)  # its tickets still hold, by the skew
        assert len(spent._filters) <= 13


def test_a_ticket_is_used_once_also_if_its_body_comes_when_its_marks_are_forgotten():
    """Headers are checked before the body is waited for, and in between the last minute of the ticket may end."""
    clock = Clock()
    tickets, spent = Tickets(SECRET, 600, clock), Spent(clock)
    ticket = tickets.issue(b"a")
    first = tickets.check(ticket, b"a")
    assert first is not None
    assert spent.spend(*first)
    clock.now = first[1] + SKEW_S
    again, fresh = tickets.check(ticket, b"a"), tickets.check(tickets.issue(b"a"), b"a")
    assert again is not None
    assert fresh is not None
    clock.now += 5
    assert spent.spend(*fresh)  # opens a minute, and the marks of those that are over go
    assert not spent.spend(*again)


def test_the_operating_system_and_nothing_else_chooses(monkeypatch):
    """The law behind draw and discard: indices and tickets are bytes of os.urandom, each used once, in every store."""
    asked = []

    def urandom(count):
        asked.append(os.getrandom(count))
        return asked[-1]

    randomness._forget()
    monkeypatch.setattr("blindsight.service.randomness.os.urandom", urandom)
    indices = [randomness.random_index(20) for _ in range(1200)]
    nonces = [randomness.random_nonce() for _ in range(600)]
    numbers = [page for page in asked if len(page) == 4096]
    expected = [number % 20 for page in numbers for number in reversed(struct.unpack("<512Q", page))]
    assert indices == expected[:1200]
    given = b"".join(page for page in asked if len(page) != 4096)
    assert set(nonces) < {given[at : at + 12] for at in range(0, len(given), 12)}
    assert memory.random_index is redis_store.random_index is randomness.random_index
    assert tickets_module.random_nonce is randomness.random_nonce
    assert not [
        field.name for field in dataclasses.fields(Settings) if re.search("seed|random|index|noise", field.name)
    ]


def test_randomness_is_given_once_whichever_thread_asks():
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: randomness.random_nonce(), range(20_000)))
    assert len(set(found)) == 20_000


def test_randomness_is_never_given_twice():
    found = {randomness.random_nonce() for _ in range(5000)}
    assert len(found) == 5000
    assert {len(nonce) for nonce in found} == {randomness.NONCE_BYTES}
    counts = [0] * 20
    for _ in range(20_000):
        counts[randomness.random_index(20)] += 1
    assert min(counts) > 800  # 6.5 standard deviations
    assert max(counts) < 1200


FORK = """
import os
from blindsight.service.randomness import random_index, random_nonce
from blindsight.service.store import Record
from blindsight.service.tickets import Tickets
tickets = Tickets(b"s" * 32, 600)
random_nonce(), random_index(2**64), tickets.issue(b"a")
is_child = os.fork() == 0
os.write(1, b"%s,%d,%s " % (random_nonce().hex().encode(), random_index(2**64), tickets.issue(b"a")))
is_child or os.wait()
"""


def test_a_child_process_does_not_repeat_its_parent():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    parent, child = (said.split(",") for said in done.stdout.split())
    assert not set(parent) & set(child)


@pytest.mark.parametrize("lifetime", [1, 600, 3600, 86_400, 30 * 86_400])
def test_used_tickets_take_the_same_memory_however_long_they_last(lifetime):
    clock = Clock()
    tickets, spent = Tickets(SECRET, lifetime, clock), Spent(clock, lifetime)
    most = 0
    for _ in range(100):
        clock.now += lifetime / 20 + 1
        found = tickets.check(tickets.issue(b"a"), b"a")
        assert found is not None
        assert spent.spend(*found)
        assert not spent.spend(*found)
        most = max(most, sum(words.itemsize * len(words) for words in spent._filters.values()))
    assert most <= 13 * 16 * 2**20
    if lifetime <= 600:
        assert most <= 13 * 4 * 2**20


def test_a_clock_that_jumps_makes_no_used_ticket_good_again():
    clock = Clock()
    tickets, spent = Tickets(SECRET, 600, clock), Spent(clock)
    found = tickets.check(tickets.issue(b"a"), b"a")
    assert found is not None
    assert spent.spend(*found)
    clock.now += 3600
    fresh = tickets.issue(b"a")
    future = tickets.check(fresh, b"a")
    assert future is not None
    assert spent.spend(*future)  # the filter of the first is dropped
    clock.now -= 3600
    assert not spent.spend(*found)
    assert tickets.check(fresh, b"a") is None  # of a clock that was ahead


def test_the_clock_of_the_memory_store_does_not_jump(monkeypatch):
    store = memory.MemoryStore(None)
    before, real = store.now(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + 7200)
    assert 0 <= store.now() - before < 3600


def test_processes_with_other_lifetimes_refuse_each_others_tickets():
    """They would look for used ones in different filters."""
    assert Tickets(SECRET, 600).check(Tickets(SECRET, 6000).issue(b"a"), b"a") is None


def test_a_ticket_is_used_once_in_redis_too_and_its_filter_ends(redis_server, make_task):
    """Also if several processes use it at the same time; the filters of one expiry have a limited size."""

    async def check():
        stores = [redis_store.RedisStore(redis_server.address, None) for _ in range(3)]
        for store in stores:
            await store.open()
        record, ends = Record(task=make_task()), 60 * (int(stores[0].now()) // 60 + 10)
        nonces = [os.urandom(12) for _ in range(2000)]
        used = await asyncio.gather(*(store.spend(record, nonce, ends) for nonce in nonces for store in stores))
        assert 1998 <= sum(unused for unused, _ in used) <= 2000
        keys = await stores[0]._redis.ask(("KEYS", "blindsight:spent:*"))
        lasting = await stores[0]._redis.ask(*(("TTL", key) for key in keys[0]))
        assert all(500 < seconds < 800 for seconds in lasting)
        sizes = await stores[0]._redis.ask(*(("STRLEN", key) for key in keys[0]))
        assert len(sizes) == 64
        assert max(sizes) <= 32 * 1024
        for store in stores:
            await store.close()

    asyncio.run(check())
