"""Decodes two wire formats of federated data sets without the libraries that wrote them.

`tf.train.Example` is a protocol buffer: a map from a name to a list of byte strings, 32-bit floats or 64-bit integers.
FedJAX stores a client's arrays in msgpack. Malformed data raise `ValueError`.
"""

import dataclasses
import struct
from typing import Any

import numpy as np

from blindsight.protobuf import DELIMITED, FOUR_BYTES, VARINT, fields, parts

__all__ = ["Feature", "msgpack_arrays", "tf_example"]

_KINDS = {1: "bytes", 2: "floats", 3: "integers"}


@dataclasses.dataclass
class Feature:
    """One feature of an example: byte strings, or numbers still in their wire form."""

    kind: str
    texts: list[bytes] = dataclasses.field(default_factory=list[bytes])
    numbers: bytes = b""


def tf_example(message: bytes) -> dict[str, Feature]:
    """The features of a serialised `tf.train.Example`, by name; features without values are omitted.

    >>> tf_example(bytes.fromhex("0a0c 0a0a 0a0161 1205 1a03 0a0107"))
    {'a': Feature(kind='integers', texts=[], numbers=b'\\x07')}
    """
    features: dict[str, Feature] = {}
    for features_message in parts(message, 1):
        for entry in parts(features_message, 1):
            name = b"".join(parts(entry, 1)).decode()
            feature = _feature(b"".join(parts(entry, 2)))  # parts of one message merge by concatenation
            if feature is not None:
                features[name] = feature
    return features


def _feature(message: bytes) -> Feature | None:
    feature = None
    for number, wire, content in fields(message):
        if number not in _KINDS or wire != DELIMITED:
            continue
        if feature is None or feature.kind != _KINDS[number]:
            feature = Feature(_KINDS[number])  # in a oneof, the last one wins
        for value_number, value_wire, value in fields(content):
            if value_number != 1:
                continue
            if feature.kind == "bytes":
                feature.texts.append(value)
            elif value_wire in (DELIMITED, FOUR_BYTES if feature.kind == "floats" else VARINT):
                feature.numbers += value  # packed, or one at a time: the bytes of the values are the same
            else:
                raise ValueError("a list holds values of another type")
    if (
        feature
        and feature.numbers
        and (len(feature.numbers) % 4 if feature.kind == "floats" else feature.numbers[-1] > 127)
    ):
        raise ValueError("a number is truncated")
    return feature if feature and (feature.texts or feature.numbers) else None


_ARRAY_OF_NUMBERS, _ARRAY_OF_BYTES = 1, 4  # FedJAX's extension types
_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_BYTES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_LISTS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}
_EXTENSIONS = {0xC7: ">B", 0xC8: ">H", 0xC9: ">I"}
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def msgpack_arrays(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of one FedJAX client, by field; text is UTF-8.

    >>> msgpack_arrays(bytes.fromhex("81 a178 c70d01 93 9102 a575696e7438 c4020304"))
    {'x': array([3, 4], dtype=uint8)}
    """
    try:
        fields, end = _item(data, 0)
        if end != len(data) or not isinstance(fields, dict):
            raise ValueError("it is not one map of arrays")
        return {field.decode(): _array(*content) for field, content in fields.items()}
    except (IndexError, struct.error, TypeError, AttributeError, OverflowError, RecursionError, SyntaxError) as error:
        raise ValueError(f"it is not a map of arrays: {error}") from error


def _array(extension: int, data: bytes) -> np.ndarray:
    content = _item(data, 0)[0]
    if extension == _ARRAY_OF_NUMBERS:
        shape, dtype, raw = content
        return np.frombuffer(raw, np.dtype(dtype.decode())).reshape(shape)
    if extension == _ARRAY_OF_BYTES:
        shape, texts = content
        return np.array([text.decode() for text in texts], dtype=np.dtypes.StringDType()).reshape(shape)
    raise ValueError(f"there is no array of type {extension}")


def _item(data: bytes, at: int) -> tuple[Any, int]:
    """The msgpack value that starts at `at`, and the start of the next; an extension is (type, bytes)."""
    tag, at = data[at], at + 1
    if tag < 0x80 or tag >= 0xE0:
        return (tag if tag < 0x80 else tag - 256), at
    if tag < 0xA0:
        return (_map if tag < 0x90 else _list)(data, at, tag & 15)
    if tag < 0xC0:
        return _raw(data, at, tag & 31)
    if tag in _FIXED_EXTENSIONS:
        content, end = _raw(data, at + 1, _FIXED_EXTENSIONS[tag])
        return (data[at], content), end
    for table in (_NUMBERS, _BYTES, _LISTS, _MAPS, _EXTENSIONS):
        if tag not in table:
            continue
        (value,) = struct.unpack_from(table[tag], data, at)
        at += struct.calcsize(table[tag])
        if table is _NUMBERS:
            return value, at
        if table is _EXTENSIONS:
            content, end = _raw(data, at + 1, value)
            return (data[at], content), end
        return (_raw if table is _BYTES else _list if table is _LISTS else _map)(data, at, value)
    raise ValueError(f"no value begins with byte {tag:#x}")


def _raw(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(data):
        raise ValueError("it is truncated")
    return data[at : at + length], at + length


def _list(data: bytes, at: int, length: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    for _ in range(length):
        value, at = _item(data, at)
        values.append(value)
    return values, at


def _map(data: bytes, at: int, length: int) -> tuple[dict[Any, Any], int]:
    pairs, at = _list(data, at, 2 * length)
    return dict(zip(pairs[::2], pairs[1::2], strict=True)), at
