"""Files that keep each client's examples apart, read for `by_client`: LEAF, HDF5, SQLite and folders of images.

The loaders in `federated` and `folders` name what is wrong, and whose it is. Here what one client has written is its
own affair: what cannot be read of it is not there. A file is refused as a whole, without a word about what it holds.
"""

import contextlib
import json
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.federated import fedjax_sqlite, leaf, tff_hdf5, tff_sqlite
from blindsight.data.folders import MODES, image_folder
from blindsight.data.reading import need
from blindsight.data.schema import Field
from blindsight.data.wire import Feature, msgpack_arrays, tf_example, varints
from blindsight.errors import InvalidInput

__all__ = ["READERS", "Clients", "Reader"]

Clients = Iterator[tuple[str, dict[str, list[Any]]]]
"""Each client with its fields, as lists of examples of whatever kind."""

Reader = Callable[[Path, Mapping[str, Field], str | None], Clients]
"""Reads a file, with the fields that are wanted and the split that is asked for."""

_DIGITS = 400  # a longer number fits into nothing, and Python refuses to read one of 4,300


def _leaf(source: Path, fields: Mapping[str, Field], split: str | None) -> Clients:
    del split
    for file in sorted(source.glob("*.json")) if source.is_dir() else [source]:
        try:
            content = json.loads(
                file.read_text(encoding="utf-8", errors="replace"),
                parse_int=lambda digits: int(digits) if len(digits) < _DIGITS else None,
                strict=False,  # a line break in somebody's text
            )
            clients = content["user_data"].items()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InvalidInput(f"{file} is not LEAF JSON, an object of users, num_samples and user_data") from None
        for client, own in clients:
            held = own.items() if isinstance(own, dict) else ()
            yield client, {field: rows for field, rows in held if field in fields and isinstance(rows, list)}


def _hdf5(file: Path, fields: Mapping[str, Field], split: str | None) -> Clients:
    del split
    h5py = need("h5py", "hdf5", "HDF5")
    try:
        with h5py.File(file, "r") as source:
            clients = list(source["examples"])
            found = [(client, _datasets(source["examples"], client, fields)) for client in clients]
    except (OSError, KeyError, TypeError, RuntimeError):
        raise InvalidInput(f"{file} is not HDF5 with clients in examples/CLIENT, or it is damaged") from None
    yield from found


def _datasets(examples: Any, client: str, fields: Mapping[str, Field]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for field in fields:
        try:
            column = np.asarray(examples[client][field])
        except Exception:  # not there, a group, a link to nowhere, damaged: h5py raises almost anything
            continue
        if column.ndim:
            found[field] = [row.decode(errors="replace") if isinstance(row, bytes) else row for row in column]
    return found


def _tff(file: Path, fields: Mapping[str, Field], split: str | None) -> Clients:
    """The clients that `client_metadata` lists, which says how many there are and in which split; both are public."""
    with _database(file) as rows_of:
        query = "SELECT client_id, split_name FROM client_metadata ORDER BY rowid"
        listed = [(str(client), name) for client, name in rows_of(query)]
        splits = {name for _, name in listed}
        if split is None and len(splits) > 1:
            raise InvalidInput(
                f'{file} has several splits: to train, say which, options = {{ split = "train" }}; to inspect one, '
                f"write it to a file of its own"
            )
        chosen = split if split is not None else next(iter(splits), None)
        found: dict[str, list[dict[str, Any]]] = {client: [] for client, name in listed if name == chosen}
        query = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY rowid"
        for client, message in rows_of(query, chosen):
            if (own := found.get(str(client))) is not None:
                own.append(_message(message, fields))
    for client, rows in found.items():
        yield client, {field: [row.get(field) for row in rows] for field in fields}


def _message(message: Any, fields: Mapping[str, Field]) -> dict[str, Any]:
    """The fields of a `tf.train.Example`; none of one that is none."""
    try:
        held = {field: feature for field, feature in tf_example(message).items() if field in fields}
        return {field: _values(feature, fields[field]) for field, feature in held.items()}
    except (ValueError, TypeError):
        return {}


def _values(feature: Feature, field: Field) -> Any:
    """What a feature holds: one value by itself, unless an image is made of it."""
    if feature.kind == "bytes":
        values: Any = [text.decode(errors="replace") for text in feature.texts]
    elif feature.kind == "floats":
        values = np.frombuffer(feature.numbers, "<f4")
    else:
        values = varints(np.frombuffer(feature.numbers, np.uint8))
    return values[0] if len(values) == 1 and field.kind != "image" else values


def _fedjax(file: Path, fields: Mapping[str, Field], split: str | None) -> Clients:
    del split
    with _database(file) as rows_of:
        for client, data in rows_of("SELECT client_id, data FROM federated_data ORDER BY rowid"):
            try:
                arrays = msgpack_arrays(zlib.decompress(data))
            except (ValueError, TypeError, zlib.error):
                arrays = dict[str, np.ndarray]()
            name = client.decode(errors="backslashreplace") if isinstance(client, bytes) else str(client)
            yield name, {field: list(column) for field, column in arrays.items() if field in fields and column.ndim}


@contextlib.contextmanager
def _database(file: Path) -> Generator[Any]:
    """A function that yields the rows of a query; the file is opened for reading only, and no error quotes a value."""
    try:
        with contextlib.closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode(errors="backslashreplace")
            yield lambda query, *values: connection.execute(query, values)
    except sqlite3.Error:
        raise InvalidInput(f"{file} is not an SQLite file of that layout, or it is damaged") from None


def _images(folder: Path, fields: Mapping[str, Field], split: str | None) -> Clients:
    """Images in CLIENT/LABEL, and in CLIENT itself; where no label is wanted, a folder between does not matter."""
    del split
    for client in _inside(folder):
        if not client.is_dir():
            continue
        files = [(file, None) for file in _inside(client) if file.is_file()]
        files += [(file, group.name) for group in _inside(client) if group.is_dir() for file in _inside(group)]
        pixels = [_pixels(file, fields["image"]) for file, _ in files] if "image" in fields else []
        own: dict[str, list[Any]] = {"image": pixels, "label": [label for _, label in files]}
        yield client.name, {field: rows for field, rows in own.items() if field in fields}


def _pixels(file: Path, field: Field) -> np.ndarray | None:
    """An image of the shape that the field has; None for anything else, of which nothing is decoded."""
    from PIL import Image

    try:
        with warnings.catch_warnings(action="error"), Image.open(file) as image:
            if image.mode not in MODES or image.size[::-1] != field.shape[:2]:
                return None
            return np.asarray(image)
    except Exception:  # a damaged image makes Pillow raise almost anything
        return None


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(inner for inner in folder.iterdir() if not inner.name.startswith("."))
    except OSError:  # no folder, or not to be read
        return []


READERS: Mapping[Any, Reader] = {
    leaf: _leaf,
    tff_hdf5: _hdf5,
    tff_sqlite: _tff,
    fedjax_sqlite: _fedjax,
    image_folder: _images,
}
"""How a file is read here, by the loader that reads it for its owner."""
