"""CSV of any separator, encoding and decimal mark: guessed, said, settable; of private clients by the header alone."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blindsight import data
from blindsight.data.csv_tables import dialect_of
from blindsight.data.dialect import Dialect
from blindsight.data.private import private_table
from blindsight.data.schema import Schema
from blindsight.errors import InvalidInput

NUMBERS = [1.5, -0.25, 1e6, 12.0]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def written(name: str, separator: str, encoding: str, decimal: str) -> None:
    rows = [f"ann{separator}{str(x).replace('.', decimal)}{separator}Müller" for x in NUMBERS]
    Path(name).write_bytes("\n".join([separator.join(("client", "pay", "näme")), *rows, ""]).encode(encoding))


@pytest.mark.parametrize(
    ("separator", "decimal"), [(",", "."), (";", ","), (";", "."), ("\t", ","), ("\t", "."), ("|", ",")]
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_every_dialect_is_guessed_and_said(separator, encoding, decimal):
    written("t.csv", separator, encoding, decimal)
    people = data.load("t.csv")
    assert people.columns["pay"].tolist() == NUMBERS
    assert people.columns["näme"].tolist() == ["Müller"] * 4
    said = dialect_of("t.csv")
    assert said == Dialect(separator, encoding.removesuffix("-sig"), decimal)
    assert str(said).startswith(f"separator {'tab' if separator == chr(9) else separator}, encoding")


def test_what_is_given_is_used_as_it_is():
    written("t.csv", "~", "latin-1", ",")
    people = data.csv("t.csv", separator="~", encoding="latin-1", decimal=",")
    assert people.columns["pay"].tolist() == NUMBERS
    Path("point.csv").write_text("client;pay\nann;1.5\n")
    with pytest.raises(InvalidInput, match=r"row 1, field 'pay': '1\.5' has another decimal mark"):
        data.csv("point.csv", decimal=",", text=()).columns["pay"].tolist()


def test_a_tab_separated_file_has_tabs_whatever_its_header():
    Path("t.tsv").write_text("client\ta,b,c\nann\t3\n")
    assert data.load("t.tsv").columns["a,b,c"].tolist() == [3]


def test_both_decimal_marks_in_one_file_are_refused_with_their_places():
    Path("t.csv").write_text("client;a;b\nann;1,5;2.5\n")
    with pytest.raises(InvalidInput, match=r"row 1, field 'a' has the decimal mark , and .*, field 'b' has a point"):
        data.csv("t.csv")
    assert data.csv("t.csv", decimal=",", text=("b",)).columns["a"].tolist() == [1.5]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["inf", "1"], "row 1, field 'x': the value is infinite"),
        (["1", "-Infinity"], "row 2, field 'x': the value is infinite"),
        (["1.5", "1e400"], "row 2, field 'x': the value is infinite"),
        (["1,234,567"], "row 1, field 'x': '1,234,567' groups its digits"),
        (["unknown", "1", "2"], "row 1, field 'x': 'unknown' is not a number, as most values"),
    ],
)
def test_nothing_silently_becomes_text_or_infinite(cells, words):
    Path("t.csv").write_text("\n".join(["client\tx", *(f"ann\t{cell}" for cell in cells)]))
    with pytest.raises(InvalidInput, match=words):
        data.csv("t.csv")


def test_a_number_column_may_begin_with_a_gap_and_a_column_of_gaps_holds_numbers():
    Path("t.csv").write_text("client,x,y\nann,NaN,\nbob,2,\nann,,\n")
    people = data.csv("t.csv")
    assert people.fields["x"][0] == people.fields["y"][0] == np.float64
    assert people["bob"]["x"].tolist() == [2.0]


def test_spaces_around_numbers_are_no_text_and_those_after_every_separator_belong_to_it():
    Path("t.csv").write_text("client,x,note\nann, 1 , kept\nbob, NaN ,b\n")
    read = data.csv("t.csv")
    assert read["ann"]["x"].tolist() == [1.0]
    assert read["ann"]["note"].tolist() == [" kept"]
    Path("spaced.csv").write_text("client, x, new, region\nann, 1, true, north\nbob, 2, false, south\n")
    read = data.csv("spaced.csv")
    assert read["bob"]["x"].tolist() == [2]
    assert read["ann"]["new"].tolist() == [True]
    assert read["ann"]["region"].tolist() == ["north"]
    fields = Schema({}).updated(["x=whole:0:9", "new=truth", "region=category:north,south"]).fields
    private = private_table("spaced.csv", fields=fields)
    assert private.sizes.tolist() == [1, 1]
    assert private["bob"]["region"].tolist() == [1]


@pytest.mark.parametrize(
    "text", [",client,x\n0,ann,1\n1,bob,2\n", "client;x;\nann;1;\nbob;2;\n", ",client,,x\n0,ann,,1\n1,bob,,2\n"]
)
def test_a_column_without_a_name_such_as_an_index_is_left_out(text):
    Path("t.csv").write_text(text)
    assert data.load("t.csv").fields.keys() == {"x"}
    private = private_table("t.csv", fields=Schema({}).updated(["x=whole:0:9"]).fields)
    assert private.columns["x"].tolist() == [1, 2]


@pytest.mark.parametrize("text", ["client,x,x\nann,1,2\n", "client,x, x\nann,1,2\n", "client,x,x\nann,1\n"])
def test_private_columns_of_one_name_are_refused(text):
    Path("t.csv").write_text(text)
    with pytest.raises(InvalidInput, match=r"^t\.csv has a column name more than once: name each column once$"):
        private_table("t.csv", fields=Schema({}).updated(["x=whole:0:9"]).fields)


def test_a_broken_line_keeps_its_client_beside_a_column_without_a_name():
    Path("t.csv").write_text(",client,x\n0,ann,1\n1,bob\n2,cid,2,3,4\n")
    private = private_table("t.csv", fields=Schema({}).updated(["x=whole:0:9"]).fields)
    assert private.ids.tolist() == ["ann", "bob", "cid"]
    assert private.sizes.tolist() == [1, 0, 0]


def test_parts_of_a_table_are_one_table():
    Path("parts/more").mkdir(parents=True)
    written("parts/1.csv", ";", "cp1252", ",")
    written("parts/more/2.csv", ",", "utf-8", ".")
    for path in ("parts", "parts/**/*.csv", ["parts/1.csv", "parts/more/2.csv"]):
        read = data.csv(path) if isinstance(path, list) else data.load(path)
        assert read.name == ("1" if isinstance(path, list) else "parts")  # whichever part comes first
        assert read.columns["pay"].tolist() == [*NUMBERS, *NUMBERS]
    Path("parts/3.csv").write_text("client;other\nann;1\n")
    with pytest.raises(InvalidInput, match=r"parts/3\.csv has no column 'pay'"):
        data.load("parts/*.csv")
    with pytest.raises(InvalidInput, match=r"there is no file or folder parts/\*\.npz"):
        data.load("parts/*.npz")


# --- clients that nobody may look at

FIELDS = Schema({}).updated(["pay=number", "note=text"]).fields
OTHERS = "ann;1,5;süß;z\nbob;2.5;x;z\n"


@given(st.binary(max_size=30).filter(lambda own: b"\n" not in own and b"\r" not in own and b'"' not in own))
@pytest.mark.parametrize("header", ["client;pay;note", "client\tpay\tnote"])
def test_one_clients_bytes_change_neither_dialect_nor_anybody_elses_rows(tmp_path_factory, header, own):
    """Separator and encoding follow from the header, be it in UTF-8 or not, whatever bytes a client writes."""
    folder = tmp_path_factory.mktemp("t")
    cut = "\t" if "\t" in header else ";"
    for encoding in ("utf-8", "cp1252"):
        first = f"{header}{cut}é\n{OTHERS.replace(';', cut)}".encode(encoding)
        seen = []
        for number, client in enumerate((b"odd", own)):
            row = b"odd" + cut.encode() + client + cut.encode() + client + cut.encode() + b"z\n"
            (folder / f"{number}.csv").write_bytes(first + row + f"cid{cut}3{cut}ende{cut}z\n".encode())
            read = private_table(folder / f"{number}.csv", fields=FIELDS, gaps=["pay", "note"])
            kept = {name: read[name]["note"].tolist() + read[name]["pay"].tolist() for name in ("ann", "bob", "cid")}
            seen.append((repr(kept), dialect_of(folder / f"{number}.csv", private=True)))
        assert seen[0] == seen[1]


def test_private_numbers_may_have_a_point_or_a_comma_unless_a_mark_is_given():
    Path("t.csv").write_text(f"client;pay;note;more\n{OTHERS}")
    assert private_table("t.csv", fields=FIELDS).columns["pay"].tolist() == [1.5, 2.5]
    only = private_table("t.csv", fields=FIELDS, dialect=Dialect(decimal=","))
    assert only.sizes.tolist() == [1, 0]


@pytest.mark.parametrize("encoding", ["shift_jis", "gb18030", "iso2022_jp", "utf-16", "utf-7"])
def test_an_encoding_that_remembers_begins_anew_with_every_line(encoding):
    """Half a letter or an open escape at the end of one client's line does not reach the next client's."""
    seen = []
    for odd in (b"x", b"\x81", b"\x1b$B\x81", b"+", b"\0\xd8"):
        header, after = (
            "client;pay;note\n".encode(encoding),
            "bob;2;ok\n".encode(encoding.replace("utf-16", "utf-16-le")),
        )
        line = "odd;1;".encode(encoding.replace("utf-16", "utf-16-le"))
        odd = odd.ljust(2, b"\0") if encoding == "utf-16" else odd
        end = "\n".encode(encoding.replace("utf-16", "utf-16-le"))
        Path("t.csv").write_bytes(header + line + odd + end + after)
        read = private_table("t.csv", fields=FIELDS, dialect=Dialect(encoding=encoding))
        seen.append(read["bob"]["note"].tolist())
    assert seen == [["ok"]] * 5
