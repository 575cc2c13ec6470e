"""Columns of text and numbers, in memory and on disk."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["TEXT", "as_text", "load_column", "save_column"]

TEXT = np.dtypes.StringDType()


def as_text(values: Any) -> np.ndarray:
    """An array of variable-width strings, without a Python object for each."""
    if not isinstance(values, np.ndarray):
        return np.array(values, dtype=TEXT)  # directly: fixed-width strings would drop trailing NUL characters
    return values if values.dtype == TEXT else values.astype(TEXT)


def save_column(path: Path, column: np.ndarray) -> None:
    """Save numbers as they are, and text as UTF-8 bytes with the length of each."""
    if column.dtype == TEXT:
        encoded = [text.encode() for text in column.ravel().tolist()]
        lengths = np.array([len(text) for text in encoded], np.int64)
        np.save(path.with_suffix(".lengths.npy"), lengths.reshape(column.shape))
        column = np.frombuffer(b"".join(encoded), np.uint8)
    np.save(path, column)


def load_column(path: Path) -> np.ndarray:
    """A saved column; numbers stay on disk and are memory-mapped."""
    column = np.load(path, mmap_mode="r")
    if not path.with_suffix(".lengths.npy").exists():
        return column
    lengths = np.load(path.with_suffix(".lengths.npy"))
    bounds, raw = [0, *np.cumsum(lengths).tolist()], column.tobytes()
    if bounds[-1] != len(raw):
        raise InvalidInput(f"{path} is damaged: its texts have {len(raw):,} bytes instead of {bounds[-1]:,}")
    texts = [raw[start:end].decode() for start, end in itertools.pairwise(bounds)]
    return np.array(texts, dtype=TEXT).reshape(lengths.shape)
