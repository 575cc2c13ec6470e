"""Samples as Parquet: every byte as it was, read by `datasets` as pictures, and the guarantee beside them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blindsight.accounting.events import NonPrivate
from blindsight.accounting.guarantee import certify
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.samples import gallery
from blindsight.samples.views import ArmView


def test_every_sample_is_a_row_that_says_what_it_is(report, tmp_path):
    table = pq.read_table(report.save_samples(tmp_path / "samples") / "samples.parquet")
    assert table.column_names == ["sample_id", "latent", "population", "class", "source", "image"]
    assert table.num_rows == 80
    assert set(table["source"].to_pylist()) == {"synthetic"}
    assert table["population"].to_pylist() == ["healthy"] * 40 + ["failing"] * 40
    assert table["class"].to_pylist() == 2 * report.arms[0].labels.tolist()
    assert table["latent"].to_pylist() == 2 * list(range(40))
    assert len(set(table["sample_id"].to_pylist())) == 80
    pictures = [gallery.from_png(image["bytes"]) for image in table["image"].to_pylist()]
    assert np.array_equal(pictures, np.concatenate([arm.samples for arm in report.arms]))


def test_the_guarantee_travels_in_the_file(report, tmp_path):
    metadata = pq.read_schema(report.save_samples(tmp_path) / "samples.parquet").metadata
    about = json.loads(metadata[b"blindsight"])
    assert about["source"] == "synthetic"
    assert about["guarantee"]["epsilon"] == report.guarantee.epsilon


def test_datasets_reads_it_as_pictures_with_classes(report, tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs the package datasets: pip install 'blindsight[hf]'")
    folder = report.save_samples(tmp_path / "samples")
    loaded = datasets.load_dataset(
        "parquet", data_files=str(folder / "samples.parquet"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert isinstance(loaded.features["image"], datasets.Image)
    assert loaded.features["class"].names == list("0123456789")
    assert np.array_equal(np.asarray(loaded[41]["image"]), report.arms[1].samples[1])
    by_card = datasets.load_dataset(str(folder), split="train", cache_dir=str(tmp_path / "cache"))
    assert by_card.num_rows == 80


def test_the_card_states_unit_epsilon_and_delta(report, tmp_path):
    card = (report.save_samples(tmp_path) / "README.md").read_text()
    assert card.startswith("---\n")
    for line in ("| epsilon | 2.255 |", "| delta | 1e-06 |", "| unit | client |", "| neighbours | add or remove one |"):
        assert line in card
    assert "80 **synthetic** samples" in card
    for assumption in report.guarantee.assumptions:
        assert f"- {assumption}" in card.replace("\\", "")


def test_a_card_without_a_guarantee_claims_none(make_report, tmp_path):
    card = (make_report(guarantee=certify(NonPrivate(), delta=1e-6)).save_samples(tmp_path) / "README.md").read_text()
    assert "| epsilon | inf |" in card
    assert "There is no privacy guarantee" in card
    assert "keep this guarantee" not in card


def test_hostile_names_stay_words_on_the_card(make_hostile, tmp_path):
    card = (make_hostile("---\n# <b>x</b> | [y](z)").save_samples(tmp_path) / "README.md").read_text()
    assert card.count("\n---\n") == 1
    body = card.split("\n---\n")[1]
    assert "<b>" not in body
    assert "](z)" not in body.replace("\\](z)", "")
    assert body.count("\n#") == 0


def test_rows_keep_their_columns_also_where_names_clash(make_report, tmp_path):
    rows = {
        "class": np.array(["x", "y"]),
        "source": np.array([1, 2], np.int32),
        "income": np.array([1.5, np.nan], np.float32),
        "member": np.array([True, False]),
    }
    report = make_report(arms=(ArmView("all", rows=rows),))
    table = pq.read_table(report.save_samples(tmp_path) / "samples.parquet")
    assert table["class_"].to_pylist() == ["x", "y"]
    assert table["source_"].to_pylist() == [1, 2]
    assert table["source"].to_pylist() == ["synthetic"] * 2
    assert table.schema.field("income").type == pa.float32()
    datasets = pytest.importorskip("datasets", reason="needs the package datasets: pip install 'blindsight[hf]'")
    loaded = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "samples.parquet"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert loaded[0]["member"] is True
    assert loaded[0]["income"] == 1.5


def test_arms_of_different_kinds_go_into_one_table(make_report, tmp_path):
    arms = (ArmView("pictures", samples=np.zeros((2, 4, 4), np.uint8)), ArmView("rows", rows={"age": np.array([40])}))
    table = pq.read_table(make_report(arms=arms).save_samples(tmp_path) / "samples.parquet")
    assert table["age"].to_pylist() == [None, None, 40]
    assert table["image"].to_pylist()[2] is None


def test_without_samples_there_is_nothing_to_save(make_report, tmp_path):
    with pytest.raises(InvalidInput, match="no samples"):
        make_report(arms=(ArmView("all"),)).save_samples(tmp_path)


def test_a_folder_that_cannot_be_written_is_one_sentence(report, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BlindsightError, match="choose another folder"):
        report.save_samples(tmp_path / "file")
