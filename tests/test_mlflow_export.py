"""What a run tells MLflow: what its guarantee covers or what is marked, in a real tracking folder; nothing else."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from command import run as command

from blindsight import jobs, runs
from blindsight.accounting.events import NonPrivate
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.jobs.mlflow_export import COVERED, exportable

mlflow = pytest.importorskip("mlflow")

PROMISE = Guarantee(epsilon=3.25, delta=1e-6, accountant="PLD", participation="full: all 200", releases=2)
SECRET = "5ecret"


@pytest.fixture
def trained(tmp_path: Path) -> runs.Run:
    """A run's folder with everything that one can hold, a secret in each file that must stay."""
    settings = {
        "name": "keyboard",
        "seed": SECRET,
        "data": {"population": "forum", "options": {"seed": SECRET, "clients": 300}},
        "privacy": {"clip": 0.5, "epsilon": None},
        "simulation_only": {"data": SECRET},
    }
    run = runs.begin(tmp_path / "keyboard", "keyboard", settings)
    run.write("guarantee.json", PROMISE.to_dict())
    for number in (1, 2):
        marked = {"clients": 50 + number, "seconds": 0.5}
        run.append("metrics.jsonl", {"round": number, "clip": 0.9 / number, "simulation_only": marked})
    run.write("result.json", {"rounds": 2, "simulation_only": {"accuracy": 0.83}})
    run.write("report.json", {"task": "slices", "verdict": "fine", "outcome": "nothing", "findings": []})
    (run.path / "report.html").write_text("<p>fine</p>")
    for folder in ("samples", "secret", "rounds"):
        (run.path / folder).mkdir()
    (run.path / "samples" / "samples.parquet").write_bytes(b"PAR1")
    for file in (
        "secret/counts.json",
        "rounds/1.json",
        "samples/labels.jsonl",
        "checkpoint-1.safetensors",
        "seed.json",
    ):
        (run.path / file).write_text(SECRET)
    return run


def test_a_run_tells_settings_rounds_guarantee_and_reports(trained, tmp_path):
    uri = (tmp_path / "mlruns").as_uri()
    logged = jobs.run_mlflow_export(trained.path, uri, experiment="phones")
    client = mlflow.MlflowClient(tracking_uri=uri)
    stored = client.get_run(logged.mlflow_run)
    assert stored.info.status == "FINISHED"
    assert stored.data.params == {
        "name": "keyboard",
        "data.population": "forum",
        "data.options.clients": "300",
        "privacy.clip": "0.5",
    }
    assert stored.data.metrics["epsilon"] == 3.25
    assert stored.data.metrics["simulation_only.final.accuracy"] == 0.83
    rounds = client.get_metric_history(logged.mlflow_run, "clip")
    assert [(one.step, one.value) for one in rounds] == [(1, 0.9), (2, 0.45)]
    assert [one.value for one in client.get_metric_history(logged.mlflow_run, "simulation_only.clients")] == [51, 52]
    assert stored.data.tags["guarantee"] == str(PROMISE)
    assert stored.data.tags["verdict"] == "fine"
    assert sorted(one.path for one in client.list_artifacts(logged.mlflow_run)) == [
        "guarantee.json",
        "report.html",
        "report.json",
        "samples",
    ]
    assert [one.path for one in client.list_artifacts(logged.mlflow_run, "samples")] == ["samples/samples.parquet"]


def test_nothing_secret_leaves(trained, tmp_path):
    jobs.run_mlflow_export(trained.path, (tmp_path / "mlruns").as_uri())
    written = [path for path in (tmp_path / "mlruns").rglob("*") if path.is_file()]
    assert len(written) > 20
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]


def test_every_number_is_covered_or_marked(trained):
    """The released clip and the guarantee itself are covered; everything else must say that it is not."""
    plain = {name for name, _, _ in exportable(trained.path).metrics if not name.startswith("simulation_only.")}
    assert plain == {"epsilon", "delta", "clip", "findings.tests", "findings.detected"}


def test_without_privacy_every_number_is_marked_and_no_file_goes(trained):
    trained.write("guarantee.json", certify(NonPrivate(), delta=1e-6).to_dict())
    exported = exportable(trained.path)
    assert exported.artifacts == ()
    assert exported.metrics
    assert all(name.startswith("simulation_only.") and math.isfinite(value) for name, value, _ in exported.metrics)
    assert exported.tags["guarantee.epsilon"] == "inf"
    assert "verdict" not in exported.tags


def test_files_are_named_one_by_one():
    assert not [
        file for file in COVERED if any(word in file for word in ("secret", "round", "seed", "label", "run.json"))
    ]


def test_a_run_is_exported_once(trained, tmp_path):
    uri = (tmp_path / "mlruns").as_uri()
    first = jobs.run_mlflow_export(trained.path, uri)
    with pytest.raises(InvalidInput, match=f"has this run already, as {first.mlflow_run}"):
        jobs.run_mlflow_export(trained.path, uri)
    assert jobs.run_mlflow_export(trained.path, uri, experiment="again").mlflow_run != first.mlflow_run


def test_an_export_that_breaks_off_is_not_finished(trained, tmp_path, monkeypatch):
    uri = (tmp_path / "mlruns").as_uri()

    def full(*args: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(mlflow.MlflowClient, "log_artifact", full)
    with pytest.raises(BlindsightError, match="no space left on device"):
        jobs.run_mlflow_export(trained.path, uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    place = client.get_experiment_by_name("blindsight").experiment_id
    assert [one.info.status for one in client.search_runs([place])] == ["FAILED"]


@pytest.mark.parametrize(
    ("uri", "words"),
    [("sqlite:///x.db", "start mlflow server"), ("http://127.0.0.1:9", "MLflow at"), ("x", "takes the")],
)
def test_bad_addresses_are_one_sentence(trained, uri, words):
    with pytest.raises(BlindsightError, match=words) as error:
        jobs.run_mlflow_export(trained.path, uri)
    assert "\n" not in str(error.value)


def test_a_run_that_has_released_nothing_is_refused(tmp_path):
    runs.begin(tmp_path / "new", "new", {})
    with pytest.raises(InvalidInput, match="has released nothing yet"):
        exportable(tmp_path / "new")


def test_the_command_exports_and_lists(trained, tmp_path):
    done = command("runs", "export", str(trained.path), "--mlflow", (tmp_path / "mlruns").as_uri(), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["artifacts"][0] == "guarantee.json"
    runs.begin(tmp_path / "begun", "begun", {})
    listed = command("runs", "list", str(tmp_path), "--json")
    assert [(one["name"], one["epsilon"], one["delta"]) for one in json.loads(listed.stdout)] == [
        ("keyboard", "3.25", "1e-06"),
        ("begun", "", ""),
    ]
    assert "keyboard" in command("runs", "list", str(tmp_path)).stdout
    assert "there is no folder" in command("runs", "list", str(tmp_path / "nowhere")).stderr
