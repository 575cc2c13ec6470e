"""JSON Lines: read whole by their owner, and by a public schema for clients nobody may look at."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from blindsight import data
from blindsight.data.private import misfits, private_table
from blindsight.data.schema import Schema
from blindsight.errors import InvalidInput

ROWS = [
    {"who": "ann", "age": None, "word": "so", "image": [[1, 2], [3, 4]]},
    {"who": "bob", "age": 44, "word": "it", "image": [[0, 0], [0, 9]], "ok": True},
    {"who": "ann", "age": 30.5, "word": None, "image": [[5, 5], [5, 5]], "ok": False},
]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name: str, *lines: object) -> str:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines) + "\n")
    return name


def test_lines_are_examples_and_gaps_are_missing():
    people = data.load(write("t.jsonl", *ROWS, ""), client="who")
    assert people.ids.tolist() == ["ann", "bob"]
    assert people.columns["age"].dtype == np.float64
    assert np.isnan(people["ann"]["age"][0])
    assert people["ann"]["word"].tolist() == ["so", ""]
    assert people["bob"]["image"].tolist() == [[[0, 0], [0, 9]]]
    assert people.classes == {"ok": ("false", "true")}  # with a code for the row that lacks it
    write("parts/1.jsonl", *ROWS[:1])
    write("parts/2.ndjson", *ROWS[1:])
    assert data.load("parts", client="who").content == people.content
    assert data.load("parts/*.*json*", client="who").content == people.content
    Path("t.jsonl.gz").write_bytes(gzip.compress(Path("t.jsonl").read_bytes()))
    assert data.load("t.jsonl.gz", client="who").content == people.content
    Path("cut.jsonl.gz").write_bytes(Path("t.jsonl.gz").read_bytes()[:-9])
    with pytest.raises(InvalidInput, match=r"cut\.jsonl\.gz cannot be read .*: check that it is complete"):
        data.load("cut.jsonl.gz", client="who")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "row 2: the row is not JSON"),
        ("[1]", "row 2: not an object with fields"),
        ({"who": "a", "age": "old"}, "row 2, field 'age': 'old' is not a number, as the values before it are"),
        ({"who": "a", "age": {"x": 1}}, "row 2, field 'age': the value is an object"),
        ({"age": 1}, "row 2, field 'who': the row has no client id"),
        ('{"who": "a", "age": 1e999}', "row 2, field 'age': the value is infinite"),
        ({"who": "a", "age": 2**80}, "field 'age' holds values that one type cannot hold"),
    ],
)
def test_what_is_wrong_is_named(line, words):
    with pytest.raises(InvalidInput, match=words):
        data.load(write("t.jsonl", {"who": "a", "age": 1}, line), client="who")


FIELDS = Schema({}).updated(["age=number", "word=text", "image=image:2x2"]).fields
ODD = [
    "{",
    '{"who": "odd", "age": 3',
    "[]",
    {"who": "odd"},
    {"who": "odd", "age": "old", "word": 3, "image": [1]},
    {"who": "odd", "other": 1, "age": {"a": []}},
    {"who": None, "age": 1},
    {"who": ["ann"]},
    '{"who": "odd", "age": 1' + "0" * 5000 + "}",
    "\ud800".encode(errors="surrogatepass").decode("latin-1"),
    '{"who": "odd", "age": Infinity}',
]


@pytest.mark.parametrize("line", ODD)
def test_one_clients_line_changes_nobody_elses_examples(line):
    good = {"who": "odd", "age": 1, "word": "x", "image": [[1, 1], [1, 1]]}
    people = [{**row, "age": 5} for row in ROWS]
    first, second = (
        private_table(write(f"{number}.jsonl", *people, good, own), fields=FIELDS, client="who", gaps=["age"], name="t")
        for number, own in enumerate((good, line))
    )
    assert first.fields == second.fields
    assert first.ids.tolist() == second.ids.tolist() == ["ann", "bob", "odd"]
    for name in ("ann", "bob"):
        assert first[name]["age"].tolist() == second[name]["age"].tolist()
        assert first[name]["image"].tolist() == second[name]["image"].tolist()


def test_a_broken_line_keeps_its_client_and_the_owner_is_told():
    path = write("t.jsonl", {"who": 7, "age": 1}, '{"who": "odd", "age": ')
    people = private_table(path, fields={"age": FIELDS["age"]}, client="who")
    assert people.ids.tolist() == ["7", "odd"]
    assert people.sizes.tolist() == [1, 0]
    assert misfits(path, fields={"age": FIELDS["age"]}, client="who") == {"age": [2]}
