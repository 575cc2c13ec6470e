"""Messages of a secure sum as bytes: a kind, the digest of the round's terms, a sender, fields, and a signature.

Messages of the coordinator are not signed: whatever in them matters was signed by a site.
"""

import dataclasses
import enum
import functools
import struct
from typing import Self

from blindsight.fleet.secure_sum.identities import Party, Signer
from blindsight.fleet.secure_sum.refusals import Reason, Refused
from blindsight.fleet.secure_sum.terms import digest_of_parts

__all__ = ["Kind", "Message"]

_MAGIC = b"BSS1"
_HEAD = struct.Struct("<4sB32sI")
_LENGTH = struct.Struct("<Q")
_MOST_PARTS = 1 << 14


class Kind(enum.IntEnum):
    """The nine messages, in the order of a round: the coordinator's are even, a site's are odd."""

    KEYS = 1
    KEY_LIST = 2
    SHARES = 3
    DELIVERY = 4
    MASKED = 5
    SURVIVORS = 6
    AGREED = 7
    AGREEMENTS = 8
    REVEALED = 9


@dataclasses.dataclass(frozen=True)
class Message:
    """A message of one round; `sender` and `signature` are empty for the coordinator's."""

    kind: Kind
    terms: bytes
    sender: str
    fields: tuple[bytes, ...]
    signature: bytes = b""

    def encoded(self) -> bytes:
        """The message on the wire."""
        parts = (self.sender.encode(), *self.fields, self.signature)
        pieces = [_HEAD.pack(_MAGIC, self.kind, self.terms, len(parts))]
        for part in parts:
            pieces += [_LENGTH.pack(len(part)), part]
        return b"".join(pieces)

    def signed(self, sign: Signer) -> Self:
        """The same message with its sender's signature."""
        return dataclasses.replace(self, signature=sign(self.statement))

    def is_signed_by(self, party: Party) -> bool:
        """Whether this party sent the message, exactly as it is."""
        return party.name == self.sender and party.has_signed(self.statement, self.signature)

    def check_signed_by(self, party: Party) -> None:
        """Refuse a message that this party did not send, or that was changed on the way."""
        if not self.is_signed_by(party):
            raise Refused(Reason.BAD_SIGNATURE, f"a message in the name of {self.sender!r} was not signed by that site")

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """The message that `encoded` wrote; anything else is refused."""
        try:
            magic, kind, terms, count = _HEAD.unpack_from(data)
            parts = _parts(data, count)
            if magic != _MAGIC or len(parts) < 2:
                raise ValueError("not a message of a secure sum")
            return cls(Kind(kind), terms, parts[0].decode(), tuple(parts[1:-1]), parts[-1])
        except (struct.error, ValueError) as error:
            raise Refused(Reason.MALFORMED, f"this is not a message of a secure sum ({error})") from error

    @functools.cached_property
    def statement(self) -> bytes:
        """What is signed: 32 bytes that differ whenever anything but the signature does."""
        return digest_of_parts(
            b"blindsight secure sum 1 statement", bytes([self.kind]), self.terms, self.sender.encode(), *self.fields
        )


def _parts(data: bytes, count: int) -> list[bytes]:
    if count > _MOST_PARTS:
        raise ValueError(f"{count} parts")
    place = _HEAD.size
    parts: list[bytes] = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if length > len(data) - place:
            raise ValueError("it ends too early")
        parts.append(data[place : place + length])
        place += length
    if place != len(data):
        raise ValueError("it continues after its end")
    return parts
