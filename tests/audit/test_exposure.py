"""Ranks are exact, whatever is shared or left out; what was learned by heart is found, what was not is not."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from blindsight import keys
from blindsight.audit import exposure
from blindsight.audit.exposure import exposures, log_probabilities, ranks, references
from blindsight.audit.extraction import extracted
from blindsight.backends import Batch
from blindsight.data.text import END, START
from blindsight.errors import InvalidInput
from blindsight.models.cifg_lstm import LanguageModel, char_model, next_token_loss, word_model
from blindsight.models.generation import log_probability

KEY = keys.reproducible(4)
SIZE = 40
ALPHABET = np.arange(4, SIZE)
CONTEXT = np.array([START, 7, 9], np.int32)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    made = word_model(SIZE, embedding=8, cells=16, key=jax.random.key(0))
    return eqx.tree_at(lambda one: one.embedding.table, made, 3 * made.embedding.table)  # with opinions


@pytest.mark.parametrize(("words", "at_once"), [(1, SIZE), (2, 7 * SIZE), (3, 1), (3, 10_000 * SIZE), (4, 7 * SIZE)])
def test_probabilities_are_those_of_whole_rows_however_they_are_computed(
    model: LanguageModel, words: int, at_once: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(exposure, "_AT_ONCE_ON_CPU", at_once)
    some = references(ALPHABET, 60, words, key=KEY)[::-1].copy()  # in any order
    rows = np.concatenate([np.repeat(CONTEXT[None], len(some), axis=0), some], axis=1)
    expected = np.asarray(log_probability(model, rows, given=3))
    assert log_probabilities(model, CONTEXT, some) == pytest.approx(expected, abs=1e-5)


def test_what_cannot_catch_up_is_left_out_and_changes_no_rank(model: LanguageModel):
    some = references(ALPHABET, 3000, 3, key=KEY)
    everything = log_probabilities(model, CONTEXT, some)
    limit = float(np.quantile(everything, 0.7))
    pruned = log_probabilities(model, CONTEXT, some, at_least=limit)
    assert np.isinf(pruned).any()
    assert np.array_equal(pruned >= limit, everything >= limit)
    secret = some[int(np.argsort(everything)[2100])][None]
    expected = 1 + np.sum(everything >= log_probabilities(model, CONTEXT, secret)[0])
    assert ranks(model, CONTEXT[None], secret, some).tolist() == [expected]


def test_a_model_without_opinions_exposes_nothing():
    flat = word_model(SIZE, embedding=8, cells=16, key=jax.random.key(0))
    flat = jax.tree.map(lambda leaf: jnp.zeros_like(leaf), flat)
    rank = ranks(flat, CONTEXT[None], np.array([[5, 6, 8]], np.int32), references(ALPHABET, 64, 3, key=KEY))
    assert rank.tolist() == [65]
    assert exposures(rank, 64)[0] < 0


def test_what_was_learned_by_heart_is_ranked_first_and_extracted(model: LanguageModel):
    phrase = np.array([[START, 7, 9, 30, 12, 21, END]], np.int32)
    batch = Batch({"tokens": jnp.asarray(phrase)}, jnp.ones(1))
    learned = _by_heart(model, batch, 60)
    contexts, secrets = phrase[:, :3], phrase[:, 3:6]
    stranger = np.array([[5, 17, 33]], np.int32)
    some = references(ALPHABET, 4000, 3, key=KEY)
    assert ranks(learned, contexts, secrets, some).tolist() == [1]
    assert exposures([1], 4000)[0] == pytest.approx(np.log2(4000))
    assert ranks(learned, contexts, stranger, some)[0] > 40
    assert extracted(learned, contexts, secrets).tolist() == [True]
    assert extracted(learned, contexts, stranger).tolist() == [False]
    assert extracted(model, contexts, secrets).tolist() == [False]


def _by_heart(model: LanguageModel, batch: Batch, steps: int) -> LanguageModel:
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optimizer, loss = optax.sgd(1.0), next_token_loss()

    @jax.jit
    def step(_: Any, carry: Any) -> Any:
        params, state = carry
        gradient = jax.grad(lambda some: loss(eqx.combine(some, static), batch, jax.random.key(0)))(params)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state

    trained: Any = jax.lax.fori_loop(0, steps, step, (params, optimizer.init(params)))[0]
    return eqx.combine(trained, static)


def test_characters_are_ranked_too():
    model = char_model(embedding=8, cells=16, layers=1, key=jax.random.key(1))
    context, letters = np.array([256, 97], np.int32), np.arange(97, 123)
    some = references(letters, 200, 3, key=KEY)
    rank = ranks(model, context[None], some[:1], some)
    assert 2 <= rank[0] <= 201  # itself is one that is as likely


def test_references_are_uniform_and_in_order_of_their_first_words():
    some = references(ALPHABET, 36_000, 3, key=KEY)
    assert np.all(np.diff(some[:, 0]) >= 0)
    for column in some.T:
        counts = np.bincount(column, minlength=SIZE)[4:]
        assert 850 < counts.min() <= counts.max() < 1150
    assert abs(np.corrcoef(some[:, 0], some[:, 1])[0, 1]) < 0.03


def test_the_exposure_of_others_tools():
    """References 1 to 16 by perplexity; secrets at 0.1, 3.5 and 20."""
    compared = np.arange(1, 17)
    rank = [1 + int(np.sum(compared <= one)) for one in (0.1, 3.5, 20)]
    assert exposures(rank, 16) == pytest.approx([4.0, 2.0, -0.0875], abs=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda m: ranks(m, CONTEXT[None], np.ones((1, 2), np.int32), np.ones((4, 3), np.int32)),
            "same number of words",
        ),
        (lambda m: ranks(m, CONTEXT[None], np.array([[5, 99]]), np.ones((4, 2), np.int32)), "canaries use 99"),
        (lambda m: references(ALPHABET, 0, 3, key=KEY), "at least one reference"),
        (lambda m: extracted(m, CONTEXT[None], np.array([[5, 6]]), width=SIZE + 1), "width must be between 1"),
        (lambda m: extracted(m, CONTEXT[None], np.ones((2, 2), np.int32)), "one secret for each context"),
    ],
)
def test_what_makes_no_sense_is_refused(model: LanguageModel, call: Any, words: str):
    with pytest.raises(InvalidInput, match=words):
        call(model)
