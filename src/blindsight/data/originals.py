"""Converts published data sets into the files that `prepared` reads."""

import contextlib
import gzip
import io
import lzma
import math
import os
import struct
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import IO

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["adult", "as_it_is", "idx_images", "mnist", "read_idx"]

IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
ADULT_HEADER = (
    "age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,"
    "capital_gain,capital_loss,hours_per_week,native_country,income,split"
)


def idx_images(originals: Path, folder: Path, *, name: str) -> None:
    """Convert four idx files in MNIST's layout to `NAME.npz`."""
    arrays = {
        f"{letter}_{split}": read_idx(originals / f"{prefix}-{what}-ubyte.gz")
        for split, prefix in (("train", "train"), ("test", "t10k"))
        for letter, what in (("x", "images-idx3"), ("y", "labels-idx1"))
    }
    with _atomic(folder / f"{name}.npz") as opened:
        np.savez_compressed(opened, allow_pickle=False, **arrays)


def mnist(originals: Path, folder: Path) -> None:
    """Convert MNIST to `mnist.npz`, and QMNIST's writer of every digit to `mnist_writers.npz`."""
    writers: dict[str, np.ndarray] = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        labels = read_idx(originals / f"{prefix}-labels-idx1-ubyte.gz")
        labelled = read_idx(originals / f"qmnist-{split}-labels-idx2-int.gz")[: len(labels)]
        if labelled.ndim != 2 or not np.array_equal(labelled[:, 0], labels):
            raise InvalidInput(f"the writers of the MNIST {split} digits do not match the digits: download both again")
        writers[f"writer_{split}"] = labelled[:, 2].astype(np.int16)
        writers[f"hsf_{split}"] = labelled[:, 1].astype(np.uint8)
        writers[f"order_{split}"] = labelled[:, 3].astype(np.uint8)
    idx_images(originals, folder, name="mnist")
    with _atomic(folder / "mnist_writers.npz") as opened:
        np.savez_compressed(opened, allow_pickle=False, **writers)


def adult(originals: Path, folder: Path) -> None:
    """Convert `adult.data` and `adult.test` to one table with a header and a column `split`, `adult.csv.xz`."""
    lines = [ADULT_HEADER]
    for name, split in (("adult.data", "train"), ("adult.test", "test")):
        for line in (originals / name).read_text(encoding="utf-8").splitlines():
            if line.count(",") == ADULT_HEADER.count(",") - 1:  # skips the comment at the top and the empty last line
                lines.append(f"{line.removesuffix('.').replace(', ', ',')},{split}")
    with _atomic(folder / "adult.csv.xz") as opened:
        opened.write(lzma.compress("".join(f"{line}\n" for line in lines).encode()))


def as_it_is(originals: Path, folder: Path) -> None:
    """Move files that need no conversion."""
    for path in sorted(originals.iterdir()):
        os.replace(path, folder / path.name)


def read_idx(path: Path) -> np.ndarray:
    """The array in a gzipped idx file: two zero bytes, type, number of axes, their lengths, big-endian values."""
    try:
        content = gzip.decompress(path.read_bytes())
        axes = struct.unpack_from(f">{content[3]}I", content, 4)
        kind = np.dtype(IDX_TYPES[content[2]])
        values = np.frombuffer(content, kind, offset=4 + 4 * len(axes), count=math.prod(axes))
    except (OSError, EOFError, zlib.error, struct.error, IndexError, KeyError, ValueError) as error:
        raise InvalidInput(f"{path} is not a gzipped idx file: {error}") from error
    return values.reshape(axes).astype(kind.newbyteorder("="))


@contextlib.contextmanager
def _atomic(path: Path) -> Generator[IO[bytes]]:
    """A file that appears under its name once it is complete, and not at all if writing fails."""
    content = io.BytesIO()  # at most tens of megabytes
    yield content
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("wb") as opened:
        opened.write(content.getbuffer())
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(unfinished, path)
