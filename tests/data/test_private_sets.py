"""Of a saved Hugging Face data set, types are those of its features, whatever one client's values are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from blindsight import config
from blindsight.data.population import Population
from blindsight.data.private_sets import declared
from blindsight.data.schema import Schema
from blindsight.data.sources import source
from blindsight.errors import InvalidInput
from blindsight.jobs.run_data import read_run
from blindsight.jobs.tables import content_of_clients, header, kinds_of, read_clients, schema_of

datasets: Any = pytest.importorskip("datasets", reason="datasets is not installed")

FEATURES = datasets.Features(
    {
        "who": datasets.Value("string"),
        "age": datasets.Value("int64"),
        "pay": datasets.Value("float32"),
        "new": datasets.Value("bool"),
        "said": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["no", "yes"]),
        "photo": datasets.Image(),
        "grid": datasets.Array2D((1, 2), "float32"),
        "list": datasets.Sequence(datasets.Value("int16")),
    }
)
USUAL: dict[str, Any] = {
    "age": 40,
    "pay": 1.5,
    "new": True,
    "said": "we",
    "label": 1,
    "photo": Image.new("L", (2, 3), 7),
    "grid": [[1.0, 2.0]],
    "list": [1, 2],
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def saved(**odd: Any) -> str:
    """Three clients, of which the last has these values instead of the usual ones."""
    rows = [{"who": "a", **USUAL}, {"who": "b", **USUAL}, {"who": "odd", **USUAL, **odd}]
    columns = {name: [row[name] for row in rows] for name in FEATURES}
    datasets.Dataset.from_dict(columns, features=FEATURES).save_to_disk("people")
    return "people"


def read(fields: str, *types: str, gaps: bool = False) -> Population:
    schema, names = schema_of(None, types, "people"), fields.split()
    return read_clients("people", client="who", needed=dict.fromkeys(names), schema=schema, gaps=names if gaps else ())


ODD = [
    {"age": None},
    {"age": 2**40},
    {"pay": None},
    {"pay": float("inf")},
    {"new": None},
    {"said": None},
    {"label": -1},
    {"label": None},
    {"photo": None},
    {"photo": Image.new("L", (3, 3), 7)},
    {"photo": Image.new("RGB", (2, 3))},
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: "-".join(map(str, odd)))
def test_no_value_of_one_client_changes_what_is_read_of_the_others(odd):
    seen = list[Any]()
    for own in ({}, odd):
        saved(**own)
        both = [read("age pay new said label photo", "photo=image:3x2", gaps=gaps) for gaps in (True, False)]
        others = [{name: column.tolist() for name, column in one.select([0, 1]).columns.items()} for one in both]
        seen.append(([(one.ids.tolist(), one.fields, one.classes) for one in both], others))
    assert seen[0] == seen[1]
    assert seen[0][0][0][2]["label"] == ("no", "yes")
    assert seen[0][1][0]["photo"][0][0] == [7, 7]


def test_types_are_those_of_the_features_and_what_they_do_not_say_is_asked_for():
    saved()
    kinds = {name: field.kind for name, field in declared("people").fields.items()}
    numbers = {"age": "whole", "pay": "number", "new": "truth", "grid": "image"}
    assert kinds == {"who": "text", "said": "text", "label": "category", **numbers}
    assert declared("people").fields["grid"].shape == (1, 2)
    assert header("people", "who", Schema()) == [name for name in FEATURES if name != "who"]
    assert read("grid").columns["grid"].tolist() == [[[1.0, 2.0]]] * 3
    with pytest.raises(InvalidInput, match="give the type of 'photo' in people"):
        read("photo")
    assert read("age", "age=number:0:50").fields["age"][0] == np.float64  # the asker's own type counts
    assert kinds_of("people", ["age"], {"age": None}, schema_of(None, [], "people"), say="")["age"].kind == "whole"


def test_a_set_that_cannot_be_read_is_refused_without_a_word_on_its_content():
    saved()
    for file in Path("people").glob("*.arrow"):
        file.write_bytes(b"secretly damaged")
    with pytest.raises(InvalidInput, match="people cannot be read: run blindsight data check people") as refused:
        read("age")
    assert "secret" not in str(refused.value)


def test_a_ledger_knows_the_set_by_the_name_and_the_content_that_its_loader_gives():
    """So a budget that was set before types were asked for still counts."""
    saved()
    Path("people").rename("of.people")
    whole = source("of.people", {"client": "who"})
    found = read_clients("of.people", client="who", needed={"age": None}, schema=schema_of(None, [], "of.people"))
    assert found.name == whole.name == "of.people"
    assert content_of_clients("of.people", {"client": "who"}, found) == whole.content


def test_one_split_is_read_as_it_is_chosen():
    one = datasets.Dataset.from_dict({"who": ["a"], "age": [1], "label": [0]})
    datasets.DatasetDict({"train": one, "test": one.select([0, 0])}).save_to_disk("people")
    about: dict[str, Any] = {"name": "run", "model": {"kind": "logistic", "inputs": ["age"], "classes": 2}}
    about["privacy"] = {"noise_multiplier": 1.0, "delta": 1e-3, "cohort": 1, "rounds": 1}
    data: dict[str, Any] = {"population": "people", "held_out": 0}
    for split, rows in (("train", 1), ("test", 2)):
        chosen = {**data, "options": {"client": "who", "split": split}}
        assert read_run(config.parse(about | {"data": chosen})).n_examples == rows
    with pytest.raises(InvalidInput, match="people has 2 splits: choose one of split='train', split='test'"):
        read_run(config.parse(about | {"data": {**data, "options": {"client": "who"}}}))
