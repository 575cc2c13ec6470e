"""The clients of `people.csv` in other formats, each value as its row has it: whatever a format can hold of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from wire_files import fedjax_database, proto, tff_database

__all__ = ["CELLS", "FORMATS", "cells_of", "frame"]

CELLS = ("age", "income", "region", "label", "version", "text")
SIDE = 12


def cells_of(path: str, errors: str = "replace") -> list[tuple[str, list[str]]]:
    """The client and the cells of every row, as a program cuts them that knows nothing of quotation marks."""
    lines = Path(path).read_bytes().decode("utf-8", errors).split("\n")[1:]
    cut = [line.split(",") for line in lines if "," in line]
    return [(who.strip('"'), cells) for who, *cells in cut]


def _value(cell: str) -> Any:
    """What a cell says: a whole number, a fraction, a text, or nothing."""
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell or None


def _rows() -> list[tuple[str, dict[str, Any]]]:
    held = [(who, [*cells, *[""] * 6]) for who, cells in cells_of("people.csv", "surrogateescape")]
    return [(who, {name: _value(cell) for name, cell in zip(CELLS, cells, strict=False)}) for who, cells in held]


def _by_client() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for who, row in _rows():
        found.setdefault(who, []).append(row)
    return found


def _written(value: Any) -> str:
    return "" if value is None else str(value).encode(errors="surrogateescape").decode(errors="replace")


def _array(values: list[Any], of_bytes: bool = False) -> np.ndarray:
    """Numbers if all are, else text: one value decides on all."""
    if values and all(isinstance(value, int | float) for value in values):
        return np.array(values)
    if of_bytes:
        return np.array([_written(value).encode() for value in values], object)
    return np.array(["" if value is None else str(value) for value in values])  # half a letter is one, to NumPy


def npz() -> None:
    """One array for each column."""
    rows = _rows()
    columns: dict[str, Any] = {name: _array([row[name] for _, row in rows]) for name in CELLS}
    np.savez("people.npz", who=np.array([who for who, _ in rows]), **columns)


def parquet() -> None:
    """One column for each column, of a type that holds all of its values, which may be missing."""
    rows = _rows()
    columns: dict[str, Any] = {"who": pa.array([who for who, _ in rows])}
    for name in CELLS:
        values = [row[name] for _, row in rows]
        is_text = any(isinstance(value, str) for value in values)
        columns[name] = pa.array([None if v is None else _written(v) if is_text else v for v in values])
    pq.write_table(pa.table(columns), "people.parquet")


def frame() -> dict[str, list[Any]]:
    """Columns in memory, each value as its row has it."""
    rows = _rows()
    return {"who": [who for who, _ in rows], **{name: [row[name] for _, row in rows] for name in CELLS}}


def parts() -> None:
    """A folder of Parquet files, in each of which a column has a type that holds its values alone."""
    rows = _rows()
    Path("parts").mkdir()
    for number, some in enumerate((rows[: len(rows) // 2], rows[len(rows) // 2 :])):
        columns: dict[str, Any] = {"who": pa.array([who for who, _ in some])}
        for name in CELLS:
            values = [row[name] for _, row in some]
            is_text = any(isinstance(value, str) for value in values)
            columns[name] = pa.array([None if v is None else _written(v) if is_text else v for v in values])
        pq.write_table(pa.table(columns), f"parts/{number}.parquet")


def semicolons() -> None:
    """The same table with another separator, decimal mark and line end, byte for byte as clients wrote it."""
    table = Path("people.csv").read_bytes().replace(b",", b";").replace(b".", b",")
    Path("german.csv").write_bytes(table)


def json_lines() -> None:
    """An object for each row, with the fields that it has."""
    lines = [json.dumps({"who": who, **row}) for who, row in _rows()]
    Path("people.jsonl").write_text("\n".join(lines), encoding="utf-8")


def leaf() -> None:
    """Lists for each client."""
    held = {who: {name: [row[name] for row in rows] for name in CELLS} for who, rows in _by_client().items()}
    counts = [len(rows) for rows in _by_client().values()]
    Path("people.json").write_text(json.dumps({"users": list(held), "num_samples": counts, "user_data": held}))


def tff() -> None:
    """A message for each row, with the fields that it has."""
    examples: list[tuple[str, str, bytes]] = []
    for who, row in _rows():
        held = {name: value for name, value in row.items() if value is not None}
        features: dict[str, Any] = {
            name: [_bytes(value) if isinstance(value, str) else value] for name, value in held.items()
        }
        examples.append(("train", who, proto(**features)))
    clients = [(who, "train", len(rows)) for who, rows in _by_client().items()]
    tff_database("people.sqlite", examples, clients)


def _bytes(value: str) -> bytes:
    return value.encode(errors="surrogateescape")


def fedjax() -> None:
    """Arrays for each client, of types of its own."""
    held = {who: {name: [row[name] for row in rows] for name in CELLS} for who, rows in _by_client().items()}
    arrays = {who: {name: _array(values, of_bytes=True) for name, values in own.items()} for who, own in held.items()}
    fedjax_database("people.db", [(who.encode(), own, len(own["age"])) for who, own in arrays.items()])


def folder() -> None:
    """A picture for each row, as bright as its age, in a folder for its region; what has no such age is none."""
    for who, rows in _by_client().items():
        Path("people", who).mkdir(parents=True)
        for number, row in enumerate(rows):
            place = Path("people", who, _written(row["region"]))
            place.mkdir(exist_ok=True)
            age, file = row["age"], place / f"{number}.png"
            if isinstance(age, int):
                size = SIDE if 0 <= age < 256 else SIDE + 1
                Image.new("L", (size, size), age % 256).save(file)
            else:
                file.write_bytes(str(age).encode())


def hugging_face() -> None:
    """One column for each column, of the type that the set declares: what it cannot hold is null, or no class."""
    datasets = pytest.importorskip("datasets")
    rows, texts = _rows(), ("label", "version", "text")
    columns: dict[str, Any] = {name: [_written(row[name]) for _, row in rows] for name in texts}
    ages = [row["age"] for _, row in rows]
    columns["age"] = [age if isinstance(age, int) and abs(age) < 2**63 else None for age in ages]
    columns["income"] = [row["income"] if isinstance(row["income"], int | float) else None for _, row in rows]
    columns["region"] = [{"north": 0, "south": 1}.get(_written(row["region"]), -1) for _, row in rows]
    kinds = {name: datasets.Value("string") for name in ("who", *texts)}
    kinds |= {"age": datasets.Value("int64"), "income": datasets.Value("float64")}
    kinds["region"] = datasets.ClassLabel(names=["north", "south"])
    held = {"who": [who for who, _ in rows], **columns}
    features = datasets.Features({name: kinds[name] for name in held})
    datasets.Dataset.from_dict(held, features=features).save_to_disk("people")


FORMATS: dict[str, tuple[Callable[[], None], str]] = {
    "npz": (npz, "people.npz"),
    "parquet": (parquet, "people.parquet"),
    "parts": (parts, "parts"),
    "semicolons": (semicolons, "german.csv"),
    "JSON Lines": (json_lines, "people.jsonl"),
    "LEAF": (leaf, "people.json"),
    "TensorFlow Federated": (tff, "people.sqlite"),
    "FedJAX": (fedjax, "people.db"),
    "pictures": (folder, "people"),
    "Hugging Face": (hugging_face, "people"),
}
"""How clients are kept in each format, and where."""
