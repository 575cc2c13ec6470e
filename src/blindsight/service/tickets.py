"""Tickets: a draw issues one, an update returns it, and each can be used once.

A ticket is a keyed hash of its purpose, its expiry and a random number. It never reveals which instance was drawn. Its
expiry is rounded up to a whole minute, so a ticket does not reveal when it was drawn either.

Tickets are created in batches and handed out from a stock: those of one minute differ only in their random numbers, and
in a batch each takes half as long. No list of drawn tickets exists. Used ones are recorded in one Bloom filter per
minute of expiry, in one process (`Spent`), which has the same size at any load. All four bits of a ticket are in one
word, so checking it costs one memory access instead of four. At the end of a minute, an unused ticket collides with
others once in 800 times at 10,000 updates a second, once in 100,000 at 1,000; it is then refused, and its client draws
again. Processes that share a Redis store the random number of each used ticket there until its expiry (`redis_store`),
without any instance or client.
"""

import hashlib
import os
import struct
import time
from array import array
from binascii import hexlify, unhexlify
from collections.abc import Callable
from hmac import compare_digest

from blindsight.service.randomness import NONCE_BYTES, random_nonce

__all__ = ["SKEW_S", "Spent", "Tickets"]

SKEW_S = 60  # clocks of hosts that share a store may differ by this much
_SIGNED = 4 + NONCE_BYTES  # expiry and random number
_TAG = 16
_LENGTH = _SIGNED + _TAG
_MARKS = struct.Struct("<I4B4x")  # of a random number: its word in the filter, and four bits of the word
_BITS = [1 << (byte & 63) for byte in range(256)]
_STOCK = 128  # tickets per batch
_WORDS = 1 << 18  # of each minute's filter, 64 bits each: 2 MiB


class Tickets:
    """Issues and checks tickets, signed with `secret` and valid for `lifetime_s` seconds."""

    def __init__(self, secret: bytes, lifetime_s: float, now: Callable[[], float] = time.time) -> None:
        self._keyed = _Keyed(secret)
        self._lifetime = lifetime_s
        self._now = now
        self._stock: dict[bytes, list[bytes]] = {}
        self._since = self._until = 0.0  # period during which the stock is valid
        self._ends = b""
        os.register_at_fork(after_in_child=self._stock.clear)  # otherwise parent and child would issue the same tickets

    def issue(self, scope: bytes) -> bytes:
        """A fresh ticket for `scope`, in characters that are valid in a header."""
        now = self._now()
        if not self._since <= now < self._until:
            self._stock.clear()
            self._until = 60 * (int(now + self._lifetime) // 60 + 1) - self._lifetime
            self._since = self._until - 60
            self._ends = round(self._until + self._lifetime).to_bytes(4, "little")
        try:
            return self._stock[scope].pop()
        except (KeyError, IndexError):
            self._stock[scope] = self._batch(scope)
            return self._stock[scope].pop()

    def _batch(self, scope: bytes) -> list[bytes]:
        tickets = list[bytes]()
        for _ in range(_STOCK):
            signed = self._ends + random_nonce()
            tag = self._keyed[scope].copy()
            tag.update(signed)
            tickets.append(hexlify(signed + tag.digest()))
        return tickets

    def check(self, ticket: bytes, scope: bytes) -> tuple[bytes, int] | None:
        """Random number and expiry of a ticket valid for `scope`; None if it is forged, foreign or expired."""
        try:
            raw = unhexlify(ticket)
        except ValueError:
            return None
        tag = self._keyed[scope].copy()
        tag.update(raw[:_SIGNED])
        if len(raw) != _LENGTH or not compare_digest(raw[_SIGNED:], tag.digest()):
            return None
        ends = int.from_bytes(raw[:4], "little")
        return (raw[4:_SIGNED], ends) if self._now() <= ends + SKEW_S else None


class _Keyed(dict[bytes, hashlib.blake2s]):
    """Keyed hashes of tickets' purposes, to be copied: BLAKE2 with a key is a MAC by design."""

    def __init__(self, secret: bytes) -> None:
        super().__init__()
        self._secret = secret

    def __missing__(self, scope: bytes) -> hashlib.blake2s:
        keyed = self[scope] = hashlib.blake2s(scope + b"\0", key=self._secret, digest_size=_TAG)
        return keyed


class Spent:
    """The used tickets of one process."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._minutes: dict[int, array[int]] = {}
        self._now = now

    def spend(self, nonce: bytes, ends: int) -> bool:
        """Mark a ticket as used; returns whether it was unused."""
        words = self._minutes.get(ends)
        if words is None:
            if ends + SKEW_S < self._now():  # valid when its headers arrived; its minute's filter is gone
                return False
            for over in [minute for minute in self._minutes if minute + SKEW_S < self._now()]:
                del self._minutes[over]
            words = self._minutes[ends] = array("Q", bytes(8 * _WORDS))
        at, one, two, three, four = _MARKS.unpack(nonce)
        at %= _WORDS
        marks = _BITS[one] | _BITS[two] | _BITS[three] | _BITS[four]
        word = words[at]
        if word & marks == marks:
            return False
        words[at] = word | marks
        return True
