"""What models of unknown words say: exact probabilities, shares that add up, settings that make sense."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from flat import ask_unknowns

from blindsight import keys
from blindsight.accounting.ledger import Ledger
from blindsight.data.population import TEXT, Population
from blindsight.data.text import UNKNOWN, Vocabulary, word_bytes
from blindsight.errors import InvalidInput
from blindsight.inspection import lessons
from blindsight.inspection.unknowns import models as module
from blindsight.inspection.unknowns.models import WordTraining, generate_side
from blindsight.models import generation

KNOWN = Vocabulary(("i", "have", "a", "cat"))
TINY = WordTraining(
    rounds=1, cohort=2, embedding=4, cells=4, letter_embedding=4, letter_cells=4, length=12, samples=300, listed=7
)


@pytest.mark.slow
def test_what_a_side_generates_is_exact_and_in_order():
    words, letters = (TINY.model(unit, KNOWN) for unit in module.UNITS)
    other = WordTraining(letter_embedding=4, letter_cells=5).model("letters", KNOWN)
    made = generate_side(words, letters, other, KNOWN, TINY)
    assert 1 <= len(made.listed.words) <= 7
    assert list(made.listed.probabilities) == sorted(made.listed.probabilities, reverse=True)
    spelled = [word for word in made.listed.words if "\ufffd" not in word and " " not in word]
    for model, told in ((letters, made.listed.probabilities), (other, made.listed.elsewhere)):
        exact = np.exp(np.asarray(generation.log_probability(model, word_bytes(spelled, length=12))))
        shown = dict(zip(made.listed.words, told, strict=True))
        np.testing.assert_allclose([shown[word] for word in spelled], exact, rtol=1e-4)
    assert not set(made.listed.words) & set(KNOWN.words)
    assert len(made.phrases) == 10
    assert all(0 <= share <= 1 for share in (made.rate, *made.places, *made.traits))
    again = generate_side(words, letters, other, KNOWN, TINY)
    assert again == made  # it reads the models, and nothing else


def test_every_model_is_trained_with_a_key_of_its_own_and_paid_for_by_its_side(tmp_path, monkeypatch):
    """Models of one side are about the same clients: with the same noise, each would tell what the other hides."""
    seen = list[tuple[str, bytes]]()

    def train(*_: Any, population: str, key: keys.Key, **__: Any) -> Any:
        seen.append((population, key.secret))
        return SimpleNamespace(rounds=TINY.rounds, model=None)

    monkeypatch.setattr(lessons, "train_model", train)
    monkeypatch.setattr(lessons, "_noise", lambda *_: 3.0)  # that it suffices is another law
    monkeypatch.setattr(module, "generate", lambda *_: {})
    before, after = (
        Population({"text": np.array(["i have a dog"] * 6, dtype=TEXT)}, sizes=[2] * 3, name=name)
        for name in ("spring", "autumn")
    )
    after._columns["text"][0] = "i have a cat"  # pyright: ignore[reportPrivateUsage]
    about: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "train": TINY, "out": tmp_path / "run"}
    ask_unknowns(before, after, vocabulary=KNOWN, ledger=Ledger(tmp_path / "ledger.db"), **about)
    assert [name for name, _ in seen] == ["spring", "spring", "autumn", "autumn"]
    assert len({key for _, key in seen}) == 4


def test_places_are_counted_from_one_and_ends_are_no_words():
    rows = np.zeros((2, 21), np.int32)
    rows[:, 0] = 1
    rows[0, 1:4] = UNKNOWN, 4, 2  # UNK i END
    rows[1, 1:16] = [4] * 13 + [UNKNOWN, UNKNOWN]
    rate, places = module._by_place(rows)  # pyright: ignore[reportPrivateUsage]
    assert rate == pytest.approx(3 / 17)
    assert places == (0.5, *[0.0] * 9, 0.5)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(InvalidInput, match="share of epsilon"):
        WordTraining(share=1.0)
    with pytest.raises(InvalidInput, match="above 11 tokens"):
        WordTraining(length=11)
    with pytest.raises(InvalidInput, match="must be at least 1"):
        WordTraining(samples=0)


def test_models_have_the_papers_sizes_where_they_are_asked_for():
    papers = WordTraining(embedding=96, cells=670, letter_embedding=128, letter_cells=256, letter_layers=3)
    shapes = jax.eval_shape(lambda: papers.model("letters", KNOWN))
    assert shapes.embedding.table.shape == (258, 128)
    assert len(shapes.layers) == 3
