"""LEAF and HDF5 by a schema: what one client's arrays hold changes no type, no other client and refuses nothing."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from blindsight import cli, data
from blindsight.data.by_client import digest_of
from blindsight.data.private import column_names, misfits, private_table
from blindsight.data.schema import Schema
from blindsight.errors import InvalidInput

SCHEMA = Schema({}).updated(["age=whole", "pay=number", "photo=image:2x2", "note=text", "region=category:north,south"])
USUAL: dict[str, Any] = {
    "age": [30, 40],
    "pay": [1.5, 2],
    "photo": [[[0, 1], [2, 3]], [[4, 5], [6, 255]]],
    "note": ["a", "b"],
    "region": ["north", "south"],
}
ODD: dict[str, Any] = {
    "a fraction": {**USUAL, "age": [30.5, 40]},
    "a word": {**USUAL, "age": ["n/a", 40]},
    "beyond 32 bits": {**USUAL, "age": [2**31, 40]},
    "beyond all numbers": {**USUAL, "pay": [float("inf"), float("nan")]},
    "another shape": {**USUAL, "photo": [[[0, 1, 2]], [[4, 5], [6, 255]]]},
    "numbers for words": {**USUAL, "note": [1, 2]},
    "a new category": {**USUAL, "region": ["atlantis", "south"]},
    "one field short": {**USUAL, "age": [30]},
    "no such field": {name: rows for name, rows in USUAL.items() if name != "age"},
    "a field of its own": {**USUAL, "mine": [1, 2]},
    "nothing": {},
}
LOOSE: dict[str, Any] = {  # that JSON can hold, and HDF5 cannot
    "ragged lists": {**USUAL, "photo": [[[0, 1], [2]], [[4, 5], [6, 255]]]},
    "nothing at all": None,
    "no lists": {**USUAL, "age": 3},
    "several things": {**USUAL, "age": [None, {"a": 1}]},
}


def write_leaf(path: Path, people: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"users": list(people), "num_samples": [2] * len(people), "user_data": people}))
    return path


def write_hdf5(path: Path, people: dict[str, Any]) -> Path:
    with h5py.File(path, "w") as file:
        for client, fields in people.items():
            group = file.create_group(f"examples/{client}")
            for field, rows in fields.items():
                is_text = any(isinstance(row, str) for row in rows)
                values = [str(row) for row in rows] if is_text else [row for row in rows if np.shape(row) == (2, 2)]
                group.create_dataset(field, data=values if is_text or field == "photo" else np.array(rows))
    return path


CASES = [
    *(pytest.param(write_leaf, "t.json", odd, id=f"LEAF, {name}") for name, odd in (ODD | LOOSE).items()),
    *(pytest.param(write_hdf5, "t.h5", odd, id=f"HDF5, {name}") for name, odd in ODD.items()),
]


@pytest.mark.parametrize(("write", "file", "odd"), CASES)
def test_what_one_client_holds_is_nobody_elses_business(tmp_path, write, file, odd):
    found = [
        private_table(write(tmp_path / file, {"a": USUAL, "odd": own, "b": USUAL}), fields=dict(SCHEMA.fields))
        for own in (USUAL, odd)
    ]
    calm, strange = found
    assert calm.fields == strange.fields
    assert calm.classes == strange.classes == {"region": ("north", "south")}
    assert strange.ids.tolist() == ["a", "odd", "b"] or file == "t.h5"  # HDF5 sorts its groups
    assert set(strange.ids) == {"a", "b", "odd"}
    for client in "ab":
        for field, values in calm[client].items():
            np.testing.assert_array_equal(strange[client][field], values)
    assert calm["odd"]["photo"].tolist() == USUAL["photo"]
    assert strange.n_examples <= calm.n_examples == 6


@pytest.mark.parametrize(("write", "file"), [(write_leaf, "t.json"), (write_hdf5, "t.h5")])
def test_they_hold_what_the_loader_reads(tmp_path, write, file):
    path = write(tmp_path / file, {"a": USUAL, "b": USUAL})
    assert set(column_names(path)) == set(USUAL)
    loaded, private = data.load(path), private_table(path, fields=dict(SCHEMA.fields))
    for client in "ab":
        for field in ("age", "pay", "photo", "note"):
            np.testing.assert_array_equal(private[client][field], loaded[client][field])


def test_the_owner_is_told_which_rows_do_not_fit_and_files_are_known_apart(tmp_path):
    path = write_leaf(tmp_path / "t.json", {"a": USUAL, "odd": ODD["a word"]})
    assert misfits(path, fields=dict(SCHEMA.fields)) == {"age": [3]}
    other = write_leaf(tmp_path / "other.json", {"a": USUAL, "odd": ODD["a fraction"]})
    assert digest_of(path) != digest_of(other)


@pytest.mark.parametrize(
    ("name", "content"), [("t.json", b"{"), ("t.json", b"[]"), ("t.json", b'{"user_data": {}}'), ("t.h5", b"none")]
)
def test_a_file_that_is_none_is_refused_without_a_word_about_what_it_holds(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=r"is not LEAF JSON|is not HDF5|has no clients"):
        private_table(tmp_path / name, fields=dict(SCHEMA.fields))


@pytest.mark.parametrize(
    "odd", ["a word", *(pytest.param(odd, marks=pytest.mark.slow) for odd in ("a fraction", "nothing"))]
)
def test_an_inspection_says_the_same_whatever_one_client_holds(tmp_path, monkeypatch, odd):
    """The number of coordinates, the names and the exit code; numbers are noise."""
    monkeypatch.chdir(tmp_path)
    said: list[Any] = []
    for number, own in enumerate((USUAL, ODD[odd])):
        write_leaf(tmp_path / f"t{number}.json", {**{f"c{i}": USUAL for i in range(8)}, "odd": own})
        options = "--input age --input pay --range age=0:100 --range pay=0:9 --epsilon 4 --delta 1e-3 --json"
        done = CliRunner().invoke(
            cli.app, ["inspect", "sanity", f"t{number}.json", *options.split(), "--out", f"r{number}"]
        )
        report = json.loads(done.stdout) if done.exit_code == 0 else {}
        said.append((done.exit_code, [row.get("coordinates") for row in report.get("releases", [])]))
    assert said[0] == said[1]
    assert said[0][0] == 0
