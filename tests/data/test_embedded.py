"""Embedded populations: each client follows from (seed, client, options) alone, and the data look as they should."""

import collections
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight import data
from blindsight.data.dice import Dice
from blindsight.data.embedded import POPULATIONS, handwriting
from blindsight.data.embedded.strokes import CHARACTERS, POINTS, WAYS, templates
from blindsight.data.generated import GeneratedPopulation
from blindsight.errors import InvalidInput

GENERATED = [name for name in POPULATIONS if name != "digits"]
SMALL: dict[str, Any] = {
    "handwriting": {"examples": (2, 9)},
    "forum": {"examples": (1, 6)},
    "tabular": {"examples": (1, 9)},
}


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(a[f].dtype == b[f].dtype and np.array_equal(a[f], b[f]) for f in a)


@pytest.mark.parametrize("name", GENERATED)
@given(clients=st.lists(st.integers(0, 39), min_size=1, max_size=6), seed=st.integers(0, 3))
@settings(max_examples=20)
def test_a_client_follows_from_the_seed_and_its_number_alone(name, clients, seed):
    many = data.embedded(name, clients=40, seed=seed, **SMALL[name])
    drawn = many.examples(np.array(clients))
    alone = [data.embedded(name, clients=one + 1, seed=seed, **SMALL[name])[one] for one in clients]
    assert same(drawn, {field: np.concatenate([one[field] for one in alone]) for field in drawn})
    assert many.sizes[clients].tolist() == [len(next(iter(one.values()))) for one in alone]


@pytest.mark.parametrize("name", GENERATED)
def test_seeds_and_clients_differ(name):
    people, others = (data.embedded(name, clients=8, seed=seed, examples=(6, 6)) for seed in (0, 1))
    assert not any(same(people[one], others[one]) for one in range(8))
    assert not any(same(people[one], people[two]) for one in range(8) for two in range(one))


@pytest.mark.parametrize("name", GENERATED)
def test_nothing_is_drawn_before_it_is_asked_for(name):
    people = data.embedded(name, clients=200_000)
    assert isinstance(people, GeneratedPopulation)
    assert people.synthetic
    assert len(people[people.ids[199_999]]["label" if name != "forum" else "topic"]) > 0
    assert not people._columns
    few = people.select([199_998, 3])
    assert same(few[1], people[3])


@pytest.mark.parametrize("name", GENERATED)
def test_codes_have_names_and_sizes_keep_to_the_option(name):
    people = data.embedded(name, clients=300, examples=(2, 7))
    assert people.sizes.min() == 2
    assert people.sizes.max() == 7
    assert set(people.classes) <= set(people.fields)
    for field, names in people.classes.items():
        assert set(np.unique(people.columns[field])) <= set(range(len(names)))


REFUSED: dict[str, tuple[str, Any, str]] = {
    "nearest": ("handwritting", {}, "did you mean 'handwriting'"),
    "no such": ("zebras", {}, "there are handwriting, forum, tabular, digits"),
    "option": ("handwriting", {"glyph": "all"}, "glyphs, examples"),
    "no options": ("digits", {"examples": (1, 2)}, "it has none"),
    "nobody": ("forum", {"clients": 0}, "at least 1"),
    "glyphs": ("handwriting", {"glyphs": "runes"}, "digits"),
    "handwriting, examples": ("handwriting", {"examples": (9, 3)}, "a minimum and a maximum"),
    "half a client": ("forum", {"clients": 2.5}, "whole number"),
    "one number": ("handwriting", {"examples": 5}, "a minimum and a maximum"),
    "no whole numbers": ("tabular", {"examples": ("a", "b")}, "a minimum and a maximum"),
    "forum, examples": ("forum", {"examples": (0, 3)}, "a minimum and a maximum"),
    "tabular, examples": ("tabular", {"examples": (5, 4)}, "a minimum and a maximum"),
    "too many digits": ("digits", {"clients": 2000}, "1,797"),
    "seed": ("forum", {"seed": "x"}, "whole number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(case):
    name, options, words = REFUSED[case]
    with pytest.raises(InvalidInput, match=words):
        data.source(name, options) if case == "option" else data.embedded(name, **options)


# --- dice


def test_dice_are_fair_and_throws_independent():
    dice = Dice(5, "test")
    here, there = dice.uniform("a", np.arange(40_000)), dice.uniform("a", np.arange(1, 40_001))
    other = dice.uniform("b", np.arange(40_000))
    assert 0 <= here.min() < 0.001 < 0.999 < here.max() < 1
    assert abs(here.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 40_000)
    assert abs(np.corrcoef(here, other)[0, 1]) < 0.02
    assert abs(np.corrcoef(here, dice.uniform("a", np.arange(40_000), 1))[0, 1]) < 0.02
    assert np.array_equal(here[1:], there[:-1])  # the same index shows the same
    bell = dice.bell("c", np.arange(40_000))
    assert abs(bell.mean()) < 0.02
    assert abs(bell.var() - 1) < 0.03
    assert np.abs(bell).max() < 3.47
    below = dice.below(7, "d", np.arange(40_000))
    assert np.bincount(below).min() > 0.9 * 40_000 / 7
    assert below.max() == 6


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(-5, 5))
def test_one_throw_is_its_place_in_an_array(a, b, seed):
    dice = Dice(seed, "test")
    grid = dice.words("x", np.array([[a], [a + 1]]), np.array([b, b + 1, b + 2]))
    assert grid.shape == (2, 3)
    assert grid[1, 2] == dice.words("x", a + 1, b + 2)


# --- handwriting


def test_every_character_has_ways_that_fit_their_line():
    assert "".join(CHARACTERS) == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    ways = templates()
    assert ways.number.sum() == len(ways.sharp) == sum(map(len, WAYS.values()))
    assert ways.sharp.shape[1:] == (POINTS, 2)
    assert ways.sharp[..., 1].min() > -0.5
    assert ways.sharp[..., 1].max() < 1.1
    assert np.abs(ways.sharp - ways.round).max() < 0.25


def test_an_image_is_the_sum_of_its_dabs():
    """The matrix product against the slow, obvious way: one dab after the other on every pixel."""
    written = importlib.import_module("blindsight.data.embedded.handwriting")  # the name alone is the function
    path = np.stack([np.linspace(6, 21, POINTS), np.linspace(8, 19, POINTS)], axis=1).astype(np.float32)[None]
    one = np.array([0])
    dice = Dice(0, "handwriting")
    style = written._style(dice, one)._replace(pressure=np.zeros(1), tone=np.ones(1), pen=np.ones(1))
    image = written._ink(dice, style, path, np.ones((1, POINTS - 1), np.float32), one, one)[0]
    wet, step = np.zeros((28, 28)), np.hypot(*(path[0, 1] - path[0, 0]))
    for number, (x, y) in enumerate(path[0]):
        share = step * (0.5 if number in (0, POINTS - 1) else 1.0)
        for row in range(28):
            for column in range(28):
                wet[row, column] += share / np.sqrt(2 * np.pi) * np.exp(-((column - x) ** 2 + (row - y) ** 2) / 2)
    assert wet.max() == pytest.approx(1, abs=0.01)  # on the line
    assert np.abs(image - 255 * np.clip((wet - 0.22) / 0.4, 0, 1)).max() <= 1.01


@pytest.fixture(scope="module")
def writers():
    return data.embedded("handwriting", clients=130, seed=4)


def test_ink_is_bright_on_black_and_inside_the_frame(writers):
    image = writers.columns["image"]
    assert image.shape[1:] == (28, 28)
    assert image.dtype == np.uint8
    assert 20 < image.mean() < 45  # MNIST: 33
    assert (image.max(axis=(1, 2)) > 150).all()
    frame = np.ones((28, 28), bool)
    frame[1:-1, 1:-1] = False
    assert (image[:, frame] > 0).any(axis=1).mean() < 0.03


def test_labels_are_spread_and_writers_prefer_some(writers):
    counts = np.array([np.bincount(client["label"], minlength=10) for client in writers])
    assert np.abs(counts.sum(axis=0) / counts.sum() - 0.1).max() < 0.02
    expected = counts.sum(axis=1, keepdims=True) * 0.1
    chi2 = ((counts - expected) ** 2 / expected).sum() / counts.shape[0] / 9
    assert 1.3 < chi2 < 3  # 1 if all wrote all characters equally often


def linear_accuracy(people, train: int) -> float:
    """Of ridge regression on pixels, trained on the first clients, on the clients it has not seen."""
    from sklearn.linear_model import RidgeClassifier

    pixels = people.columns["image"].reshape(people.n_examples, -1).astype(np.float32) / 255
    label, cut = people.columns["label"], people.offsets[train]
    model = RidgeClassifier(alpha=10.0).fit(pixels[:cut], label[:cut])
    return float(model.score(pixels[cut:], label[cut:]))


def test_digits_are_as_hard_for_a_linear_model_as_real_ones_and_letters_harder(writers):
    digits = linear_accuracy(writers, 100)
    letters = linear_accuracy(data.embedded("handwriting", clients=90, seed=4, glyphs="all"), 70)
    assert 0.78 < digits < 0.95
    assert 0.35 < letters < digits - 0.1


def test_a_writer_can_be_told_by_the_hand(writers):
    """The mean of a writer's early images lies nearest to that of their own late ones far more often than by chance."""
    half = [(client["image"][::2].mean(axis=0), client["image"][1::2].mean(axis=0)) for client in writers]
    early, late = (np.stack(part).reshape(len(half), -1) for part in zip(*half, strict=True))
    nearest = np.square(early[:, None] - late[None]).sum(axis=2).argmin(axis=1)
    assert np.mean(nearest == np.arange(len(half))) > 0.2  # by chance 1 in 130


# --- forum


@pytest.fixture(scope="module")
def authors():
    return data.embedded("forum", clients=400, seed=2)


def words(text: str) -> list[str]:
    return re.findall(r"\w[\w'’-]*", text.lower())


def test_words_follow_zipf_with_a_long_tail(authors):
    counts = collections.Counter(word for text in authors.columns["text"].tolist() for word in words(text))
    frequency = np.sort(np.fromiter(counts.values(), float))[::-1]
    rank = np.arange(1, len(frequency) + 1)
    slope = np.polyfit(np.log(rank[9:1000]), np.log(frequency[9:1000]), 1)[0]
    assert -1.6 < slope < -0.9
    assert 0.03 < 1 - frequency[:1000].sum() / frequency.sum() < 0.2  # out of a vocabulary of a thousand words
    assert np.mean(frequency == 1) > 0.3  # as many words are said once as in real text


def test_posts_are_short_and_varied(authors):
    texts = authors.columns["text"].tolist()
    lengths = [len(words(text)) for text in texts]
    assert 15 < np.mean(lengths) < 50
    assert min(lengths) >= 2
    assert len(set(texts)) > 0.97 * len(texts)
    assert not [text for text in texts if re.search(r"[{}\[\]|]| ,|  ", text)]  # every slot is filled
    assert any(ord(sign) > 127 for text in texts for sign in text)


def test_authors_have_habits(authors):
    capitals = np.array([np.mean([text != text.lower() for text in one["text"].tolist()]) for one in authors])
    assert 0.1 < np.mean(capitals == 0) < 0.4  # who never uses a capital
    assert np.mean(capitals > 0.9) > 0.5
    favourite = [np.bincount(one["topic"]).max() / len(one["topic"]) for one in authors if len(one["topic"]) > 10]
    assert np.mean(favourite) > 0.5  # of ten topics
    spread = np.array([np.mean([len(words(text)) for text in one["text"].tolist()]) for one in authors])
    assert np.std(spread) > 5


def test_some_names_are_known_to_one_author_only(authors):
    known: dict[str, set[int]] = collections.defaultdict(set)
    said: collections.Counter = collections.Counter()
    for author, one in enumerate(authors):
        for text in one["text"].tolist():
            for word in words(text):
                known[word].add(author)
                said[word] += 1
    private = [word for word, who in known.items() if len(who) == 1 and said[word] >= 3]
    assert len(private) > 100


def test_time_runs_and_newcomers_have_their_season(authors):
    from blindsight.data.embedded import grammar
    from blindsight.data.embedded.forum import MONTH, START

    assert all(np.all(np.diff(one["time"]) >= 0) for one in authors)
    time, topic = authors.columns["time"], authors.columns["topic"]
    month = (time - START) // MONTH
    assert 0 <= month.min() < 2
    assert 22 < month.max() < 24.5
    near = far = 0
    for number, name in enumerate(authors.classes["topic"]):
        for since in (6, 12, 18):
            newcomer = grammar.tool(2, name, -1 - since).lower()
            says = np.array([newcomer in text.lower() for text in authors.columns["text"].tolist()])
            says &= topic == number
            near += np.sum(says & (month >= since) & (month < since + 3))
            far += np.sum(says & ((month < since) | (month >= since + 3)))
    assert near > 50
    assert far < 0.1 * near


# --- tabular


@pytest.fixture(scope="module")
def districts():
    return data.embedded("tabular", clients=300, seed=1)


def test_people_are_plausible(districts):
    people = districts.columns
    assert people["age"].min() >= 17
    assert people["age"].max() <= 90
    assert not np.any((people["age"] < 22) & (people["education"] == 6))  # no doctor at 21
    assert 0.15 < people["label"].mean() < 0.35
    assert all(np.bincount(people[field]).min() > 0 for field in districts.classes)
    assert all(len(set(one["region"].tolist())) == 1 for one in districts)


def test_districts_differ_more_than_chance_would_have_it(districts):
    rates = np.array([one["label"].mean() for one in districts])
    overall = districts.columns["label"].mean()
    z = (rates - overall) / np.sqrt(overall * (1 - overall) / districts.sizes)
    assert 4 < np.var(z) < 40  # 1 by chance
    assert districts.sizes.max() > 10 * districts.sizes.min()


def test_income_follows_from_several_things_and_from_them_together(districts):
    people = districts.columns
    label = people["label"]
    learned = people["education"] >= 4

    def gain(where: np.ndarray) -> float:
        return label[where & learned].mean() - label[where & ~learned].mean()

    assert label[people["sex"] == 1].mean() > label[people["sex"] == 0].mean() + 0.05
    assert gain(people["occupation"] == 6) > gain(people["occupation"] == 2) + 0.1  # it pays more for managers
    assert gain(people["age"] > 40) > gain(people["age"] < 30) + 0.1  # and with the years


# --- digits


def test_digits_are_real_and_dealt_without_loss():
    from sklearn.datasets import load_digits

    truth: Any = load_digits()
    whole, dealt = data.embedded("digits"), data.embedded("digits", clients=100, seed=3)
    assert not whole.synthetic
    assert whole.sizes.tolist() == [1] * 1797
    assert np.array_equal(whole.columns["image"] * 16, truth["images"])
    assert np.array_equal(whole.columns["label"], truth["target"])
    assert set(dealt.sizes) == {17, 18}
    rows = lambda people: sorted(people.columns["image"].reshape(1797, 64).tolist())  # noqa: E731
    assert rows(whole) == rows(dealt)
    assert not np.array_equal(whole.columns["label"], dealt.columns["label"])
    again = data.embedded("digits", clients=100, seed=3)
    assert np.array_equal(again.columns["image"], dealt.columns["image"])


def test_every_population_and_option_is_on_the_page():
    assert POPULATIONS["handwriting"] is handwriting
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    for name, make in POPULATIONS.items():
        row = re.search(rf"^\| `{name}` \|.*$", page, re.MULTILINE)
        assert row, name
        for option, parameter in inspect.signature(make).parameters.items():
            assert (
                option in ("clients", "seed") or f"`{option}`" in row[0] or f"`{option}={parameter.default}`" in row[0]
            )
