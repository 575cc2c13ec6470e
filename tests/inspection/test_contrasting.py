"""Laws of `contrast`: it costs what was asked for, nothing is paid for twice, and it finds what is there."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flat import ask

from blindsight import data, keys, selection
from blindsight import inspect as questions
from blindsight.accounting.accountants import epsilon as epsilon_of
from blindsight.accounting.events import Composed, Gaussian, from_json
from blindsight.accounting.ledger import Ledger
from blindsight.backends import Batch
from blindsight.data import Population, faults
from blindsight.data.schema import Schema
from blindsight.errors import BudgetExceeded, InvalidInput, PrivacyError
from blindsight.inspect import Quarters, Training
from blindsight.inspection import lessons, session
from blindsight.inspection.contrast import task as module
from blindsight.inspection.contrast.question import Sanity
from blindsight.inspection.report import Report
from blindsight.models.primary import primary
from blindsight.privacy import Privacy

KEY = keys.reproducible(7)
pytestmark = pytest.mark.usefixtures("few_steps")


def brightness(images: np.ndarray) -> np.ndarray:
    """A model that knows two classes by which half is brighter: dark above is 0, dark below is 1."""
    numbers = images.astype(np.float32) / 255
    return np.stack([numbers[:, 4:].mean(axis=(1, 2)), numbers[:, :4].mean(axis=(1, 2))], axis=1)


def halves(clients: int = 300, examples: int = 12, seed: int = 0, name: str = "halves") -> Population:
    """Images of 8 x 8 whose bright half says the class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, clients * examples).astype(np.int32)
    images = random.integers(0, 60, (clients * examples, 8, 8)).astype(np.uint8)
    for label, half in ((0, slice(4, 8)), (1, slice(0, 4))):
        images[labels == label, half] += 150
    columns = {"image": images, "label": labels}
    sizes = np.full(clients, examples)
    return Population(columns, sizes=sizes, name=name, classes={"label": ("below", "above")}, synthetic=True)


MODEL = primary(brightness, name="brightness", shape=(8, 8))
SUSPECTS = ("invert", "flip", "byte_swap")


def inspect(tmp_path: Path, people: Population, arms: Any = None, **more: Any) -> Report:
    """With one suspect, because every one makes the program that is compiled longer."""
    about: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "model": MODEL, "suspects": SUSPECTS[:1], "per_class": 2}
    about |= {"ledger": Ledger(tmp_path / "ledger.db"), "key": KEY, "out": tmp_path / "run"} | more
    return ask(questions.contrast, people, Quarters(0.1, 0.9) if arms is None else arms, **about)


def entries(tmp_path: Path, population: str) -> list[Any]:
    return [entry for entry in Ledger(tmp_path / "ledger.db").entries(population) if entry.kind == "release"]


@pytest.mark.parametrize("fault", ["invert:0.4", pytest.param("flip:0.4:axis=vertical", marks=pytest.mark.slow)])
def test_it_names_the_fault_and_how_many_it_hits(tmp_path, fault):
    people = faults.apply(halves(), fault)
    name = str(dataclasses.replace(faults.parse(fault)[0], fraction=1.0))
    # inverting and turning upside down do the same to this model: only one of them is suspected at a time
    report = inspect(tmp_path, people, selection.by_accuracy(0.5, 0.9), suspects=(name, "flip", "byte_swap"))
    assert {found.arm: found.fault for found in report.diagnoses} == {"failing": name, "healthy": "none"}
    shares = {view.name: view for view in report.arms}
    truth = faults.affected(people, fault).mean()
    assert shares["failing"].share_low <= truth <= shares["failing"].share_high
    assert [view.name for view in report.arms] == ["healthy", "failing"]  # what is in question comes last


@pytest.mark.slow
def test_where_nothing_is_wrong_nothing_is_named(tmp_path):
    arms = {"all": selection.everything()}
    report = inspect(tmp_path, halves(), arms, reference=halves(seed=5), suspects=SUSPECTS)
    assert {found.fault for found in report.diagnoses} == {"none"}
    assert not [found for found in report.findings if found.verdict == "detected"]


def test_all_releases_together_cost_what_was_asked_for_and_the_ledger_has_them(tmp_path):
    people = faults.apply(halves(), "invert:0.4")
    report = inspect(tmp_path, people)
    paid = [from_json(entry.event) for entry in entries(tmp_path, people.name)]
    assert len(paid) == 2 == report.guarantee.releases
    spent = epsilon_of(Composed(tuple(paid)), 1e-6).epsilon
    assert spent == pytest.approx(report.guarantee.epsilon)
    assert 0.999 * 4.0 <= spent <= 4.0
    assert {row["what"] for row in report.releases} == {"thresholds", "cues", "votes", "moments"}


def test_a_budget_that_ends_half_way_stops_it_and_a_raised_one_lets_it_go_on_without_paying_again(tmp_path):
    people = faults.apply(halves(), "invert:0.4")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget(people.name, epsilon=2.0, delta=1e-6)
    with pytest.raises(BudgetExceeded):
        inspect(tmp_path, people)
    assert len(entries(tmp_path, people.name)) == 1  # the thresholds
    kept = tmp_path / "run" / "rounds" / "thresholds" / "checkpoint-00000001.safetensors"
    before = kept.read_bytes()
    ledger.set_budget(people.name, epsilon=4.2, delta=1e-6)  # two releases of which the first was read: some more
    first = inspect(tmp_path, people, key=keys.root())
    assert kept.read_bytes() == before
    assert len(entries(tmp_path, people.name)) == 2
    again = inspect(tmp_path, people, key=keys.root())  # a finished one is only read again
    assert len(entries(tmp_path, people.name)) == 2
    assert [f.effect for f in again.findings] == [f.effect for f in first.findings]


def test_a_measurement_that_was_paid_for_but_lost_is_paid_for_again(tmp_path, monkeypatch):
    people = halves()
    arms = selection.by_accuracy(0.5, 0.9)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(session.checkpoints, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            inspect(tmp_path, people, arms)
    assert len(entries(tmp_path, people.name)) == 1
    inspect(tmp_path, people, arms)
    assert len(entries(tmp_path, people.name)) == 2


def test_what_is_saved_holds_no_clients_data_and_is_the_report(tmp_path):
    people = faults.apply(halves(), "invert:0.4")
    report = inspect(tmp_path, people, selection.by_accuracy(0.5, 0.9))
    folder = tmp_path / "run"
    files = {path.name for path in folder.iterdir()}
    assert files == {
        "guarantee.json",
        "lock",
        "report.html",
        "report.json",
        "rounds",
        "run.json",
        "samples",
        "seed.json",
    }
    assert Report.from_dict(json.loads((folder / "report.json").read_text())).verdict == report.verdict
    assert json.loads((folder / "guarantee.json").read_text())["epsilon"] == report.guarantee.epsilon


def test_another_inspection_in_the_same_folder_is_refused(tmp_path):
    people = halves(clients=50)
    inspect(tmp_path, people, selection.by_accuracy(0.5, 0.9))
    with pytest.raises(InvalidInput, match="other settings"):
        inspect(tmp_path, people, selection.by_accuracy(0.4, 0.9))


def test_a_folder_whose_input_was_refused_takes_another_question_unless_something_was_released(tmp_path, monkeypatch):
    def refuse(*_: Any) -> Any:
        raise InvalidInput("too late")

    people, arms = halves(clients=50), selection.by_accuracy(0.5, 0.9)
    with pytest.raises(InvalidInput, match="no fault"):
        inspect(tmp_path, people, arms, suspects=("inverse",))
    monkeypatch.setattr(module, "read", refuse)
    with pytest.raises(InvalidInput, match="too late"):
        inspect(tmp_path, people, arms, suspects=("invert",))
    with pytest.raises(InvalidInput, match="other settings"):
        inspect(tmp_path, people, arms, suspects=("flip",))


def test_eligible_takes_who_is_in_an_arm_for_public_and_says_so(tmp_path):
    people = faults.apply(halves(), "invert:0.4")
    report = inspect(tmp_path, people, selection.by_accuracy(0.5, 0.9), forming="eligible")
    assert any("public" in words for words in report.guarantee.assumptions)
    assert any("Assumed" in note and "eligible" in note for note in report.notes)


@pytest.mark.parametrize("kind", ["label", "input", "arm", "none", "embedded"])
def test_where_names_of_classes_are_in_the_report_the_promise_says_what_it_takes_them_for(tmp_path, kind):
    """A loader may have read them off the data: then one example of one client has put its name into the report."""
    people = halves(clients=3)
    columns = {**people.columns, "job": people.columns["label"]}
    names = {} if kind == "none" else {"label" if kind in ("label", "embedded") else "job": ("below", "above")}
    people = Population(columns, sizes=people.sizes, name="p", classes=names, synthetic=kind == "embedded")
    arms = selection.Arms({"all": selection.where("job", "above") if kind == "arm" else selection.everything()})
    inputs = "job" if kind == "input" else "image"
    promise = inspect(tmp_path, people, arms, inputs=inputs, model=None, suspects=None).guarantee
    says = any("the list of classes is public" in words for words in promise.assumptions)
    assert says == (kind in ("label", "input", "arm"))


def test_rows_are_compared_and_made_where_their_ranges_are_public(tmp_path):
    people = data.embedded("tabular", clients=400)
    numbers = [f for f, (d, s) in people.fields.items() if not s and d.kind in "iuf" and f not in people.classes][:2]
    ranges = dict.fromkeys(numbers, (0.0, 100.0))
    arms = {"all": selection.everything()}
    about = {"model": None, "suspects": None, "inputs": numbers, "label": ""}
    report = inspect(
        tmp_path, people, arms, ranges=ranges, reference=data.embedded("tabular", clients=100, seed=3), **about
    )
    assert set(report.arms[0].rows or {}) == set(numbers)
    assert not report.diagnoses


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "wrong shape": ({"model": primary(brightness, shape=(9, 9))}, "shape"),
    "wrong range": ({"model": primary(brightness, shape=(8, 8), dtype=np.float32, value_range=(0, 1))}, "uint8"),
    "unknown fault": ({"suspects": ("inverse",)}, "no fault 'inverse'"),
    "an arm nobody can be in": (
        {"arms": {"all": selection.everything(), "none": selection.correct()}},
        "no client can",
    ),
    "votes without a model": ({"model": None, "arms": {"all": selection.everything()}}, "repairs the primary model"),
    "quarters without a model": ({"model": None, "suspects": None}, "need a primary model"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_nothing_is_spent(tmp_path, case):
    given, words = BAD[case]
    people = halves(clients=20)
    given = dict(given)
    with pytest.raises(InvalidInput, match=words) as refused:
        inspect(tmp_path, people, given.pop("arms", None), **given)
    assert "\n" not in str(refused.value)
    assert not entries(tmp_path, people.name)


def test_a_share_of_what_is_not_measured_is_refused():
    schema = Schema.of(halves(clients=2))
    with pytest.raises(InvalidInput, match="not luck"):
        Sanity(schema=schema, clients=2, epsilon=1.0, delta=1e-6, shares={"luck": 1.0})


def test_mistakes_need_labels(tmp_path):
    people = halves(clients=20)
    blank = people.replace({"image": people.columns["image"]})
    with pytest.raises(InvalidInput, match="labels"):
        inspect(tmp_path, blank, selection.by_correctness(), suspects=None)


def test_noise_is_in_what_is_kept(tmp_path):
    """Two keys, two measurements: whatever the run directory holds has noise in it."""
    people, arms = faults.apply(halves(clients=200), "invert:0.5"), selection.by_accuracy(0.5, 0.9)
    one = inspect(tmp_path / "a", people, arms)
    other = inspect(tmp_path / "b", people, arms, key=keys.reproducible(8))
    assert all(f.effect != g.effect for f, g in zip(one.findings[:5], other.findings[:5], strict=True))


TRAINING = Training(rounds=2, cohort=40, batch_size=8, generator_steps=1)


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")  # which Optax needs
def test_a_generator_of_rows_can_be_trained_on_clients_for_the_same_price(tmp_path):
    """All of it stays within what was asked for, and the ledger agrees; a budget that ends half-way stops it."""
    people = data.embedded("tabular", clients=60)
    about: dict[str, Any] = {"model": None, "suspects": None, "inputs": ["age"], "ranges": {"age": (0.0, 100.0)}}
    about |= {"label": "", "training": dataclasses.replace(TRAINING, cohort=20)}
    ledger, arms = Ledger(tmp_path / "ledger.db"), {"all": selection.everything()}
    ledger.set_budget(people.name, epsilon=2.5, delta=1e-6)
    with pytest.raises(PrivacyError):
        inspect(tmp_path, people, arms, **about)
    ledger.set_budget(people.name, epsilon=8.0, delta=1e-6)
    report = inspect(tmp_path, people, arms, **about)
    spent = ledger.spent(people.name, delta=1e-6).epsilon
    assert 0.98 * 4.0 <= report.guarantee.epsilon <= 4.0
    assert spent == pytest.approx(report.guarantee.epsilon, rel=0.01)
    assert "moments" not in {row["what"] for row in report.releases}
    paid = len(entries(tmp_path, people.name))
    inspect(tmp_path, people, arms, **about)
    assert len(entries(tmp_path, people.name)) == paid  # it was only read


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")  # which Optax needs
@pytest.mark.parametrize("forming", ["zero_fill", pytest.param("eligible", marks=pytest.mark.slow)])
def test_generators_can_be_trained_on_clients_for_the_same_price(tmp_path, forming):
    """Arms that share no client are paid for once; all of it stays within what was asked for, the ledger agrees.

    A budget that ends while a generator is trained stops it, and a raised one lets it go on.
    """
    people, arms = faults.apply(halves(clients=200), "invert:0.5"), selection.by_accuracy(0.5, 0.9)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget(people.name, epsilon=2.5, delta=1e-6)
    with pytest.raises(PrivacyError):
        inspect(tmp_path, people, arms, training=TRAINING, forming=forming, per_class=3)
    ledger.set_budget(people.name, epsilon=8.0, delta=1e-6)
    report = inspect(tmp_path, people, arms, training=TRAINING, forming=forming, per_class=3)
    assert 0.98 * 4.0 <= report.guarantee.epsilon <= 4.0
    spent = Ledger(tmp_path / "ledger.db").spent(people.name, delta=1e-6).epsilon
    assert spent == pytest.approx(report.guarantee.epsilon, rel=0.01)
    assert [None if view.samples is None else view.samples.shape for view in report.arms] == [(6, 8, 8)] * 2
    assert "moments" not in {row["what"] for row in report.releases}
    paid = len(entries(tmp_path, people.name))
    inspect(tmp_path, people, arms, training=TRAINING, forming=forming, per_class=3)
    assert len(entries(tmp_path, people.name)) == paid  # it was only read


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")
def test_arms_that_share_clients_are_trained_for_the_price_of_both(tmp_path):
    people = faults.apply(halves(clients=200), "invert:0.5:by=example")
    report = inspect(tmp_path, people, selection.by_correctness(1), training=TRAINING, per_class=2)
    assert 0.98 * 4.0 <= report.guarantee.epsilon <= 4.0
    assert report.guarantee.releases == 1 + 2 * TRAINING.rounds


def test_an_arm_alone_is_what_the_arms_before_it_leave():
    first, second = selection.where("label", 0), selection.everything()
    arms = selection.Arms({"first": first, "rest": second})
    people = halves(clients=3).select([0])
    batch = Batch({"label": jnp.asarray(people.columns["label"])}, jnp.ones(people.n_examples))
    masks = np.asarray(arms.masks(batch))
    for row, name in zip(masks, arms, strict=True):
        np.testing.assert_array_equal(np.asarray(arms.alone(name).mask(batch)), row)


def test_mistakes_and_slices_are_contrasts_of_their_arms(tmp_path):
    people = faults.apply(halves(clients=200), "invert:0.5:by=example")
    about: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "model": MODEL, "suspects": SUSPECTS, "per_class": 2}
    about |= {"ledger": Ledger(tmp_path / "ledger.db"), "key": KEY}
    wrong = ask(questions.mistakes, people, minimum=2, out=tmp_path / "mistakes", **about)
    assert {found.arm: found.fault for found in wrong.diagnoses} == {"mistakes": "invert", "correct": "none"}
    by_label = ask(questions.slices, people, by="label", out=tmp_path / "label", **about)
    assert {view.name for view in by_label.arms} == {"below", "above"}
    with pytest.raises(InvalidInput, match="2 to 12 named classes"):
        ask(questions.slices, people, by="weather", **about)


def test_slices_are_made_by_any_text_whose_values_are_public(tmp_path):
    people = halves(clients=200)
    version = np.repeat(np.where(np.arange(people.size) % 2, "2.1", "2.0"), people.sizes)
    about: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "per_class": 1, "key": KEY}
    about["ledger"] = Ledger(tmp_path / "ledger.db")
    phones = people.replace({**people.columns, "version": version})
    report = ask(questions.slices, phones, by="version", values=("2.1", "2.0"), out=tmp_path / "run", **about)
    assert {arm.name for arm in report.arms} == {"2.0", "2.1"}
    with pytest.raises(InvalidInput, match="named classes or values"):
        ask(questions.slices, phones, by="version", out=tmp_path / "other", **about)


def test_of_arms_trained_at_different_rates_the_dearest_is_paid_for():
    """With one round too, where nothing says "repeated" around the event."""
    for rounds in (1, 3):
        cheap, dear = (
            Privacy(population=size, cohort=20, rounds=rounds).sampling.event(Gaussian(1.0), rounds)
            for size in (2000, 40)
        )
        for order in ([cheap, dear], [dear, cheap]):
            assert lessons.together(order, [Gaussian(5.0)], 1e-6) == [dear]
