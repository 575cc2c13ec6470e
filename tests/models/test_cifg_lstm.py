"""Laws of language models: step by step as at once, what counts counts once, recall as a keyboard counts it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from blindsight import trees
from blindsight.backends import Batch
from blindsight.data import text
from blindsight.models.cifg_lstm import LanguageModel, char_model, next_token_loss, recall, token_loss, word_model
from blindsight.models.layers import Embedding
from blindsight.models.recurrent import LSTM

KEY = jax.random.key(3)
advance = eqx.filter_jit(LanguageModel.advance)
SENTENCES = np.array([[1, 4, 5, 2, 0, 0], [1, 6, 3, 7, 4, 2], [1, 5, 5, 6, 7, 4]], np.int32)


def batch_of(rows, weight=None):
    weight = jnp.ones(len(rows)) if weight is None else jnp.array(weight, jnp.float32)
    return Batch({"tokens": jnp.asarray(rows)}, weight)


def a_word_model():
    return word_model(8, embedding=5, cells=6, key=KEY)


@pytest.mark.parametrize(
    "model",
    [
        a_word_model(),
        char_model(embedding=4, cells=5, layers=2, key=KEY),
        LanguageModel(Embedding(8, 3, key=KEY), [LSTM(3, 4, 3, key=KEY)]),
    ],
    ids=["words", "bytes", "lstm"],
)
def test_steps_are_the_whole_sequence(model):
    at_once = eqx.filter_jit(lambda: jax.nn.log_softmax(model.possible(model(jnp.asarray(SENTENCES))), axis=-1))()
    state = model.begin(len(SENTENCES))
    for place in range(SENTENCES.shape[1]):
        state, likely = advance(model, state, jnp.asarray(SENTENCES[:, place]))
        np.testing.assert_allclose(likely, at_once[:, place], rtol=1e-5, atol=1e-6)


def test_marks_that_never_come_next_have_no_probability():
    model = a_word_model()
    _, likely = advance(model, model.begin(1), jnp.array([1]))
    probability = np.exp(np.asarray(likely[0]))
    assert probability[[text.PAD, text.START]].tolist() == [0, 0]
    assert (probability[[text.END, text.UNKNOWN]] > 0).all()
    assert probability.sum() == pytest.approx(1, abs=1e-6)
    assert model.n_possible == 6
    letters = char_model(embedding=2, cells=2, layers=1, key=KEY)
    _, likely = advance(letters, letters.begin(1), jnp.array([text.START_OF_WORD]))
    assert np.flatnonzero(np.isneginf(np.asarray(likely[0]))).tolist() == [text.START_OF_WORD]


def test_models_read_what_the_text_pipeline_writes():
    words, letters = a_word_model(), char_model(embedding=2, cells=2, layers=1, key=KEY)
    assert (words.start, words.end, words.pad) == (text.START, text.END, text.PAD)
    assert words.first_word == len(text.MARKS)
    assert (letters.start, letters.end, letters.vocabulary) == (text.START_OF_WORD, text.END_OF_WORD, 258)
    rows = text.Vocabulary(("a", "b")).encode([["a", "b"], ["a"] * 9], length=5)
    assert words.counts(jnp.asarray(rows)).sum(axis=1).tolist() == [3, 5]  # both words and the end; five words
    rows = text.word_bytes(["ab", "abcdefgh"], length=5)
    assert letters.counts(jnp.asarray(rows)).sum(axis=1).tolist() == [3, 5]


def test_published_sizes():
    words, letters = (
        jax.eval_shape(build) for build in (lambda: word_model(10_000, key=KEY), lambda: char_model(key=KEY))
    )
    assert trees.size(words) == 10_000 * 96 + 192 * 3 * 670 + 3 * 670 + 670 * 96
    assert trees.size(letters) == 258 * 128 + 3 * (256 * 3 * 256 + 3 * 256 + 256 * 128)


def test_the_loss_is_the_mean_over_the_tokens_that_count():
    model = a_word_model()
    logits = np.asarray(eqx.filter_jit(model)(jnp.asarray(SENTENCES[:, :-1])), np.float64)
    likely = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    counted = [(row, place) for row, last in enumerate([3, 5, 5]) for place in range(last)]
    expected = {at: -likely[*at, SENTENCES[at[0], at[1] + 1]] for at in counted}
    loss = eqx.filter_jit(next_token_loss())
    assert float(loss(model, batch_of(SENTENCES), KEY)) == pytest.approx(np.mean(list(expected.values())), rel=1e-5)
    of_two = np.mean([value for (row, _), value in expected.items() if row != 1])
    assert float(loss(model, batch_of(SENTENCES, [1, 0, 1]), KEY)) == pytest.approx(of_two, rel=1e-5)
    assert float(loss(model, batch_of(SENTENCES, [0, 0, 0]), KEY)) == 0
    losses, counts = eqx.filter_jit(token_loss())(model, batch_of(SENTENCES), KEY)
    assert counts.tolist() == [3, 5, 5]
    assert float(losses[0]) == pytest.approx(sum(value for (row, _), value in expected.items() if row == 0), rel=1e-5)


def test_what_follows_an_end_moves_nothing():
    other = SENTENCES.copy()
    other[0, 4:] = 0
    changed = SENTENCES.copy()
    changed[0, 5] = 6  # after the padding, where nothing can stand
    loss = eqx.filter_jit(next_token_loss())
    model = a_word_model()
    assert float(loss(model, batch_of(other), KEY)) == float(loss(model, batch_of(changed), KEY))


class Fixed(LanguageModel):
    """Ranks tokens the same way after everything: 7 first, then the end, then 3 (unknown), 6, 5, 4."""

    def __call__(self, tokens):
        logits = jnp.array([0.0, 0.0, 5.0, 4.0, 1.0, 2.0, 3.0, 6.0])
        return jnp.broadcast_to(logits, (*tokens.shape, 8))


@pytest.mark.parametrize(("top", "found"), [(1, [0, 1, 1]), (2, [0, 2, 2]), (3, [1, 2, 4]), (4, [2, 3, 5])])
def test_recall_counts_as_keyboards_do(top, found):
    model = Fixed(Embedding(8, 2, key=KEY), [])
    right, words = eqx.filter_jit(recall(top=top))(model, batch_of(SENTENCES), KEY)
    assert words.tolist() == [2, 4, 5]  # no ends, but unknown words
    assert right.tolist() == found  # unknown words are never right, and marks take no place in the ranking


def test_of_equally_likely_words_the_first_counts():
    class Equal(LanguageModel):
        def __call__(self, tokens):
            return jnp.zeros((*tokens.shape, 8))

    right, _ = eqx.filter_jit(recall(top=1))(Equal(Embedding(8, 2, key=KEY), []), batch_of(SENTENCES), KEY)
    assert right.tolist() == [1, 1, 1]  # token 4 alone


@pytest.mark.slow
def test_a_word_model_learns_a_grammar():
    model, loss = word_model(12, embedding=8, cells=16, key=KEY), next_token_loss()
    random = np.random.default_rng(0)
    starts = random.integers(4, 12, 64)
    rows = np.stack([np.full(64, 1), starts, (starts - 4 + 1) % 8 + 4, (starts - 4 + 2) % 8 + 4, np.full(64, 2)], 1)
    batch = batch_of(rows.astype(np.int32))
    optimizer = optax.sgd(0.5, momentum=0.9)

    @jax.jit
    def fit(model):
        def step(_, carry):
            model, state = carry
            updates, state = optimizer.update(jax.grad(loss)(model, batch, KEY), state)
            return optax.apply_updates(model, updates), state

        return jax.lax.fori_loop(0, 60, step, (model, optimizer.init(model)))[0]

    right, words = eqx.filter_jit(recall(top=1))(fit(model), batch, KEY)
    assert np.asarray(words).tolist() == [3] * 64
    assert np.sum(np.asarray(right)) >= 2 * 64  # all but the first word follow from the one before
