"""Synthetic sets as they lie on disk: what was written is read again, and what is none is refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blindsight.errors import InvalidInput
from blindsight.samples import gallery
from blindsight.samples.synthetic_set import read_set


def test_images_come_back_with_their_guarantee_and_labels(make_set):
    made = make_set(count=5)
    assert made.guarantee.epsilon == 2.0
    assert made.classes == ("cat", "dog", "owl")
    assert [sample.own for sample in made.samples] == ["cat", "dog", "owl", "cat", "dog"]
    assert [sample.proposed for sample in made.samples] == ["dog", "owl", "cat", "dog", "owl"]
    assert made.samples[0].score == 0.5
    assert made.proposer == "a model"
    np.testing.assert_array_equal(made.columns["image"][2], gallery.from_png(made.by_id["everyone/00002"].picture))
    assert made.columns["image"].shape == (5, 8, 8)


def test_rows_come_back_and_are_said_in_words(make_set):
    made = make_set("rows", count=4)
    assert set(made.columns) == {"age", "work", "pay"}
    assert made.samples[0].picture is None
    assert made.in_words({"age": 31, "work": 1, "pay": 0.123456}) == {"age": "31", "work": "field", "pay": "0.1235"}
    assert made.in_words({"work": 7, "pay": None}) == {"work": "7", "pay": ""}


def test_a_set_is_found_in_the_folder_of_its_run_and_told_from_others(make_set, tmp_path):
    inside = make_set(folder=tmp_path / "run" / "samples")
    assert read_set(tmp_path / "run").identity == inside.identity
    assert make_set(folder=tmp_path / "other", seed=1).identity != inside.identity
    assert make_set(folder=tmp_path / "again").identity != ""


def test_where_nobody_proposed_a_label_the_generator_did(make_set):
    made = make_set(proposed=False)
    assert made.proposer == "the generator"
    assert all(sample.proposed == sample.own is not None for sample in made.samples)


def test_a_set_without_classes_has_none(make_set):
    made = make_set(classes=(), proposed=False)
    assert made.classes == ()
    assert {sample.own for sample in made.samples} == {None}


def test_what_is_no_synthetic_set_is_refused(make_set, tmp_path):
    with pytest.raises(InvalidInput, match="there is no folder"):
        read_set(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="is not a synthetic set: it has no samples"):
        read_set(tmp_path / "empty")
    path = tmp_path / "empty" / "samples.parquet"
    path.write_bytes(b"not parquet")
    with pytest.raises(InvalidInput, match="states no guarantee"):
        read_set(tmp_path / "empty")
    pq.write_table(pa.table({"sample_id": ["a"]}), path)
    with pytest.raises(InvalidInput, match="states no guarantee"):
        read_set(tmp_path / "empty")


def test_real_examples_cannot_pass_for_synthetic_ones(make_set):
    made = make_set()
    path = made.folder / "samples.parquet"
    table = pq.read_table(path)
    place = table.column_names.index("source")
    pq.write_table(table.set_column(place, "source", pa.array(["real"] * table.num_rows)), path)
    with pytest.raises(InvalidInput, match="not marked synthetic"):
        read_set(made.folder)
