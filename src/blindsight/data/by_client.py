"""Reads files that have no header and store each client's arrays, messages, images or lines separately.

Clients may store the same field differently: integers or floats, another shape, or not at all. The schema defines the
fields and their types. Examples that do not fit it are dropped, as their client would drop them. `client_files` and
`json_lines` implement the formats.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.client_files import READERS
from blindsight.data.conforming import blank
from blindsight.data.formats import loader_of
from blindsight.data.json_lines import JSONL_SUFFIXES, client_lines, jsonl
from blindsight.data.population import TEXT, as_text
from blindsight.data.reading import existing, exists, files_of
from blindsight.data.schema import Field
from blindsight.errors import InvalidInput

__all__ = ["Conform", "conformed", "files_digest", "is_by_client", "read_by_client"]

Conform = Callable[[np.ndarray, Field], tuple[np.ndarray, np.ndarray]]
"""Converts an array of examples to a field's type and says which of them fit; raises if none can."""


def is_by_client(path: str | Path) -> bool:
    """Whether the file or folder stores each client's examples separately, with no header that lists the fields."""
    return exists(path) and loader_of(path) in (jsonl, *READERS)


def read_by_client(
    path: str | Path, fields: Mapping[str, Field], *, split: str | None = None, client: str = "client"
) -> dict[str, dict[str, list[Any]]]:
    """Each client's examples of these fields, as lists of values of any type; fields that it lacks are absent.

    A file that is invalid as a whole is refused; the message reveals none of its contents.
    """
    clients: dict[str, dict[str, list[Any]]] = {}
    loader = loader_of(path)
    if loader is jsonl:
        read = client_lines(files_of(path, *JSONL_SUFFIXES), fields, client)
    else:
        read = READERS[loader](existing(path), fields, split)
    for one, own in read:
        clients.setdefault(_utf8(one, "backslashreplace"), own)  # the first of duplicates wins
    if not clients:
        raise InvalidInput(f"{path} has no clients: there is nothing to read")
    return clients


def files_digest(path: str | Path) -> str:
    """32 hex digits that hash the contents of a file or of a folder's files; as secret as the data."""
    source = existing(path)
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(source.rglob("*")) if source.is_dir() else files_of(path):
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()


def conformed(rows: list[Any], field: Field, conform: Conform) -> tuple[np.ndarray, np.ndarray]:
    """Examples of mixed shapes and types, converted to the field's type, and which of them fit."""
    values, fits = blank(field, len(rows)), np.zeros(len(rows), bool)
    for places, alike in _groups(rows):
        try:
            values[places], fits[places] = conform(alike, field)
        except InvalidInput:  # none of this type fits
            continue
    return (as_text(values) if field.kind == "text" else values), fits


def _groups(rows: list[Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices and stacks of examples of one type and shape: no number is rounded to another example's type."""
    places: dict[Any, list[int]] = {}
    arrays: dict[Any, list[Any]] = {}
    for place, row in enumerate(rows):
        try:
            array = np.asarray(row)
        except (ValueError, OverflowError, RecursionError):  # lists of different lengths, or too deep
            continue
        if array.dtype.kind in "biufU" and array.size:
            dtype = {"f": np.dtype(np.float64), "U": TEXT}.get(array.dtype.kind, array.dtype.newbyteorder("="))
            places.setdefault((dtype, array.shape), []).append(place)
            arrays.setdefault((dtype, array.shape), []).append(_texts(array.tolist()) if dtype == TEXT else array)
    for (dtype, shape), stack in arrays.items():
        with np.errstate(all="ignore"):  # a warning would reveal that a number exceeds 64 bits
            yield np.array(places[dtype, shape]), np.array(stack, dtype).reshape(len(stack), *shape)


def _texts(value: Any) -> Any:
    """Text, or lists of it, with characters that cannot be encoded replaced."""
    return [_texts(one) for one in value] if isinstance(value, list) else _utf8(str(value), "replace")


def _utf8(text: str, errors: str) -> str:
    return text.encode(errors=errors).decode()
