"""The demonstration: what it says is true of what it leaves, and the fault that it plants is the one it names."""

import io
import json

import lighter
import pytest
from rich.console import Console

from blindsight import runs
from blindsight.accounting.ledger import Ledger
from blindsight.demo import DELTA, EPSILON, demo
from blindsight.inspection import Report


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The demonstration with fewer phones and characters, and generators fitted in a few steps."""
    folder = tmp_path_factory.mktemp("runs")
    console = Console(width=100, record=True, color_system=None, file=io.StringIO())
    steps: list[str] = []
    with lighter.optimised(), lighter.few_steps(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("blindsight.demo.EXAMPLES", (8, 16))
        for part in demo(folder=folder, clients=400, progress=lambda doing, done, total: steps.append(doing)):
            console.print(part)
    return console.export_text(), runs.find(folder)[0], steps


@pytest.mark.slow
def test_it_finds_the_fault_that_it_planted(shown):
    text, run, steps = shown
    report = Report.from_dict(json.loads((run.path / "report.json").read_text()))
    named = {found.arm: found for found in report.diagnoses}
    assert named["failing"].fault == "invert"  # whatever the noise, which nobody fixes here
    assert named["failing"].share > 0.8
    for words in ("simulation_only", "invert, ", f"({EPSILON:.3f}, 1e-06)-DP per client", "Next steps.", "report.html"):
        assert words in text, words
    assert len(set(steps)) >= 4


@pytest.mark.slow
def test_it_spends_the_budget_and_no_more(shown):
    _, run, _ = shown
    ledger = Ledger(run.path / "ledger.db")
    assert [entry.kind for entry in ledger.entries()] == ["budget", "release"]
    assert 0.99 * EPSILON <= ledger.spent("phones").epsilon <= EPSILON
    assert ledger.spent("phones").delta == DELTA


@pytest.mark.slow
def test_nothing_it_leaves_was_read_off_data_without_noise(shown):
    _, run, _ = shown
    for path in run.path.rglob("*.json"):
        kept = json.loads(path.read_text())
        if path.name == "run.json":  # the fingerprint that decides whether releases may be read again, by its mark
            assert list(kept["settings"].pop("simulation_only")) == ["data"]
        assert "simulation_only" not in json.dumps(kept)
