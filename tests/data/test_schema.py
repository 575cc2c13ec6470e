"""Schemas in words and in JSON, and private tables: a row that does not fit is its client's alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from blindsight import cli, data
from blindsight.data import csv_tables
from blindsight.data.population import TEXT, Population
from blindsight.data.private import column_names, is_table, misfits, private_table
from blindsight.data.schema import Field, Schema, read_field
from blindsight.errors import InvalidInput

WORDS = ["age=whole:0:120", "pay=number", "region=category:north,south", "new=truth", "note=text", "photo=image:2x2"]
SCHEMA = Schema({}).updated(WORDS)


def test_a_schema_is_the_same_in_words_and_in_json(tmp_path: Path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_dict()), encoding="utf-8")
    assert Schema.load(tmp_path / "schema.json") == SCHEMA
    assert SCHEMA.ranges == {"age": (0.0, 120.0)}


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("age", "age=whole or age=whole:0:120"),
        ("age=colour", "one of number, whole"),
        ("age=whole:1", "is written as number"),
        ("age=whole:9:1", "two finite ends"),
        ("age=text:0:1", "a range needs two finite ends"),
        ("age=category", "must list the distinct values"),
        ("age=category:a,a", "must list the distinct values"),
        ("age=image:0x2", "shape such as"),
        ("age=image", "is written as number"),
    ],
)
def test_what_is_no_kind_is_refused(words, refusal):
    with pytest.raises(InvalidInput, match=refusal):
        Schema({}).updated([words])


@pytest.mark.parametrize(
    "value", [3, {}, {"fields": 3}, {"fields": {"a": {}}}, {"fields": {"a": {"kind": "text", "x": 1}}}]
)
def test_what_is_no_schema_is_refused(value):
    with pytest.raises(InvalidInput, match="a schema"):
        Schema.from_dict(value)


def test_a_schema_is_read_off_public_data():
    public = Population(
        {
            "age": np.array([1, 2]),
            "pay": np.array([0.5, 1.0]),
            "note": np.array(["a", "b"]),
            "region": np.array([0, 1]),
            "photo": np.zeros((2, 2, 2), np.uint8),
            "new": np.array([True, False]),
        },
        sizes=[1, 1],
        name="public",
        classes={"region": ("north", "south")},
    )
    kinds = {name: field.kind for name, field in Schema.of(public).fields.items()}
    assert kinds == {
        "age": "whole",
        "pay": "number",
        "note": "text",
        "region": "category",
        "photo": "image",
        "new": "truth",
    }


CELLS = st.one_of(
    st.integers(-(2**40), 2**40).map(str),
    st.floats().map(repr),
    st.sampled_from(["", "n/a", "30.5", "1e12", "north", "true", "inf", "-", "\u00e9", "1e999", "007"]),
    st.text(st.characters(exclude_characters='"\r\n,', exclude_categories=["Cs", "Cc"]), max_size=5),
)


@given(st.lists(CELLS, min_size=4, max_size=4))
def test_one_clients_cells_change_no_type_and_nobody_elses_rows(tmp_path_factory, cells):
    folder = tmp_path_factory.mktemp("table")
    usual = ["a,1,2.5,north,hello", "b,2,3,south,there", "a,3,4,north,again"]
    fields = {name: SCHEMA.fields[name] for name in ("age", "pay", "region", "note")}
    found = list[Population]()
    for rows in ([*usual, "c,5,5,north,fine"], [*usual, f"c,{','.join(cells)}"]):
        (folder / "t.csv").write_text("\n".join(["who,age,pay,region,note", *rows]) + "\n", encoding="utf-8")
        found.append(private_table(folder / "t.csv", client="who", fields=fields))
    calm, odd = found
    assert calm.fields == odd.fields
    assert calm.classes == odd.classes
    assert calm.ids.tolist() == odd.ids.tolist() == ["a", "b", "c"]
    assert odd.sizes[2] in (0, 1)
    for field in fields:
        np.testing.assert_array_equal(calm.columns[field][:3], odd.columns[field][:3])


def test_one_clients_fraction_makes_nobody_elses_number_another_kind(tmp_path: Path):
    """Whole or not is said by the schema: read off values, one client aged 30.5 would change what is released."""
    kinds = list[Any]()
    for odd in ("30", "30.5"):
        (tmp_path / "t.csv").write_text(f"who,age,pay\na,1,1\nb,2,2\nc,{odd},{odd}\n", encoding="utf-8")
        kinds.append(private_table(tmp_path / "t.csv", client="who", fields=dict(SCHEMA.fields)).fields)
    assert kinds[0] == kinds[1]
    assert [kinds[0][name][0].kind for name in ("age", "pay")] == ["i", "f"]


USUAL = [
    'a,1,"north, or so"',
    'b,2,"he said ""so"""',
    'd,3,"two\nlines"',
    "a,4,5 feet",
    'd,5,""',
    'e,6,""""',
    "f,7,last",
]
HALVES = st.text(st.sampled_from("\",a '\\"), max_size=8)


def notes_of(folder: Path, lines: list[str]) -> dict[str, list[str]]:
    (folder / "t.csv").write_text("\n".join(["who,age,note", *lines, ""]), encoding="utf-8")
    found = private_table(folder / "t.csv", client="who", fields={"age": Field("whole"), "note": Field("text")})
    return {who: found[who]["note"].tolist() for who in found.ids.tolist()}


@given(HALVES, HALVES, st.integers(0, len(USUAL)))
def test_one_clients_quotation_marks_remove_nobody_elses_rows(tmp_path_factory, age, note, place):
    folder = tmp_path_factory.mktemp("table")
    calm, odd = (notes_of(folder, [*USUAL[:place], line, *USUAL[place:]]) for line in ("c,5,fine", f"c,{age},{note}"))
    assert set(odd) == set(calm) == set("abcdef")
    assert {who: notes for who, notes in odd.items() if who != "c"} == {
        who: notes for who, notes in calm.items() if who != "c"
    }
    assert calm["d"] == ["two\nlines", ""]
    assert calm["e"] == ['"']


@pytest.mark.parametrize(
    ("lines", "whose"),
    [
        (['c,5,"open', "more of it", 'and "more', "a,1,x"], ["c", "a"]),  # what goes on is nobody's row
        (['"c,5,open', "a,1,x"], ["c", "a"]),
        (['c,"5,open', 'b,2,"two', 'lines"', "a,1,x"], ["c", "b", "a"]),
        (['c,5,"open'], ["c"]),
        (['c,5,"open', 'e,6,"open', 'f,"7,open', "a,1,x"], ["c", "e", "f", "a"]),
        (['c,5,"open', '"', "a,1,x"], ["c", "a"]),
    ],
)
def test_a_record_that_is_not_closed_ends_with_its_line(tmp_path: Path, lines, whose):
    found = notes_of(tmp_path, lines)
    assert sorted(found) == sorted(whose)
    assert found.get("a", ["x"]) == ["x"]
    assert found.get("b", ["two\nlines"]) == ["two\nlines"]


@pytest.mark.parametrize("line", ["c,5,{},,", 'c,5,"{}', 'c,5,"{}\n"', "c,5,{}"])
def test_one_clients_long_text_is_no_error_and_removes_nobody_elses_rows(tmp_path: Path, monkeypatch, line):
    """Python's csv stops at 128 kB in a cell and Arrow at a row longer than a block, with errors of their own."""
    monkeypatch.setattr(csv_tables, "_BLOCK", 1 << 10)
    found = notes_of(tmp_path, [*USUAL, line.format("long " * 30_000)])
    assert {who: len(notes) for who, notes in found.items() if who != "c"} == dict.fromkeys("bef", 1) | {"a": 2, "d": 2}
    assert "c" in found


def test_a_file_whose_writer_chose_another_type_for_one_value_is_read_alike(tmp_path: Path):
    """Pandas writes a column of whole numbers as fractions because of one gap, and as text because of one word."""
    columns: list[Any] = [[1, 2, 3], [1.0, 2.0, None], ["1", "2", "n/a"]]
    fields = {"age": Field("whole")}
    found = list[Population]()
    for column in columns:
        pq.write_table(pa.table({"who": ["a", "b", "c"], "age": column}), tmp_path / "t.parquet")
        found.append(private_table(tmp_path / "t.parquet", client="who", fields=fields))
    assert [one.fields for one in found] == [found[0].fields] * 3
    assert [one.sizes.tolist() for one in found] == [[1, 1, 1], [1, 1, 0], [1, 1, 0]]
    numbers = [[7, 8], [7.0, None], ["7", "8"]]
    ids = list[Any]()
    for who in numbers:
        pq.write_table(pa.table({"who": who, "age": [1, 2]}), tmp_path / "t.parquet")
        ids.append(private_table(tmp_path / "t.parquet", client="who", fields=fields).ids.tolist())
    assert ids == [["7", "8"], ["7"], ["7", "8"]]


def test_images_of_another_shape_are_left_out(tmp_path: Path):
    lists = [[[1, 2], [3, 4]], [[1, 2, 3], [4]], [[1, 2]], [[1, 2], [3, 400]], [[9, 9], [9, 9]], None]
    table = pa.table({"who": list("aabbcd"), "photo": pa.array(lists, pa.list_(pa.list_(pa.int64())))})
    pq.write_table(table, tmp_path / "t.parquet")
    found = private_table(tmp_path / "t.parquet", client="who", fields={"photo": SCHEMA.fields["photo"]})
    assert found.sizes.tolist() == [1, 0, 1, 0]
    assert found.columns["photo"].dtype == np.uint8
    assert found.columns["photo"].tolist() == [lists[0], lists[4]]


@pytest.mark.parametrize("odd", ["north", 3.5, True, [1], {"a": 1}, None])
def test_a_part_of_another_type_takes_no_column_from_the_others(tmp_path: Path, odd):
    """A client's own file may lack a column that others have, and its values decide the types of its columns."""
    parts = [{"who": "a", "region": "north"}, {"who": "b", "age": 3, "region": "north"}, {"who": "c", "region": odd}]
    for number, row in enumerate(parts):
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / f"{number}.parquet")
    fields = {name: SCHEMA.fields[name] for name in ("age", "region")}
    found = private_table(tmp_path, client="who", fields=fields, gaps=list(fields))
    assert list(found.fields) == ["region", "age"]
    assert found["b"]["age"].tolist() == [3]
    assert found.columns["region"].tolist()[:2] == [0, 0]


@pytest.mark.parametrize(
    "when",
    [pa.array([0, 2**31 - 1], pa.date32()), pa.array([0, 2**62], pa.timestamp("ms"))],
    ids=["a date", "a time"],
)
def test_dates_beyond_the_calendar_are_left_out_by_their_client(tmp_path: Path, when):
    """They had ended everybody's question in a traceback."""
    fields = {"when": Field("text"), "named": Field("category", values=("1970-01-01", "never"))}
    pq.write_table(pa.table({"who": ["a", "b"], "when": when, "named": when}), tmp_path / "t.parquet")
    found = private_table(tmp_path / "t.parquet", client="who", fields=fields)
    assert found.ids.tolist() == ["a", "b"]
    assert found["a"]["when"].tolist() == ["1970-01-01"]
    pq.write_table(pa.table({"who": when, "age": [1, 2]}), tmp_path / "t.parquet")
    assert private_table(tmp_path / "t.parquet", client="who", fields={"age": Field("whole")}).ids[0] == "1970-01-01"


def test_half_a_letter_in_a_numpy_archive_is_its_clients_alone(tmp_path: Path):
    """NumPy keeps halves of surrogate pairs, which are no text: they had ended everybody's question in a traceback."""
    notes = np.array(["fine", "half a \udcff letter"])
    np.savez(tmp_path / "t.npz", who=np.array(["a", "\udcffb"]), note=notes)
    found = private_table(tmp_path / "t.npz", client="who", fields={"note": Field("text")})
    assert found.sizes.tolist() == [1, 1]
    assert found["a"]["note"].tolist() == ["fine"]
    with pytest.raises(InvalidInput, match="holds text that is not Unicode"):
        data.npz(tmp_path / "t.npz", client="who", fields=["note"])


def test_a_numpy_archive_is_read_by_its_schema(tmp_path: Path):
    np.savez(tmp_path / "t.npz", who=np.array(["a", "b"]), age=np.array([1.0, np.nan]), photo=np.ones((2, 2, 2)))
    assert is_table(tmp_path / "t.npz")
    fields = {"age": Field("number"), "photo": SCHEMA.fields["photo"]}
    found = private_table(tmp_path / "t.npz", client="who", fields=fields)
    assert found.sizes.tolist() == [1, 0]
    assert found.fields["photo"] == (np.dtype(np.uint8), (2, 2))


@pytest.mark.parametrize(
    ("text", "refusal"), [("who,age\n", "no rows"), ("who,age\n,3\n", "no rows with a client"), ("", "is empty")]
)
def test_a_file_without_clients_is_refused(tmp_path: Path, text, refusal):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=refusal):
        private_table(tmp_path / "t.csv", client="who", fields={"age": Field("whole")})


def test_the_datas_owner_may_ask_which_rows_do_not_fit(tmp_path: Path):
    (tmp_path / "t.csv").write_text("who,age\na,1\n,2\nb,old\nc,30.5\n", encoding="utf-8")
    assert misfits(tmp_path / "t.csv", client="who", fields={"age": read_field("whole")}) == {"who": [2], "age": [3, 4]}
    assert column_names(tmp_path / "t.csv", "who") == ["age"]
    asked = ["data", "check", str(tmp_path / "t.csv"), "--client", "who"]
    done = CliRunner().invoke(cli.app, [*asked, "--type", "age=whole", "--json"])
    assert done.exit_code == 2
    said = json.loads(done.stdout)
    assert said["left_out"] == {"who": [2], "age": [3, 4]}
    assert "row 3, field 'age': 'old' is not a number" in said["problem"]
    assert "3, 4" in CliRunner().invoke(cli.app, [*asked, "--type", "age=whole"]).stdout
    (tmp_path / "t.csv").write_text("who,age\na,1\nb,2\n", encoding="utf-8")
    fine = CliRunner().invoke(cli.app, [*asked, "--type", "age=whole"])
    assert fine.exit_code == 0
    assert "in order: 2 clients, 2 examples" in fine.stdout
    absent = CliRunner().invoke(cli.app, ["data", "check", str(tmp_path / "absent.csv"), "--type", "age=whole"])
    assert (absent.exit_code, "in order" in absent.stdout) == (2, False)


def test_text_is_kept_letter_for_letter(tmp_path: Path):
    (tmp_path / "t.csv").write_text("who,note\na,007\nb,true\n", encoding="utf-8")
    found = private_table(tmp_path / "t.csv", client="who", fields={"note": Field("text")})
    assert found.columns["note"].dtype == TEXT
    assert found.columns["note"].tolist() == ["007", "true"]
