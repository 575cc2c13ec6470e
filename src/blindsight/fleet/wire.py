"""Envelopes: what the coordinator and a site say to each other, as bytes. One JSON object and plain bytes, no pickle.

::

    4 bytes    "BSF1"
    4          length of the head        little-endian, as all lengths are
    4          number of blobs
    ...        the head: a JSON object in UTF-8
    8 + ...    each blob after its length

A head has exactly one form: `decode` accepts only the bytes that `encode` writes. So repeated keys, NaN, infinities and
half characters never arrive, and equal digests of envelopes mean equal contents.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from blindsight.errors import InvalidInput
from blindsight.fleet.carriers.carrier import LARGEST

__all__ = ["LARGEST_HEAD", "MOST_BLOBS", "MOST_CLIENTS", "BadEnvelope", "decode", "encode"]

LARGEST_HEAD = 1 << 22
"""Bytes that a head may have."""

MOST_BLOBS = 1 << 12
"""Blobs that an envelope may hold."""

MOST_CLIENTS = 10**8
"""Clients that one site may declare: the coordinator keeps a place for each."""

_MAGIC = b"BSF1"
_FRONT = struct.Struct("<4sII")
_LENGTH = struct.Struct("<Q")


class BadEnvelope(InvalidInput):
    """Bytes that are not an envelope; `code` may cross the network: `malformed` or `too_large`."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def encode(head: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """An envelope with this head and these blobs.

    >>> decode(encode({"kind": "ping"}, [b"x"]))
    ({'kind': 'ping'}, [b'x'])
    """
    text = _as_json(head)
    _check_sizes(len(text), len(blobs))
    parts = [_FRONT.pack(_MAGIC, len(text), len(blobs)), text]
    for blob in blobs:
        parts += [_LENGTH.pack(len(blob)), blob]
    total = sum(map(len, parts))
    if total > LARGEST:
        raise BadEnvelope("too_large", f"a message has at most {LARGEST:,} bytes, got {total:,}: send it in parts")
    return b"".join(parts)


def decode(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Head and blobs of an envelope; whatever `encode` would not have written is refused."""
    if len(data) > LARGEST:
        raise BadEnvelope("too_large", f"a message has at most {LARGEST:,} bytes, got {len(data):,}")
    if len(data) < _FRONT.size or not data.startswith(_MAGIC):
        raise _malformed("it does not begin like one")
    _, length, count = _FRONT.unpack_from(data)
    _check_sizes(length, count)
    place = _FRONT.size + length
    if place > len(data):
        raise _malformed("it ends within its head")
    return _head(data[_FRONT.size : place]), _blobs(data, place, count)


def _as_json(head: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(head, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:
        raise _malformed(f"a head is plain JSON, {error}") from error


def _head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed("its head is not JSON") from error
    if not isinstance(head, dict) or _as_json(head) != text:
        raise _malformed("its head is not a JSON object in its one form")
    return head


def _blobs(data: bytes, place: int, count: int) -> list[bytes]:
    blobs: list[bytes] = []
    for _ in range(count):
        if place + _LENGTH.size > len(data):
            raise _malformed("it ends too early")
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if length > len(data) - place:
            raise _malformed("it ends within a blob")
        blobs.append(data[place : place + length])
        place += length
    if place != len(data):
        raise _malformed("it continues after its end")
    return blobs


def _check_sizes(head: int, blobs: int) -> None:
    if head > LARGEST_HEAD or blobs > MOST_BLOBS:
        raise BadEnvelope(
            "too_large",
            f"a message has a head of at most {LARGEST_HEAD:,} bytes and {MOST_BLOBS:,} blobs, got {head:,} and "
            f"{blobs:,}: send large values as blobs",
        )


def _malformed(why: str) -> BadEnvelope:
    return BadEnvelope("malformed", f"this is not a message of a fleet ({why})")
