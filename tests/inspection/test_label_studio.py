"""What Label Studio imports: the shapes that its documentation asks for."""

import base64
import json
import xml.etree.ElementTree as ElementTree

import pytest

from blindsight.samples import label_studio


def test_tasks_have_pictures_inside_and_predictions_with_scores(make_set):
    made = make_set(count=3)
    tasks = json.loads(label_studio.as_text(label_studio.tasks(made)))
    assert len(tasks) == 3
    data, (by_model, by_generator) = tasks[0]["data"], tasks[0]["predictions"]
    head, _, coded = data["image"].partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(coded) == made.samples[0].picture
    assert (data["sample_id"], data["set"], data["source"]) == ("everyone/00000", made.identity, "synthetic")
    assert data["guarantee"] == str(made.guarantee)
    assert (by_model["model_version"], by_model["score"]) == ("a model", 0.5)
    assert by_model["result"] == [
        {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": ["dog"]}}
    ]
    assert by_generator["model_version"] == "the generator"
    assert by_generator["result"][0]["value"] == {"choices": ["cat"]}


def test_a_set_that_nobody_proposed_labels_for_has_no_predictions(make_set):
    assert label_studio.tasks(make_set(classes=(), proposed=False))[0]["predictions"] == []


@pytest.mark.parametrize(("kind", "tag"), [("images", "Image"), ("rows", "Table"), ("text", "Text")])
def test_the_interface_fits_the_tasks(make_set, kind, tag):
    made = make_set(kind, classes=("cat", '"dog" & <b>'))
    view = ElementTree.fromstring(label_studio.config(made))
    shown, choices = view.find(tag), view.find("Choices")
    assert shown is not None
    assert choices is not None
    field = str(shown.get("value")).removeprefix("$")
    assert field in label_studio.tasks(made)[0]["data"]
    assert choices.get("toName") == shown.get("name")
    (result,) = label_studio.result(made, "cat")
    assert (result["from_name"], result["to_name"]) == (choices.get("name"), shown.get("name"))
    assert [(one.get("value"), one.get("hotkey")) for one in choices] == [("cat", "1"), ('"dog" & <b>', "2")]


def test_digits_have_their_own_keys_and_keys_run_out_quietly(make_set):
    ten, many = tuple("0123456789"), tuple(f"class {number}" for number in range(50))
    for classes, first, last in [(ten, "0", "9"), (many, "1", None)]:
        view = ElementTree.fromstring(label_studio.config(make_set(classes=ten), classes))
        keys = [one.get("hotkey") for one in view.iter("Choice")]
        assert (keys[0], keys[-1]) == (first, last)
        assert len({key for key in keys if key}) == len([key for key in keys if key])
