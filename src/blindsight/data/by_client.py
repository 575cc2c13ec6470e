"""LEAF and HDF5 files, whose clients each have arrays of their own, read as `private` reads tables.

Every client may have written its arrays in another way: whole numbers here, fractions there, another shape, no field at
all. The schema says what a field holds; examples that do not fit it are left out as their client would leave them out.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.federated import leaf, tff_hdf5
from blindsight.data.formats import loader_of
from blindsight.data.population import as_text
from blindsight.data.reading import existing, need
from blindsight.data.schema import Field
from blindsight.errors import InvalidInput

__all__ = ["Conform", "conformed", "digest_of", "is_by_client", "read_by_client"]

Conform = Callable[[np.ndarray, Field], tuple[np.ndarray, np.ndarray]]
"""An array of examples as a field says, and which of them fit; refused where none can."""


def is_by_client(path: str | Path) -> bool:
    """Whether the file or folder keeps each client's arrays apart."""
    return Path(path).exists() and loader_of(path) in (leaf, tff_hdf5)


def read_by_client(path: str | Path) -> dict[str, dict[str, list[Any]]]:
    """Every client's fields as lists of examples, of whatever kind; one that holds no such lists has no examples.

    What is wrong with the file as a whole is refused, and nothing of what it holds is said.
    """
    return _hdf5(existing(path)) if loader_of(path) is tff_hdf5 else _leaf(existing(path))


def digest_of(path: str | Path) -> str:
    """32 digits of all that the file or the folder's files hold, as secret as the data are."""
    source = existing(path)
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(source.glob("*.json")) if source.is_dir() else [source]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def conformed(rows: list[Any], field: Field, conform: Conform) -> tuple[np.ndarray, np.ndarray]:
    """Examples of many shapes and kinds as the field says, and which of them fit."""
    values, fits = _blank(field, len(rows)), np.zeros(len(rows), bool)
    for places, alike in _groups(rows):
        try:
            values[places], fits[places] = conform(alike, field)
        except InvalidInput:  # of that kind none fits
            continue
    return (as_text(values) if field.kind == "text" else values), fits


def _groups(rows: list[Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Examples of the same kind and shape, stacked, and where they stand."""
    places: dict[Any, list[int]] = {}
    arrays: dict[Any, list[np.ndarray]] = {}
    for place, row in enumerate(rows):
        try:
            array = np.asarray(row)
        except ValueError:  # lists of different lengths
            continue
        if array.dtype.kind in "biufU":
            sort = ("numbers" if array.dtype.kind in "iuf" else array.dtype.kind, array.shape)
            places.setdefault(sort, []).append(place)
            arrays.setdefault(sort, []).append(array)
    for sort, stack in arrays.items():
        yield np.array(places[sort]), np.stack(stack)


def _blank(field: Field, count: int) -> np.ndarray:
    if field.kind == "image":
        return np.zeros((count, *field.shape), np.uint8 if field.of_bytes else np.float32)
    kinds: Mapping[str, Any] = {"number": np.float64, "whole": np.int64, "truth": bool, "category": np.int32}
    return np.full(count, "", object) if field.kind == "text" else np.zeros(count, kinds[field.kind])


def _leaf(source: Path) -> dict[str, dict[str, list[Any]]]:
    found: dict[str, dict[str, list[Any]]] = {}
    for file in sorted(source.glob("*.json")) if source.is_dir() else [source]:
        try:
            clients = json.loads(file.read_text(encoding="utf-8"))["user_data"].items()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InvalidInput(f"{file} is not LEAF JSON, an object of users, num_samples and user_data") from None
        for client, fields in clients:
            own = found.setdefault(str(client), {})
            if isinstance(fields, dict) and not own:  # who is in two files stays with the first
                own |= {field: rows for field, rows in fields.items() if isinstance(rows, list)}
    if not found:
        raise InvalidInput(f"{source} has no clients: there is nothing to read")
    return found


def _hdf5(file: Path) -> dict[str, dict[str, list[Any]]]:
    h5py = need("h5py", "hdf5", "HDF5")
    try:
        with h5py.File(file, "r") as source:
            examples = source["examples"]
            return {client: _datasets(examples[client]) for client in examples}
    except (OSError, KeyError, TypeError):
        raise InvalidInput(f"{file} is not HDF5 with clients in examples/CLIENT, or it is damaged") from None


def _datasets(group: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for field in group if hasattr(group, "keys") else ():
        try:
            column = np.asarray(group[field])
        except (OSError, TypeError, ValueError):  # damaged, or a group
            continue
        if column.ndim:
            found[field] = [_text(row) if isinstance(row, bytes) else row for row in column]
    return found


def _text(row: bytes) -> str:
    return row.decode(errors="replace")
