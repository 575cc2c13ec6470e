"""Laws of language runs: the promise includes the vocabulary, which is released once; bad text is one sentence."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from blindsight import checkpoints, config, runs
from blindsight.accounting.ledger import Ledger
from blindsight.data.population import TEXT, Population
from blindsight.data.text import END, UNKNOWN, Vocabulary
from blindsight.errors import InvalidInput, LedgerTampered, PrivacyError
from blindsight.jobs import language, models
from blindsight.jobs import train as jobs
from blindsight.privacy import Privacy

RUN: dict[str, Any] = {
    "name": "words",
    "seed": 1,
    "data": {"population": "people", "held_out": 0.2},
    "model": {"kind": "word_lm", "embedding": 4, "cells": 5},
    "text": {"vocabulary": "private", "vocabulary_epsilon": 4.0, "vocabulary_size": 12, "length": 6},
    "client": {"batch_size": 8, "learning_rate": 0.5},
    "privacy": {"cohort": 32, "rounds": 1, "noise_multiplier": 1.0, "delta": 1e-3, "participation": "full"},
}


def settings(**changes: Any) -> config.Config:
    """The small run with some keys of its tables changed."""
    table = {name: dict(part) if isinstance(part, dict) else part for name, part in RUN.items()}
    for place, value in changes.items():
        name, _, key = place.partition("__")
        table[name] = table[name] | {key: value} if key else value
    return config.parse(table)


def people(clients: int = 40) -> Population:
    """Clients that all say the same two sentences, and each a word of its own."""
    texts = [text for client in range(clients) for text in ("The cat sat. The cat ran.", f"my own word{client} is")]
    return Population({"text": np.array(texts, dtype=TEXT)}, sizes=[2] * clients, name="people")


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Models run a few times only: here compiling is what takes time, so it is kept short."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.db")


def test_the_promise_of_a_run_includes_its_vocabulary_which_is_released_once(tmp_path, ledger, monkeypatch):
    private: Any = {"cohort": 157, "rounds": 2, "epsilon": 12.0, "delta": 1e-3, "participation": "full"}
    (tmp_path / "candidates.txt").write_text("zebra\ncat\nthe\nsat\n", encoding="utf-8")
    words = {"vocabulary": "private", "vocabulary_epsilon": 8.0, "candidates": str(tmp_path / "candidates.txt")}
    asked = settings(privacy=private, text={**words, "vocabulary_size": 7, "length": 6})
    trained = jobs.run_training(asked, out=tmp_path / "run", ledger=ledger, population=people(200))
    entries = ledger.entries("people")
    before = [entry for entry in entries if not entry.note.startswith("rounds")]
    assert before
    assert entries[: len(before)] == before  # paid for before the first round
    assert ledger.spent("people", 1e-3).epsilon == pytest.approx(
        trained.guarantee.epsilon, rel=0.01
    )  # nothing is left out
    assert 11.8 < trained.guarantee.epsilon <= 12
    noise = checkpoint_settings(tmp_path / "run")["noise_multiplier"]
    rounds = Privacy(population=157, cohort=157, rounds=2, participation="full", noise_multiplier=noise)
    assert rounds.guarantee(delta=1e-3).epsilon < trained.guarantee.epsilon - 1  # rounds alone would promise more
    vocabulary, released = language.kept_vocabulary(runs.open_run(tmp_path / "run"))
    assert set(vocabulary.words) == {"the", "cat", "sat"}  # those of the candidates that clients use
    assert len(released) == 1
    assert runs.open_run(tmp_path / "run").read("guarantee.json")["epsilon"] == trained.guarantee.epsilon

    monkeypatch.setattr(language, "release_words", lambda *given, **named: pytest.fail("released twice"))
    again = jobs.run_training(asked, out=tmp_path / "run", ledger=ledger, population=people(200))
    assert again.guarantee == trained.guarantee
    assert ledger.entries("people") == entries


def checkpoint_settings(folder: Path) -> dict[str, Any]:
    path = checkpoints.newest(folder)
    assert path is not None
    return checkpoints.load(path, {}).facts["settings"]  # only what stands beside the arrays


def test_a_run_comes_back_with_its_model_its_vocabulary_and_its_clients(tmp_path, ledger, monkeypatch):
    (tmp_path / "words.txt").write_text("the\ncat\nsat\nran\n.\n", encoding="utf-8")
    asked = settings(text__vocabulary=str(tmp_path / "words.txt"))
    trained = jobs.run_training(asked, out=tmp_path / "run", ledger=ledger, population=people())
    notes = [entry.note for entry in ledger.entries("people") if entry.kind == "release"]
    assert all(note.startswith("rounds") for note in notes)  # a given vocabulary is free
    assert set(trained.simulation_only) == {"recall_top1", "recall_top3", "loss"}
    found = jobs.load_trained(tmp_path / "run", population=people())
    assert found.vocabulary == Vocabulary(("the", "cat", "sat", "ran", "."))
    assert found.config == asked
    assert (found.clients.size, found.held_out and found.held_out.size) == (32, 8)
    assert found.clients.columns["tokens"].shape == (96, 7)  # two sentences and one more of every client
    np.testing.assert_array_equal(found.model.embedding.table, trained.model.embedding.table)
    assert found.model.vocabulary == 9
    monkeypatch.setattr(models, "load_trained", lambda folder: found)
    with pytest.raises(InvalidInput, match="holds a language model"):
        models.load_model(tmp_path / "run")


def test_a_char_model_learns_from_unknown_words_alone(tmp_path, ledger):
    (tmp_path / "words.txt").write_text("the\ncat\nsat\nran\n.\nmy\nown\nis\n", encoding="utf-8")
    asked = settings(
        model={"kind": "char_lm", "embedding": 2, "cells": 3, "layers": 1},
        text__vocabulary=str(tmp_path / "words.txt"),
        text__length=8,
    )
    trained = jobs.run_training(asked, out=tmp_path / "run", ledger=ledger, population=people())
    clients = jobs.load_trained(tmp_path / "run", population=people()).clients
    assert set(clients.sizes.tolist()) == {1}
    assert bytes(clients.columns["tokens"][0, 1:5].tolist()) == b"word"
    assert set(trained.simulation_only) == {"loss"}


def test_nobody_keeps_more_sentences_than_asked():
    text = dataclasses.replace(settings().text, sentences=1)
    found = language.tokens_of(text, "word_lm", people(5), Vocabulary(("the", "cat")))
    assert set(found.sizes.tolist()) == {1}
    assert found.columns["tokens"][0].tolist() == [1, 4, 5, UNKNOWN, UNKNOWN, END, 0]


@pytest.mark.parametrize(
    ("population", "vocabulary", "says"),
    [
        (people().replace({"words": people().columns["text"]}), ("a",), "names the field 'text', but people has words"),
        (people().replace({"text": np.arange(80)}), ("a",), "which is not text in people"),
    ],
)
def test_text_that_cannot_be_learned_from_is_one_sentence(tmp_path, ledger, population, vocabulary, says):
    (tmp_path / "words.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    asked = settings(text__vocabulary=str(tmp_path / "words.txt"))
    with pytest.raises(InvalidInput, match=says):
        jobs.run_training(asked, out=tmp_path / "run", ledger=ledger, population=population)
    assert not ledger.entries("people")


def test_public_text_without_unknown_words_is_one_sentence():
    words = Vocabulary(("the", "cat", "sat", "ran", ".", "my", "own", "is", "word0"))
    with pytest.raises(InvalidInput, match="words that the vocabulary lacks"):
        language.check_any("char_lm", language.tokens_of(settings().text, "char_lm", people(1), words))


def test_that_no_client_has_a_sentence_is_no_reason_to_refuse(tmp_path, ledger):
    """A refusal would tell it of all of them, and of the last one who has."""
    (tmp_path / "words.txt").write_text("a", encoding="utf-8")
    silent = Population({"text": np.array([], dtype=TEXT)}, sizes=[0] * 40, name="people")
    asked = settings(text__vocabulary=str(tmp_path / "words.txt"))
    assert jobs.run_training(asked, out=tmp_path / "run", ledger=ledger, population=silent).rounds == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"text": {}}, "needs a vocabulary"),
        ({"privacy": {"epsilon": 3.0, "delta": 1e-3, "cohort": 5, "rounds": 2}}, "leaves nothing of"),
        ({"privacy__participation": "fixed"}, "a participation other than"),
        ({"privacy": {"none": True, "cohort": 5, "rounds": 2}}, "needs a .privacy. delta"),
        ({"privacy__unit": "example"}, "protect whole clients"),
        ({"text": {"vocabulary": "w.txt", "candidates": "c.txt"}}, "candidates are for"),
        ({"text__vocabulary_size": 4}, "more than 4"),
        ({"model__cells": 0}, r"\[model\] cells must be at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(changes, says):
    with pytest.raises(InvalidInput, match=says):
        settings(**changes)


def test_words_of_the_clients_themselves_are_not_counted_without_noise():
    own = settings(data={"population": "forum", "options": {"clients": 9}}, text={"vocabulary": "forum"})
    assert language.public_vocabulary(own).size > 100  # other authors, whom nobody protects
    same = dataclasses.replace(own, text=dataclasses.replace(own.text, vocabulary_options={"clients": 9}))
    with pytest.raises(PrivacyError, match="without noise"):
        language.public_vocabulary(same)


@pytest.mark.parametrize("words", [{"vocabulary": "none.txt"}, {"vocabulary": "private", "candidates": "none.txt"}])
def test_words_that_cannot_be_read_are_refused_before_a_run_begins(tmp_path, ledger, words):
    with pytest.raises(InvalidInput, match="cannot read the vocabulary none"):
        jobs.run_training(settings(text=words), out=tmp_path / "run", ledger=ledger, population=people())
    assert not (tmp_path / "run").exists()


def test_a_cohort_that_does_not_fit_is_refused_before_a_vocabulary_is_paid_for(tmp_path, ledger):
    with pytest.raises(InvalidInput, match="at most the population"):
        jobs.run_training(settings(privacy__cohort=999), out=tmp_path / "run", ledger=ledger, population=people())
    assert not ledger.entries("people")
    assert not (tmp_path / "run").exists()


def test_a_vocabulary_without_words_was_paid_for_and_is_not_asked_for_again(tmp_path, ledger):
    asked = settings(text__vocabulary_epsilon=0.05)
    paid = list[int]()
    for _ in range(2):
        with pytest.raises(InvalidInput, match="has paid for that answer"):
            jobs.run_training(asked, out=tmp_path / "run", ledger=ledger, population=people())
        paid.append(len(ledger.entries("people")))
    assert paid[0] == paid[1] > 0


def test_a_kept_vocabulary_is_used_only_with_the_ledger_that_has_its_price(tmp_path, ledger):
    (tmp_path / "candidates.txt").write_text("zebra\ncat\nthe\nsat\n", encoding="utf-8")
    asked = settings(text__candidates=str(tmp_path / "candidates.txt"), text__vocabulary_epsilon=8.0)
    jobs.run_training(asked, out=tmp_path / "run", ledger=ledger, population=people())
    for path in (tmp_path / "run").glob("checkpoint*"):
        path.unlink()
    with pytest.raises(LedgerTampered):
        jobs.run_training(asked, out=tmp_path / "run", ledger=Ledger(tmp_path / "other.db"), population=people())
