"""Two runs side by side: one control filters findings, samples, curves and parameters of both."""

import json
from pathlib import Path
from urllib.parse import urlencode

import pytest
from studio_runs import enter, inspection, training

from blindsight.studio.web import Workspace

NAMES = ("one", "another")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def compared(folder: Path, names: tuple[str, ...] = NAMES, only: str = "", **asked: str) -> str:
    chosen = [*(("run", name) for name in names), ("class", only), *asked.items()]
    return enter(Workspace(folder=folder)).get(f"/compare?{urlencode(chosen)}").text


def test_two_reports(folder):
    for name in NAMES:
        inspection(folder, name)
    shown = compared(folder)
    assert "white (failing and healthy)" in shown
    assert "+0.33" in shown  # the effect in the first
    assert "+0.37" in shown  # and in the second
    assert shown.count('alt="synthetic sample of failing in one, class cat"') == 2
    assert shown.count("synthetic sample of") == 16
    cats = compared(folder, only="cat")
    assert cats.count("synthetic sample of") == 8
    assert "class dog" not in cats
    assert "white (failing and healthy)" not in compared(folder, words="black")


def test_intervals_that_have_nothing_in_common_are_marked(folder):
    for name in NAMES:
        inspection(folder, name)
    assert 'class="apart"' not in compared(folder)
    report = folder / "one" / "report.json"
    changed = json.loads(report.read_text())
    changed["findings"][0] |= {"effect": -0.5, "low": -0.6, "high": -0.4}
    report.write_text(json.dumps(changed))
    assert 'class="apart"' in compared(folder)
    changed["findings"][0] |= {"effect": "inf", "low": None}
    report.write_text(json.dumps(changed))
    assert "not tested" in compared(folder)


def test_two_trainings(folder):
    training(folder, "one")
    run = training(folder, "another", done=7)
    run.write("run.json", {**run.read("run.json"), "settings": {"model": {"kind": "cnn"}, "privacy": {"rounds": 20}}})
    shown = compared(folder)
    assert "accuracy by round: one 0.865; another 0.503" in shown
    assert shown.count("<polyline") == 6  # accuracy, clients and clip of both
    assert ("model.kind" in shown, "privacy.rounds" in shown) == (True, False)
    assert "not set" in shown  # the clip of the second
    assert "privacy.rounds" in compared(folder, all="1")
    assert compared(folder, words="clip").count("<polyline") == 2


def test_a_run_without_a_report_or_with_a_damaged_one(folder):
    inspection(folder, "one")
    training(folder, "another")
    assert "Parameters that differ" in compared(folder)
    for text in ("[]", "{", "[" * 5000, '{"findings": 3, "arms": [1], "population": [], "guarantee": 2}'):
        (folder / "another" / "report.json").write_text(text)
        assert "Parameters that differ" in compared(folder)


@pytest.mark.parametrize("names", [(), ("one",), ("one", "one"), ("one", "nobody"), ("one", "another", "third")])
def test_it_takes_two(folder, names):
    for name in ("one", "another", "third"):
        training(folder, name, done=1)
    assert "Not here" in compared(folder, names)
