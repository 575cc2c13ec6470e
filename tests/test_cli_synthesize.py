"""`blindsight synthesize` as a new user would try it, wrong input included."""

import json
from pathlib import Path

import pytest
from command import run as blindsight

from blindsight.accounting.ledger import Ledger

ROWS = ["who,age,sex,left,said", *(f"{who},{20 + who},{'fm'[who % 2]},{'yn'[who % 3 == 0]},hi" for who in range(40))]
TYPES = ["--client", "who", "--type", "age=whole:0:100", "--type", "sex=category:f,m", "--type", "left=category:y,n"]


@pytest.fixture
def table(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "people.csv"
    path.write_text("\n".join([*ROWS, ""]), encoding="utf-8")
    return path


def test_rows_of_a_table_are_written_and_paid_for(table):
    done = blindsight("synthesize", "people.csv", *TYPES, "--label", "left", "--rows", "30", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "little but noise" in " ".join(done.stdout.split())
    lines = Path("run/rows.csv").read_text().splitlines()
    assert lines[0].replace('"', "") == "age,sex,left"
    assert len(lines) == 31
    assert 0.99 < Ledger().spent("people", delta=1e-6).epsilon <= 1.0
    assert "Sample rows" in Path("run/report.html").read_text()
    again = blindsight("synthesize", "people.csv", *TYPES, "--label", "left", "--rows", "5", "--out", "run", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["answer"] == "5 synthetic rows with 3 fields."
    assert Ledger().spent("people", delta=1e-6).epsilon <= 1.0


def test_a_dry_run_leaves_no_trace(table):
    done = blindsight("synthesize", "people.csv", "age", "sex", *TYPES, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "noise of standard deviation" in " ".join(done.stdout.split())
    assert sorted(path.name for path in table.parent.iterdir()) == ["people.csv"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["age", *TYPES], "2 to 40 fields"),
        (["age", "said", *TYPES, "--type", "said=text"], "rows can have numbers and categories"),
        (["age", "height", *TYPES], "no field 'height'"),
        (["age", "sex", *TYPES, "--label", "gone"], "'gone'"),
        (["age", "sex", *TYPES, "--epsilon", "0"], "--epsilon must be positive"),
        (["--client", "who"], "choose the fields of a row from age, sex, left, said"),
    ],
)
def test_what_cannot_be_synthesised_is_refused_in_one_sentence(table, words, expected):
    done = blindsight("synthesize", "people.csv", *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
