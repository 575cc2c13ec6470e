"""What a shell completes, as it asks for it."""

from pathlib import Path

import pytest
from command import run

from blindsight import runs
from blindsight.cli.completing import complete_data, complete_fault, complete_run


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_populations_and_files():
    Path("hands.csv").write_text("client,x\na,1\n")
    Path("handful").mkdir()
    assert complete_data("hand") == ["handwriting", "handful/", "hands.csv"]
    Path("handful/a.csv").touch()
    assert complete_data("handful/") == ["handful/a.csv"]
    assert complete_data("nowhere/x") == []


def test_faults_and_runs():
    assert complete_fault("inv") == ["invert"]
    for name in ("one", "two"):
        runs.begin(Path("runs") / name, name, {})
    assert sorted(complete_run("runs/")) == sorted(complete_run("")) == ["runs/one", "runs/two"]
    assert complete_run("runs/t") == ["runs/two"]
    assert complete_run("elsewhere/") == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("blindsight inspect slices handw", "handwriting"),
        ("blindsight data describe tab", "tabular"),
        ("blindsight inspect sanity digits --fault rot", "rotate90"),
        ("blindsight audit runs/o", "runs/one"),
        ("blindsight export runs/o", "runs/one"),
    ],
)
def test_a_shell_gets_them(monkeypatch, words, found):
    runs.begin("runs/one", "one", {})
    monkeypatch.setenv("_BLINDSIGHT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert found in run().stdout.split()
