"""Laws of generation: probabilities add up to one, samples have the model's frequencies, wide beams find everything."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.errors import InvalidInput
from blindsight.models.cifg_lstm import char_model, word_model
from blindsight.models.generation import beam_search, log_probability, sample

KEY = jax.random.key(5)
MODEL = jax.tree.map(lambda leaf: 3 * leaf, word_model(7, embedding=4, cells=5, key=KEY))  # far from uniform
LETTERS = char_model(embedding=3, cells=4, layers=2, key=KEY)
START, END, PAD = 1, 2, 0
advance = eqx.filter_jit(MODEL.advance)
FOLLOW = [2, 3, 4, 5, 6]  # what may come next


def rows_of(length):
    """Every row of at most `length` tokens after the start, ended or cut off."""
    rows = []
    for tokens in itertools.product(FOLLOW, repeat=length):
        ended = tokens.index(END) if END in tokens else length
        rows.append((START, *tokens[: ended + 1], *[PAD] * (length - ended - 1))[: length + 1])
    return np.array(sorted(set(rows)), np.int32)


def test_probabilities_of_all_rows_add_up_to_one():
    for model, rows in ((MODEL, rows_of(3)), (LETTERS, np.array([[256, byte] for byte in range(258) if byte != 256]))):
        assert float(jnp.sum(jnp.exp(log_probability(model, rows)))) == pytest.approx(1, abs=1e-4)


def test_probabilities_given_a_beginning_add_up_to_one():
    rows = rows_of(3)
    begun = rows[rows[:, 1] == 5]
    assert float(jnp.sum(jnp.exp(log_probability(MODEL, begun, given=2)))) == pytest.approx(1, abs=1e-5)


def test_the_joint_probability_is_the_product_of_the_steps():
    rows = rows_of(3)[::7]
    expected = np.zeros(len(rows))
    state = MODEL.begin(len(rows))
    for place in range(3):
        state, likely = advance(state, jnp.asarray(rows[:, place]))
        is_open = ~np.isin(rows[:, place], [END, PAD])
        expected += np.where(is_open, np.asarray(likely)[np.arange(len(rows)), rows[:, place + 1]], 0)
    np.testing.assert_allclose(log_probability(MODEL, rows), expected, rtol=1e-5, atol=1e-5)


def test_many_rows_are_few_rows_many_times(monkeypatch):
    rows = rows_of(2)
    at_once = log_probability(MODEL, rows)
    monkeypatch.setattr("blindsight.models.generation._AT_ONCE", 7 * 3 * 4)  # four rows at a time
    np.testing.assert_allclose(log_probability(MODEL, rows), at_once, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "given"),
    [({}, [1]), ({"prefix": [1, 4]}, [1, 4]), ({"temperature": 0.5}, [1]), ({"top_k": 2}, [1])],
    ids=["plain", "prefix", "temperature", "top_k"],
)
def test_samples_have_the_frequencies_of_the_model(options, given):
    count, length = 40_000, 3 if len(given) == 1 else 4
    drawn = np.asarray(sample(MODEL, count, key=KEY, length=length, **options))
    assert drawn.shape == (count, length + 1)
    assert (drawn[:, : len(given)] == given).all()
    seen, counts = np.unique(drawn[:, len(given) - 1 :], axis=0, return_counts=True)
    expected = frequencies(options, given, length)
    assert set(map(tuple, seen.tolist())) <= set(expected)
    found = dict(zip(map(tuple, seen.tolist()), counts / count, strict=True))
    for row, probability in expected.items():
        spread = np.sqrt(probability * (1 - probability) / count)
        assert abs(found.get(row, 0) - probability) < 5 * spread + 1e-4


def frequencies(options, given, length):
    """The probability of everything that may follow, step by step in numpy."""
    temperature, top_k = options.get("temperature", 1.0), options.get("top_k", len(FOLLOW))
    state, likely = advance(MODEL.begin(1), jnp.array([given[0]]))
    for token in given[1:]:
        state, likely = advance(state, jnp.array([token]))
    result, front = {}, [((given[-1],), 1.0, state, likely)]
    for _ in range(length + 1 - len(given)):
        longer = []
        for row, mass, state, likely in front:
            if row[-1] in (END, PAD):
                longer.append(((*row, PAD), mass, state, likely))
                continue
            scores = np.asarray(likely[0], np.float64)
            scores[scores < np.sort(scores)[-top_k]] = -np.inf
            share = np.exp(scores / temperature)
            for token in FOLLOW:
                after, next_likely = advance(state, jnp.array([token]))
                longer.append(((*row, token), mass * share[token] / share.sum(), after, next_likely))
        front = [entry for entry in longer if entry[1] > 0]
    for row, mass, *_ in front:
        result[row] = result.get(row, 0) + mass
    return result


def test_different_keys_draw_different_rows():
    draws = [np.asarray(sample(MODEL, 50, key=jax.random.key(seed), length=4)) for seed in (0, 0, 1)]
    assert (draws[0] == draws[1]).all()
    assert (draws[0] != draws[2]).any()


def test_samples_in_parts_are_all_different_draws(monkeypatch):
    monkeypatch.setattr("blindsight.models.generation._AT_ONCE", 7 * 10)
    drawn = np.asarray(sample(MODEL, 95, key=KEY, length=6))
    assert drawn.shape == (95, 7)
    assert (drawn[:10] != drawn[10:20]).any()


def test_a_beam_as_wide_as_the_vocabulary_finds_the_most_likely_pairs():
    rows, scores = beam_search(MODEL, [START], width=5, length=2)
    everything = rows_of(2)
    exact = np.asarray(log_probability(MODEL, everything))
    best = np.argsort(-exact)[:5]
    np.testing.assert_allclose(scores, exact[best], rtol=1e-5)
    assert np.asarray(rows).tolist() == everything[best].tolist()


def test_the_scores_of_a_beam_are_the_probabilities_of_its_rows():
    rows, scores = beam_search(MODEL, [START, 5], width=4, length=3)
    assert rows.shape == (4, 5)
    np.testing.assert_allclose(scores, log_probability(MODEL, rows, given=2), rtol=1e-5)
    assert (np.diff(np.asarray(scores)) <= 0).all()
    assert len({tuple(row) for row in np.asarray(rows).tolist()}) == 4


def test_several_searches_at_once_are_each_alone():
    prefixes = np.array([[1, 4], [1, 6]])
    rows, scores = beam_search(MODEL, prefixes, width=3, length=2)
    for number, prefix in enumerate(prefixes):
        alone = beam_search(MODEL, prefix, width=3, length=2)
        assert np.asarray(rows[number]).tolist() == np.asarray(alone[0]).tolist()
        np.testing.assert_allclose(scores[number], alone[1], rtol=1e-5)


def test_a_beam_of_one_is_greedy():
    rows, _ = beam_search(MODEL, [START], width=1, length=4)
    greedy = sample(MODEL, 1, key=KEY, length=4, top_k=1)
    assert np.asarray(rows).tolist() == np.asarray(greedy).tolist()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: beam_search(MODEL, [START], width=6, length=2), "vocabulary size of 5"),
        (lambda: beam_search(MODEL, [START], width=2, length=0), "length must be at least 1 token"),
        (lambda: beam_search(MODEL, [4, 5], width=2, length=1), "must begin with the model's start"),
        (lambda: beam_search(MODEL, [START, 9], width=2, length=1), "between 0 and 6"),
        (lambda: sample(MODEL, 0, key=KEY, length=2), "count must be at least 1"),
        (lambda: sample(MODEL, 1, key=KEY, length=2, temperature=0.0), "temperature positive"),
        (lambda: sample(MODEL, 1, key=KEY, length=2, top_k=6), "top_k"),
        (lambda: sample(MODEL, 1, key=KEY, length=1, prefix=[1, 4]), "exceed the prefix"),
        (lambda: log_probability(MODEL, [[1, 4]], given=2), "given must leave"),
        (lambda: log_probability(MODEL, [1, 4]), "2 axes"),
        (lambda: log_probability(MODEL, [[1.0, 4.0]]), "whole numbers"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(call, says):
    with pytest.raises(InvalidInput, match=says):
        call()
