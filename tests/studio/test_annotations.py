"""Labels from Label Studio, in full and in short, and back."""

import json
from typing import Any

import pytest

from blindsight.errors import InvalidInput
from blindsight.studio.annotations import export_annotations, import_annotations
from blindsight.studio.labels import Decision, Labels


def choice(*names: str) -> list[dict]:
    return [{"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": list(names)}}]


def task(number: int, *annotations: Any, **data: str | None) -> dict:
    about = {"image": "data:image/png;base64,x", "sample_id": f"everyone/{number:05d}"} | data
    return {"id": 7, "data": about, "annotations": list(annotations), "predictions": []}


def written(tmp_path, value, made) -> str:
    """A file about this set; tasks that name another, or none, stay as they are."""
    for one in value if isinstance(value, list) else []:
        if isinstance(one, dict):
            one.get("data", one).setdefault("set", made.identity)
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(value))
    return str(path)


def test_a_full_export_is_taken_over(make_set, tmp_path):
    labels = Labels(make_set())
    anna, by_number = {"id": 1, "email": "anna@example.org"}, 2
    tasks = [
        task(0, {"completed_by": anna, "result": choice("cat"), "lead_time": 4.288, "created_at": "2026-01-01"}),
        task(1, {"completed_by": by_number, "result": choice("dog"), "was_cancelled": False}),
        task(2, {"completed_by": by_number, "result": [], "was_cancelled": True}),
        task(3),
    ]
    assert import_annotations(labels, written(tmp_path, tasks, labels.dataset)) == 3
    again = Labels(labels.dataset)
    assert again.standing("anna@example.org")["everyone/00000"].seconds == 4.288
    assert {name: one.label for name, one in again.standing("label studio 2").items()} == {
        "everyone/00001": "dog",
        "everyone/00002": None,
    }
    assert import_annotations(again, written(tmp_path, tasks, labels.dataset)) == 0  # they are there already


def test_the_short_form_is_taken_over(make_set, tmp_path):
    labels = Labels(make_set())
    short = {"image": "x", "id": 1, "annotator": 5, "annotation_id": 9, "lead_time": 2.5, "created_at": "2026-01-01"}
    rows = [
        {**short, "sample_id": "everyone/00004", "label": "owl"},
        {**short, "sample_id": "everyone/00005", "label": {"choices": ["cat"]}},
        {**short, "sample_id": "everyone/00006"},  # nobody has labelled it
    ]
    assert import_annotations(labels, written(tmp_path, rows, labels.dataset)) == 2
    assert [one.label for one in labels.standing("label studio 5").values()] == ["owl", "cat"]


def test_what_is_exported_can_be_imported_elsewhere(make_set, tmp_path):
    labels = Labels(make_set())
    said = [("everyone/00000", "anna", "cat"), ("everyone/00001", "anna", None), ("everyone/00000", "ben", "owl")]
    labels.add([Decision(sample, rater, label, 1.25, "2026-01-01") for sample, rater, label in said])
    path = export_annotations(labels, tmp_path / "tasks.json")
    tasks = json.loads(path.read_text())
    assert len(tasks) == 12
    assert tasks[0]["data"]["image"].startswith("data:image/png;base64,")
    assert tasks[0]["predictions"][0]["score"] == 0.5
    (labels.dataset.folder / "labels.jsonl").unlink()
    empty = Labels(labels.dataset)
    assert import_annotations(empty, path) == 3
    for rater in ("anna", "ben"):
        assert empty.standing(rater) == labels.standing(rater)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([task(99, {"result": choice("cat")})], "not a sample of"),
        ([task(1, {"result": choice("cow")})], "'cow' is not one of the classes"),
        ([task(1, {"result": choice("cat", "dog")})], "has 2 labels"),
        ([task(1, {"result": choice("cat")}, set="another")], "does not belong to"),
        ([task(1, {"result": choice("cat")}, set=None)], "does not name its set"),
        ([task(1, "hello")], "an invalid annotation"),
        ([task(1)], "has no annotations"),
        ({"tasks": []}, "not a Label Studio export"),
        ([1], "not a Label Studio export"),
        ([{"image": "x", "label": "cat"}], "not a sample of"),
    ],
)
def test_what_is_not_of_this_set_is_refused_as_a_whole(make_set, tmp_path, value, words):
    labels = Labels(make_set())
    good = [task(0, {"result": choice("cat")})] if words != "has no annotations" else []
    path = written(tmp_path, good + value if isinstance(value, list) else value, labels.dataset)
    with pytest.raises(InvalidInput, match=words) as refusal:
        import_annotations(labels, path)
    assert "\n" not in str(refusal.value)
    assert not (labels.dataset.folder / "labels.jsonl").exists()


def test_files_that_are_none_are_refused(make_set, tmp_path):
    labels = Labels(make_set())
    with pytest.raises(InvalidInput, match="cannot read"):
        import_annotations(labels, tmp_path / "nowhere.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InvalidInput, match="is not JSON"):
        import_annotations(labels, tmp_path / "bad.json")
