"""What people have said about a set stays said, whatever happens, and never gets mixed up with another set's."""

import json
import os

import pytest

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.studio.labels import Decision, Labels


def said(number: int, label: str | None = "cat", rater: str = "anna", **more) -> Decision:
    return Decision(f"everyone/{number:05d}", rater, label, 1.5, "2026-01-01T00:00:00+00:00", **more)


def test_a_decision_is_one_line_of_the_fixed_format(make_set):
    labels = Labels(make_set())
    labels.add([said(3)])
    (line,) = (labels.dataset.folder / "labels.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "sample_id": "everyone/00003",
        "rater": "anna",
        "label": "cat",
        "seconds": 1.5,
        "at": "2026-01-01T00:00:00+00:00",
        "undone": False,
    }


def test_a_line_is_on_disk_before_add_returns(make_set, monkeypatch):
    labels, synced = Labels(make_set()), []
    labels.add([said(3)])
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.fstat(number).st_size))
    labels.add([said(4)])
    assert synced == [(labels.dataset.folder / "labels.jsonl").stat().st_size]


def test_what_cannot_be_saved_does_not_count(make_set, monkeypatch):
    labels = Labels(make_set())
    labels.add([said(1)])

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BlindsightError, match="No space left"):
        labels.add([said(2)])
    assert list(labels.standing("anna")) == list(Labels(labels.dataset).standing("anna")) == ["everyone/00001"]
    monkeypatch.undo()
    labels.add([said(3)])
    assert list(Labels(labels.dataset).standing("anna")) == ["everyone/00001", "everyone/00003"]


def test_undone_is_a_line_and_nothing_is_rewritten(make_set):
    labels = Labels(make_set())
    path = labels.dataset.folder / "labels.jsonl"
    before = b""
    for one in [said(1), said(2, None), said(2, None, undone=True), said(2, "owl"), said(1, "dog", "ben")]:
        labels.add([one])
        now = path.read_bytes()
        assert now.startswith(before)
        assert now != before
        before = now
    again = Labels(labels.dataset)
    assert {name: one.label for name, one in again.standing("anna").items()} == {
        "everyone/00001": "cat",
        "everyone/00002": "owl",
    }
    assert again.raters == ("anna", "ben")


def test_a_line_that_a_crash_cut_off_is_gone_and_the_next_one_is_whole(make_set):
    labels = Labels(make_set())
    labels.add([said(1), said(2)])
    path = labels.dataset.folder / "labels.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    torn = path.read_bytes()
    again = Labels(labels.dataset)
    assert list(again.standing("anna")) == ["everyone/00001"]
    assert path.read_bytes() == torn  # to look is not to write
    again.add([said(3)])
    assert list(Labels(labels.dataset).standing("anna")) == ["everyone/00001", "everyone/00003"]


def test_labels_of_another_set_are_refused(make_set):
    labels = Labels(make_set())
    labels.add([said(1)])
    with pytest.raises(InvalidInput, match="belong to a set that was overwritten"):
        Labels(make_set(seed=1))  # the same folder, the same ids, other pictures


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"sample_id": "everyone/99999"}, "no sample 'everyone/99999'"),
        ({"label": "cow"}, "'cow' is not one of the classes cat, dog, owl"),
        ({"rater": ""}, "a rater's name"),
        ({"rater": "a\nb"}, "a rater's name"),
        ({"sample_id": 3}, "not a label"),
        ({"seconds": "long"}, "not a label"),
        ({"mood": "good"}, "not a label"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_in_one_sentence(make_set, line, words):
    made = make_set()
    whole = {"sample_id": "everyone/00001", "rater": "anna", "label": "cat", "seconds": 1, "at": "now"} | line
    (made.folder / "labels.jsonl").write_text(json.dumps(whole) + "\n")
    with pytest.raises(InvalidInput, match=words):
        Labels(made)
    (made.folder / "labels.jsonl").write_text("{]\n")
    with pytest.raises(InvalidInput, match="not JSON"):
        Labels(made)


def test_nothing_of_a_bad_batch_is_saved(make_set):
    labels = Labels(make_set())
    with pytest.raises(InvalidInput):
        labels.add([said(1), said(2, "cow")])
    assert not (labels.dataset.folder / "labels.jsonl").exists()


def test_strange_times_are_cut_to_a_day(make_set):
    labels = Labels(make_set())
    times = [float("nan"), float("inf"), -1.0, 1e9]
    labels.add([Decision(f"everyone/{n:05d}", "anna", "cat", seconds, "now") for n, seconds in enumerate(times)])
    assert [one.seconds for one in labels.standing("anna").values()] == [0.0, 0.0, 0.0, 86400.0]


def test_classes_are_the_set_s_unless_named_and_are_remembered(make_set):
    bare = make_set(classes=(), proposed=False)
    with pytest.raises(InvalidInput, match="list them with --classes"):
        Labels(bare)
    for bad in (("yes",), ("yes", "yes"), ("yes", " ")):
        with pytest.raises(InvalidInput, match="two different classes"):
            Labels(bare, bad)
    Labels(bare, ("yes", "no")).add([said(1, "yes")])
    assert Labels(bare).classes == ("yes", "no")
    with pytest.raises(InvalidInput, match="'yes' is not one of the classes"):
        Labels(bare, ("maybe", "no"))


def test_classes_must_hold_what_is_proposed(make_set):
    with pytest.raises(InvalidInput, match="proposed labels owl that --classes does not list"):
        Labels(make_set(), ("cat", "dog"))
    assert Labels(make_set(), ("cat", "dog", "owl", "none of them")).classes[-1] == "none of them"


def test_two_processes_keep_each_other_s_keys_and_lines(make_set):
    made = make_set()
    one, other = Labels(made), Labels(made)
    one.remember("anna", {"skip": "x"})
    other.add([said(1, rater="ben")])
    other.remember("ben", {"skip": "y"})
    one.add([said(1)])
    again = Labels(made)
    assert again.keys == {"anna": {"skip": "x"}, "ben": {"skip": "y"}}
    assert again.raters == ("ben", "anna")


def test_a_rater_labels_in_one_window_at_a_time(make_set):
    made = make_set()
    with Labels(made).alone("anna"):
        with (
            pytest.raises(InvalidInput, match="anna is labelling this set in another window"),
            Labels(made).alone("anna"),
        ):
            pass
        with Labels(made).alone("ben"):
            pass
    with Labels(made).alone("anna"):
        pass
