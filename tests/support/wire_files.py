"""SQLite files as TensorFlow Federated and FedJAX write them, without either, and images in folders."""

import sqlite3
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["fedjax_database", "part", "picture", "proto", "tff_database", "varint"]


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def part(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def proto(*, packed: bool = True, **features: Any) -> bytes:
    """A serialised tf.train.Example, as the specification of the wire format has it."""
    entries = b""
    for name, values in features.items():
        if isinstance(values[0], bytes | str):
            kind, content = 1, b"".join(part(1, v.encode() if isinstance(v, str) else v) for v in values)
        elif isinstance(values[0], float):
            raw = [struct.pack("<f", value) for value in values]
            kind, content = 2, part(1, b"".join(raw)) if packed else b"".join(b"\x0d" + value for value in raw)
        else:
            raw = [varint(value) for value in values]
            kind, content = 3, part(1, b"".join(raw)) if packed else b"".join(b"\x08" + value for value in raw)
        entries += part(1, part(1, name.encode()) + part(2, part(kind, content)))
    return part(1, entries)


def tff_database(path: str | Path, examples: Any, clients: Any = None) -> None:
    """`examples` lists (split, client, message); `clients` lists (client, split, count)."""
    counted: dict[Any, int] = {}
    for split, client, _ in examples:
        counted[client, split] = counted.get((client, split), 0) + 1
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA synchronous = OFF")
        database.execute("CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)")
        database.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
        database.executemany("INSERT INTO examples VALUES (?, ?, ?)", examples)
        rows = clients if clients is not None else [(*pair, count) for pair, count in counted.items()]
        database.executemany("INSERT INTO client_metadata VALUES (?, ?, ?)", rows)
    database.close()


def _length(length: int, small: int, large: int) -> bytes:
    return bytes([small, length]) if length < 256 else bytes([large]) + struct.pack(">I", length)


def _text(text: str) -> bytes:
    return bytes([0xA0 + len(text)]) + text.encode() if len(text) < 32 else bytes([0xD9, len(text)]) + text.encode()


def _number(number: int) -> bytes:
    return bytes([number]) if number < 128 else b"\xce" + struct.pack(">I", number)


def _array(array: np.ndarray) -> bytes:
    """A FedJAX array: an extension that holds (shape, dtype, bytes), or (shape, list of bytes)."""
    shape = bytes([0x90 + array.ndim]) + b"".join(map(_number, array.shape))
    if array.dtype == object:
        texts = [_length(len(t), 0xC4, 0xC6) + t for t in array.ravel()]
        code, content = 4, b"\x92" + shape + b"\xdc" + struct.pack(">H", len(texts)) + b"".join(texts)
    else:
        raw = array.tobytes()
        code, content = 1, b"\x93" + shape + _text(array.dtype.name) + _length(len(raw), 0xC4, 0xC6) + raw
    return _length(len(content), 0xC7, 0xC9) + bytes([code]) + content


def fedjax_database(path: str | Path, clients: Any) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE federated_data (client_id BLOB PRIMARY KEY, data BLOB, num_examples INTEGER)")
        for client, fields, count in clients:
            packed = bytes([0x80 + len(fields)]) + b"".join(_text(f) + _array(a) for f, a in fields.items())
            database.execute("INSERT INTO federated_data VALUES (?, ?, ?)", (client, zlib.compress(packed), count))
    database.close()


def picture(
    path: str | Path, size: tuple[int, int] = (4, 3), mode: str = "L", colour: int | tuple[int, int, int] = 0
) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)
