"""Loaders of data sets that are already split by client: LEAF, TensorFlow Federated and FedJAX."""

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.population import TEXT, Columns, Population, as_text
from blindsight.data.reading import ClientByClient, FileRows, existing, need, one_split, placed, refuse_nan
from blindsight.data.wire import Feature, msgpack_arrays, tf_example
from blindsight.errors import InvalidInput
from blindsight.protobuf import varints

__all__ = ["fedjax_sqlite", "leaf", "sqlite_tables", "tff_hdf5", "tff_sqlite"]


def leaf(path: str | Path, *, name: str | None = None) -> Population:
    """The population in a LEAF JSON file (`users`, `num_samples`, `user_data`), or in all `.json` files of a folder."""
    source = existing(path)
    files = sorted(source.glob("*.json")) if source.is_dir() else [source]
    if not files:
        folders = ", ".join(sorted(folder.name for folder in source.iterdir() if folder.is_dir()))
        raise InvalidInput(
            f"the folder {source} has no .json file: choose one that does (subfolders: {folders or 'none'})"
        )
    gathered, home = ClientByClient(), dict[str, Path]()
    for file in files:
        for client, fields in _leaf_clients(file):
            if client in home:
                raise InvalidInput(f"client {client!r} is in {home[client]} and in {file}: keep one of them")
            home[client] = file
            where = f"{file}, client {client!r}"
            gathered.add(client, {field: _json_column(values, where, field) for field, values in fields.items()}, file)
    return gathered.population(name or source.stem, source)


def tff_hdf5(path: str | Path, *, name: str | None = None) -> Population:
    """The population in an HDF5 file of TensorFlow Federated: one dataset `examples/CLIENT/FIELD` each."""
    h5py = need("h5py", "hdf5", "HDF5")
    file = existing(path)
    try:
        source = h5py.File(file, "r")
    except OSError as error:
        raise InvalidInput(f"{file} is not an HDF5 file, or it is damaged: {error}") from error
    with source:
        examples = source.get("examples")
        if not isinstance(examples, h5py.Group):
            raise InvalidInput(f"{file} has no group 'examples': TensorFlow Federated keeps clients in examples/CLIENT")
        gathered = ClientByClient()
        for client, fields in examples.items():
            if not isinstance(fields, h5py.Group):
                raise InvalidInput(f"{file}: examples/{client} is not a group of fields, so it is not a client")
            columns = {field: _hdf5_column(dataset, f"{file}, client {client!r}") for field, dataset in fields.items()}
            gathered.add(client, columns, file)
    return gathered.population(name or file.stem, file)


def tff_sqlite(
    path: str | Path,
    *,
    split: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
) -> Population:
    """The population in an SQLite file of TensorFlow Federated, with examples as `tf.train.Example` messages.

    A file with several splits needs `split="train"` or another. The messages store no shapes: a field with one value is
    a number and one with several is a flat array, unless `shapes={"pixels": (28, 28)}` is given. Byte strings are text.
    """
    file = existing(path)
    with _database(file) as rows_of:
        if missing := {"client_metadata", "examples"} - sqlite_tables(file):
            raise InvalidInput(f"{file} has no table {min(missing)!r}: TensorFlow Federated writes one")
        splits = [row[0] for row in rows_of("SELECT DISTINCT split_name FROM client_metadata ORDER BY 1")]
        chosen = one_split(split, splits, file)
        query = "SELECT client_id, num_examples FROM client_metadata WHERE split_name = ? ORDER BY rowid"
        promised = {str(client): count for client, count in rows_of(query, chosen)}
        messages = rows_of(
            "SELECT rowid, client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY rowid",
            chosen,
        )
        owners, columns = _tff_examples(messages, list(promised), dict(shapes or {}), file)
    for client, there in zip(promised, np.bincount(owners, minlength=len(promised)).tolist(), strict=True):
        if there != promised[client]:
            raise InvalidInput(
                f"{file}, client {client!r} has {there} examples, but client_metadata says {promised[client]}: "
                f"download the file again"
            )
    whole = placed(columns, owners, np.array(list(promised), dtype=TEXT), file, name=name or file.stem)
    return whole.with_types_of(True)


def fedjax_sqlite(path: str | Path, *, name: str | None = None) -> Population:
    """The population in an SQLite file of FedJAX: one row `client_id, data, num_examples` for each client."""
    file = existing(path)
    gathered = ClientByClient()
    with _database(file) as rows_of:
        if "federated_data" not in sqlite_tables(file):
            raise InvalidInput(f"{file} has no table 'federated_data': FedJAX writes one")
        for client_id, data, count in rows_of(
            "SELECT client_id, data, num_examples FROM federated_data ORDER BY rowid"
        ):
            client = client_id.decode(errors="backslashreplace") if isinstance(client_id, bytes) else str(client_id)
            try:
                columns = msgpack_arrays(zlib.decompress(data))
            except (ValueError, TypeError, zlib.error) as error:
                raise InvalidInput(
                    f"{file}, client {client!r} is not zlib and msgpack as FedJAX writes: {error}"
                ) from error
            if any(column.shape[:1] != (count,) for column in columns.values()):
                raise InvalidInput(
                    f"{file}, client {client!r} does not have {count} examples in each field: download it again"
                )
            gathered.add(client, columns, file)
    return gathered.population(name or file.stem, file)


def sqlite_tables(file: Path) -> set[str]:
    """The names of the tables of an SQLite file."""
    with _database(file) as rows_of:
        return {row[0] for row in rows_of("SELECT name FROM sqlite_master WHERE type = 'table'")}


@contextlib.contextmanager
def _database(file: Path) -> Generator[Any]:
    """A function that yields the rows of a query. The file is opened read-only."""
    try:
        with contextlib.closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            yield lambda query, *values: connection.execute(query, values)
    except sqlite3.Error as error:
        raise InvalidInput(f"{file} is not an SQLite file of that layout, or it is damaged: {error}") from error


def _leaf_clients(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    content: Any = None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        clients, counts, fields_of = content["users"], content["num_samples"], content["user_data"]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(content, list):
            raise InvalidInput(f"{file} holds a list: write an object on each line of a .jsonl file") from error
        raise InvalidInput(
            f"{file} is not LEAF JSON, an object of users, num_samples and user_data: {error}"
        ) from error
    if not (isinstance(clients, list) and isinstance(counts, list) and isinstance(fields_of, dict)):
        raise InvalidInput(f"{file} is not LEAF JSON: users and num_samples are lists, user_data is an object")
    if len(clients) != len(counts):
        raise InvalidInput(f"{file} lists {len(clients)} users but {len(counts)} num_samples: make them equal")
    if differing := sorted(set(map(str, clients)) ^ set(fields_of)):
        raise InvalidInput(f"{file}: client {differing[0]!r} is in only one of users and user_data; add or remove it")
    for client, count in zip(map(str, clients), counts, strict=True):
        fields = fields_of[client]
        if not isinstance(fields, dict) or not all(isinstance(values, list) for values in fields.values()):
            raise InvalidInput(f"{file}, client {client!r}: its data are not lists by field, such as x and y")
        for field, values in fields.items():
            if len(values) != count:
                raise InvalidInput(
                    f"{file}, client {client!r}, field {field!r} has {len(values)} examples, but num_samples says "
                    f"{count}: make them equal"
                )
        yield client, fields


def _json_column(values: list[Any], where: str, field: str) -> np.ndarray:
    """A list of JSON values as an array, if all are numbers or all are text, of one shape."""
    with contextlib.suppress(ValueError, OverflowError):  # ragged or too large: explained below
        column = np.array(values)
        if column.dtype.kind in "biuf":
            return column
    loose = np.array(values, dtype=object)
    if loose.size and all(type(value) is str for value in loose.ravel()):
        try:
            return loose.astype(TEXT)
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"{where}, field {field!r} holds text that is not UTF-8 ({error}): correct it"
            ) from error
    shapes = [_json_shape(value) for value in values]
    for row, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        place = f"{where}, example {row + 1}, field {field!r}"
        if value is None or (isinstance(value, list) and None in np.array(value, dtype=object).ravel()):
            raise InvalidInput(f"{place}: the value is missing; fill it in or leave the example out")
        if shape != shapes[0]:
            raise InvalidInput(f"{place} is {shape}, but example 1 is {shapes[0]}; make all examples alike")
    raise InvalidInput(f"{where}, field {field!r} holds {shapes[0]}: use numbers or text of one shape")


def _json_shape(value: Any) -> str:
    """The type and shape of a JSON value, in words."""
    if not isinstance(value, list):
        return {str: "text", dict: "an object", type(None): "null"}.get(type(value), "a number")
    parts = {_json_shape(part) for part in value}
    return f"{len(value)} times {parts.pop() if len(parts) == 1 else 'several things' if parts else 'nothing'}"


def _hdf5_column(dataset: Any, where: str) -> np.ndarray:
    field = dataset.name.rpartition("/")[2]
    if not getattr(dataset, "shape", None):
        raise InvalidInput(f"{where}, field {field!r} is not an array of examples: give it one row per example")
    try:
        if dataset.dtype.kind in "OS":
            return as_text(dataset.asstr()[()])
        return dataset[()]
    except (TypeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{where}, field {field!r} holds neither numbers nor UTF-8 text: {error}") from error
    except OSError as error:
        raise InvalidInput(f"{where}, field {field!r} is damaged: {error}") from error


def _tff_examples(
    messages: Any, clients: list[str], shapes: dict[str, Sequence[int]], file: Path
) -> tuple[np.ndarray, Columns]:
    """The client of each message, and the columns of all messages."""
    code = {client: index for index, client in enumerate(clients)}
    owners: list[int] = []
    gathered: dict[str, list[Feature]] = {}
    for rowid, client, message in messages:
        where = f"{file}, row {rowid} of table examples"
        if (client := str(client)) not in code:
            raise InvalidInput(f"{where}: client {client!r} is not in the table client_metadata; add it there")
        try:
            features = tf_example(message)
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"{where} is not a tf.train.Example ({error}): download the file again") from error
        if not owners:
            gathered = {field: [] for field in sorted(features)}
        if differing := sorted(set(gathered) ^ set(features)):
            state = "has no value" if differing[0] in gathered else "is missing from the rows before it"
            raise InvalidInput(f"{where}: field {differing[0]!r} {state}; give all rows the same fields")
        for field, values in gathered.items():
            feature = features[field]
            if values and feature.kind != values[0].kind:
                raise InvalidInput(
                    f"{where}, field {field!r} holds {feature.kind}, not {values[0].kind}: make rows alike"
                )
            values.append(feature)
        owners.append(code[client])
    if not owners:
        raise InvalidInput(f"{file} holds no examples: there is nothing to read")
    rows = FileRows([f"{file}, table examples of that split"], [len(owners)])
    return np.array(owners), {
        field: _tff_column(values, shapes.get(field), rows, field) for field, values in gathered.items()
    }


def _integers(raw: np.ndarray, rows: FileRows, field: str) -> np.ndarray:
    try:
        return varints(raw)
    except ValueError as error:
        raise InvalidInput(f"{rows.files[0]}, field {field!r} is damaged: {error}") from error


def _tff_column(values: list[Feature], shape: Sequence[int] | None, rows: FileRows, field: str) -> np.ndarray:
    if values[0].kind == "bytes":
        counts = np.array([len(value.texts) for value in values])
        try:
            column = np.array([text.decode() for value in values for text in value.texts], dtype=TEXT)
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"{rows.files[0]}, field {field!r} holds bytes that are not UTF-8 text: {error}"
            ) from error
    else:
        raw = np.frombuffer(b"".join(value.numbers for value in values), np.uint8)
        ends = np.cumsum([len(value.numbers) for value in values])
        if values[0].kind == "floats":
            counts = np.diff(ends, prepend=0) // 4
            column = raw.view("<f4").astype(np.float32)
        else:
            counts = np.diff(np.cumsum(raw < 128)[ends - 1], prepend=0)
            column = _integers(raw, rows, field)
    if len(odd := np.flatnonzero(counts != counts[0])):
        row = int(odd[0])
        raise InvalidInput(f"{rows.at(row, field)} has {counts[row]} values where the first has {counts[0]}: pad them")
    shape = tuple(shape) if shape is not None else () if counts[0] == 1 else (int(counts[0]),)
    if int(np.prod(shape)) != counts[0]:
        raise InvalidInput(f"{rows.at(0, field)} has {counts[0]} values, which do not make up the shape {shape}")
    column = column.reshape(len(values), *shape)
    refuse_nan(column, rows, field, single=True)
    return column
