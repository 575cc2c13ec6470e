"""Tables with missing values, categories, text and scikit-learn's models, as a new user would try them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import run as blindsight

from blindsight.data import Population
from blindsight.data.schema import Schema, read_field
from blindsight.errors import InvalidInput
from blindsight.inspection.question import complete
from blindsight.jobs import inspect as jobs_inspect
from blindsight.models.primary import primary
from blindsight.selection import observe

SKLEARN = Path(__file__).parent / "models" / "sklearn"
REGIONS = np.array(["north", "south", "other"], object)


def people(seed: int, clients: int, missing: float, unlisted: float) -> dict[str, Any]:
    """Columns of rows of which some values are missing, and some regions on no list."""
    dice = np.random.default_rng(seed)
    rows = 6 * clients
    age = dice.integers(20, 90, rows).astype(object)
    region = np.where(dice.random(rows) < unlisted, "atlantis", dice.choice(REGIONS, rows))
    note = np.array([" ".join(dice.choice(["we", "have", "a", "cat", "now"], 6)) for _ in range(rows)], object)
    for column in (age, region, note):
        column[dice.random(rows) < missing] = None
    return {"who": np.repeat([f"c{seed}-{n}" for n in range(clients)], 6), "age": age, "region": region, "note": note}


def write(path: Path, columns: dict[str, Any]) -> None:
    table = pa.table({name: pa.array(list(column)) for name, column in columns.items()})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    lines = [",".join("" if cell is None else str(cell) for cell in row.values()) for row in table.to_pylist()]
    path.write_text("\n".join([",".join(columns), *lines, ""]), encoding="utf-8")


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("suffix", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_missing_and_unlisted_values_are_findings(here, suffix):
    write(here / f"people.{suffix}", people(1, 150, 0.25, 0.2))
    write(here / f"public.{suffix}", people(2, 150, 0.02, 0.0))
    inputs = [word for field in ("age", "region", "note") for word in ("--input", field)]
    asked = ["inspect", "sanity", f"people.{suffix}", "--client", "who", "--reference", f"public.{suffix}", *inputs]
    done = blindsight(*asked, "--epsilon", "50", "--ledger", "ledger.db", "--out", "run", "--json")
    assert done.returncode == 0, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"] if one["verdict"] == "detected"}
    assert set(found) >= {"age: missing", "region: missing", "note: missing", "region: unlisted"}
    assert 0.1 < found["age: missing"]["effect"] < 0.4
    words = "region in everyone is not on the public list"
    assert words in found["region: unlisted"]["statement"]
    assert found["region: unlisted"]["effect"] == pytest.approx(0.2, abs=0.08)
    assert "atlantis" not in (here / "run" / "report.json").read_text(encoding="utf-8")


def sums(gaps: float, seed: int = 0, **renamed: str) -> dict[str, Any]:
    """What scikit-learn's models in the folder were trained on, under the names of their classes."""
    dice = np.random.default_rng(seed)
    x = dice.normal(size=(240, 2)).round(3)
    names = np.array(["low", "middle", "high"])[np.digitize(x.sum(axis=1), [-1, 1])]
    label = [renamed.get(name, name) for name in names]
    x = x.astype(object)
    x[dice.random(x.shape) < gaps] = None
    return {
        "who": [f"c{seed}-{n // 4}" for n in range(240)],
        "x": x[:, 0],
        "y": x[:, 1],
        "label": np.array(label, object),
    }


@pytest.mark.parametrize(
    ("model", "names"),
    [("logistic-zipmap", {}), ("perceptron-tensor", {}), ("forest-numbers", {"low": "3", "middle": "5", "high": "9"})],
)
@pytest.mark.parametrize("has_reference", [True, False])
def test_labels_of_any_kind_are_the_classes_that_a_model_names(here, monkeypatch, model, names, has_reference):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    write(here / "people.csv", sums(0.05, **names))
    write(here / "public.csv", sums(0.05, seed=1, **names))
    seen: list[tuple[Population, dict[str, Any]]] = []
    monkeypatch.setattr(jobs_inspect, "mistakes", lambda clients, **asked: seen.append((clients, asked)))
    reference = ["--reference", "public.csv"] if has_reference else []
    request = jobs_inspect.MistakesRequest(
        data="people.csv",
        client="who",
        inputs=["x", "y"],
        ranges=["x=-4:4", "y=-4:4"],
        model=SKLEARN / f"{model}.onnx",
        reference=reference[1] if reference else None,
    )
    jobs_inspect.run_mistakes(request)
    ((clients, asked),) = seen
    assert clients.n_examples == 240  # rows with a missing input stay
    assert np.isnan(clients.columns["x"]).any()
    whole = clients.keep(np.isfinite(clients.columns["x"]) & np.isfinite(clients.columns["y"]))
    judged = observe(whole, asked["model"], inputs=("x", "y"))
    assert judged.columns["is_correct"].mean() > 0.8


def test_what_a_model_reads_for_a_missing_value_is_public():
    reference = Population({"x": np.array([1.0, 2.0, 30.0, np.nan])}, sizes=[4], name="public")
    model = primary(lambda rows: np.zeros((len(rows), 2)))
    for values in ([5.0, np.nan], [np.nan, np.nan], [1e9, -1e9]):
        clients = Population({"x": np.array(values)}, sizes=[2], name="people")
        assert complete(None, clients, ("x",), model=model, reference=reference).fields["x"].fill == 2.0
        ranged = Schema({"x": read_field("number:0:10")})
        assert complete(ranged, clients, ("x",), model=model).fields["x"].fill == 5.0


def test_known_words_come_from_public_data_with_the_same_client_column(here):
    write(here / "people.csv", people(1, 30, 0.1, 0.0))
    write(here / "public.csv", people(2, 30, 0.1, 0.0))
    asked = ["inspect", "unknowns", "people.csv", "--client", "who", "--reference", "public.csv"]
    asked += ["--side", "region", "--value", "north", "--value", "south", "--dry-run", "--ledger", "ledger.db"]
    done = blindsight(*asked, "--input", "note")
    assert done.returncode == 0, done.stderr
    assert "vocabulary of 5 words" in done.stdout
    for field, words in (("region", "holds single words"), ("age", "no text field 'age'")):
        done = blindsight(*asked, "--input", field)
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_column_of_numbers_can_be_read_as_text_on_both_sides(here):
    """The public file would guess numbers, whose cues are others: it ended in a traceback."""
    for name, seed in (("people", 1), ("public", 2)):
        write(here / f"{name}.csv", people(seed, 30, 0.1, 0.0) | {"pay": np.array(["12.5", "inf", "7"] * 60, object)})
    asked = ["inspect", "sanity", "people.csv", "--client", "who", "--reference", "public.csv", "--dry-run"]
    asked += ["--input", "age", "--input", "pay", "--ledger", "ledger.db"]
    refused = blindsight(*asked)
    assert refused.returncode == 2
    assert "--type pay=text" in refused.stderr
    assert blindsight(*asked, "--type", "pay=text").returncode == 0


def test_a_reference_with_values_of_another_kind_is_refused(here):
    for name, seed in (("people", 1), ("public", 2)):
        write(here / f"{name}.parquet", people(seed, 30, 0.1, 0.0))
    asked = ["inspect", "sanity", "people.parquet", "--client", "who", "--reference", "public.parquet", "--dry-run"]
    done = blindsight(*asked, "--input", "age", "--input", "note", "--type", "age=text", "--ledger", "ledger.db")
    assert done.returncode == 2
    assert "values of another kind in age" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model-range", "0-1"], "--model-range 0:1, 0:255 or -1:1, got '0-1'"),
        (["--model-range", "1:0"], "got '1:0'"),
        (["--model-layout", "HWN"], "invalid value for '--model-layout'"),
        (["--type", "label=category:a,b"], "knows the classes high, low, middle, and the data have 'a'"),
    ],
)
def test_a_model_that_cannot_be_read_like_that_is_refused(here, options, words):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    write(here / "people.csv", sums(0.0))
    asked = ["inspect", "mistakes", "people.csv", "--client", "who", "--input", "x", "--input", "y"]
    done = blindsight(*asked, "--model", str(SKLEARN / "logistic-zipmap.onnx"), *options, "--ledger", "ledger.db")
    assert done.returncode == 2
    assert words in done.stderr


def test_a_run_needs_no_range_of_its_model(tmp_path):
    from blindsight.jobs.models import read_model

    with pytest.raises(InvalidInput, match="--model-layout are for ONNX files"):
        read_model(tmp_path, layout="NCHW")
