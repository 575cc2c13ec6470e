"""Tickets: signed, for one thing, for a while, and used once."""

import os
import subprocess
import sys

from blindsight.service import randomness
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


def test_a_ticket_is_used_once():
    spent = Spent()
    nonces = [os.urandom(12) for _ in range(20_000)]
    assert sum(not spent.spend(nonce, 60) for nonce in nonces) <= 1  # by chance: once in 10^7
    assert not any(spent.spend(nonce, 60) for nonce in nonces)


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
        assert len(spent._minutes) <= 13


def test_randomness_is_never_given_twice():
    found = {randomness.random_bytes(8) for _ in range(5000)}
    assert len(found) == 5000
    counts = [0] * 20
    for _ in range(20_000):
        counts[randomness.random_index(20)] += 1
    assert min(counts) > 800  # 6.5 standard deviations
    assert max(counts) < 1200


FORK = """
import os
from blindsight.service.randomness import random_bytes
random_bytes(8)
is_child = os.fork() == 0
os.write(1, random_bytes(8).hex().encode() + b" ")
is_child or os.wait()
"""


def test_a_child_process_does_not_repeat_its_parent():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    parent, child = done.stdout.split()
    assert parent != child
