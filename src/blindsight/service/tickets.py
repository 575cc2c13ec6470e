"""Tickets: a draw issues one, an update returns it, and each can be used once.

A ticket is a keyed hash of its purpose, its expiry and a random number. It never reveals which instance was drawn. Its
expiry is rounded up to a whole minute, or to a tenth of a lifetime above ten minutes, so a ticket does not reveal when
it was drawn either.

Tickets are created in batches and handed out from a stock: those of one period differ only in their random numbers, and
in a batch each takes half as long. No list of drawn tickets exists. Used ones are recorded in one Bloom filter per
period of expiry, which has the same size at any load: at most thirteen filters of 4 MiB, or of up to 16 MiB for
lifetimes above ten minutes. A ticket sets the same four bits in two words, so checking it costs two memory accesses
instead of eight. An unused ticket whose bits others have set is refused, and its update is lost: at the end of a minute
once in 300,000 times at 10,000 updates a second (docs/service.md). `Spent` is the filters of one process; processes
that share a Redis keep them there (`redis_store`), in filters of half the size with one word for each ticket, without
any instance or client.

Clocks may jump: a store's clock does not (`Store.now`), a period that is over stays over, and a ticket that ends later
than any could is refused. Processes with different lifetimes refuse each other's tickets.
"""

import hashlib
import math
import os
import struct
import time
from array import array
from binascii import hexlify, unhexlify
from collections.abc import Callable
from hmac import compare_digest

from blindsight.service.randomness import NONCE_BYTES, random_nonce

__all__ = ["SKEW_S", "Spent", "Tickets", "filter_words", "marks", "period_s"]

SKEW_S = 60  # clocks of hosts that share a store may differ by this much
_SIGNED = 4 + NONCE_BYTES  # expiry and random number
_TAG = 16
_LENGTH = _SIGNED + _TAG
_MARKS = struct.Struct("<I4BI")  # of a random number: a word in the filter, four bits of it, and another word
_PERIODS = 10  # per lifetime, in whole minutes
_BITS = [1 << (byte & 63) for byte in range(256)]
_STOCK = 128  # tickets per batch
_WORDS = 1 << 19  # of a minute's filter, 64 bits each: 4 MiB
_SHARED_WORDS = 1 << 18  # of one in Redis
_MOST_WORDS = 1 << 21


def period_s(lifetime_s: float) -> int:
    """The seconds to which expiries are rounded: tickets of one period share a filter.

    >>> period_s(600), period_s(86400)
    (60, 8640)
    """
    return 60 * math.ceil(lifetime_s / (60 * _PERIODS))


def filter_words(lifetime_s: float, minute: int = _SHARED_WORDS) -> int:
    """The number of 64-bit words of a period's filter, `minute` of them for each minute."""
    return min(minute * (period_s(lifetime_s) // 60), _MOST_WORDS)


def marks(nonce: bytes, words: int) -> tuple[int, int, int, int, int]:
    """Where a used ticket is recorded in Redis: a word of the filter, and four of its bits."""
    at, one, two, three, four, _ = _MARKS.unpack(nonce)
    return at % words, one & 63, two & 63, three & 63, four & 63


class Tickets:
    """Issues and checks tickets, signed with `secret` and valid for `lifetime_s` seconds."""

    def __init__(self, secret: bytes, lifetime_s: float, now: Callable[[], float] = time.time) -> None:
        self._keyed = _Keyed(hashlib.blake2s(b"%r" % lifetime_s, key=secret).digest())
        self._lifetime = lifetime_s
        self._period = period_s(lifetime_s)
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
            self._until = self._period * (int(now + self._lifetime) // self._period + 1) - self._lifetime
            self._since = self._until - self._period
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
        now = self._now()
        is_now = now - SKEW_S <= ends <= now + self._lifetime + self._period + SKEW_S
        return (raw[4:_SIGNED], ends) if is_now else None


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

    def __init__(self, now: Callable[[], float] = time.time, lifetime_s: float = 600.0) -> None:
        self._filters: dict[int, array[int]] = {}  # by expiry
        self._words = filter_words(lifetime_s, _WORDS)
        self._over = 0  # tickets that end by then are refused, whatever a clock says later
        self._now = now

    def spend(self, nonce: bytes, ends: int) -> bool:
        """Mark a ticket as used; returns whether it was unused."""
        words = self._filters.get(ends)
        if words is None:
            now = self._now()
            if ends + SKEW_S < now or ends <= self._over:  # valid when its headers arrived; its filter is gone
                return False
            for over in [period for period in self._filters if period + SKEW_S < now]:
                self._over = max(self._over, over)
                del self._filters[over]
            words = self._filters[ends] = array("Q", bytes(8 * self._words))
        at, one, two, three, four, other = _MARKS.unpack(nonce)
        at, other = at % self._words, other % self._words
        bits = _BITS[one] | _BITS[two] | _BITS[three] | _BITS[four]
        if words[at] & words[other] & bits == bits:
            return False
        words[at] |= bits
        words[other] |= bits
        return True
