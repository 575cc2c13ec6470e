"""Laws of the n-gram model: probabilities add up to one, counts are Kneser-Ney's, the likeliest words are those."""

import itertools

import numpy as np
import pytest

from blindsight.errors import InvalidInput
from blindsight.models.ngram import fit_ngram

RANDOM = np.random.default_rng(0)
SIZE = 9


def rows(count=60, length=6, random=RANDOM):
    """Sentences of a skewed grammar, of different lengths."""
    table = np.zeros((count, length + 1), np.int32)
    table[:, 0] = 1
    for row in table:
        for place in range(1, length + 1):
            likely = (row[place - 1] * 2 + 1) % 5 + 4
            row[place] = likely if random.random() < 0.6 else random.integers(2, SIZE)
            if row[place] == 2:
                break
    return table


TEXT = rows()


@pytest.mark.parametrize("order", [1, 2, 3])
def test_probabilities_after_every_context_add_up_to_one(order):
    model = fit_ngram(TEXT, SIZE, order=order)
    for context in itertools.product(range(SIZE), repeat=order - 1):  # seen and never seen
        chances = model.probability(np.tile(np.array(context, np.int64), (SIZE, 1)), np.arange(SIZE))
        assert chances.sum() == pytest.approx(1, abs=1e-12)
        assert chances[[0, 1]].tolist() == [0, 0]
        assert (chances[2:] > 0).all()


def by_hand(text, order, context, word):
    """Interpolated Kneser-Ney from its definition, one count at a time."""

    def grams(length):
        found = {}
        for row in text.tolist():
            last = row.index(2) if 2 in row else len(row) - 1
            for place in range(1, last + 1):
                key = tuple([0, 0, *row][place + 2 - length + 1 : place + 3])
                found[key] = found.get(key, 0) + 1
        return found

    def level(length, context, word):
        if length == 0:
            return 1 / (SIZE - 2)
        counts = grams(length)
        if length < order:
            longer = set(grams(length + 1)) if length + 1 == order else set(kept[length + 1])
            counts = {}
            for gram in longer:
                counts[gram[1:]] = counts.get(gram[1:], 0) + 1
        kept[length] = counts
        values = list(counts.values())
        once, twice = values.count(1), values.count(2)
        discount = once / (once + 2 * twice) if once and twice else 0.5
        own = {gram: count for gram, count in counts.items() if gram[:-1] == context}
        below = level(length - 1, context[1:], word)
        if not own:
            return below
        total = sum(own.values())
        return max(own.get((*context, word), 0) - discount, 0) / total + discount * len(own) / total * below

    kept = {}
    return level(order, context, word)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_probabilities_are_kneser_neys(order):
    text = TEXT[:12]
    model = fit_ngram(text, SIZE, order=order)
    for context in [(0, 1), (1, 4), (5, 6), (8, 8), (4, 7)]:
        used = context[2 - (order - 1) :]
        for word in (2, 3, 4, 6, 8):
            found = model.probability(np.array([used], np.int64).reshape(1, order - 1), np.array([word]))
            assert found[0] == pytest.approx(by_hand(text, order, used, word), rel=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_likeliest_words_are_those_of_the_whole_distribution(order):
    model = fit_ngram(TEXT[:25], SIZE, order=order)
    contexts = np.array(list(itertools.product(range(SIZE), repeat=order - 1)), np.int64).reshape(
        SIZE ** (order - 1), order - 1
    )
    found = model.top(contexts, 3)
    words = np.arange(4, SIZE)
    for context, best in zip(contexts, found, strict=True):
        chances = model.probability(np.tile(context, (len(words), 1)), words)
        assert best.tolist() == words[np.argsort(-chances, kind="stable")[:3]].tolist()


def test_recall_counts_words_that_were_proposed():
    model = fit_ngram(TEXT, SIZE)
    right, words = model.recall(TEXT, top=2)
    for row, found, count in zip(TEXT.tolist(), right, words, strict=True):
        last = row.index(2) if 2 in row else len(row)
        contexts = np.array([[0, 0, *row][place + 1 : place + 3] for place in range(last - 1)]).reshape(-1, 2)
        if last == 1:
            assert (found, count) == (0, 0)
            continue
        proposed = model.top(contexts, 2)
        assert count == last - 1
        assert found == sum(word in best for word, best in zip(row[1:last], proposed.tolist(), strict=True))
    assert right.sum() / words.sum() > 0.5


def test_log_probabilities_are_sums_and_a_longer_memory_fits_better():
    train, test = rows(800, random=np.random.default_rng(1)), rows(100, random=np.random.default_rng(2))
    fits = [fit_ngram(train, SIZE, order=order).log_probability(test) for order in (1, 2)]
    assert fits[1].sum() > fits[0].sum() + 50
    model = fit_ngram(train, SIZE, order=2)
    row = test[0].tolist()
    last = row.index(2) if 2 in row else len(row) - 1
    steps = [model.probability(np.array([[row[i]]]), np.array([row[i + 1]]))[0] for i in range(last)]
    assert fits[1][0] == pytest.approx(np.log(steps).sum())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fit_ngram(TEXT, SIZE, order=4), "between 1 and 3"),
        (lambda: fit_ngram(TEXT, 5), "between 0 and 4"),
        (lambda: fit_ngram(TEXT.astype(float), SIZE), "whole numbers"),
        (lambda: fit_ngram(TEXT[:0], SIZE), "whole numbers"),
        (lambda: fit_ngram(TEXT, SIZE).top(np.zeros((1, 2), int), 6), "between 1 and 5 words"),
    ],
)
def test_what_makes_no_sense_is_refused(call, says):
    with pytest.raises(InvalidInput, match=says):
        call()
