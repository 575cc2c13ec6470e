"""Files without a header, in which each client has arrays, messages or images of its own, read as tables are.

Every client may have written its own in another way: whole numbers here, fractions there, another shape, no field at
all. The schema says which fields there are and what they hold; examples that do not fit it are left out as their client
would leave them out. `client_files` knows the formats.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.client_files import READERS
from blindsight.data.formats import loader_of
from blindsight.data.population import TEXT, as_text
from blindsight.data.reading import existing
from blindsight.data.schema import Field
from blindsight.errors import InvalidInput

__all__ = ["Conform", "conformed", "digest_of", "is_by_client", "read_by_client"]

Conform = Callable[[np.ndarray, Field], tuple[np.ndarray, np.ndarray]]
"""An array of examples as a field says, and which of them fit; refused where none can."""


def is_by_client(path: str | Path) -> bool:
    """Whether the file or folder keeps each client's examples apart, so that no header says which fields there are."""
    return Path(path).exists() and loader_of(path) in READERS


def read_by_client(
    path: str | Path, fields: Mapping[str, Field], *, split: str | None = None
) -> dict[str, dict[str, list[Any]]]:
    """Every client with these fields as lists of examples, of whatever kind; what it has not is not there.

    What is wrong with the file as a whole is refused, and nothing of what it holds is said.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for client, own in READERS[loader_of(path)](existing(path), fields, split):
        found.setdefault(_utf8(client, "backslashreplace"), own)  # who is there twice stays with the first
    if not found:
        raise InvalidInput(f"{path} has no clients: there is nothing to read")
    return found


def digest_of(path: str | Path) -> str:
    """32 digits of all that the file or the folder's files hold, as secret as the data are."""
    source = existing(path)
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
        digest.update(file.read_bytes() if file.is_file() else b"")
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
    """Examples of the same type and shape, stacked, and where they stand: nobody's number is rounded for another's."""
    places: dict[Any, list[int]] = {}
    arrays: dict[Any, list[Any]] = {}
    for place, row in enumerate(rows):
        try:
            array = np.asarray(row)
        except (ValueError, OverflowError, RecursionError):  # lists of different lengths, or too deep
            continue
        if array.dtype.kind in "biufU":
            dtype = {"f": np.dtype(np.float64), "U": TEXT}.get(array.dtype.kind, array.dtype.newbyteorder("="))
            places.setdefault((dtype, array.shape), []).append(place)
            arrays.setdefault((dtype, array.shape), []).append(_texts(array.tolist()) if dtype == TEXT else array)
    for (dtype, shape), stack in arrays.items():
        with np.errstate(all="ignore"):  # a warning would say that somebody's number is beyond 64 bits
            yield np.array(places[dtype, shape]), np.array(stack, dtype).reshape(len(stack), *shape)


def _texts(value: Any) -> Any:
    """Text, or lists of it, of which every letter can be written."""
    return [_texts(one) for one in value] if isinstance(value, list) else _utf8(str(value), "replace")


def _utf8(text: str, errors: str) -> str:
    return text.encode(errors=errors).decode()


def _blank(field: Field, count: int) -> np.ndarray:
    if field.kind == "image":
        return np.zeros((count, *field.shape), np.uint8 if field.of_bytes else np.float32)
    kinds: Mapping[str, Any] = {"number": np.float64, "whole": np.int64, "truth": bool, "category": np.int32}
    return np.full(count, "", object) if field.kind == "text" else np.zeros(count, kinds[field.kind])
