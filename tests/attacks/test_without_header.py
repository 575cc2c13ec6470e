"""Of a file without a header a refusal depends on the question alone, not on the fields or folders of a client."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leaving import command
from wire_files import fedjax_database, picture, proto, tff_database

from blindsight import config
from blindsight.data.private import private_table
from blindsight.data.schema import Schema
from blindsight.errors import InvalidInput
from blindsight.jobs.run_data import read_run

PRIVATE = "diagnosis"
"""A name that one client alone has: of a field, or of a folder."""


def leaf(own: str) -> str:
    held = {"a": {"age": [3], "text": ["x"]}, "odd": {own: [4]}}
    Path("t.json").write_text(json.dumps({"users": [*held], "num_samples": [1, 1], "user_data": held}))
    return "t.json"


@pytest.mark.parametrize(
    "odd", ["[]", "[[]]", "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + '"["' + "}" * 100_000]
)
def test_what_one_client_nests_is_nobody_elses_business(tmp_path: Path, odd):
    """Nothing at all where an image should be, and what Python's own parser of JSON refuses."""
    people = '"a": {"age": [3], "photo": [[[1, 2], [3, 4]]], "note": ["a \\"["]}'
    fields = Schema({}).updated(["age=whole", "photo=image:2x2", "note=text"]).fields
    seen = list[Any]()
    for one in ("4", odd):
        own = f'"odd": {{"age": [{one}], "photo": [{one}], "note": ["b"]}}'
        (tmp_path / "t.json").write_text(f'{{"users": [], "num_samples": [], "user_data": {{{own}, {people}}}}}')
        clients = private_table(tmp_path / "t.json", fields=fields)
        seen.append(
            (clients.ids.tolist(), clients.fields, {name: rows.tolist() for name, rows in clients["a"].items()})
        )
    assert seen[0] == seen[1]
    assert seen[0][2]["note"] == ['a "[']


def tff(own: str) -> str:
    Path("t.sqlite").unlink(missing_ok=True)
    odd: dict[str, Any] = {own: [4]}
    tff_database("t.sqlite", [("train", "a", proto(age=[3], text=["x"])), ("train", "odd", proto(**odd))])
    return "t.sqlite"


def fedjax(own: str) -> str:
    Path("t.db").unlink(missing_ok=True)
    fedjax_database("t.db", [(b"a", {"age": np.array([3])}, 1), (b"odd", {own: np.array([4])}, 1)])
    return "t.db"


def folder(own: str) -> str:
    picture("t/a/cat/1.png")
    picture(f"t/odd/{own}/1.png")
    return "t"


FILES: dict[str, Callable[[str], str]] = {"LEAF": leaf, "TFF": tff, "FedJAX": fedjax, "a folder": folder}
QUESTIONS = {
    "no field": "inspect sanity {}",
    "a field of no kind": "inspect sanity {} --input age",
    "a field that is described": "inspect sanity {} --type age=whole",
    "no text": "inspect unknowns {} --side version --value old --value new --vocabulary words.txt",
    "no model": "inspect mistakes {} --input age --range age=0:100",
}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("we\n")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_an_inspection_is_refused_for_what_it_asks(file, question):
    said: list[Any] = []
    for own in ("age", PRIVATE):
        said.append(command(*QUESTIONS[question].format(FILES[file](own)).split(), "--ledger", "ledger.db"))
    assert said[0] == said[1]
    assert said[0]["exit code"] == 2
    assert not any(name in str(said) for name in (PRIVATE, "odd", "cat"))


def run(**tables: Any) -> config.Config:
    privacy = {"noise_multiplier": 1.0, "delta": 1e-3, "cohort": 2, "rounds": 1}
    return config.parse({"name": "run", "privacy": privacy} | tables)


@pytest.mark.parametrize("file", ["LEAF", "TFF", "FedJAX"])
def test_training_reads_the_fields_that_it_names_whoever_has_them(file):
    for own in ("age", PRIVATE):
        data = {"population": FILES[file](own), "held_out": 0}
        found = read_run(run(data=data, model={"kind": "logistic", "inputs": ["age", PRIVATE], "classes": 2}))
        assert set(found.fields) == {"age", PRIVATE, "label"}
        assert found.sizes.tolist() == [0, 0]


def test_training_on_a_folder_of_images_asks_for_their_shape_and_their_classes():
    for own in ("dog", PRIVATE):
        data: dict[str, Any] = {"population": folder(own), "held_out": 0}
        with pytest.raises(InvalidInput, match=r"^list the classes that the folders are named after") as classes:
            read_run(run(data=data, model={"kind": "cnn"}))
        with pytest.raises(InvalidInput, match=r"^give the type of 'image' in t") as shape:
            read_run(run(data=data, model={"kind": "cnn", "classes": ["cat", "dog"]}))
        assert PRIVATE not in f"{classes.value} {shape.value}"
    listed = {"types": {"image": "image:3x4", "label": "category:cat,dog"}}
    found = read_run(run(data=data | listed, model={"kind": "cnn", "classes": ["cat", "dog"]}))
    assert found.sizes.tolist() == [1, 1]
    assert found.classes == {"label": ("cat", "dog")}


def test_shapes_of_messages_are_said_in_the_options():
    tff_database("t.sqlite", [("train", "a", proto(pixels=[0.5] * 4, label=[1])), ("train", "odd", proto(pixels=[7]))])
    data = {"population": "t.sqlite", "held_out": 0, "options": {"shapes": {"pixels": [2, 2]}, "split": "train"}}
    found = read_run(run(data=data, model={"kind": "cnn", "inputs": ["pixels"], "classes": 2}))
    assert found.fields["pixels"] == (np.dtype(np.float32), (2, 2))
    assert found.sizes.tolist() == [1, 0]
    for wrong in ("2x2", {"pixels": "2x2"}, {"pixels": [0.5]}):
        options = {"population": "t.sqlite", "options": {"shapes": wrong}}
        with pytest.raises(InvalidInput, match=r"shapes of t\.sqlite are spelled"):
            read_run(run(data=options, model={"kind": "cnn", "inputs": ["pixels"], "classes": 2}))
