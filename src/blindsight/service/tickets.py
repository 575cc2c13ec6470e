"""Tickets: a draw issues one, an update returns it, and each can be used once.

A ticket is a keyed hash of what it is for, when it ends and a random number. It never says which instance was drawn.
Its end is rounded up to a whole minute, so that a ticket does not say when it was drawn either.

Tickets are made by the hundred and handed out from a stock: all of a minute are alike but for their random numbers, and
in one go each takes half as long. No list of drawn tickets is kept anywhere. Used ones leave marks in one Bloom filter
for each minute of expiry, in one process (`Spent`), which stays the same size at any load. All four marks of a ticket
are in one word, so that it costs one look at memory instead of four. An unused ticket meets four marks of others once
in 800 times at the end of a minute of 10,000 updates a second, once in 100,000 at 1,000; it is then refused, and its
client draws again.
Processes that share a Redis keep the random number of each used ticket there until the ticket's end (`redis_store`);
nothing stands beside it, no instance and no client.
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

SKEW_S = 60  # by how much the clocks of hosts that share a store may differ
_SIGNED = 4 + NONCE_BYTES  # when it ends, and the random number
_TAG = 16
_LENGTH = _SIGNED + _TAG
_MARKS = struct.Struct("<I4B4x")  # of a random number: its word in the filter, and four bits of the word
_BITS = [1 << (byte & 63) for byte in range(256)]
_STOCK = 128  # tickets made in one go
_WORDS = 1 << 18  # of each minute's filter, 64 bits each: 2 MiB


class Tickets:
    """Issues and checks tickets that were signed with `secret` and live for `lifetime_s` seconds."""

    def __init__(self, secret: bytes, lifetime_s: float, now: Callable[[], float] = time.time) -> None:
        self._keyed = _Keyed(secret)
        self._lifetime = lifetime_s
        self._now = now
        self._stock: dict[bytes, list[bytes]] = {}
        self._since = self._until = 0.0  # while what is in stock is what would be made
        self._ends = b""
        os.register_at_fork(after_in_child=self._stock.clear)  # else parent and child would hand out the same

    def issue(self, about: bytes) -> bytes:
        """A fresh ticket for `about`, in characters that a header may hold."""
        now = self._now()
        if not self._since <= now < self._until:
            self._stock.clear()
            self._until = 60 * (int(now + self._lifetime) // 60 + 1) - self._lifetime
            self._since = self._until - 60
            self._ends = round(self._until + self._lifetime).to_bytes(4, "little")
        try:
            return self._stock[about].pop()
        except (KeyError, IndexError):
            self._stock[about] = self._made(about)
            return self._stock[about].pop()

    def _made(self, about: bytes) -> list[bytes]:
        made = list[bytes]()
        for _ in range(_STOCK):
            signed = self._ends + random_nonce()
            tag = self._keyed[about].copy()
            tag.update(signed)
            made.append(hexlify(signed + tag.digest()))
        return made

    def check(self, ticket: bytes, about: bytes) -> tuple[bytes, int] | None:
        """The random number of a ticket that holds for `about` and its end; None if it is forged, foreign or old."""
        try:
            raw = unhexlify(ticket)
        except ValueError:
            return None
        tag = self._keyed[about].copy()
        tag.update(raw[:_SIGNED])
        if len(raw) != _LENGTH or not compare_digest(raw[_SIGNED:], tag.digest()):
            return None
        ends = int.from_bytes(raw[:4], "little")
        return (raw[4:_SIGNED], ends) if self._now() <= ends + SKEW_S else None


class _Keyed(dict[bytes, hashlib.blake2s]):
    """The keyed hash of what tickets are for, to be copied: BLAKE2 with a key is a MAC by design."""

    def __init__(self, secret: bytes) -> None:
        super().__init__()
        self._secret = secret

    def __missing__(self, about: bytes) -> hashlib.blake2s:
        found = self[about] = hashlib.blake2s(about + b"\0", key=self._secret, digest_size=_TAG)
        return found


class Spent:
    """The used tickets of one process."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._minutes: dict[int, array[int]] = {}
        self._now = now

    def spend(self, nonce: bytes, ends: int) -> bool:
        """Mark a ticket as used; returns whether it was unused."""
        words = self._minutes.get(ends)
        if words is None:
            if ends + SKEW_S < self._now():  # it held when its headers came; who used it since is forgotten
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
