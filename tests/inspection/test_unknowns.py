"""Laws of `unknowns`: it costs what was asked for, nothing is paid for twice, and it finds and names what is there."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from flat import ask_unknowns as unknowns

from blindsight import keys
from blindsight.accounting.ledger import Ledger
from blindsight.data import faults
from blindsight.data.population import TEXT, Population
from blindsight.data.text import Vocabulary
from blindsight.errors import BudgetExceeded, InvalidInput, LedgerTampered
from blindsight.inspection import lessons
from blindsight.inspection.report import Report
from blindsight.inspection.unknowns.models import WordTraining
from blindsight.inspection.unknowns.section import Generated, Rate, Side, UnknownsSection, WordList
from blindsight.privacy import Privacy

WORDS = ("i", "have", "a", "cat", "the", "is", "here", "and", "we", "see", "it", "now", ".")
KNOWN = Vocabulary(WORDS)
TINY = WordTraining(
    rounds=1, cohort=120, embedding=4, cells=4, letter_embedding=4, letter_cells=4, length=12, samples=50, listed=5
)


def people(clients: int = 300, sentences: int = 8, seed: int = 0) -> Population:
    """Clients who say known words, and now and then one of their own."""
    dice = np.random.default_rng(seed)
    words = dice.choice(WORDS[:-1], (clients * sentences, 6))
    own = dice.random(words.shape) < 0.05
    texts = [
        " ".join("zorg" if odd else word for word, odd in zip(row, odds, strict=True)) + "."
        for row, odds in zip(words.tolist(), own.tolist(), strict=True)
    ]
    return Population({"text": np.array(texts, dtype=TEXT)}, sizes=[sentences] * clients, name="people")


def ask(folder: Path, fault: str | None = None, clients: int = 300, **more: Any) -> Report:
    before, after = people(clients), people(clients, seed=1)
    after = after if fault is None else faults.apply(after, fault)
    about: dict[str, Any] = {"vocabulary": KNOWN, "epsilon": 8.0, "delta": 1e-6, "key": keys.reproducible(3)}
    about |= {"ledger": Ledger(folder / "ledger.db"), "population": "phones", "out": folder / "run"}
    return unknowns(before, after, **about | more)


@pytest.mark.parametrize("fault", ["token_join:0.3:by=example", "token_join:0.3:by=example:glue=space"])
def test_joined_words_are_found_named_located_and_paid_for(tmp_path, fault):
    report = ask(tmp_path, fault)
    assert report.outcome == "fault"
    assert report.named[0].fault == "token_join"
    assert "the first two words of sentences are joined" in report.verdict
    found = {one.name for one in report.findings if one.verdict == "detected"}
    assert "unknown words at position 1" in found
    assert "unknown words at position 4" not in found
    assert 7.9 <= report.guarantee.epsilon <= 8.0
    assert 7.9 <= Ledger(tmp_path / "ledger.db").spent("phones", delta=1e-6).epsilon <= 8.0
    shown = report.unknowns
    assert shown is not None
    assert shown.after.places[0].low > shown.before.places[0].high
    assert shown.churn is None


def test_where_nothing_has_changed_nothing_is_said_to_have(tmp_path):
    report = ask(tmp_path)
    assert report.outcome == "nothing"
    assert report.diagnoses[0].fault == "none"


def test_an_inspection_that_is_repeated_pays_once_and_says_the_same(tmp_path):
    first = ask(tmp_path, "token_join:0.3:by=example")
    again = ask(tmp_path, "token_join:0.3:by=example", key=keys.reproducible(4))
    now = {"created": "", "ledger": []}  # what may differ
    assert again.to_dict() | now == first.to_dict() | now
    assert len([e for e in Ledger(tmp_path / "ledger.db").entries("phones") if e.kind == "release"]) == 1


def test_what_was_released_is_read_again_only_with_the_ledger_that_has_its_price(tmp_path):
    ask(tmp_path, discover=True)
    with pytest.raises(LedgerTampered):
        ask(tmp_path, discover=True, ledger=Ledger(tmp_path / "other.db"))


@pytest.mark.parametrize("other", ["data", "vocabulary", "population"])
def test_a_folder_that_holds_another_answer_is_refused(tmp_path, other):
    ask(tmp_path)
    settings = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["settings"]
    assert list(settings.pop("simulation_only")) == ["data"]  # by which it is told, read off the data and marked so
    assert people().fingerprint not in json.dumps(settings)
    words = Vocabulary(WORDS[::-1])
    changed: dict[str, Any] = {"data": {"clients": 299}, "vocabulary": {"vocabulary": words}}
    with pytest.raises(InvalidInput, match="holds a run with other settings"):
        ask(tmp_path, **changed.get(other, {"population": "tablets", "ledger": Ledger(tmp_path / "other.db")}))


def test_parts_of_the_promise_add_up_to_it_and_no_more(tmp_path):
    assert 0.97 * 4 < ask(tmp_path, discover=True, epsilon=4.0).guarantee.epsilon <= 4


def test_a_spent_budget_refuses_the_round_and_nothing_is_released(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("phones", epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceeded):
        ask(tmp_path, ledger=ledger, clients=60)
    assert not (tmp_path / "run" / "report.json").exists()
    assert ask(tmp_path, ledger=ledger, clients=60, epsilon=0.9).guarantee.epsilon <= 0.9  # corrected


class Untrained(NamedTuple):
    """What training would return, had it trained."""

    model: Any
    rounds: int


def test_a_budget_that_ends_while_models_are_trained_refuses_the_promise_and_keeps_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(lessons, "solve_noise", lambda event, **promise: 2.0)
    monkeypatch.setattr(
        lessons, "train_model", lambda algorithm, backend, privacy, **_: Untrained(None, privacy.rounds - 1)
    )
    with pytest.raises(BudgetExceeded, match="ran out after 0 of 1 rounds") as refused:
        ask(tmp_path, clients=30, train=TINY)
    assert refused.value.exit_code == 3
    with pytest.raises(InvalidInput, match="other settings"):  # one release was made there
        ask(tmp_path, clients=30, train=TINY, epsilon=4.0)


@pytest.mark.slow
def test_models_are_within_the_same_promise(tmp_path, monkeypatch):
    """A client is on both sides, so that all four models add up with the round."""
    asked = list[tuple[Privacy, float]]()

    def untrained(algorithm: Any, backend: Any, privacy: Privacy, *, delta: float, **_: Any) -> Untrained:
        asked.append((privacy, delta))
        return Untrained(algorithm.model(algorithm.init()), privacy.rounds)

    monkeypatch.setattr(lessons, "train_model", untrained)
    report = ask(tmp_path, "token_join:by=example:glue=space", clients=120, train=TINY)
    assert 7.9 <= report.guarantee.epsilon <= 8.0
    assert "training four models" in report.guarantee.participation
    told = [str(release["what"]) for release in report.releases]
    models = [f"model of {kind} {side}, 1 rounds" for side in ("before", "after") for kind in ("words", "letters")]
    assert told == ["rates", "signs", "votes", *models]
    # the noise is that which all four need together with what was spent before, not each by itself
    alone = [privacy.guarantee(delta=delta).epsilon for privacy, delta in asked]
    assert len(alone) == 4
    assert max(alone) < 4.5
    shown = report.unknowns
    assert shown is not None
    assert shown.churn is not None
    for side in shown.sides:
        assert side.generated is not None
        assert len(side.generated.places) == len(side.places) == 11
        assert list(side.generated.listed.probabilities) == sorted(side.generated.listed.probabilities, reverse=True)
        assert not set(side.generated.listed.words) & set(WORDS)


@pytest.mark.slow
def test_discovered_words_are_within_the_same_promise_and_not_paid_for_twice(tmp_path):
    report = ask(tmp_path, "token_join:by=example:glue=space", discover=True)
    ledger = Ledger(tmp_path / "ledger.db")
    assert 0.97 * 8 < report.guarantee.epsilon <= 8.0
    assert 0 < ledger.spent("phones", delta=1e-6).epsilon <= report.guarantee.epsilon * (1 + 1e-12)
    assert [str(release["what"]) for release in report.releases][3:] == ["words before", "words after"]
    paid = len(list(ledger.entries("phones")))
    again = ask(tmp_path, "token_join:by=example:glue=space", discover=True)
    assert len(list(ledger.entries("phones"))) == paid
    assert again.unknowns == report.unknowns
    assert report.unknowns is not None
    assert [word for word, _ in report.unknowns.before.discovered or ()] == ["zorg"]


@pytest.mark.slow
def test_models_that_are_trained_are_paid_for_and_not_twice(tmp_path):
    """The ledger holds the round and every round of every model, and all of it is what the report promises."""
    report = ask(tmp_path, "token_join:by=example:glue=space", clients=120, train=TINY)
    ledger = Ledger(tmp_path / "ledger.db")
    spent = ledger.spent("phones", delta=1e-6).epsilon
    assert 7.9 <= spent <= 8.0 * (1 + 1e-6)
    paid = [entry for entry in ledger.entries("phones") if entry.kind == "release"]
    assert len({entry.run for entry in paid}) == 5
    again = ask(tmp_path, "token_join:by=example:glue=space", clients=120, train=TINY)
    assert [entry for entry in ledger.entries("phones") if entry.kind == "release"] == paid
    assert again.releases == report.releases


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no such fault": ({"suspects": ["flip"]}, "is not a fault of words"),
    "no such field": ({"field": "body"}, "no text 'body'"),
    "nothing to spend": ({"epsilon": 0.0}, "epsilon"),
    "all for training": ({"train": True, "epsilon": -1.0}, "epsilon"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(tmp_path, case):
    settings, words = BAD[case]
    with pytest.raises(InvalidInput, match=words) as refusal:
        ask(tmp_path, clients=5, **settings)
    assert "\n" not in str(refusal.value)


def test_clients_on_one_side_only_and_empty_ones_are_no_reason_to_refuse(tmp_path):
    """A refusal would say that nobody is on both sides."""
    about: dict[str, Any] = {"vocabulary": KNOWN, "epsilon": 1.0, "delta": 1e-6, "out": tmp_path / "run"}
    strangers = people(3)
    strangers.ids = np.array(["x", "y", "z"], dtype=TEXT)
    assert unknowns(people(3), strangers, **about).guarantee.is_private
    silent = Population({"text": np.array([], dtype=TEXT)}, sizes=[0, 0, 0], name="silent")
    assert unknowns(silent, people(3), **about | {"out": tmp_path / "other"}).guarantee.is_private


def test_a_vocabulary_that_knows_everything_is_said_to(tmp_path):
    report = ask(tmp_path, vocabulary=Vocabulary((*WORDS, "zorg")))
    assert report.outcome == "nothing"
    assert any("cannot be distinguished from zero" in note for note in report.notes)


def side(name: str, words: list[str], probabilities: list[float], elsewhere: list[float]) -> Side:
    rate = Rate(0.1, 0.0, 0.2)
    listed = WordList(tuple(words), tuple(probabilities), tuple(elsewhere))
    made = Generated(0.1, (0.1,) * 11, ("UNK is here",), listed, (0.0,) * 5)
    return Side(name, rate, (rate,) * 11, (rate,) * 5, (rate,) * 5, made, (("zorg", 12.0),))


def test_churn_is_what_came_went_rose_and_fell():
    then = side("before", ["regex", "xcode", "divs"], [0.005, 0.004, 0.003], [0.001, 0.004, 0.0])
    now = side("after", ["i have", "xcode", "regex"], [0.008, 0.004, 0.001], [1e-9, 0.004, 0.005])
    churn = UnknownsSection(10, ("p",) * 11, ("t",) * 5, ("l",) * 5, then, now).churn
    assert churn is not None
    assert (churn.new, churn.gone, churn.risen, churn.fallen) == (("i have",), ("divs",), (), ("regex",))


def test_the_page_the_json_and_the_terminal_say_it_all(tmp_path):
    then = side("before", ["regex"], [0.005], [0.001])
    now = side("after", ["<i> have"], [0.008], [0.001])
    report = ask(tmp_path, "token_join:0.3:by=example")
    shown = report.unknowns
    assert shown is not None
    whole = Report.from_dict(
        report.to_dict()
        | {"unknowns": UnknownsSection(10, shown.places, shown.traits, shown.lengths, then, now).to_dict()}
    )
    assert Report.from_dict(json.loads(json.dumps(whole.to_dict()))).to_dict() == whole.to_dict()
    page, printed = whole.to_html(), str(whole)
    for words in (
        "Unknown words by position",
        "Generated unknown words",
        "&lt;i&gt; have",
        "<mark>UNK</mark> is here",
        "voted for the one that resolved most new unknown words",
    ):
        assert words in page
    assert "<i> have" not in page
    assert "Unknown words by position" in printed
    assert "<i> have 8.00" in printed
    assert "zorg 12" in printed
    assert "Generated unknown words" not in report.to_html()
