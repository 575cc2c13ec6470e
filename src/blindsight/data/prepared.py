"""Reads prepared files of real data sets as populations."""

import json
import lzma
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.data.population import TEXT, Columns, Population
from blindsight.errors import InvalidInput

__all__ = ["adult", "fashion_mnist", "femnist", "mnist", "phishing", "shakespeare", "stackexchange"]

DIGITS = tuple(string.digits)
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
GARMENTS = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "trainer", "bag", "ankle boot")
KINDS = {"q": "question", "a": "answer", "c": "comment"}
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])|\n+")


# --- images


def mnist(folder: Path, *, split: str = "train") -> Population:
    """MNIST by writer: `image`, `label`, and `hsf`, the part of NIST's collection (4: pupils, others: NIST's staff)."""
    parts: list[Columns] = []
    writers: list[np.ndarray] = []
    for part in _splits(split):
        image, label = _arrays(folder / "mnist.npz", f"x_{part}", f"y_{part}")
        writing = _arrays(folder / "mnist_writers.npz", f"writer_{part}", f"order_{part}", f"hsf_{part}")
        order = np.lexsort((writing[1], writing[0]))  # by writer, in the order of the form
        parts.append({"image": image[order], "label": label[order], "hsf": writing[2][order]})
        writers.append(writing[0][order])
    ids, sizes = _runs(np.concatenate(writers))  # no writer is in both splits
    return _population("mnist", split, _joined(parts), sizes, ids=ids, classes={"label": DIGITS})


def fashion_mnist(folder: Path, *, split: str = "train") -> Population:
    """Fashion-MNIST: `image` and `label`. It has no clients, so each example is its own client."""
    read = [_arrays(folder / "fashion_mnist.npz", f"x_{part}", f"y_{part}") for part in _splits(split)]
    columns = _joined([{"image": image, "label": label} for image, label in read])
    return _population("fashion_mnist", split, columns, _ones(columns), classes={"label": GARMENTS})


def femnist(folder: Path, *, invert: bool = False) -> Population:
    """Digits and letters by writer: `image` (dark ink on white; `invert` for ink as in MNIST) and `label`."""
    image, label, writer, names = _arrays(folder / "femnist_writers.npz", "x", "y", "writer", "writer_name")
    order = np.argsort(writer, kind="stable")
    columns = {"image": (255 - image if invert else image)[order], "label": label[order]}
    sizes = np.bincount(writer, minlength=len(names))
    return _population("femnist", "", columns, sizes, ids=names, classes={"label": CHARACTERS})


def _arrays(path: Path, *names: str) -> list[np.ndarray]:
    with path.open("rb") as file, np.load(file) as opened:
        return [opened[name] for name in names]


# --- tables


def adult(folder: Path, *, split: str = "train") -> Population:
    """Census rows, one per client: numbers, coded categories (`?` is unknown), and `label`, the income."""
    rows, classes = _table(folder / "adult.csv.xz")
    rows["label"], classes["label"] = rows.pop("income"), classes.pop("income")
    chosen = np.isin(rows.pop("split"), [classes["split"].index(part) for part in _splits(split)])
    del classes["split"]
    columns = {field: column[chosen] for field, column in rows.items()}
    return _population("adult", split, columns, _ones(columns), classes=classes)


def phishing(folder: Path, *, matched: bool = False) -> Population:
    """Web addresses, one per client: `url`, `source`, `label`. `matched` keeps only sources from the same period.

    The legitimate addresses come from one crawl and the oldest phishing ones from another year, so a model can tell
    them apart partly by their source.
    """
    rows, classes = _table(folder / "phishing_urls.csv.xz", text=("url",))
    if matched:
        chosen = rows["source"] != classes["source"].index("phishtank_2020")
        rows = {field: column[chosen] for field, column in rows.items()}
    classes["label"] = ("legitimate", "phishing")
    columns = {field: rows[field] for field in ("url", "source", "label")}
    return _population("phishing", "matched" if matched else "", columns, _ones(columns), classes=classes)


def _table(path: Path, *, text: tuple[str, ...] = ()) -> tuple[Columns, dict[str, tuple[str, ...]]]:
    """The columns of a compressed CSV: integers, the `text` columns, and codes with class names for all others."""
    import pyarrow as pa
    import pyarrow.csv

    columns: Columns = {}
    classes: dict[str, tuple[str, ...]] = {}
    read: Any = pyarrow.csv.read_csv(pa.BufferReader(lzma.decompress(path.read_bytes())))
    for field in read.column_names:
        column = read[field].combine_chunks()
        if pa.types.is_integer(column.type):
            columns[field] = column.to_numpy().astype(np.int32)
        elif field in text:
            columns[field] = np.array(column.to_pylist(), dtype=TEXT)
        else:
            names, codes = np.unique(column.to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
            columns[field], classes[field] = codes.astype(np.int32), tuple(names.tolist())
    return columns, classes


# --- text


def stackexchange(folder: Path, *, unit: str = "post") -> Population:
    """Posts and comments by author, in order of time; `unit="sentence"` makes each sentence of 2+ words an example.

    Fields: `text`, `title`, `tags`, `kind`, `time` (seconds since 1970, UTC), `score`, `post` (its number) and `site`.
    """
    clients = list(_json_lines(folder / "stackexchange_users.jsonl.xz"))
    sizes = np.array([len(client["text"]) for client in clients])
    sites = sorted({client["site"] for client in clients})
    texts: Columns = {field: _text(clients, field) for field in ("text", "title", "tags")}
    letters = list(KINDS)
    columns = texts | {
        "kind": np.array([letters.index(letter) for client in clients for letter in client["kind"]], np.int32),
        "time": np.array([time for client in clients for time in client["time"]], np.int64),
        "score": np.array([score for client in clients for score in client["score"]], np.int32),
        "post": np.array([post for client in clients for post in client["post"]], np.int64),
        "site": np.repeat(np.array([sites.index(client["site"]) for client in clients], np.int32), sizes),
    }
    ids = [f"{client['site']}/{client['user']}" for client in clients]
    if _unit(unit, "post", "sentence") == "sentence":
        columns, sizes = _pieces(columns, sizes, SENTENCE_END, least_words=2)
    classes = {"kind": tuple(KINDS.values()), "site": tuple(sites)}
    return _population("stackexchange", "", columns, sizes, ids=ids, classes=classes)


def shakespeare(folder: Path, *, unit: str = "speech") -> Population:
    """Speeches by role, in the order of the play; `unit="line"` makes each line an example. One field, `text`."""
    clients = list(_json_lines(folder / "shakespeare_roles.jsonl.xz"))
    columns: Columns = {"text": _text(clients, "text")}
    sizes = np.array([len(client["text"]) for client in clients])
    if _unit(unit, "speech", "line") == "line":
        columns, sizes = _pieces(columns, sizes, re.compile("\n"), least_words=1)
    return _population("shakespeare", "", columns, sizes, ids=[f"{c['play']}/{c['role']}" for c in clients])


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, lzma.decompress(path.read_bytes()).splitlines())


def _text(clients: list[dict[str, Any]], field: str) -> np.ndarray:
    return np.array([text for client in clients for text in client[field]], dtype=TEXT)


def _pieces(
    columns: Columns, sizes: np.ndarray, end: re.Pattern[str], *, least_words: int
) -> tuple[Columns, np.ndarray]:
    """Each text split at every `end`, with its other fields repeated; and the clients' new sizes."""
    cut = [
        [piece for piece in end.split(text) if len(piece.split()) >= least_words] for text in columns["text"].tolist()
    ]
    counts = np.array([len(pieces) for pieces in cut])
    repeated = {field: np.repeat(column, counts) for field, column in columns.items() if field != "text"}
    before = np.concatenate([[0], np.cumsum(counts)])  # pieces before each text
    ends = np.cumsum(sizes)
    text = np.array([piece for pieces in cut for piece in pieces], dtype=TEXT)
    return {"text": text} | repeated, before[ends] - before[ends - sizes]


# --- shared


def _population(name: str, part: str, columns: Columns, sizes: np.ndarray, **options: Any) -> Population:
    codes = {field: columns[field].astype(np.int32) for field in options.get("classes", {})}
    shown = f"{name} ({part})" if part and part != "train" else name
    return Population(columns | codes, sizes=sizes, name=shown, **options)


def _splits(split: str) -> list[str]:
    if split not in ("train", "test", "all"):
        raise InvalidInput(f"split must be train, test or all, got {split!r}")
    return ["train", "test"] if split == "all" else [split]


def _unit(unit: str, *units: str) -> str:
    if unit not in units:
        raise InvalidInput(f"unit must be {' or '.join(units)}, got {unit!r}")
    return unit


def _joined(parts: list[Columns]) -> Columns:
    return {field: np.concatenate([part[field] for part in parts]) for field in parts[0]}


def _runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values and lengths of the runs of equal values."""
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    return values[starts], np.diff(np.concatenate([starts, [len(values)]]))


def _ones(columns: Columns) -> np.ndarray:
    return np.ones(len(next(iter(columns.values()))), np.int64)
