"""Files without a header by a schema: what one client holds changes no field, no type and no other client.

LEAF, HDF5, SQLite of TensorFlow Federated and of FedJAX, and folders of images: none is refused for it either.
"""

import itertools
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner
from wire_files import fedjax_database, picture, proto, tff_database

from blindsight import cli, data
from blindsight.data.by_client import files_digest
from blindsight.data.private import column_names, misfits, private_table
from blindsight.data.schema import Schema
from blindsight.errors import InvalidInput

SCHEMA = Schema({}).updated(["age=whole", "pay=number", "photo=image:2x2", "note=text", "region=category:north,south"])
USUAL: dict[str, Any] = {
    "age": [30, 40],
    "pay": [1.5, 2.0],
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
    "a letter that cannot be written": {**USUAL, "note": ["\ud800", "b"]},
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


def arrays(rows: list[Any], field: str) -> Any:
    """What a file of arrays can hold of these examples: text if any is text, and images of one shape."""
    if any(isinstance(row, str) for row in rows):
        return np.array([str(row).encode(errors="surrogatepass") for row in rows], object)
    return np.array([row for row in rows if field != "photo" or np.shape(row) == (2, 2)])


def write_hdf5(path: Path, people: dict[str, Any]) -> Path:
    with h5py.File(path, "w") as file:
        for client, fields in people.items():
            group = file.create_group(f"examples/{client}")
            for field, rows in fields.items():
                group.create_dataset(field, data=arrays(rows, field))
    return path


def write_tff(path: Path, people: dict[str, Any]) -> Path:
    """One message for each example, with what it has of every field."""
    path.unlink(missing_ok=True)
    examples: list[tuple[str, str, bytes]] = []
    for client, fields in people.items():
        for row in itertools.zip_longest(*fields.values()):
            held = {field: value for field, value in zip(fields, row, strict=True) if value is not None}
            features: dict[str, Any] = {
                field: [value.encode(errors="surrogatepass")] if isinstance(value, str) else np.ravel(value).tolist()
                for field, value in held.items()
            }
            examples.append(("train", client, proto(**features)))
    tff_database(path, examples, [(client, "train", 2) for client in people])
    return path


def write_fedjax(path: Path, people: dict[str, Any]) -> Path:
    path.unlink(missing_ok=True)
    packed = {client: {f: arrays(rows, f) for f, rows in fields.items()} for client, fields in people.items()}
    fedjax_database(path, [(client.encode(), fields, 2) for client, fields in packed.items()])
    return path


WRITERS: dict[str, Any] = {
    "LEAF": (write_leaf, "t.json"),
    "HDF5": (write_hdf5, "t.h5"),
    "TensorFlow Federated": (write_tff, "t.sqlite"),
    "FedJAX": (write_fedjax, "t.db"),
}
CASES = [
    pytest.param(*writer, odd, id=f"{name}, {what}")
    for name, writer in WRITERS.items()
    for what, odd in (ODD | (LOOSE if name == "LEAF" else {})).items()
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


@pytest.mark.parametrize(("write", "file"), WRITERS.values(), ids=WRITERS)
def test_they_hold_what_the_loader_reads(tmp_path, write, file):
    path = write(tmp_path / file, {"a": USUAL, "b": USUAL})
    shapes: dict[str, Any] = {"shapes": {"photo": (2, 2)}} if file == "t.sqlite" else {}
    loaded, private = data.load(path, **shapes), private_table(path, fields=dict(SCHEMA.fields))
    for client in "ab":
        for field in ("age", "pay", "photo", "note"):
            np.testing.assert_array_equal(private[client][field], loaded[client][field])


@pytest.mark.parametrize(("write", "file"), WRITERS.values(), ids=WRITERS)
def test_which_fields_there_are_is_said_by_the_schema_alone(tmp_path, write, file):
    for own in ({**USUAL, "mine": [1, 2]}, {"mine": [1, 2]}):
        path = write(tmp_path / file, {"a": own})
        assert column_names(path) == []
        found = private_table(path, fields=dict(SCHEMA.fields) | {"nobody's": SCHEMA.fields["age"]})
        assert set(found.fields) == {*USUAL, "nobody's"}
        assert found.n_examples == 0


def test_nobodys_number_is_rounded_because_of_anothers(tmp_path):
    """Whole numbers and fractions in one array would all be fractions: 2**53 + 1 is none."""
    large = {"id": [2**53 + 1]}
    for own in ([1], [0.5], [2**63]):
        path = write_leaf(tmp_path / "t.json", {"a": large, "odd": {"id": own}})
        found = private_table(path, fields=dict(Schema({}).updated(["id=text"]).fields))
        assert found["a"]["id"].tolist() == [str(2**53 + 1)]


def damaged_leaf(path: Path) -> None:
    whole = path.read_bytes().replace(b"[30, 40]", b"[" + b"9" * 5000 + b", 40]", 1)
    path.write_bytes(whole.replace(b'"b"', b'"\xff\n"', 1))


def damaged_hdf5(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file["examples/odd/age"]
        file["examples/odd/age"] = h5py.SoftLink("/nowhere")
        del file["examples/odd/pay"]
        file["examples/odd/pay"] = np.array([np.longdouble("1e4000"), 1])
        file["examples/another"] = h5py.SoftLink("/nowhere")


def damaged_tff(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("UPDATE examples SET serialized_example_proto = 'some text' WHERE client_id = 'odd'")
        rows = [("train", "odd", None), ("train", "odd", b"\xff\xff"), ("train", "unknown", b""), (None, "odd", 3)]
        file.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)
        file.execute("INSERT INTO examples VALUES ('train', CAST(x'ff' AS TEXT), NULL)")
    file.close()


def damaged_fedjax(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute(
            "UPDATE federated_data SET data = x'00ff', num_examples = 'many' WHERE client_id = CAST('odd' AS BLOB)"
        )
        file.execute("INSERT INTO federated_data VALUES (CAST(x'ff' AS TEXT), NULL, NULL)")
    file.close()


@pytest.mark.parametrize(
    ("name", "damage"),
    list(zip(WRITERS, (damaged_leaf, damaged_hdf5, damaged_tff, damaged_fedjax), strict=True)),
    ids=WRITERS,
)
@pytest.mark.filterwarnings("error")
def test_what_is_damaged_of_one_client_is_its_own_affair(tmp_path, name, damage):
    write, file = WRITERS[name]
    path = write(tmp_path / file, {"odd": USUAL, "a": USUAL})
    damage(path)
    found = private_table(path, fields=dict(SCHEMA.fields))
    assert {field: rows.tolist() for field, rows in found["a"].items()} == {**USUAL, "region": [0, 1]}
    assert len(found["odd"]["age"]) < 2


def test_a_file_of_several_splits_is_read_as_asked_and_its_splits_are_not_named(tmp_path):
    messages = [(split, "a", proto(age=[age])) for split, age in (("secret", 1), ("test", 2))]
    tff_database(tmp_path / "t.sqlite", messages)
    fields = {"age": SCHEMA.fields["age"]}
    assert private_table(tmp_path / "t.sqlite", fields=fields, split="test").columns["age"].tolist() == [2]
    with pytest.raises(InvalidInput, match="has several splits") as refused:
        private_table(tmp_path / "t.sqlite", fields=fields)
    assert "secret" not in str(refused.value)


def odd_pictures(own: Path) -> None:
    """Whatever a client may put into its folder beside one image that is fine."""
    picture(own / "cat/fine.png", (3, 2), colour=9)
    picture(own / "cat/large.png", (30, 20))
    picture(own / "cat/colour.png", (3, 2), mode="RGB")
    picture(own / "atlantis/1.png", (3, 2))
    picture(own / "cat/deep/1.png", (3, 2))
    picture(own / "loose.png", (3, 2))
    (own / "cat/broken.png").write_bytes(b"\x89PNG none")
    (own / "cat/notes.txt").write_text("none")
    (own / "cat/table.parquet").write_bytes(b"none")
    (own / "dog").touch()


def test_a_folder_of_images_is_read_by_the_shape_and_the_classes_that_are_said(tmp_path):
    fields = dict(Schema({}).updated(["image=image:2x3", "label=category:cat,dog"]).fields)
    for number, client in enumerate("ab"):
        for label in ("cat", "dog"):
            picture(tmp_path / f"t/{client}/{label}/1.png", (3, 2), colour=10 * number + len(label))
    loaded = data.load(tmp_path / "t")
    odd_pictures(tmp_path / "t/odd")
    found = private_table(tmp_path / "t", fields=fields)
    assert found.ids.tolist() == ["a", "b", "odd"]
    assert found.classes == {"label": ("cat", "dog")}
    for client in "ab":
        for field in fields:
            np.testing.assert_array_equal(found[client][field], loaded[client][field])
    assert found["odd"]["image"].tolist() == [[[9] * 3] * 2]
    without = private_table(tmp_path / "t", fields={"image": fields["image"]})
    assert without.sizes.tolist() == [2, 2, 3]  # the label that nobody asks for, and none, do not matter


@pytest.mark.parametrize("others", [True, False])
def test_a_folder_of_images_is_one_whatever_a_client_has(tmp_path, others):
    """Also where nobody else has an image, or one has something that other folders are known by."""
    fields = dict(Schema({}).updated(["image=image:2x3"]).fields)
    for own in ("nothing", "an image", *(["a table"] if others else [])):
        for client in ("a", "odd"):
            (tmp_path / "t" / client).mkdir(parents=True)
        if others:
            picture(tmp_path / "t/a/1.png", (3, 2))
        if own == "a table":
            (tmp_path / "t/odd/t.parquet").write_bytes(b"PAR1")
        if own == "an image":
            picture(tmp_path / "t/odd/1.png", (3, 2))
        sizes = private_table(tmp_path / "t", fields=fields).sizes.tolist()
        assert sizes == [int(others), int(own == "an image")]
        shutil.rmtree(tmp_path / "t")


def test_the_owner_is_told_which_rows_do_not_fit_and_files_are_known_apart(tmp_path):
    path = write_leaf(tmp_path / "t.json", {"a": USUAL, "odd": ODD["a word"]})
    assert misfits(path, fields=dict(SCHEMA.fields)) == {"age": [3]}
    other = write_leaf(tmp_path / "other.json", {"a": USUAL, "odd": ODD["a fraction"]})
    assert files_digest(path) != files_digest(other)


@pytest.mark.parametrize(
    ("name", "content"), [("t.json", b"{"), ("t.json", b"[]"), ("t.json", b'{"user_data": {}}'), ("t.h5", b"none")]
)
def test_a_file_that_is_none_is_refused_without_a_word_about_what_it_holds(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=r"is not LEAF JSON|is not HDF5|has no clients"):
        private_table(tmp_path / name, fields=dict(SCHEMA.fields))


@pytest.mark.parametrize(
    "odd",
    [
        "a word",
        *(
            pytest.param(odd, marks=pytest.mark.slow)
            for odd in ("a letter that cannot be written", "a fraction", "nothing")
        ),
    ],
)
def test_an_inspection_says_the_same_whatever_one_client_holds(tmp_path, monkeypatch, odd):
    """The number of coordinates, the names and the exit code; numbers are noise."""
    monkeypatch.chdir(tmp_path)
    said: list[Any] = []
    for number, own in enumerate((USUAL, ODD[odd])):
        write_leaf(tmp_path / f"t{number}.json", {**{f"c{i}": USUAL for i in range(8)}, "odd": own})
        options = "--input age --input pay --range age=0:100 --range pay=0:9 --epsilon 4 --delta 1e-3"
        options += " --even-if-blind --json"
        done = CliRunner().invoke(
            cli.app, ["inspect", "sanity", f"t{number}.json", *options.split(), "--out", f"r{number}"]
        )
        report = json.loads(done.stdout) if done.exit_code == 0 else {}
        said.append((done.exit_code, [row.get("coordinates") for row in report.get("releases", [])]))
    assert said[0] == said[1]
    assert said[0][0] == 0
