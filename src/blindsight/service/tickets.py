"""Tickets: a draw hands one out, an update gives it back, and each can be used once.

A ticket is a keyed hash of what it is for, when it ends and a random number. It never says which instance was drawn.
Its end is rounded up to a whole minute, so that a ticket does not say when it was drawn either.

No list of drawn tickets is kept anywhere. Used ones leave marks in one Bloom filter for each minute of expiry, in one
process (`Spent`), which stays the same size at any load. An unused ticket meets three marks of others less than once in
1,000 times at 10,000 updates a second, once in a million at 1,000; it is then refused, and its client draws again.
Processes that share a Redis keep the random number of each used ticket there until the ticket's end (`redis_store`);
nothing stands beside it, no instance and no client.
"""

import hashlib
import hmac
import struct
import time
from collections.abc import Callable

from blindsight.service.randomness import random_bytes

__all__ = ["SKEW_S", "Spent", "Tickets"]

SKEW_S = 60  # by how much the clocks of hosts that share a store may differ
_TAG = 16
_NONCE = 12
_MARKS = struct.Struct("<III")
_BYTES = 1 << 21  # of each minute's filter


class Tickets:
    """Issues and checks tickets that were signed with `secret` and live for `lifetime_s` seconds."""

    def __init__(self, secret: bytes, lifetime_s: float, now: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._keyed: dict[bytes, hashlib.blake2b] = {}
        self._lifetime = lifetime_s
        self._now = now

    def issue(self, about: bytes) -> bytes:
        """A fresh ticket for `about`, in characters that a header may hold."""
        ends = (int(self._now() + self._lifetime) // 60 + 1) * 60
        signed = ends.to_bytes(4, "little") + random_bytes(_NONCE)
        return (signed + self._tag(about, signed)).hex().encode()

    def check(self, ticket: bytes, about: bytes) -> tuple[bytes, int] | None:
        """The random number of a ticket that holds for `about` and its end; None if it is forged, foreign or old."""
        try:
            raw = bytes.fromhex(ticket.decode())
        except ValueError:
            return None
        signed, tag = raw[:-_TAG], raw[-_TAG:]
        if len(raw) != 4 + _NONCE + _TAG or not hmac.compare_digest(tag, self._tag(about, signed)):
            return None
        ends = int.from_bytes(signed[:4], "little")
        return (signed[4:], ends) if self._now() <= ends + SKEW_S else None

    def _tag(self, about: bytes, signed: bytes) -> bytes:
        keyed = self._keyed.get(about)
        if keyed is None:  # BLAKE2 with a key is a MAC by design, and here a tenth of the price of HMAC-SHA-256
            keyed = self._keyed[about] = hashlib.blake2b(about + b"\0", key=self._secret, digest_size=_TAG)
        found = keyed.copy()
        found.update(signed)
        return found.digest()


class Spent:
    """Which tickets were used, for one process."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._minutes: dict[int, bytearray] = {}
        self._now = now

    def spend(self, nonce: bytes, ends: int) -> bool:
        """Whether the ticket had not been used before; from now on it has."""
        marks = self._minutes.get(ends)
        if marks is None:
            for over in [minute for minute in self._minutes if minute + SKEW_S < self._now()]:
                del self._minutes[over]
            marks = self._minutes[ends] = bytearray(_BYTES)
        one, two, three = _MARKS.unpack(nonce)  # 21 bits each for the byte, 3 for the bit
        first, second, third = 1 << (one & 7), 1 << (two & 7), 1 << (three & 7)
        one, two, three = one >> 11, two >> 11, three >> 11
        if marks[one] & first and marks[two] & second and marks[three] & third:
            return False
        marks[one] |= first
        marks[two] |= second
        marks[three] |= third
        return True
