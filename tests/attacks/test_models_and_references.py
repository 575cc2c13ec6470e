"""What goes into a report beside the clients: the model, the reference and criteria of one's own."""

import dataclasses
import json
import sqlite3
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flat import ask as flat_ask
from flat import ask_bias

from blindsight import inspect
from blindsight.accounting.events import Relation, Unit
from blindsight.accounting.guarantee import Guarantee
from blindsight.accounting.ledger import Ledger
from blindsight.codings.specs import rows_from_sqlite
from blindsight.config import parse
from blindsight.data.population import Population
from blindsight.errors import BlindsightError, PrivacyError
from blindsight.jobs import (
    AskRequest,
    BiasRequest,
    SanityRequest,
    SynthesizeRequest,
    UnknownsRequest,
    run_ask,
    run_bias,
    run_sanity,
    run_synthesize,
    run_unknowns,
    tune,
)
from blindsight.jobs.language import public_vocabulary
from blindsight.models.primary import Learnt, primary
from blindsight.selection import Arms, Criterion

pytestmark = pytest.mark.usefixtures("few_steps")

TRAINED = Guarantee(epsilon=3.0, delta=1e-6, accountant="PLD", participation="poisson, 100 of 1000", releases=50)


def pictures(seed: int = 0, clients: int = 60) -> Population:
    dice = np.random.default_rng(seed)
    labels = dice.integers(0, 2, 4 * clients).astype(np.int32)
    image = dice.integers(0, 60, (4 * clients, 8, 8)).astype(np.uint8) + (labels * 100)[:, None, None].astype(np.uint8)
    columns = {"image": image, "label": labels}
    return Population(columns, sizes=np.full(clients, 4), name="people", classes={"label": ("dark", "light")})


def brightness(image: np.ndarray) -> np.ndarray:
    light = image.astype(np.float32).mean((1, 2)) / 255
    return np.stack([1 - 2 * light, 2 * light - 0.5], axis=-1)


def ask(task: str, clients: Population, tmp_path: Path, **settings: Any) -> Any:
    usual: dict[str, Any] = {
        "epsilon": 2.0,
        "delta": 1e-6,
        "out": tmp_path / "run",
        "ledger": Ledger(tmp_path / "l.db"),
    }
    if task == "bias":
        return ask_bias(clients, **usual | settings)
    return flat_ask(getattr(inspect, task), clients, **usual | settings)


def test_an_error_about_a_clients_sqlite_table_never_quotes_a_value(tmp_path):
    path = tmp_path / "mine.db"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE notes (words TEXT)")
        file.execute("INSERT INTO notes VALUES ('fine'), (CAST(X'7365637265746c79ff' AS TEXT))")
    file.close()
    try:
        said, rows = "", rows_from_sqlite(path, "notes", ["words"])
    except BlindsightError as error:
        said, rows = str(error), {}
    assert "secretly" not in said
    assert rows == {"words": ["fine", None]}


@pytest.mark.parametrize("task", ["sanity", "slices", "labelling", "bias"])
@pytest.mark.parametrize("named", ["the same object", "equal data"])
def test_clients_are_never_their_own_reference(tmp_path, task, named):
    clients = pictures()
    reference = clients if named == "the same object" else pictures()
    with pytest.raises(PrivacyError, match="name public data"):
        ask(task, clients, tmp_path, reference=reference, model=primary(brightness))
    assert Ledger(tmp_path / "l.db").entries("people") == []


def shuffled(clients: Population) -> Population:
    """The same rows in another order, of clients with other names."""
    order = np.random.default_rng(1).permutation(clients.size)
    about: dict[str, Any] = {"sizes": clients.sizes[order], "name": "public", "classes": clients.classes}
    return Population(clients.examples(order), **about)


@pytest.mark.parametrize("task", ["sanity", "bias"])
def test_nor_are_they_under_other_names_and_in_another_order(tmp_path, task):
    clients = pictures()
    with pytest.raises(PrivacyError, match="name public data"):
        ask(task, clients, tmp_path, reference=shuffled(clients), model=primary(brightness))


_TABLE = ["who,age,income,said", *(f"c{n % 9},{20 + n},{100 * n}.5,we see {n % 4} cats" for n in range(36))]


@pytest.mark.parametrize(
    "asked",
    [
        AskRequest(data="people.csv", fields=["age"]),
        AskRequest(data="people.csv", fields=["said"], vocabulary_size=5),
        SynthesizeRequest(data="people.csv", fields=["age", "income"]),
        SanityRequest(data="people.csv", inputs=["age"]),
        BiasRequest(data="people.csv", inputs=["age"]),
        UnknownsRequest(data="people.csv", inputs=["said"], side="age", values=["20", "21"]),
        UnknownsRequest(data="people.csv", inputs=["said"], before="others.csv"),
        UnknownsRequest(data="others.csv", inputs=["said"], before="people.csv"),
    ],
    ids=["ask", "words", "rows", "sanity", "bias", "one table", "after", "before"],
)
def test_a_copy_of_their_table_is_no_public_data(tmp_path, monkeypatch, asked):
    """Whichever columns a question reads: ranges, categories and words are read off public data without noise."""
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("\n".join([*_TABLE, ""]), encoding="utf-8")
    Path("copy.csv").write_text("\n".join([_TABLE[0], *_TABLE[:0:-1], ""]), encoding="utf-8")
    Path("others.csv").write_text("\n".join([*_TABLE[:20], ""]), encoding="utf-8")
    given = dataclasses.replace(asked, client="who", reference="copy.csv", dry_run=True, ledger="l.db", out="run")
    run = {AskRequest: run_ask, SynthesizeRequest: run_synthesize, SanityRequest: run_sanity, BiasRequest: run_bias}
    with pytest.raises(PrivacyError, match="name public data"):
        run.get(type(asked), run_unknowns)(given)


@pytest.mark.parametrize("what", ["vocabulary", "--tune-on"])
def test_nor_is_it_for_training(tmp_path, monkeypatch, what):
    """In whatever order its rows are, and whoever its clients are said to be."""
    monkeypatch.chdir(tmp_path)
    Path("private.csv").write_text("who,label,text\na,1,we see .\nb,0,a cat .\n", encoding="utf-8")
    Path("copy.csv").write_text("who,said,label\nz,a cat .,0\nz,we see .,1\n", encoding="utf-8")
    Path("other.csv").write_text("who,label,text\na,1,we see .\nb,0,a dog .\n", encoding="utf-8")

    def read(public: str) -> Any:
        about: dict[str, Any] = {"name": "run", "data": {"population": "private.csv", "options": {"client": "who"}}}
        about |= {"model": {"kind": "word_lm"}, "privacy": {"cohort": 1, "rounds": 1, "epsilon": 1.0, "delta": 0.1}}
        text = {"vocabulary": public, "vocabulary_options": {"client": "who"}, "field": "text"}
        asked = parse(about | {"text": text})
        return public_vocabulary(asked) if what == "vocabulary" else tune._public(asked, public)

    with pytest.raises(PrivacyError, match="has all data of the protected clients"):
        read("copy.csv")
    assert read("other.csv")


@pytest.mark.parametrize("task", ["sanity", "labelling", pytest.param("bias", marks=pytest.mark.slow)])
def test_a_report_includes_the_cost_of_a_model_trained_on_the_same_clients(tmp_path, task):
    """The report is computed from the model, so what the model tells about its clients is in the report."""
    model = primary(brightness, learnt=Learnt("people", TRAINED.to_dict()))
    about = {} if task != "bias" else {"steps": 0}
    report = ask(task, pictures(), tmp_path, reference=pictures(1, 100), model=model, **about)
    paid = Ledger(tmp_path / "l.db").spent("people", delta=1e-6).epsilon
    assert report.guarantee.epsilon >= paid + TRAINED.epsilon - 1e-9
    assert report.guarantee.delta == pytest.approx(2e-6)
    said = Guarantee.from_dict(json.loads((tmp_path / "run" / "guarantee.json").read_text()))
    assert said == report.guarantee


@pytest.mark.parametrize("change", [{"epsilon": float("inf")}, {"unit": Unit.EXAMPLE}])
@pytest.mark.parametrize("task", ["sanity", "labelling", "bias"])
def test_a_model_that_protects_no_client_is_refused_before_anything_is_spent(tmp_path, task, change):
    model = primary(brightness, learnt=Learnt("people", dataclasses.replace(TRAINED, **change).to_dict()))
    with pytest.raises(PrivacyError, match="trained on these clients"):
        ask(task, pictures(), tmp_path, reference=pictures(1), model=model)
    assert Ledger(tmp_path / "l.db").entries("people") == []


def test_a_model_of_exchanged_clients_makes_the_whole_promise_about_exchanges(tmp_path):
    """Exchanging a client is leaving one out and putting one in: what is promised about one step holds twice."""
    model = primary(brightness, learnt=Learnt(None, dataclasses.replace(TRAINED, relation=Relation.REPLACE).to_dict()))
    report = ask("sanity", pictures(), tmp_path, model=model)
    paid = Ledger(tmp_path / "l.db").spent("people", delta=1e-6).epsilon
    assert report.guarantee.relation == Relation.REPLACE
    assert report.guarantee.epsilon >= 2 * paid + TRAINED.epsilon - 1e-9


@pytest.mark.parametrize(
    ("learnt", "said"),
    [
        (None, "the primary model was not trained on these clients"),
        (
            Learnt("others", TRAINED.to_dict()),
            "the clients of 'others', on which brightness was trained, are different clients",
        ),
    ],
)
def test_a_model_of_unknown_or_other_clients_is_an_assumption(tmp_path, learnt, said):
    report = ask("sanity", pictures(), tmp_path, model=primary(brightness, learnt=learnt))
    assert said in report.guarantee.assumptions


def test_a_criterion_that_says_nothing_about_clients_is_by_example():
    """Arms of such criteria may share a client, who then pays for each."""

    class Bright(Criterion):
        @property
        def words(self) -> str:
            return "bright examples"

        def meets(self, batch: Any) -> Any:
            return jnp.mean(batch["image"], axis=(1, 2)) > 100

    assert not Arms({"bright": Bright(), "dark": ~Bright()}).disjoint_by_client
