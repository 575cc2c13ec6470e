"""Laws of `bias`: it costs what was asked for, is paid for before, says what serving has more of, and nothing else."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flat import ask_bias as bias
from flat import compared

from blindsight import data, keys
from blindsight.accounting.events import Composed
from blindsight.accounting.guarantee import certify
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.vocabulary import WORD_CELLS
from blindsight.data.population import TEXT, Population
from blindsight.errors import BudgetExceeded, InvalidInput, LedgerTampered, PrivacyError
from blindsight.inspection import measuring
from blindsight.inspection.bias import rounds as bias_rounds
from blindsight.inspection.bias.measures import HALF, same_clients
from blindsight.inspection.bias.section import BiasSection
from blindsight.inspection.report import Report
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.mechanisms import gaussian
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.models.primary import primary

WORDS = ["we", "have", "a", "cat", "and", "the", "dog", "is", "here", "now", "it", "sees", "us"]
TINY = WordTraining(rounds=1, cohort=50, embedding=4, cells=4, length=12)


def writers(clients: int = 300, seed: int = 0, without: int | None = None) -> Population:
    found = data.embedded("handwriting", clients=clients, seed=seed, examples=(12, 12))
    found = found.replace(
        {name: column[:, ::2, ::2] if name == "image" else column for name, column in found.columns.items()}
    )
    return found if without is None else same_clients(found, found.columns["label"] != without)


def authors(clients: int = 200, seed: int = 0, odd: float = 0.0) -> Population:
    """Authors of known words; some of them write of other things."""
    random = np.random.default_rng(seed)
    lines = list[str]()
    for _ in range(clients):
        own = ["zorg", "quux", "blip"] if random.random() < odd else []
        lines += [" ".join(random.choice(WORDS + 3 * own, 7)) + "." for _ in range(12)]
    return Population({"text": np.array(lines, dtype=TEXT)}, sizes=[12] * clients, name="authors")


def shown(report: Report) -> BiasSection:
    assert report.bias is not None
    return report.bias


def ask(folder: Path, clients: Population, public: Population, **more: Any) -> Report:
    about: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "key": keys.reproducible(3), "steps": 0}
    about |= {"ledger": Ledger(folder / "ledger.db"), "population": "phones", "out": folder / "run"}
    return bias(clients, reference=public, **about | more)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> tuple[Report, Path]:
    folder = tmp_path_factory.mktemp("bias")
    return ask(folder, writers(), writers(120, 1, without=3)), folder


@pytest.mark.slow
def test_a_class_that_public_data_lack_is_found(pictures):
    report, _ = pictures
    assert report.outcome == "difference"
    assert report.ranked[0].name == "class: 3"
    assert report.verdict.startswith("Class 3 is more frequent in serving than in training")
    line = next(one for one in shown(report).compared if one.name == "3")
    assert line.verdict == "more"
    assert line.serving.low > line.training.value == 0
    assert "Collect or label more of it" in " ".join(report.next_steps)


def test_it_costs_what_was_asked_for_and_the_ledger_has_both_rounds(pictures):
    report, folder = pictures
    ledger = Ledger(folder / "ledger.db")
    assert 7.9 < report.guarantee.epsilon <= 8
    assert 7.9 < ledger.spent("phones", delta=1e-6).epsilon <= 8
    notes = [one.note.partition(" [noise ")[0] for one in ledger.entries("phones") if one.kind == "release"]
    assert notes == [
        "serving against public data: shares, styles, moments",
        "serving against public data: groups, ratios",
    ]
    assert [row["what"] for row in report.releases] == ["shares", "styles", "moments", "groups", "ratios"]


def test_the_report_comes_back_from_json_and_shows_all_of_it(pictures):
    report, folder = pictures
    kept = json.loads((folder / "run" / "report.json").read_text(encoding="utf-8"))
    assert Report.from_dict(kept).to_dict() == report.to_dict()
    page = (folder / "run" / "report.html").read_text(encoding="utf-8")
    assert "Serving versus training" in page
    assert "Over-represented groups of images" in page
    assert "as in training" in page
    assert "more frequent in serving" in page
    assert "of training" in str(report)
    assert (folder / "run" / "samples" / "samples.parquet").exists()
    assert "simulation_only" not in json.dumps(kept)


def test_its_page_is_quiet_and_its_samples_can_be_enlarged(pictures, browser, tmp_path):
    """The samples of groups are tiles too, but none of an arm: they have no twin beside them."""
    report, _ = pictures
    browser.view(1400, 900)
    browser.open(report.save(tmp_path / "bias.html").as_uri())
    assert browser.ask("document.querySelectorAll('.column .tiles img').length") > 0
    assert browser.trouble == []
    browser.ask("document.querySelector('.arm .tiles li').click()")
    assert browser.ask("document.getElementById('pair').open")


def test_nothing_read_without_noise_enters_the_report(pictures):
    report, _ = pictures
    marked = dataclasses.replace(shown(report), reference="simulation_only: 300 clients")
    with pytest.raises(PrivacyError, match="simulation_only"):
        dataclasses.replace(report, bias=marked)


def test_asked_again_it_pays_nothing_and_says_the_same(pictures):
    report, folder = pictures
    again = ask(folder, writers(), writers(120, 1, without=3), key=keys.reproducible(9))
    now = {"created": "", "ledger": []}  # what may differ
    assert again.to_dict() | now == report.to_dict() | now
    assert len([e for e in Ledger(folder / "ledger.db").entries("phones") if e.kind == "release"]) == 2
    with pytest.raises(LedgerTampered):
        ask(folder, writers(), writers(120, 1, without=3), ledger=Ledger(folder / "other.db"))
    with pytest.raises(InvalidInput, match="holds a run with other settings"):
        ask(folder, writers(), writers(120, 1, without=4))


def test_rounds_are_recorded_before_anything_is_released(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("phones", epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceeded):
        ask(tmp_path, authors(), authors(100, 1), inputs="text", ledger=ledger)
    assert not (tmp_path / "run" / "rounds").exists()
    monkeypatch.setattr(measuring, "witness", lambda ledger, population: 1 / 0)  # a crash before it is kept
    with pytest.raises(ZeroDivisionError):
        ask(tmp_path, authors(), authors(100, 1), inputs="text", ledger=Ledger(tmp_path / "l.db"), out=tmp_path / "r")
    assert [entry.kind for entry in Ledger(tmp_path / "l.db").entries("phones")] == ["data", "release"]


def test_those_who_teach_do_not_confirm():
    observed = writers(50)
    prepared, clients = compared(observed, writers(80, 1))
    masks = bias_rounds._HALVES.fit(clients).members(clients)  # pyright: ignore[reportPrivateUsage]
    assert (masks.sum(axis=0) == 1).all()
    assert (abs(masks.sum(axis=1) - 25) < 10).all()  # a coin for each client, so about half
    learning, confirming = prepared.learning, prepared.confirming
    assert not set(learning.ids.tolist()) & set(confirming.ids.tolist())
    assert learning.size + confirming.size == 80
    assert HALF in learning.fields


@pytest.mark.slow
@pytest.mark.parametrize("odd", [0.0, 0.3])
def test_authors_of_something_else_are_found_by_what_the_public_model_finds_unlikely(tmp_path, odd):
    report = ask(tmp_path, authors(400, odd=odd), authors(150, 1), inputs="text", discover=odd > 0)
    found = {one.name for one in report.findings if one.verdict == "detected"}
    assert bool(found) == (odd > 0)
    if odd:
        assert {"likelihood: unlikely", "style: much surprise"} <= found
        words = {one.word: one for one in shown(report).words or ()}
        assert set(words) == {"zorg", "quux", "blip"}
        assert abs(words["zorg"].clients - 120) < 60
        assert words["zorg"].expected == 0
        assert "zorg" in report.to_html()
        assert 0.97 * 8 < report.guarantee.epsilon <= 8


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0, 8.0])
def test_discovering_words_costs_no_more_than_its_part(epsilon):
    parts = [measuring.PricedRelease("styles", 19), measuring.PricedRelease("words", WORD_CELLS)]
    noise = measuring.noise_for(parts, epsilon=epsilon, delta=1e-6, shares={"styles": 0.3, "words": 0.7})
    level = gaussian(math.sqrt(17) * noise["words"].noise_multiplier)  # 17 levels are to cost one release
    found = joint(*[level.planned_event] * 17)
    both = certify(Composed((noise["styles"].planned_event, found)), delta=1e-6)
    assert 0.99 * epsilon < both.epsilon <= epsilon


@pytest.mark.slow
def test_a_second_model_is_trained_within_the_promise(tmp_path):
    report = ask(tmp_path, authors(200, odd=0.3), authors(100, 1), inputs="text", discover=True, train=TINY)
    assert 7 < report.guarantee.epsilon <= 8
    assert shown(report).phrases
    assert "Phrases from the second model" in report.to_html()
    alone = json.loads((tmp_path / "run" / "model" / "guarantee.json").read_text())
    assert alone["epsilon"] == pytest.approx(report.guarantee.epsilon)  # it knows words that were released before


def test_a_round_is_not_read_again_with_another_model_or_other_ranges(tmp_path):
    """What clients said of one model, beside what public data say of another, would be a finding of nothing."""

    def ages(clients: int, seed: int, **classes: Any) -> Population:
        years = np.random.default_rng(seed).normal(50, 5, 12 * clients).astype(np.float32)
        columns = {"age": years} | ({"label": (years > 50).astype(np.int32)} if classes else {})
        return Population(columns, sizes=[12] * clients, name=f"ages {seed}", classes=classes)

    def older(than: float) -> Any:
        return primary(lambda x: np.stack([than - x.ravel(), x.ravel() - than], axis=1), name=f"older than {than:g}")

    both = ages(400, 0), ages(100, 1, label=("young", "old"))
    about: dict[str, Any] = {"inputs": "age", "ranges": {"age": (0.0, 100.0)}}
    ask(tmp_path, *both, **about, model=older(50))
    for other in ({"model": older(53)}, {"model": older(50), "ranges": {"age": (40.0, 80.0)}}):
        with pytest.raises(InvalidInput, match="other settings"):
            ask(tmp_path, *both, **about | other)


def test_without_labels_a_model_says_what_is_there_and_what_it_is_unsure_of():
    clients, public = writers(60), writers(80, 1)
    clients = clients.replace({"image": 255 - clients.columns["image"]})

    def ink(images: np.ndarray) -> np.ndarray:
        bright = images.mean(axis=(1, 2)) / 64.0
        return np.stack([bright, np.ones(len(images)), *np.zeros((8, len(images)))], axis=1)

    prepared, seen = compared(clients, public, model=primary(ink))
    assert [(one.subject, one.is_learnt) for one in prepared.divisions] == [("model", True), ("predicted class", True)]
    assert (prepared.label, prepared.classes) == ("predicted", public.classes["label"])
    assert set(seen.columns["predicted"]) == {0}  # all are bright
    nameless = Population(dict(public.columns), sizes=public.sizes, name="file")
    prepared, seen = compared(clients, nameless, model=primary(ink))
    assert prepared.divisions[1].names == prepared.classes == tuple("0123456789")  # by number, then
    unsure = [(one.columns["sure"] == 0).mean() for one in (prepared.confirming, seen)]
    assert unsure[0] == pytest.approx(0.1, abs=0.02)
    assert unsure[1] == 0


def test_a_field_divides_what_is_compared_by_name(tmp_path):
    clients, public = authors(200), authors(100, 1)
    for one, share in ((clients, 0.5), (public, 0.05)):
        device = np.where(np.random.default_rng(0).random(one.n_examples) < share, "tablet", "phone")
        one._columns["device"] = device.astype(TEXT)  # pyright: ignore[reportPrivateUsage]
    report = ask(tmp_path, clients, public, inputs="text", by="device", values=["phone", "tablet"])
    assert report.ranked[0].name in ("device: tablet", "device: phone")
    assert next(one for one in shown(report).compared if one.name == "tablet").verdict == "more"


@pytest.mark.parametrize("field", ["region", "style", "group"])
def test_a_field_may_be_called_like_a_part_of_the_report(field, tmp_path):
    """The share of a region is not one of images, and that of a group is not kept for the captions of images."""
    clients, public = authors(120), authors(60, 1)
    for one in (clients, public):
        one._columns[field] = np.full(one.n_examples, "north").astype(TEXT)  # pyright: ignore[reportPrivateUsage]
    report = ask(tmp_path, clients, public, inputs="text", by=field, values=["north"])
    told = next(one for one in report.findings if one.name.endswith(f"{field}: north"))
    assert told.statement.startswith("No difference detected in the share of ")
    assert f"{field} north" in told.statement
    assert '<th scope="row" rowspan="2">north</th>' in report.to_html()


def test_classes_are_compared_by_name_and_not_by_number(tmp_path):
    clients, public = writers(200), writers(100, 1)
    backwards = tuple(public.classes["label"])[::-1]
    swapped = public.replace({**public.columns, "label": 9 - public.columns["label"]})
    swapped.classes["label"] = backwards
    prepared, seen = compared(clients, swapped)
    assert prepared.classes == backwards
    np.testing.assert_array_equal(seen.columns["label"], 9 - clients.columns["label"])
    np.testing.assert_array_equal(prepared.reference.columns["label"], swapped.columns["label"])


@pytest.mark.parametrize(("dtype", "names"), [(TEXT, ("12", "3")), (np.int64, ("3", "12"))], ids=["texts", "numbers"])
def test_texts_and_whole_numbers_are_their_own_names(dtype, names):
    """As files have them, which list no classes: those of public data are compared, not what only clients have."""
    clients, public = (
        Population(
            {"label": np.array(values * 40).astype(dtype), "age": np.ones(40 * len(values))},
            sizes=[len(values)] * 40,
            name=name,
        )
        for name, values in (("clients", [12, 7, 3, 12]), ("file", [3, 12, 3]))
    )
    prepared, seen = compared(clients, public, inputs="age")
    assert prepared.classes == names == seen.classes["label"] == prepared.reference.classes["label"]
    first, last = names.index("3"), names.index("12")
    assert seen.columns["label"][:4].tolist() == [last, -1, first, last]
    assert prepared.reference.columns["label"][:3].tolist() == [first, last, first]
    _, seen = compared(clients, public, inputs="age", classes=["7", "3"])
    assert seen.columns["label"][:4].tolist() == [-1, 0, 1, -1]


def test_what_is_no_list_of_classes_is_refused():
    for column, words in ((np.arange(101), "101 different values in file"), (np.ones(101), "label is float64 in file")):
        both = [
            Population({"label": column, "age": np.arange(101) + seed}, sizes=[1] * 101, name="file") for seed in (0, 1)
        ]
        with pytest.raises(InvalidInput, match=words):
            compared(*both, inputs="age")


def patients(illnesses: list[list[str]], name: str) -> Population:
    """Clients and what they have; as a loader does, the list of classes is read off the data."""
    values, codes = np.unique([one for own in illnesses for one in own], return_inverse=True)
    columns = {"label": codes.astype(np.int32), "job": codes.astype(np.int32)}
    named = dict.fromkeys(columns, tuple(map(str, values)))
    return Population(columns, sizes=[len(own) for own in illnesses], name=name, classes=named)


@pytest.mark.parametrize("inputs", ["job", "age"])
def test_a_class_of_one_client_is_neither_named_nor_moves_what_others_send(tmp_path, inputs):
    """The name sorts first: with it in the list, every other class would have another number."""
    common = [f"illness {number:02d}" for number in range(20)]
    random = np.random.default_rng(0)
    people, known = ([list(random.choice(common, 12)) for _ in range(clients)] for clients in (80, 60))
    neighbours = [patients([*people, [last] * 12], "people") for last in ("illness 03", "anthrax")]
    public = patients([*known, common], "public")
    for one in (*neighbours, public):
        one._columns["age"] = np.arange(one.n_examples) % 90.0  # pyright: ignore[reportPrivateUsage]
    (first, one), (second, other) = (compared(each, public, inputs=inputs, seed=b"run") for each in neighbours)
    assert first.question.to_dict() == second.question.to_dict()
    assert first.classes == second.classes == public.classes["label"]
    assert first.divisions == second.divisions
    others = slice(0, 80 * 12)
    for field in ("label", "cues", "half", "looked"):
        np.testing.assert_array_equal(one.columns[field][others], other.columns[field][others])
    assert set(other.columns["label"][80 * 12 :]) == {-1}
    named, _ = compared(neighbours[1], public, inputs=inputs, classes=["illness 03", "anthrax"])
    assert named.classes == ("illness 03", "anthrax")  # who knows of it can ask
    report = ask(tmp_path, neighbours[1], public, inputs=inputs)
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file() and b"anthrax" in path.read_bytes()]
    assert "anthrax" not in str(report.to_dict())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reference": lambda: writers(30, 1)}, "40 are needed"),
        ({"reference": lambda: data.embedded("handwriting", clients=50, seed=1)}, "convert both to one type and shape"),
        ({"inputs": "photo"}, "no field 'photo'"),
        ({"by": "device"}, "'device' is not"),
        ({"discover": True}, "need one text field"),
    ],
    ids=["too few", "another shape", "no field", "no slice", "words of pictures"],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(tmp_path, change: dict[str, Any], words: str):
    change = {name: value() if callable(value) else value for name, value in change.items()}
    about: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "reference": writers(50, 1), "out": tmp_path / "run"}
    with pytest.raises(InvalidInput, match=words):
        bias(writers(20), **about | change)


@pytest.mark.slow
def test_data_without_examples_or_common_classes_are_no_reason_to_refuse(tmp_path):
    """A refusal would say that nobody has an example, or one of these classes."""
    empty = Population({"image": np.zeros((0, 14, 14), np.uint8)}, sizes=[0] * 5, name="empty")
    assert ask(tmp_path, empty, writers(50, 1)).guarantee.is_private
    other = writers(50, 1)
    other.classes["label"] = tuple("abcdefghij")
    assert ask(tmp_path, writers(20), other, out=tmp_path / "other").guarantee.is_private


def test_the_clients_themselves_are_not_public(tmp_path):
    clients = writers(50)
    for same in (clients, clients.replace(clients.columns)):
        with pytest.raises(PrivacyError, match="the protected population itself"):
            ask(tmp_path, clients, same)
