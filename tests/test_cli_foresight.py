"""Ask before paying: dry runs, refusals before a model is trained, and plans on one's own public data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run as blindsight

from blindsight.accounting.ledger import Ledger
from blindsight.jobs import models

COLUMNS = ["--client", "who", "--input", "a", "--input", "b", "--type", "a=-1:3", "--type", "b=-1:3"]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two tables of numbers with a class that they decide, by client."""
    monkeypatch.chdir(tmp_path)
    dice = np.random.default_rng(0)
    for name, clients in (("people", 200), ("two", 2), ("public", 80)):
        rows = ["who,a,b,label"]
        for client in range(clients):
            for kind in dice.integers(2, size=6):
                a, b = dice.normal(2.0 * kind, 0.3), dice.normal(1.0, 0.5)
                rows.append(f"{name}{client},{a:.3f},{b:.3f},{('low', 'high')[kind]}")
        Path(f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("a model was trained")


@pytest.mark.parametrize(
    ("suspect", "words"),
    [
        ("nonsense", "there is no fault 'nonsense'"),
        ("blur", "blur cannot be undone"),
        ("unit_change:field=c", "is about 'c': choose a field from a, b"),
    ],
)
def test_a_bad_suspect_is_refused_before_a_model_is_trained(tables, monkeypatch, suspect, words):
    untrained = models.public_model

    def watched(*about: Any, is_trained: bool = True) -> Any:
        return never() if is_trained else untrained(*about, is_trained=False)

    monkeypatch.setattr("blindsight.jobs.inspect.public_model", watched)
    for task in ("sanity", "mistakes"):
        done = blindsight("inspect", task, "people.csv", *COLUMNS, "--reference", "public.csv", "--suspect", suspect)
        assert done.returncode == 2
        assert words in done.stderr
    assert sorted(path.name for path in tables.iterdir()) == ["people.csv", "public.csv", "two.csv"]


def test_a_dry_run_says_what_could_be_found_and_leaves_nothing(tables):
    done = blindsight("inspect", "sanity", "people.csv", *COLUMNS, "--reference", "public.csv", "--dry-run", "--json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    faults = {one["fault"]: one for one in report["detection"]["limits"]}
    assert "a and b swapped" in faults
    assert "b moved by one standard deviation" in faults
    assert max(one["power"]["1"] for name, one in faults.items() if "field=b" in name) > 0.9
    assert report["detection"]["no_range"] == []
    assert report["ledger"][0]["after"] == pytest.approx(8.0, abs=0.05)
    assert "is detected with 90 % power" in report["answer"]
    assert sorted(path.name for path in tables.iterdir()) == ["people.csv", "public.csv", "two.csv"]


def test_two_clients_are_refused_with_exit_code_2_and_pay_nothing(tables):
    about = ["inspect", "sanity", "two.csv", *COLUMNS, "--reference", "public.csv", "--ledger", "l.db", "--out", "run"]
    done = blindsight(*about)
    assert done.returncode == 2
    assert "2 clients at epsilon 8 cannot give an answer" in done.stderr
    assert "--even-if-blind" in done.stderr
    assert not Path("run").exists()
    assert blindsight(*about, "--even-if-blind").returncode == 0
    assert len(Ledger("l.db").entries("two")) > 0
    asked = blindsight("ask", "two.csv", "a", "--client", "who", "--range", "a=0:1", "--epsilon", "0.5", "--out", "ask")
    assert asked.returncode == 2
    assert "--even-if-blind" in asked.stderr


def test_a_plan_uses_ones_own_public_data(tables):
    about = ["plan", "--population", "300", "--epsilon", "8", "--delta", "1e-6", *COLUMNS, "--reference", "public.csv"]
    told = json.loads(blindsight(*about, "--detect", "missing_fill:field=b", "--fraction", "0.5", "--json").stdout)
    chances = {one["task"]: one for one in told["chances"]}
    assert chances["sanity"]["power"] > 0.9
    assert chances["sanity"]["smallest"] < 0.5
    assert told["is_visible"]
    printed = blindsight(*about, "--detect", "unit_change:field=b:factor=1.02", "--fraction", "0.01").stdout
    assert "300 clients do not suffice to detect" in printed
    for words, *bad in (
        ("name the fault with --detect", "--cohort", "5"),
        ("can affect", "--detect", "unit_change:field=c"),
        ("with --fraction, not in the fault", "--detect", "missing_fill:0.5:field=b"),
        ("above 0 and at most 1", "--detect", "missing_fill:field=b", "--fraction", "2"),
    ):
        done = blindsight(*about, *bad)
        assert done.returncode == 2
        assert words in done.stderr
    alone = blindsight("plan", "--population", "300", "--epsilon", "8", "--detect", "invert", "--client", "who")
    assert "name them with --reference" in alone.stderr
