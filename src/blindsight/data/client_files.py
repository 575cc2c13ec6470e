"""Readers for `by_client` of formats that store clients separately: LEAF, HDF5, SQLite and folders of images.

The loaders in `federated` and `folders` report what is wrong and for which client. These readers do not: data that one
client wrote and that cannot be read are skipped silently. A file is refused only as a whole, and the message reveals
none of its contents.
"""

import contextlib
import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.federated import fedjax_sqlite, leaf, tff_hdf5, tff_sqlite
from blindsight.data.folders import image_folder
from blindsight.data.pictures import fitting_pixels
from blindsight.data.reading import need
from blindsight.data.schema import Field
from blindsight.data.wire import Feature, msgpack_arrays, tf_example
from blindsight.errors import InvalidInput
from blindsight.protobuf import varints

__all__ = ["READERS", "ClientExamples", "Reader"]

ClientExamples = Iterator[tuple[str, dict[str, list[Any]]]]
"""Each client with its fields, as lists of values of any type."""

Reader = Callable[[Path, Mapping[str, Field], str | None], ClientExamples]
"""Reads these fields and this split of a file."""

_DEEPEST = 64  # Python refuses to parse about a thousand levels of nesting
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{\]}]', re.DOTALL)  # of JSON: a string, or an opening or closing bracket
_DIGITS = 400  # no type holds a longer number, and Python refuses to parse one of 4,300 digits


def _leaf(source: Path, fields: Mapping[str, Field], split: str | None) -> ClientExamples:
    del split
    for file in sorted(source.glob("*.json")) if source.is_dir() else [source]:
        try:
            clients = _parsed(file.read_text(encoding="utf-8", errors="replace"))["user_data"].items()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InvalidInput(f"{file} is not LEAF JSON, an object of users, num_samples and user_data") from None
        for client, own in clients:
            held = own.items() if isinstance(own, dict) else ()
            yield client, {field: rows for field, rows in held if field in fields and isinstance(rows, list)}


def _parsed(text: str) -> Any:
    """The JSON, whatever one client's values are: too long or too deep, they are null."""
    try:
        return json.loads(
            text,
            parse_int=lambda digits: int(digits) if len(digits) < _DIGITS else None,
            strict=False,  # a client's text may contain line breaks
        )
    except RecursionError:
        return _parsed(_shallow(text))


def _shallow(text: str) -> str:
    """The JSON with null for everything that is nested deeper than any example."""
    kept, depth, end = list[str](), 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            kept += [text[end : token.start()]] if depth == _DEEPEST else []
        elif token[0] in "]}":
            if depth == _DEEPEST:
                kept.append("null")
                end = token.end()
            depth -= 1
    return "".join([*kept, text[end:]])


def _hdf5(file: Path, fields: Mapping[str, Field], split: str | None) -> ClientExamples:
    del split
    h5py = need("h5py", "hdf5", "HDF5")
    try:
        with h5py.File(file, "r") as source:
            clients = list(source["examples"])
            read = [(client, _datasets(source["examples"], client, fields)) for client in clients]
    except (OSError, KeyError, TypeError, RuntimeError):
        raise InvalidInput(f"{file} is not HDF5 with clients in examples/CLIENT, or it is damaged") from None
    yield from read


def _datasets(examples: Any, client: str, fields: Mapping[str, Field]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for field in fields:
        try:
            column = np.asarray(examples[client][field])
        except Exception:  # missing, a group, a broken link, damaged: h5py raises almost anything
            continue
        if column.ndim:
            columns[field] = [row.decode(errors="replace") if isinstance(row, bytes) else row for row in column]
    return columns


def _tff(file: Path, fields: Mapping[str, Field], split: str | None) -> ClientExamples:
    """The clients listed in `client_metadata`. Their number and their splits are public."""
    with _database(file) as rows_of:
        query = "SELECT client_id, split_name FROM client_metadata ORDER BY rowid"
        listed = [(str(client), name) for client, name in rows_of(query)]
        splits = {name for _, name in listed}
        if split is None and len(splits) > 1:
            raise InvalidInput(
                f'{file} has several splits: to train, choose one, options = {{ split = "train" }}; to inspect one, '
                f"write it to a separate file"
            )
        chosen = split if split is not None else next(iter(splits), None)
        examples: dict[str, list[dict[str, Any]]] = {client: [] for client, name in listed if name == chosen}
        query = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY rowid"
        for client, message in rows_of(query, chosen):
            if (own := examples.get(str(client))) is not None:
                own.append(_message(message, fields))
    for client, rows in examples.items():
        yield client, {field: [row.get(field) for row in rows] for field in fields}


def _message(message: Any, fields: Mapping[str, Field]) -> dict[str, Any]:
    """The fields of a `tf.train.Example`; none if the message is not one."""
    try:
        held = {field: feature for field, feature in tf_example(message).items() if field in fields}
        return {field: _values(feature, fields[field]) for field, feature in held.items()}
    except (ValueError, TypeError):
        return {}


def _values(feature: Feature, field: Field) -> Any:
    """The values of a feature; a single value is a scalar, unless the field is an image."""
    if feature.kind == "bytes":
        values: Any = [text.decode(errors="replace") for text in feature.texts]
    elif feature.kind == "floats":
        values = np.frombuffer(feature.numbers, "<f4")
    else:
        values = varints(np.frombuffer(feature.numbers, np.uint8))
    return values[0] if len(values) == 1 and field.kind != "image" else values


def _fedjax(file: Path, fields: Mapping[str, Field], split: str | None) -> ClientExamples:
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
    """A function that yields the rows of a query. The file is opened read-only, and no error quotes a value."""
    try:
        with contextlib.closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode(errors="backslashreplace")
            yield lambda query, *values: connection.execute(query, values)
    except sqlite3.Error:
        raise InvalidInput(f"{file} is not an SQLite file of that layout, or it is damaged") from None


def _images(folder: Path, fields: Mapping[str, Field], split: str | None) -> ClientExamples:
    """Images in CLIENT/LABEL/ and in CLIENT/. If no label is requested, both are read alike."""
    del split
    for client in _inside(folder):
        if not client.is_dir():
            continue
        files = [(file, None) for file in _inside(client) if file.is_file()]
        files += [(file, group.name) for group in _inside(client) if group.is_dir() for file in _inside(group)]
        pixels = [fitting_pixels(file, fields["image"]) for file, _ in files] if "image" in fields else []
        own: dict[str, list[Any]] = {"image": pixels, "label": [label for _, label in files]}
        yield client.name, {field: rows for field, rows in own.items() if field in fields}


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(inner for inner in folder.iterdir() if not inner.name.startswith("."))
    except OSError:  # not a folder, or not readable
        return []


READERS: Mapping[Any, Reader] = {
    leaf: _leaf,
    tff_hdf5: _hdf5,
    tff_sqlite: _tff,
    fedjax_sqlite: _fedjax,
    image_folder: _images,
}
"""Reader for each loader in `federated` and `folders`."""
