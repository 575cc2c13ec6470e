"""Canaries are random, different, and where the plan says."""

from typing import Any

import numpy as np
import pytest

from blindsight import keys
from blindsight.audit.canaries import (
    Canaries,
    phrase_clients,
    phrases,
    picture_clients,
    secret_sharer,
    sharing_clients,
)
from blindsight.data.text import END, PAD, START, Vocabulary
from blindsight.errors import InvalidInput

KEY = keys.reproducible(3)
WORDS = np.arange(4, 204)
PUBLIC = np.random.default_rng(0).integers(4, 204, (50, 11)).astype(np.int32)


def test_the_papers_canaries_are_27_on_189_clients():
    made = secret_sharer(np.arange(4, 10_004), key=KEY)
    assert made.size == 27
    assert made.n_clients == 189
    assert made.phrases.shape == (27, 5)
    assert made.secrets.shape == (27, 3)
    pairs = {(u, e) for u in (1, 4, 16) for e in (1, 14, 200)}
    assert set(zip(made.clients.tolist(), made.copies.tolist(), strict=True)) == pairs


def test_the_expected_times_seen_are_those_of_table_3():
    made = secret_sharer(np.arange(4, 10_004), key=KEY, repeats=1)
    published = [1_150, 16_100, 230_000, 4_600, 64_400, 920_000, 18_400, 257_600, 3_680_000]
    assert made.times_seen(1150 / 2000, 2000).tolist() == pytest.approx(published)


def test_words_are_uniform_and_phrases_differ():
    made = phrases(WORDS, 4000, 5, key=KEY)
    assert len(np.unique(made, axis=0)) == 4000
    counts = np.bincount(made.ravel(), minlength=204)
    assert counts[:4].sum() == 0
    assert counts[4:].min() > 60
    assert counts[4:].max() < 145  # 100 expected, 10 the standard deviation


def test_a_canary_stands_in_its_own_clients_as_often_as_it_should():
    made = secret_sharer(WORDS, key=KEY, clients=(1, 3), copies=(1, 14), repeats=2)
    people = sharing_clients(made, PUBLIC, key=KEY, sentences=20)
    assert people.size == made.n_clients == 16
    assert set(people.sizes.tolist()) == {20}
    carried = np.repeat(np.arange(made.size), made.clients)
    for client, number in enumerate(carried.tolist()):
        rows = people[client]["tokens"]
        row = [START, *made.phrases[number].tolist(), END] + [PAD] * 4
        same = np.all(rows == row, axis=1)
        assert np.sum(same) == made.copies[number]
        assert all((other == PUBLIC).all(axis=1).any() for other in rows[~same])


def test_a_client_of_the_one_run_audit_holds_one_phrase_only():
    made = phrases(WORDS, 3, 4, key=KEY)
    people = phrase_clients(made, length=6, sentences=5)
    assert people.sizes.tolist() == [5, 5, 5]
    assert np.unique(people[1]["tokens"], axis=0).tolist() == [[START, *made[1].tolist(), END, PAD]]


def test_pictures_are_noise_of_the_populations_shape_under_one_label_each():
    fields: Any = {"image": (np.dtype("u1"), (4, 4)), "age": (np.dtype("f4"), ()), "label": (np.dtype("i4"), ())}
    people = picture_clients(fields, label="label", classes=7, count=300, key=KEY, examples=2)
    image, label = people.columns["image"], people.columns["label"]
    assert image.dtype == np.uint8
    assert image.shape == (600, 4, 4)
    assert 120 < image.mean() < 135
    assert np.array_equal(image[::2], image[1::2])
    assert set(label.tolist()) == set(range(7))
    assert label.dtype == np.int32
    assert -1 <= people.columns["age"].min() < -0.9
    with pytest.raises(InvalidInput, match="is not numeric"):
        picture_clients({"t": (np.dtypes.StringDType(), ())}, label="l", classes=2, count=1, key=KEY)


def test_they_survive_a_file_and_another_vocabulary_is_refused():
    vocabulary = Vocabulary(tuple(f"w{number}" for number in range(200)))
    made = secret_sharer(WORDS, key=KEY, repeats=1)
    again = Canaries.from_dict(made.to_dict(vocabulary), vocabulary)
    assert np.array_equal(again.phrases, made.phrases)
    assert np.array_equal(again.clients, made.clients)
    with pytest.raises(InvalidInput, match="lacks the canary word"):
        Canaries.from_dict(made.to_dict(vocabulary), Vocabulary(("other", "words")))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: phrases(np.arange(4, 6), 10, 2, key=KEY), "give too few phrases"),
        (lambda: phrases(WORDS, 0, 2, key=KEY), "at least one phrase"),
        (lambda: secret_sharer(WORDS, key=KEY, clients=(0,)), "at least 1"),
        (lambda: secret_sharer(WORDS, key=KEY, prefix=5), "prefix must be"),
        (lambda: sharing_clients(secret_sharer(WORDS, key=KEY), PUBLIC, key=KEY, sentences=100), "cannot hold 200"),
        (lambda: sharing_clients(secret_sharer(WORDS, key=KEY), PUBLIC[:0], key=KEY), "has no sentences"),
        (lambda: sharing_clients(secret_sharer(WORDS, key=KEY), PUBLIC[:, :6], key=KEY), "no room for canaries"),
        (lambda: Canaries(np.zeros((2, 3), np.int32), np.ones(1), np.ones(2)), "one number of copies"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, words: str):
    with pytest.raises(InvalidInput, match=words):
        make()
