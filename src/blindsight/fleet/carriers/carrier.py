"""`Carrier`: one party's end of the lines between the coordinator and each site.

What every carrier promises, and `tests/contracts/test_carriers.py` checks on each:

- A message arrives whole or not at all, and messages of one sender arrive in the order in which they were sent.
- The carrier supplies the sender's name, never the message: over NATS it is the name in the certificate.
- Sites talk to the coordinator only. No site can send in the name of another, or receive what is meant for another.
- Nothing is stored for a party that is offline. A message may get lost, so a party that needs an answer asks again.

A carrier is trusted with delivery alone: secure sums are signed and masked above it.
"""

import dataclasses
import re
import secrets
import struct
from collections.abc import Iterator
from typing import Protocol

from blindsight.errors import InvalidInput

__all__ = ["COORDINATOR", "LARGEST", "Assembler", "Carrier", "Delivery", "check_line", "check_site_name", "pieces"]

COORDINATOR = "coordinator"
"""The name of the one party that is not a site."""

LARGEST = 1 << 30
"""Bytes that a message may have."""

_PIECE = 1 << 19  # half of what NATS carries at once by default
_HEAD = struct.Struct("<16sII")  # the message's own mark, the piece's place, the number of pieces
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclasses.dataclass(frozen=True)
class Delivery:
    """A whole message, and who sent it."""

    sender: str
    data: bytes


class Carrier(Protocol):
    """One party's end: it sends to others, and receives what is addressed to it."""

    @property
    def name(self) -> str:
        """The party at this end."""
        ...

    def send(self, receiver: str, data: bytes) -> None:
        """Send a message, which arrives whole or not at all."""
        ...

    def receive(self, timeout_s: float) -> Delivery | None:
        """The next message, or None if none arrives within `timeout_s` seconds."""
        ...

    def close(self) -> None:
        """Leave: messages sent here from now on are lost."""
        ...


def check_site_name(name: str) -> None:
    """Refuse names that cannot be part of a subject, a certificate and a folder alike."""
    if not _NAME.fullmatch(name) or name == COORDINATOR:
        raise InvalidInput(
            f"a site's name is 1 to 40 lower-case letters, digits and inner hyphens, and not {COORDINATOR!r}, got "
            f"{name!r}"
        )


def check_line(sender: str, receiver: str, size: int) -> None:
    """Refuse a message between two sites, or one that is too large."""
    if (sender == COORDINATOR) == (receiver == COORDINATOR):
        raise InvalidInput(f"sites and the coordinator talk to each other only, not {sender!r} to {receiver!r}")
    if size > LARGEST:
        raise InvalidInput(f"a message has at most {LARGEST:,} bytes, got {size:,}")


def pieces(data: bytes) -> Iterator[bytes]:
    """A message in pieces that a carrier of small messages can take."""
    mark, count = secrets.token_bytes(16), max(1, -(-len(data) // _PIECE))
    for place in range(count):
        yield _HEAD.pack(mark, place, count) + data[place * _PIECE : (place + 1) * _PIECE]


class Assembler:
    """Joins the pieces of each sender; one message of a sender at a time, and none with a gap."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[bytes, int, list[bytes]]] = {}

    def take(self, sender: str, piece: bytes) -> bytes | None:
        """The message that this piece completes, if it does; a piece that does not follow the last one is dropped."""
        if not _HEAD.size <= len(piece) <= _HEAD.size + _PIECE:
            self._begun.pop(sender, None)
            return None
        mark, place, count = _HEAD.unpack_from(piece)
        if place == 0 and count == 1:  # whole, perhaps from a second process of this sender: it interrupts nothing
            return piece[_HEAD.size :]
        if place == 0 and 1 <= count <= LARGEST // _PIECE:
            self._begun[sender] = mark, count, []
        current, expected, parts = self._begun.get(sender, (b"", 0, []))
        if (mark, count, place) != (current, expected, len(parts)):
            self._begun.pop(sender, None)
            return None
        parts.append(piece[_HEAD.size :])
        if len(parts) < count:
            return None
        del self._begun[sender]
        return b"".join(parts)
