"""The queue of one rater: an order of their own, the same after a restart, and keys that fit any classes."""

import base64
import string

import pytest

from blindsight.errors import InvalidInput
from blindsight.samples import gallery
from blindsight.studio.labels import Labels
from blindsight.studio.queue import Queue, check_keys, default_keys


def through(queue: Queue) -> list[str]:
    seen = list[str]()
    while (sample := queue.next) is not None:
        seen.append(sample.sample_id)
        queue.decide(sample.sample_id, "cat", 1.0)
    return seen


def test_every_rater_sees_every_sample_once_in_an_order_of_their_own(make_set):
    labels = Labels(make_set(count=30))
    anna, ben = through(Queue(labels, "anna")), through(Queue(labels, "ben"))
    assert sorted(anna) == sorted(ben) == sorted(labels.dataset.by_id)
    assert anna != ben


def test_it_goes_on_where_it_stopped_and_takes_back_what_was_before(make_set):
    made = make_set(count=30)
    whole = through(Queue(Labels(make_set(count=30)), "anna"))
    (made.folder / "labels.jsonl").unlink()
    queue = Queue(Labels(made), "anna")
    for name in whole[:3]:
        queue.decide(name, None, 1.0)
    again = Queue(Labels(made), "anna")
    assert again.next is not None
    assert again.next.sample_id == whole[3]
    for name in reversed(whole[:3]):
        again.undo()
        assert again.next is not None
        assert again.next.sample_id == name
    again.undo()  # nothing is left to take back
    assert again.state()["labelled"] == again.state()["skipped"] == 0


def test_a_sample_is_decided_once(make_set):
    queue = Queue(Labels(make_set()), "anna")
    queue.decide("everyone/00001", "cat", 1.0)
    with pytest.raises(InvalidInput, match="already labelled"):
        queue.decide("everyone/00001", "dog", 1.0)
    with pytest.raises(InvalidInput, match="not one of the classes"):
        queue.decide("everyone/00002", "cow", 1.0)


def test_the_state_says_what_the_page_shows_and_nothing_of_others(make_set):
    labels = Labels(make_set(count=3))
    through(Queue(labels, "somebody else"))
    queue = Queue(labels, "anna")
    state = queue.state()
    assert (state["total"], state["labelled"], state["skipped"]) == (3, 0, 0)
    assert state["guarantee"] == str(labels.dataset.guarantee)
    assert "agreement" not in state
    assert "somebody else" not in str(state)
    through(queue)
    assert queue.state()["sample"] is None
    assert queue.state()["agreement"]["pairs"][0]["same"] == 1.0


def test_the_word_synthetic_is_in_the_picture(make_set):
    state = Queue(Labels(make_set()), "anna").state()
    picture = gallery.from_png(base64.b64decode(state["sample"]["picture"].partition(",")[2]))
    assert picture.shape[0] == picture.shape[1] + gallery.STRIP


def test_keys_are_the_names_where_these_are_signs():
    assert default_keys(tuple("0123456789"))["classes"]["7"] == "7"
    assert default_keys(("yes", "no"))["classes"] == {"yes": "1", "no": "2"}
    everything = tuple(string.digits + string.ascii_letters)
    keys = default_keys(everything)
    assert all(keys["classes"][name] == name for name in everything)
    assert (keys["skip"], keys["undo"]) == ("-", "=")  # s and u are classes
    many = tuple(f"class {number}" for number in range(100))
    for classes in (everything, many, ("s", "u", "-", "other")):
        assert check_keys(default_keys(classes), classes) is None
    assert default_keys(many)["classes"]["class 99"] == ""  # to be clicked


@pytest.mark.parametrize(
    "change",
    [
        {"skip": "1"},
        {"skip": ""},
        {"skip": "?"},
        {"undo": "Enter"},
        {"classes": {"cat": "1"}},
        {"classes": {"cat": "1", "dog": 2, "owl": "3"}},
        {"more": "x"},
    ],
)
def test_keys_that_clash_or_cannot_be_typed_are_refused(make_set, change):
    queue = Queue(Labels(make_set()), "anna")
    before = queue.keys
    with pytest.raises(InvalidInput):
        queue.remap(before | change)
    assert queue.keys == before


def test_keys_of_other_classes_are_forgotten(make_set):
    made = make_set(classes=(), proposed=False)
    Queue(Labels(made, ("yes", "no")), "anna").remap({"classes": {"yes": "y", "no": "n"}, "skip": "s", "undo": "u"})
    assert Queue(Labels(made), "anna").keys["classes"] == {"yes": "y", "no": "n"}
    assert Queue(Labels(made, ("yes", "no", "both")), "anna").keys["classes"]["yes"] == "1"
