"""Protocol buffers without a library: the wire format of ONNX files and of `tf.train.Example`.

A message is a sequence of fields. Each has a number, a wire type and content: a varint, 4 or 8 bytes, or bytes with
their length. Malformed messages raise `ValueError`.
"""

from collections.abc import Iterator

import numpy as np

__all__ = ["DELIMITED", "FOUR_BYTES", "VARINT", "delimited", "fields", "number", "parts", "varints"]

VARINT, _EIGHT_BYTES, DELIMITED, FOUR_BYTES = 0, 1, 2, 5
_LENGTHS = {_EIGHT_BYTES: 8, FOUR_BYTES: 4}


def fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and content of each field of a message."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        wire = tag & 7
        if wire == DELIMITED:
            length, at = _read_varint(message, at)
        elif wire == VARINT:
            length = _read_varint(message, at)[1] - at
        elif wire in _LENGTHS:
            length = _LENGTHS[wire]
        else:
            raise ValueError(f"there is no wire type {wire}")
        if at + length > len(message):
            raise ValueError("the message is truncated")
        yield tag >> 3, wire, message[at : at + length]
        at += length


def parts(message: bytes, wanted: int) -> list[bytes]:
    """The contents of the length-delimited fields with the number `wanted`."""
    return [content for field, wire, content in fields(message) if (field, wire) == (wanted, DELIMITED)]


def varints(raw: np.ndarray) -> np.ndarray:
    """The 64-bit integers of a run of varints, decoded in one vectorised pass.

    >>> varints(np.frombuffer(bytes.fromhex("07 ac02 ffffffffffffffffff01"), np.uint8)).tolist()
    [7, 300, -1]
    """
    ends = np.flatnonzero(raw < 128)  # the top bit means that another byte follows
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    lengths = ends - starts + 1
    longest = int(lengths.max(initial=0))
    if (len(raw) and raw[-1] >= 128) or longest > 10:
        raise ValueError("a number is truncated")
    values = np.zeros(len(ends), np.uint64)
    for position in range(longest):
        has = lengths > position
        values[has] |= (raw[starts[has] + position].astype(np.uint64) & np.uint64(127)) << np.uint64(7 * position)
    return values.view(np.int64)


def number(field: int, value: int) -> bytes:
    """A field that holds a whole number.

    >>> number(1, 300).hex()
    '08ac02'
    """
    return _varint(field << 3) + _varint(value)


def delimited(field: int, content: bytes) -> bytes:
    """A field that holds bytes: a string, or another message."""
    return _varint(field << 3 | DELIMITED) + _varint(len(content)) + content


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The varint at a position, and the position behind it."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("the message is truncated")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
