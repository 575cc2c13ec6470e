"""Laws of bookkeeping around inspections: who pays for what, in parallel or in sequence, and with which noise."""

import html
import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flat import ask, ask_bias
from flat import ask_unknowns as unknowns

from blindsight import data, inspect, selection
from blindsight.accounting.accountants import epsilon as epsilon_of
from blindsight.accounting.composition import Split
from blindsight.accounting.events import Composed, Gaussian, NonPrivate, from_json
from blindsight.accounting.guarantee import round_up
from blindsight.accounting.ledger import Ledger, ledger_name
from blindsight.config import parse
from blindsight.data import Population
from blindsight.data.population import TEXT
from blindsight.data.text import Vocabulary
from blindsight.errors import BudgetExceeded, InvalidInput, LedgerError, PrivacyError
from blindsight.inspect import Training
from blindsight.inspection import lessons
from blindsight.inspection.report import Report
from blindsight.jobs import SanityRequest, UnknownsRequest, run_sanity, run_training, run_unknowns
from blindsight.mechanisms import GaussianMechanism
from blindsight.models.classifiers import Logistic
from blindsight.models.primary import primary
from blindsight.training import RunTerms

DELTA = 1e-6


def pictures(clients: int = 60, examples: int = 6, seed: int = 0, name: str = "pictures") -> Population:
    """Small images whose bright half says the class; of every third client the wrong way round."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, clients * examples).astype(np.int32)
    images = random.integers(0, 60, (clients * examples, 8, 8)).astype(np.uint8)
    shown = labels ^ np.repeat(np.arange(clients) % 3 == 0, examples)
    for label, half in ((0, slice(4, 8)), (1, slice(0, 4))):
        images[shown == label, half] += 150
    columns = {"image": images, "label": labels}
    about: dict[str, Any] = {"classes": {"label": ("below", "above")}, "synthetic": True}
    return Population(columns, sizes=np.full(clients, examples), name=name, **about)


def brightness(images: np.ndarray) -> np.ndarray:
    numbers = images.astype(np.float32) / 255
    return np.stack([numbers[:, 4:].mean(axis=(1, 2)), numbers[:, :4].mean(axis=(1, 2))], axis=1)


def darkness(images: np.ndarray) -> np.ndarray:
    return -brightness(images)


def sequence(ledger: Ledger, population: str) -> float:
    """What all releases would cost one client that they are all about."""
    events = [from_json(entry.event) for entry in ledger.entries(population) if entry.kind == "release"]
    return epsilon_of(Composed(tuple(events)), DELTA).epsilon


# --- splits: equal ones must mean equal arms

TRAINING = Training(rounds=2, cohort=60, batch_size=4, generator_steps=1)  # everyone: quick to account for


class _Trained:
    """Stands for a generator that was trained: samples are not what these laws are about."""

    rounds = TRAINING.rounds

    @property
    def model(self) -> "_Trained":
        return self

    def sample(self, count: int, **_: Any) -> np.ndarray:
        return np.zeros((count, 64), np.float32)


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Gaussian]:
    """Training an arm pays what is written here, as training does, and trains nothing."""
    prices = {"failing": Gaussian(1.0), "healthy": Gaussian(8.0)}

    def train(*_: Any, population: str, ledger: Ledger, terms: RunTerms, **__: Any) -> _Trained:
        ledger.record(prices[terms.arm], population=population, split=terms.split, arm=terms.arm)
        return _Trained()

    monkeypatch.setattr(lessons, "train_model", train)
    monkeypatch.setattr(lessons, "_noise", lambda *_: 3.0)  # that it suffices is another law
    return prices


def train_arms(
    out: Path,
    ledger: Ledger,
    low: float = 0.5,
    model: Any = brightness,
    arms: selection.Arms | None = None,
    **more: Any,
) -> Report:
    about: dict[str, Any] = {"epsilon": 4.0, "delta": DELTA, "suspects": ("invert",), "training": TRAINING}
    about |= {"ledger": ledger, "model": model, "out": out, "per_class": 1} | more
    return ask(inspect.contrast, pictures(), arms or selection.by_accuracy(low, 0.9), **about)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"model": brightness}, {"model": darkness}),
        ({"model": Logistic((8, 8), 2, key=jax.random.key(0))},) * 2,
        ({"low": 0.5}, {"low": 0.5 + 1e-12}),
    ],
    ids=["another model", "another run", "the twelfth digit"],
)
def test_arms_of_two_inspections_never_compose_in_parallel(tmp_path, costs, first, second):
    """Who fails by one model may be healthy by another, and then pays for the costly arm of either inspection."""
    ledger = Ledger(tmp_path / "ledger.db")
    train_arms(tmp_path / "one", ledger, **first)
    (round_one,) = (from_json(entry.event) for entry in ledger.entries() if entry.kind == "release" and not entry.arm)
    alone = epsilon_of(Composed((round_one, costs["failing"])), DELTA).epsilon
    assert ledger.spent("pictures", DELTA).epsilon == pytest.approx(alone)  # arms of one run do
    assert alone < sequence(ledger, "pictures")
    costs["failing"], costs["healthy"] = costs["healthy"], costs["failing"]
    train_arms(tmp_path / "two", ledger, **second)
    worst = epsilon_of(Composed((round_one, round_one, costs["healthy"], costs["healthy"])), DELTA).epsilon
    assert ledger.spent("pictures", DELTA).epsilon >= worst * (1 - 1e-9)


def test_arms_that_share_clients_are_paid_for_in_sequence_and_have_keys_of_their_own(tmp_path, costs, monkeypatch):
    """A client with mistakes and correct examples is in both generators."""
    paying, secrets, ledger = lessons.train_model, list[bytes](), Ledger(tmp_path / "ledger.db")
    monkeypatch.setattr(lessons, "train_model", lambda *a, **k: secrets.append(k["key"].secret) or paying(*a, **k))
    costs |= dict.fromkeys(("mistakes", "correct", ""), Gaussian(2.0))
    train_arms(tmp_path / "run", ledger, arms=selection.by_correctness(1))
    assert len(set(secrets)) == 2
    assert ledger.spent("pictures", DELTA).epsilon == pytest.approx(sequence(ledger, "pictures"))


def test_a_run_whose_model_was_exchanged_between_two_arms_is_refused(tmp_path, costs, monkeypatch):
    """Functions have no digest: the run must notice by itself that its arms hold other clients now."""
    ledger, paying = Ledger(tmp_path / "ledger.db"), lessons.train_model
    model = primary(lambda images: brightness(images), name="a function")
    other = primary(lambda images: darkness(images), name="a function")

    def dies(*args: Any, terms: RunTerms, **more: Any) -> Any:
        if terms.arm == "healthy":
            raise KeyboardInterrupt
        return paying(*args, terms=terms, **more)

    monkeypatch.setattr(lessons, "train_model", dies)
    with pytest.raises(KeyboardInterrupt):
        train_arms(tmp_path / "run", ledger, model=model)
    monkeypatch.setattr(lessons, "train_model", paying)
    with pytest.raises(PrivacyError, match="different clients"):
        train_arms(tmp_path / "run", ledger, model=other)
    train_arms(tmp_path / "run", ledger, model=model)


def test_splits_that_inspections_wrote_before_they_had_an_identity_compose_in_sequence(tmp_path):
    """In an old ledger nobody can tell whether two equal rules in words meant the same arms."""
    ledger, old = Ledger(tmp_path / "ledger.db"), Split("inspection", "accuracy below 0.5", ("failing", "healthy"))
    for arm in old.arms:
        ledger.record(Gaussian(2.0), population="people", split=old, arm=arm)
    assert ledger.spent("people", DELTA).epsilon == pytest.approx(sequence(ledger, "people"))


def test_models_that_differ_have_different_digests_and_functions_have_none():
    one, other = (primary(Logistic((8, 8), 2, key=jax.random.key(seed))) for seed in (0, 1))
    assert one.digest not in ("", other.digest)
    assert one.digest == primary(Logistic((8, 8), 2, key=jax.random.key(0))).digest
    assert primary(brightness).digest == ""


# --- populations: whoever is read pays

KNOWN = Vocabulary(("we", "see", "it", "now", "."))


def talk(name: str, seed: int, clients: int = 40) -> Population:
    """Clients who say known words, and each one word of its own."""
    random = np.random.default_rng(seed)
    rows = random.choice(KNOWN.words[:-1], (clients * 4, 4)).tolist()
    texts = np.array([f"{' '.join(row)} own{number % clients} ." for number, row in enumerate(rows)], dtype=TEXT)
    return Population({"text": texts}, sizes=[4] * clients, name=name)


def ask_unknowns(folder: Path, **more: Any) -> Report:
    about: dict[str, Any] = {"vocabulary": KNOWN, "epsilon": 4.0, "delta": DELTA, "out": folder / "run"}
    about |= {"ledger": Ledger(folder / "ledger.db"), "suspects": ("token_join",)}
    return unknowns(talk("spring", 0), talk("autumn", 1), **about | more)


def test_both_populations_that_unknowns_reads_pay(tmp_path):
    ledger, report = Ledger(tmp_path / "ledger.db"), ask_unknowns(tmp_path)
    for name in ("spring", "autumn"):
        assert ledger.spent(name, DELTA).epsilon == pytest.approx(report.guarantee.epsilon)
    assert report.population["name"] == "spring and autumn"


def test_what_is_discovered_on_one_side_is_paid_for_by_that_side(tmp_path):
    """No population pays for less than what was read off it, and the report's promise covers a client on both."""
    ledger, report = Ledger(tmp_path / "ledger.db"), ask_unknowns(tmp_path, discover=True)
    notes = {name: [e.note for e in ledger.entries(name) if e.kind == "release"] for name in ("spring", "autumn")}
    for name in notes:
        assert notes[name][0].startswith("unknown words")
        assert len([note for note in notes[name] if note.startswith("byte 1 ")]) == 1
        assert ledger.spent(name, DELTA).epsilon <= report.guarantee.epsilon * (1 + 1e-12)


def test_one_population_by_name_pays_once(tmp_path):
    ask_unknowns(tmp_path, population="phones")
    entries = Ledger(tmp_path / "ledger.db").entries()
    assert [entry.population for entry in entries if entry.kind == "release"] == ["phones"]


@pytest.mark.parametrize("spent", ["spring", "autumn"])
def test_a_spent_budget_on_either_side_releases_nothing(tmp_path, monkeypatch, spent):
    drawn, release = list[Any](), GaussianMechanism.release
    monkeypatch.setattr(GaussianMechanism, "release", lambda *a, **k: drawn.append(k) or release(*a, **k))
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget(spent, epsilon=0.1, delta=DELTA)
    with pytest.raises(BudgetExceeded, match=spent):
        ask_unknowns(tmp_path)
    assert not drawn
    assert [entry.kind for entry in ledger.entries()] == ["budget"]


def test_a_release_about_several_populations_is_recorded_for_all_or_for_none(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.record(Gaussian(2.0), population=["a", "b", "a"])
    assert [entry.population for entry in ledger.entries()] == ["a", "b"]
    assert ledger.verify().ok
    ledger.set_budget("b", epsilon=2.5, delta=DELTA)
    with pytest.raises(BudgetExceeded):
        ledger.record(Gaussian(2.0), population=["a", "b"])
    assert len(ledger.entries("a")) == 1
    with pytest.raises(InvalidInput, match="name at least one population"):
        ledger.record(Gaussian(2.0), population=[])


# --- reports: a run's guarantee stands beside what all runs have spent


def ask_sanity(folder: Path, name: str, **more: Any) -> Report:
    people = talk("people", 0)
    about: dict[str, Any] = {"ledger": Ledger(folder / "ledger.db"), "inputs": "text", "out": folder / name}
    return ask(inspect.sanity, people, **{"epsilon": 2.0, "delta": DELTA} | about | more)


@pytest.mark.parametrize("budget", [None, 9.0])
def test_a_report_says_what_all_runs_have_spent_wherever_it_says_its_own(tmp_path, budget):
    """In the page, the JSON and the terminal, and with the time at which the ledger said so.

    Who asked the second question had read the first answer: a number that assumes a plan is not what was spent.
    """
    ledger = Ledger(tmp_path / "ledger.db")
    if budget:
        ledger.set_budget("people", epsilon=budget, delta=1e-5)
    ask_sanity(tmp_path, "one")
    report = ask_sanity(tmp_path, "two")
    (so_far,) = report.ledger
    spent = ledger.spent("people", 1e-5 if budget else DELTA)
    adaptive = ledger.adaptive_epsilon("people", spent.delta)
    assert (so_far.epsilon, so_far.planned, so_far.releases) == (adaptive, spent.epsilon, 2)
    assert so_far.budget == budget
    assert so_far.epsilon > spent.epsilon > report.guarantee.epsilon * (1 if budget is None else 0.9)
    said = f"All runs on people combined: epsilon {round_up(adaptive)} ({round_up(spent.epsilon)} if planned in "
    said += f"advance) at delta {spent.delta:.3g} for 2 releases"
    own = "The guarantee covers only this run (1 release)."
    flat = " ".join(str(report).split())
    page = html.unescape((tmp_path / "two" / "report.html").read_text())
    for face in (flat, page):
        assert said in face
        assert own in face
        assert so_far.time in face
    written = json.loads((tmp_path / "two" / "report.json").read_text())
    assert written["ledger"] == [so_far.to_dict()]
    assert Report.from_dict(written).ledger == report.ledger
    del written["ledger"]
    assert Report.from_dict(written).ledger == ()  # of before reports said it


def test_a_report_about_two_populations_quotes_both(tmp_path):
    assert [one.population for one in ask_unknowns(tmp_path).ledger] == ["spring", "autumn"]


def test_where_nothing_finite_can_be_said_a_report_says_that(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.record(NonPrivate(), population="people")
    report = ask_sanity(tmp_path, "run")
    assert report.guarantee.is_private
    assert math.isinf(report.ledger[0].epsilon)
    assert "no finite epsilon" in report.to_html()
    assert Report.from_dict(report.to_dict()).ledger == report.ledger


# --- names: the same data have one


def shuffled(people: Population, name: str) -> Population:
    """The same rows in another order, of clients with other ids, in columns with other names."""
    clients = np.random.default_rng(1).permutation(people.size)
    columns = {f"the {field}": column for field, column in people.examples(clients).items()}
    ids = [f"client {number}" for number in range(people.size)]
    return Population(columns, sizes=people.sizes[clients], ids=ids, name=name)


def ask_text(folder: Path, people: Population, **more: Any) -> Report:
    (field,) = people.fields
    about: dict[str, Any] = {"ledger": Ledger(folder / "ledger.db"), "inputs": field, "out": folder / people.name}
    return ask(inspect.sanity, people, **{"epsilon": 2.0, "delta": DELTA} | about | more)


def test_the_same_data_under_a_second_name_are_refused_before_any_release(tmp_path, monkeypatch):
    ask_text(tmp_path, talk("a", 0))
    ledger = Ledger(tmp_path / "ledger.db")
    before, drawn, release = ledger.entries(), list[Any](), GaussianMechanism.release
    with monkeypatch.context() as spied:
        spied.setattr(GaussianMechanism, "release", lambda *args, **more: drawn.append(more) or release(*args, **more))
        for people in (talk("b", 0), shuffled(talk("a", 0), "c")):
            with pytest.raises(PrivacyError, match=r"already has the data .* under the name 'a'.*use population='a'"):
                ask_text(tmp_path, people)
            assert not (tmp_path / people.name).exists()
        with pytest.raises(PrivacyError, match="under the name 'a'"):
            ask_bias(talk("b", 0), reference=talk("r", 5), inputs="text", epsilon=2, delta=DELTA, ledger=ledger)
        with pytest.raises(PrivacyError, match="under the name 'a'"):
            unknowns(talk("s", 3), talk("b", 0), vocabulary=KNOWN, epsilon=2.0, delta=DELTA, ledger=ledger)
        with pytest.raises(PrivacyError, match="under the name 'a'"):
            ledger.record(Gaussian(1.0), population=ledger_name(talk("b", 0)))
    assert not drawn
    assert ledger.entries() == before
    ask_text(tmp_path, shuffled(talk("a", 0), "c"), population="a")
    assert ledger.spent("a", DELTA).releases == 2
    ask_text(tmp_path, talk("d", 1))  # other data are another population
    assert ledger.spent("d", DELTA).releases == 1
    assert ledger.verify().ok


def test_two_names_for_the_same_data_in_one_question_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PrivacyError, match="second budget"):
        unknowns(talk("s", 0), talk("t", 0), vocabulary=KNOWN, epsilon=2, delta=DELTA, ledger=Ledger(tmp_path / "l.db"))
    assert Ledger(tmp_path / "l.db").entries() == []


@pytest.mark.parametrize("population", [None, "talk"])
@pytest.mark.parametrize("place", ["data", "before"])
def test_a_collection_of_texts_is_known_by_its_whole_table(tmp_path, monkeypatch, place, population):
    """Its column of texts alone would be other data, and the same table under another name had a fresh budget."""
    monkeypatch.chdir(tmp_path)
    for name, word in (("people", "we see ."), ("copy", "we see ."), ("others", "we saw .")):
        Path(f"{name}.csv").write_text(f"client,text,age\na,{word},31\nb,{word},44\n", encoding="utf-8")
    Path("words.txt").write_text("we\nsee\n", encoding="utf-8")
    Ledger("ledger.db").record(Gaussian(1.0), population=ledger_name(data.csv("people.csv")))
    files: dict[str, Any] = {"data": "others.csv", "before": "others.csv", place: "copy.csv"}
    request = UnknownsRequest(**files, vocabulary="words.txt", ledger="ledger.db", population=population, dry_run=True)
    with pytest.raises(PrivacyError, match="under the name 'people'"):
        run_unknowns(request)


def test_a_derived_field_makes_no_other_data_of_them(tmp_path):
    people = talk("a", 0)
    longer = people.replace({**people.columns, "length": np.ones(people.n_examples, np.int32)})
    assert longer.content == people.content
    assert people.replace(people.columns, name="b").transform(lambda _, c: c, name="c").content == people.content
    changed = people.columns["text"].copy()
    changed[0] = "we see ."
    assert people.replace({"text": changed}, name="b").content != people.content


def test_no_entry_or_export_tells_data_without_the_key(tmp_path):
    """Two ledgers have nothing in common about the same data, and the key is for its owner's eyes."""
    books = [Ledger(tmp_path / name / "ledger.db") for name in ("one", "two")]
    for book in books:
        book.record(Gaussian(1.0), population=ledger_name(talk("a", 0)))
    one, two = ([entry.event for entry in book.entries() if entry.kind == "data"] for book in books)
    assert len(one) == len(two) == 1
    assert one != two
    assert talk("a", 0).content not in "".join(books[0].export())
    key = tmp_path / "one" / "ledger.db.key"
    assert key.stat().st_mode & 0o077 == 0
    assert key.read_text() not in "".join(books[0].export())
    for damage in (lambda: key.write_text("ab" * 32), lambda: key.write_text("ab"), key.unlink):
        damage()
        for name in ("a", "b"):  # nobody could tell whose data these are
            with pytest.raises(LedgerError, match="restore it"):
                books[0].record(Gaussian(1.0), population=ledger_name(talk(name, 0)))
    assert len(books[0].entries()) == 2


def test_a_new_ledger_at_a_relative_path_is_said_aloud(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Ledger("book.db").record(Gaussian(1.0), population="people")
    said = capsys.readouterr().err
    assert str(tmp_path / "book.db") in said
    assert "new, empty ledger" in said
    Ledger("book.db").record(Gaussian(1.0), population="people")
    Ledger(tmp_path / "other.db").record(Gaussian(1.0), population="people")
    monkeypatch.delenv("BLINDSIGHT_LEDGER")
    Ledger().spent("people", DELTA)  # reading makes none
    assert capsys.readouterr().err == ""
    Ledger().set_budget("people", epsilon=1.0, delta=DELTA)
    assert str(tmp_path / ".blindsight" / "ledger.db") in capsys.readouterr().err


def test_a_copied_file_and_a_training_run_are_refused_too(tmp_path):
    rows = [f"{number % 30},{(7 * number) % 61},{number % 2}" for number in range(300)]
    files = [tmp_path / "clinic.csv", tmp_path / "copy.csv"]
    for file, lines in zip(files, (rows, rows[::-1]), strict=True):
        file.write_text("\n".join(["who,age,label", *lines]) + "\n")
    about: dict[str, Any] = {
        "client": "who",
        "inputs": ["age"],
        "types": ["age=number:0:100"],
        "epsilon": 2.0,
        "delta": DELTA,
        "even_if_blind": True,
    }
    about |= {"ledger": Ledger(tmp_path / "ledger.db"), "out": tmp_path / "run"}
    run_sanity(SanityRequest(data=str(files[0]), **about))
    for fault in (None, "missing_fill:0.1:field=age"):
        with pytest.raises(PrivacyError, match="second budget"):
            run_sanity(SanityRequest(data=str(files[1]), fault=fault, **about))
    config = parse(
        {
            "name": "train",
            "data": {"population": str(files[1]), "options": {"client": "who"}},
            "model": {"kind": "logistic", "inputs": ["age"], "label": "label", "classes": 2},
            "privacy": {"none": True, "cohort": 10, "rounds": 1},
        }
    )
    with pytest.raises(PrivacyError, match="second budget"):
        run_training(config, out=tmp_path / "train", ledger=about["ledger"])
    assert not (tmp_path / "train").exists()
