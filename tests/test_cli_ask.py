"""`blindsight ask` as a new user would try it, wrong input included."""

import json
from pathlib import Path

import pytest
from command import run as blindsight

from blindsight.accounting.ledger import Ledger
from blindsight.data.private import private_table
from blindsight.data.schema import read_field

ROWS = [
    "who,age,sex,is_new,said",
    "a,30,f,true,hello there",
    "a,,f,false,",
    "b,41,m,true,hello",
    "b,old,x,perhaps,well",
    "c,99,m,false,",
]
TYPES = ["--type", "age=whole:0:100", "--type", "sex=category:f,m", "--type", "is_new=truth"]


@pytest.fixture
def table(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "people.csv"
    path.write_text("\n".join([*ROWS, ""]), encoding="utf-8")
    return path


def test_fields_of_a_table_are_asked_about_in_one_line_and_paid_for(table):
    done = blindsight(
        "ask",
        "people.csv",
        "age",
        "sex",
        "--client",
        "who",
        "--by",
        "is_new",
        *TYPES,
        "--epsilon",
        "2",
        "--even-if-blind",
    )
    assert done.returncode == 0, done.stderr
    for heading in ("Mean of age by is_new", "Quantiles of age", "Distribution of sex", "Missing values of sex"):
        assert heading in done.stdout
    assert "hold at once" in done.stdout
    assert 1.99 < Ledger().spent("people", delta=1e-6).epsilon <= 2.0
    saved = json.loads(Path("runs/ask-people/report.json").read_text())
    assert len(saved["statistics"]) == 6
    assert "Mean of age" in Path("runs/ask-people/report.html").read_text()


def test_named_statistics_only(table):
    asked = ["--client", "who", *TYPES, "--mean", "--quantiles", "0.5", "--top", "1", "--cross", "sex,age", "--json"]
    done = blindsight("ask", "people.csv", "age", "sex", *asked, "--even-if-blind")
    assert done.returncode == 0, done.stderr
    found = [(one["statistic"], one["field"]) for one in json.loads(done.stdout)["statistics"]]
    assert found == [("mean", "age"), ("quantiles", "age"), ("top", "sex"), ("cross", "sex")]


def test_a_dry_run_shows_cost_and_widths_and_leaves_no_trace(table):
    done = blindsight("ask", "people.csv", "age", "--client", "who", *TYPES, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "Mean of age: about ±" in done.stdout
    assert sorted(path.name for path in table.parent.iterdir()) == ["people.csv"]


def test_a_spent_budget_is_exit_code_3(table):
    Ledger().set_budget("people", epsilon=0.5, delta=1e-6)
    done = blindsight("ask", "people.csv", "sex", "--client", "who", *TYPES, "--epsilon", "1", "--even-if-blind")
    assert done.returncode == 3
    assert not Path("runs/ask-people/report.json").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "choose the fields to ask about from age, sex, is_new, said"),
        (["age", "--histogram", "1"], "2 to 256 bins"),
        (["age", "--quantiles", "half"], "0.1,0.5,0.9"),
        (["age", "--quantiles", "2"], "between 0 and 1"),
        (["said", "--type", "said=text", "--mean"], "none of these statistics fits 'said'"),
        (["--cross", "age"], "--cross sex,region"),
        (["said", "--type", "said=number"], "--type said=0:100"),
        (["said"], "give the type of 'said'"),
        (["weight", "--range", "weight=0:1"], "no 'weight'"),
        (["age", "--by", "said", "--type", "said=text"], "slices need a category"),
        (["said", "--type", "said=text", "--vocabulary-size", "9"], "--reference DATA"),
        (["age", "--by", "age"], "slices need a category with public values, and 'age' is not one"),
        (["sex", "--by", "sex"], "--by sex divides the other fields: name one of them"),
        (["--cross", "sex,age", "--by", "sex"], "--by sex divides the other fields: name one of them"),
        (["age", "--type", "aeg=whole"], "--type aeg=whole: people.csv has no field 'aeg', it has age, sex, is_new"),
        (["age", "--type", "aeg=0:9"], "--type aeg=0:9: people.csv has no field 'aeg'"),
        (["age", "--population", ""], "--population must name the clients in the ledger"),
        (["age", "--epsilon", "0"], "--epsilon must be positive"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(table, words, expected):
    done = blindsight("ask", "people.csv", *words, "--client", "who", *TYPES)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_embedded_populations_have_public_ranges_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = blindsight("ask", "tabular", "age", "--by", "sex", "--clients", "30", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "Quantiles of age by sex" in done.stdout


def test_values_that_do_not_fit_are_missing_and_their_rows_stay(table):
    fields = {name: read_field(kind) for name, kind in zip(("age", "sex", "is_new", "said"), (
        "whole:0:100", "category:f,m", "truth", "text"), strict=True)}  # fmt: skip
    found = private_table(table, fields=fields, client="who", gaps=fields)
    assert found.sizes.tolist() == [2, 2, 1]
    assert [None if value != value else value for value in found.columns["age"].tolist()] == [30, None, 41, None, 99]
    assert found.columns["sex"].tolist() == [0, 0, 1, -2, 1]  # a value that is not listed, and is not missing
    assert found.columns["is_new"].tolist() == [1, 0, 1, -1, 0]
    assert found.columns["said"].tolist()[:4] == ["hello there", "", "hello", "well"]
    kept = private_table(table, fields=fields, client="who")
    assert kept.sizes.tolist()[1] == 1  # as before, a row that does not fit is left out
    table.write_text("\n".join([*ROWS[:2], ""]), encoding="utf-8")  # all fits, and types are the same
    fitting = private_table(table, fields=fields, client="who", gaps=fields)
    assert {name: column.dtype for name, column in fitting.columns.items()} == {
        name: column.dtype for name, column in found.columns.items()
    }
