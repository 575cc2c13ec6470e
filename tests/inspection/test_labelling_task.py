"""Synthetic examples for people to label: what is released, what is not, and who is asked about what."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from flat import ask

from blindsight import inspect
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import moments
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.question import Training
from blindsight.inspection.report import Report
from blindsight.models.primary import primary
from blindsight.samples.synthetic_set import read_set

CLASSES = ("left", "right", "top")
CLIENTS = 60


def pictures(seed: int = 0, *, with_labels: bool = True) -> Population:
    """Clients with five small pictures each, bright on one side, which is the class."""
    dice = np.random.default_rng(seed)
    labels = dice.integers(0, 3, 5 * CLIENTS).astype(np.int32)
    image = dice.integers(0, 60, (5 * CLIENTS, 8, 8)).astype(np.uint8)
    image[labels == 0, :, :4] += 150
    image[labels == 1, :, 4:] += 150
    image[labels == 2, :4] += 150
    columns: dict[str, np.ndarray] = {"image": image} | ({"label": labels} if with_labels else {})
    about: dict[str, Any] = {"classes": {"label": CLASSES}} if with_labels else {}
    return Population(columns, sizes=np.full(CLIENTS, 5), name="sides", **about)


class Judge:
    """A model that knows the sides, and remembers everything that it was asked about."""

    def __init__(self) -> None:
        self.asked: list[np.ndarray] = []

    def __call__(self, image: np.ndarray) -> np.ndarray:
        self.asked.append(np.array(image))
        bright = image.astype(np.float32) / 255
        sides = [bright[:, :, :4].mean((1, 2)), bright[:, :, 4:].mean((1, 2)), bright[:, :4].mean((1, 2))]
        return 20 * np.stack(sides, axis=-1)


@pytest.fixture(scope="module", autouse=True)
def quick_fit() -> Iterator[None]:
    """Generators as they start, from the closed form: nothing here depends on how well they are fitted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "fit", functools.partial(moments.fit, steps=0))
        yield


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One run on clients with labels, and the model that proposed others."""
    folder, judge = tmp_path_factory.mktemp("labelled"), Judge()
    ledger = Ledger(folder / "ledger.db")
    model = primary(judge, name="the judge")
    report = ask(
        inspect.labelling, pictures(), epsilon=8, delta=1e-5, samples=10, model=model, ledger=ledger, out=folder / "run"
    )
    return report, judge, ledger, folder / "run"


def test_everything_is_paid_for_in_one_release(labelled):
    report, _, ledger, run = labelled
    assert 0.99 * 8 < ledger.spent("sides", delta=1e-5).epsilon <= 8
    assert ledger.spent("sides", delta=1e-5).epsilon == pytest.approx(report.guarantee.epsilon, rel=1e-6)
    assert report.guarantee.releases == 1
    assert read_set(run).guarantee == report.guarantee


def test_the_model_is_asked_about_synthetic_examples_alone(labelled):
    """What it is asked about beside zeros (to check its shape) is what lies in the set, and no client's example."""
    report, judge, _, run = labelled
    made, real = read_set(run).columns["image"], pictures().columns["image"]
    asked = np.concatenate([batch for batch in judge.asked if batch.any()])
    assert {picture.tobytes() for picture in asked} == {picture.tobytes() for picture in made}
    assert not {picture.tobytes() for picture in asked} & {picture.tobytes() for picture in real}
    assert report.verdict.startswith("12 synthetic examples for people to label, with labels proposed by the judge.")


@pytest.mark.parametrize(
    "said",
    [
        "the primary model was not trained on these clients",
        "the list of classes is public, and no class name comes from clients' data alone",
    ],
)
def test_the_promise_says_what_it_takes_the_model_and_the_classes_for(labelled, said):
    """Proposed labels are the model's own words, and would tell what it has learnt by heart; classes are the data's."""
    *_, run = labelled
    assert said in read_set(run).guarantee.assumptions
    assert said in json.loads((run / "guarantee.json").read_text())["assumptions"]
    assert said in json.loads((run / "report.json").read_text())["guarantee"]["assumptions"]


def test_the_set_has_equally_many_of_every_class_and_what_is_proposed(labelled):
    _, judge, _, run = labelled
    made = read_set(run)
    assert made.classes == CLASSES
    assert [sample.own for sample in made.samples] == [name for name in CLASSES for _ in range(4)]
    scores = judge(made.columns["image"])
    assert [sample.proposed for sample in made.samples] == [CLASSES[place] for place in scores.argmax(axis=1)]
    sure = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        np.array([sample.score for sample in made.samples], float), 1 / sure.sum(axis=1), atol=1e-4
    )
    columns = pq.read_schema(run / "samples" / "samples.parquet").names
    assert columns == ["sample_id", "latent", "population", "class", "source", "pred", "score", "image"]


def test_the_folder_has_what_people_and_label_studio_need_and_no_unprotected_number(labelled):
    _, _, _, run = labelled
    tasks = json.loads((run / "label_studio.json").read_text())
    assert len(tasks) == 12
    assert {one["model_version"] for task in tasks for one in task["predictions"]} == {"the judge", "the generator"}
    assert '<Choice value="left" hotkey="1"/>' in (run / "label_studio.xml").read_text()
    assert "blindsight train student" in (run / "report.html").read_text()
    for path in run.rglob("*"):
        if path.is_file() and path.name != "run.json":  # which keeps a fingerprint of the data under that mark
            assert b"simulation_only" not in path.read_bytes(), path


def test_the_report_keeps_its_answer(labelled):
    report, *_, run = labelled
    assert Report.from_dict(json.loads((run / "report.json").read_text())).verdict == report.verdict
    assert report.next_steps[0].startswith("Label the samples: `blindsight label FOLDER`")


def test_a_gan_is_trained_where_that_is_asked_for(monkeypatch, tmp_path):
    asked: dict[str, Any] = {}

    def remember(question: Any, inquiry: Any) -> None:
        asked.update(vars(question), per_class=question.samples_of(3))
        raise InvalidInput("enough")

    monkeypatch.setattr("blindsight.inspection.labelling.task.compare", remember)
    about: dict[str, Any] = {"epsilon": 8, "delta": 1e-5, "samples": 7, "out": tmp_path / "run"}
    for train in (False, True):
        with pytest.raises(InvalidInput, match="enough"):
            ask(inspect.labelling, pictures(), train=train, **about)
        assert isinstance(asked["training"], Training) == train
    assert asked["per_class"] == 3  # of three classes: seven at least
    assert asked["shares"]["moments"] == 0.9


def test_more_samples_are_free_until_somebody_has_labelled(labelled):
    _, judge, ledger, run = labelled
    settings: dict[str, Any] = {"epsilon": 8, "delta": 1e-5, "ledger": ledger, "out": run}
    before = ledger.spent("sides", delta=1e-5)
    ask(inspect.labelling, pictures(), samples=20, model=primary(judge, name="the judge"), **settings)
    assert len(read_set(run).samples) == 21
    assert ledger.spent("sides", delta=1e-5) == before
    (run / "samples" / "labels.jsonl").write_text("")
    with pytest.raises(InvalidInput, match="has labels, and new samples would replace them"):
        ask(inspect.labelling, pictures(), samples=20, model=primary(judge, name="the judge"), **settings)


def test_clients_without_labels_get_the_classes_that_the_model_sees(tmp_path):
    """Each client asks the model about its own examples; what leaves it is a bounded sum as ever."""
    ledger = Ledger(tmp_path / "ledger.db")
    about: dict[str, Any] = {"epsilon": 40, "delta": 1e-5, "samples": 60, "ledger": ledger, "out": tmp_path / "run"}
    report = ask(inspect.labelling, pictures(with_labels=False), model=Judge(), reference=pictures(1), **about)
    assert report.guarantee.releases == 1
    assert 0.99 * 40 < ledger.spent("sides", delta=1e-5).epsilon <= 40
    made = read_set(tmp_path / "run")
    assert made.classes == CLASSES  # which are public: the reference names them
    own = np.array([sample.own for sample in made.samples])
    for name in CLASSES:
        mean = made.columns["image"][own == name].mean(axis=0)
        sides = {"left": mean[:, :4].mean(), "right": mean[:, 4:].mean(), "top": mean[:4].mean()}
        assert max(sides, key=lambda side: sides[side]) == name


REFUSED: dict[str, Any] = {
    "text": (
        {"words": np.array(["a b", "c d"], np.dtypes.StringDType())},
        {"inputs": "words"},
        "cannot be sampled",
    ),
    "number without a range": ({"age": np.array([1.0, 2.0])}, {"inputs": "age"}, "--type age=0:100"),
    "no such field": ({"age": np.array([1.0, 2.0])}, {"inputs": "image"}, "has no field 'image'"),
    "no samples": ({"image": np.zeros((2, 4, 4), np.uint8)}, {"samples": 0}, "samples must be at least 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_sample_is_made_of_is_refused_before_anything_is_spent(case, tmp_path):
    columns, settings, words = REFUSED[case]
    clients, ledger = Population(columns, sizes=np.ones(2, int), name="few"), Ledger(tmp_path / "ledger.db")
    with pytest.raises(InvalidInput, match=words):
        ask(inspect.labelling, clients, epsilon=1, delta=1e-5, ledger=ledger, out=Path(tmp_path, "run"), **settings)
    assert ledger.spent("few", delta=1e-5).epsilon == 0
    assert not (tmp_path / "run").exists()


def test_rows_without_any_label_make_a_set_too(tmp_path):
    dice = np.random.default_rng(0)
    columns = {"age": dice.uniform(20, 80, 120).astype(np.float32), "work": dice.integers(0, 2, 120).astype(np.int32)}
    clients = Population(columns, sizes=np.full(40, 3), name="rows", classes={"work": ("office", "field")})
    about: dict[str, Any] = {"epsilon": 8, "delta": 1e-5, "samples": 5, "out": tmp_path / "run"}
    ask(inspect.labelling, clients, inputs=["age", "work"], ranges={"age": (0, 100)}, **about)
    made = read_set(tmp_path / "run")
    assert len(made.samples) == 5
    assert {(sample.own, sample.proposed) for sample in made.samples} == {(None, None)}
    assert made.in_words(made.samples[0].row or {})["work"] in ("office", "field")


def test_a_made_row_may_lack_a_number(tmp_path):
    dice = np.random.default_rng(0)
    kinds = dice.integers(0, 2, 400)
    ages = np.where(dice.random(400) < 0.5, np.nan, dice.uniform(20, 80, 400)).astype(np.float32)
    clients = Population(
        {"age": ages, "size": (kinds + dice.uniform(0, 1, 400)).astype(np.float32), "label": kinds.astype(np.int32)},
        sizes=np.full(100, 4),
        name="rows",
        classes={"label": ("no", "yes")},
    )
    model = primary(lambda rows: np.stack([rows[:, 0], 100 - rows[:, 0]], axis=-1))  # cannot read NaN
    about: dict[str, Any] = {"epsilon": 50, "delta": 1e-5, "samples": 60, "out": tmp_path / "run", "model": model}
    ask(inspect.labelling, clients, inputs=["age", "size"], ranges={"age": (0, 100), "size": (0, 2)}, **about)
    tasks = json.loads((tmp_path / "run" / "label_studio.json").read_text())
    lacking = [task for task in tasks if task["data"]["row"]["age"] == ""]
    assert 0 < len(lacking) < 60
    assert {task["predictions"][0]["score"] for task in lacking} == {0.5}  # of the middle of the public range
