"""Whatever one client's rows hold, an inspection of a table says the same words and releases the same coordinates.

Every question is asked of two populations that differ in the rows of one client. What is released is put in place of
what was measured, so that no difference comes from noise or from sums: all that leaves (exit code, message, terminal,
JSON, files of the run less what is marked `simulation_only`) has to be equal.
"""

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from odd_rows import STRANGE, TOGETHER, USUAL, public, released, rows, write
from typer.testing import CliRunner

from blindsight import cli, keys
from blindsight.algorithms import moments
from blindsight.mechanisms.gaussian import GaussianMechanism

NUMBERS = ["--input", "age", "--input", "income", "--range", "age=0:100", "--range", "income=0:5000"]
PUBLIC = ["--reference", "public.csv"]
REGION = ["--by", "region", "--value", "north", "--value", "south"]
QUESTIONS: dict[str, list[str]] = {
    "sanity": ["sanity", *NUMBERS, *PUBLIC],
    "sanity alone": ["sanity", *NUMBERS, "--type", "age=whole"],
    "sanity by its ranges": ["sanity", *NUMBERS],
    "mistakes": ["mistakes", *NUMBERS, *PUBLIC, "--minimum", "1"],
    "slices": ["slices", *NUMBERS, *PUBLIC, *REGION],
    "slices by accuracy": ["slices", *NUMBERS, *PUBLIC],
    "labelling": ["labelling", *NUMBERS, *PUBLIC, "--samples", "4"],
    "bias": ["bias", "--input", "age", "--range", "age=0:100", *PUBLIC, *REGION],
    "bias of text": ["bias", "--input", "text", *PUBLIC],
    "unknowns": ["unknowns", "--side", "version", "--value", "old", "--value", "new", "--vocabulary", "words.txt"],
}


def ask(folder: Path, question: str, odd: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All that leaves when that question is asked of a population in which one client has these rows."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    write(folder / "people.csv", [*rows(0, "c", 7), USUAL, *odd, *rows(1, "d", 40)])
    write(folder / "public.csv", rows(2, "p", 60))
    (folder / "words.txt").write_text("we\nhave\na\ncat\nand\nthe\ndog\nis\n", encoding="utf-8")
    task, *options = QUESTIONS[question]
    asked = ["inspect", task, "people.csv", "--client", "who", *options, "--out", "run"]
    asked += ["--ledger", str(folder / "ledger.db")]
    done = CliRunner().invoke(cli.app, [*asked, "--json"])
    found: dict[str, Any] = {"code": done.exit_code, "message": repr(done.exception)}
    found["stderr"] = done.stderr.replace(str(folder), "")
    found["json"] = public(json.loads(done.stdout)) if done.stdout else None
    for path in sorted((folder / "run").rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".json":
            found[name] = public(json.loads(path.read_text()))
        elif path.suffix == ".html":
            found[name] = re.sub(r"\d{4}-\d\d-\d\d\S*( \d\d:\d\d)?", "", path.read_text())
        else:
            found[name] = path.is_dir()
    return found


@pytest.fixture(autouse=True)
def without_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "fit", functools.partial(moments.fit, steps=0))
    monkeypatch.setattr(GaussianMechanism, "release", released)
    monkeypatch.setattr(keys, "root", lambda: keys.reproducible(1))
    monkeypatch.setattr(keys.Key, "bound_to", lambda self, _: self)  # a secret root is bound to nothing either


def compare(tmp_path: Path, question: str, strange: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ask(tmp_path / "usual", question, [USUAL], monkeypatch)
    assert usual["code"] == 0, usual["message"]
    for number, (name, lines) in enumerate(strange.items()):
        odd = ask(tmp_path / f"odd{number}", question, lines, monkeypatch)
        for file, said in usual.items():
            assert odd.get(file) == said, (name, file)
        assert set(odd) == set(usual), name


@pytest.mark.parametrize("question", ["sanity", "mistakes", "slices", "labelling", "bias", "unknowns"])
def test_one_clients_rows_change_nothing_that_is_said(tmp_path, question, monkeypatch):
    compare(tmp_path, question, {"everything strange together": TOGETHER}, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_kind_of_row_changes_anything_that_is_said(tmp_path, question, monkeypatch):
    compare(tmp_path, question, STRANGE, monkeypatch)
