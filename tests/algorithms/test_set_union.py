"""Words by set union: nobody's own word shows, every listed word is used, and every client weighs at most 1."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import stats

from blindsight import keys
from blindsight.accounting.events import Gaussian, Thresholded, from_json
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import set_union
from blindsight.algorithms.set_union import join_words, threshold_of, weigh
from blindsight.data.population import TEXT, Population
from blindsight.errors import BudgetExceeded, InvalidInput
from blindsight.mechanisms import Release, gaussian

NOISE, MOST, CHANCE = gaussian(0.6), 10, 1e-6


def people(*words: list[str]) -> Population:
    flat = [word for own in words for word in own]
    return Population({"word": np.array(flat, dtype=TEXT)}, sizes=[len(own) for own in words], name="people")


def listed(words: Population, folder, **changes):
    settings: dict[str, Any] = {
        "most": MOST,
        "chance": CHANCE,
        "key": keys.root(),
        "ledger": Ledger(folder / "ledger.db"),
    }
    return join_words(words, NOISE, population="people", **settings | changes)


@pytest.mark.parametrize("noise", [0.3, 0.65, 4.0])
@pytest.mark.parametrize("most", [1, 20, 100])
def test_noise_lifts_own_words_above_the_threshold_with_at_most_a_third_of_the_chance(noise, most):
    at = threshold_of(gaussian(noise), most, CHANCE)
    chances = [-np.expm1(t * stats.norm.logsf(-(at - t**-0.5) / noise)) for t in range(1, most + 1)]
    assert max(chances) <= CHANCE / 3
    assert max(chances) > CHANCE / 3 * 0.99  # and no higher than it must be


def test_a_high_chance_shows_as_often_as_it_is_paid_for(tmp_path):
    """Drawn, not computed: 400 clients with three own words each, at a chance that can be seen."""
    own = people(*[[f"{client} {n}" for n in range(3)] for client in range(400)])
    chance, shown = 0.6, 0
    for turn in range(10):
        found = listed(own, tmp_path, chance=chance, most=3, key=keys.reproducible(turn))
        shown += len({word.split()[0] for word in found.words})
    assert 0.5 * chance / 3 < shown / 4000 <= chance / 3 + 0.02


def test_the_weights_of_a_client_have_length_one_whatever_it_holds():
    step = NOISE.grid(1.0)
    sizes = np.array([0, 1, 2, 9, 10, 11, 5000])
    units = weigh(sizes, MOST, step)
    lengths = np.sqrt(np.square(units.astype(object)).sum(axis=1).astype(float)) * step
    assert np.all(lengths <= 1)
    np.testing.assert_allclose(lengths[1:], 1, rtol=1e-5)
    np.testing.assert_array_equal((units > 0).sum(axis=1), np.minimum(sizes, MOST))
    for client, size in enumerate(sizes):  # one at a time as all at once
        np.testing.assert_array_equal(weigh(np.array([size]), MOST, step)[0], units[client])


def test_common_words_are_listed_with_their_weights_and_nobodys_own_is(tmp_path):
    clients = [["cat", "dog", f"own {n}", *(["fox"] if n < 40 else [])] for n in range(100)]
    found = listed(people(*clients), tmp_path)
    assert set(found.words) == {"cat", "dog", "fox"}
    expected = {"cat": 40 / 2 + 60 / 3**0.5, "dog": 40 / 2 + 60 / 3**0.5, "fox": 40 / 2}
    for word, weight in zip(found.words, found.weights, strict=True):
        assert abs(weight - expected[word]) < 6 * found.noise_std
    assert list(found.weights) == sorted(found.weights, reverse=True)
    assert found.noise_std == pytest.approx(NOISE.noise_multiplier)


def test_it_is_paid_for_before_noise_is_drawn_and_a_spent_budget_refuses_it(tmp_path, monkeypatch):
    book = Ledger(tmp_path / "ledger.db")
    found = listed(people(["cat"], ["cat"]), tmp_path, ledger=book)
    [entry] = book.entries("people")
    assert from_json(entry.event) == found.event
    assert isinstance(found.event, Thresholded)
    assert found.event.delta == CHANCE
    assert found.event.event == NOISE.planned_event  # as many places as words there could be
    drawn = list[int]()
    release = set_union.SetUnion.release
    monkeypatch.setattr(set_union.SetUnion, "release", lambda *a, **k: drawn.append(1) or release(*a, **k))
    book.set_budget("people", epsilon=book.spent("people", delta=1e-3).epsilon * 1.01, delta=1e-3)
    with pytest.raises(BudgetExceeded):
        listed(people(["cat"], ["cat"]), tmp_path, ledger=book)
    assert drawn == []


def test_how_many_words_there_are_changes_no_size(tmp_path, monkeypatch):
    sizes, release = list[int](), set_union.SetUnion.release

    def noted(self, total, **more):
        sizes.append(total.value.size)
        return release(self, total, **more)

    monkeypatch.setattr(set_union.SetUnion, "release", noted)
    listed(people(["cat"], []), tmp_path)
    listed(people([f"word {n}" for n in range(50)], ["dog"]), tmp_path)
    assert sizes == [2 * MOST] * 2


def test_reproducible_noise_is_marked(tmp_path):
    found = listed(people(["cat"]), tmp_path, key=keys.reproducible(1))
    assert isinstance(found.event, Thresholded)
    assert isinstance(found.event.event, Gaussian)
    assert found.event.event.reproducible
    assert dataclasses.replace(found.event.event, reproducible=False) == NOISE.planned_event


def test_more_words_than_can_be_added_up_are_refused():
    with pytest.raises(InvalidInput, match="at most 16"):
        set_union.places_of(2**20, 100)


@pytest.mark.parametrize("own", [["cat"] * 9, ["cat", "dog"] * 5, [*"abcabcabcdefghijkl"], ["a"] * 30 + [*"bcd"], []])
def test_no_client_weighs_more_than_the_bound_however_often_it_has_a_word(tmp_path, monkeypatch, own):
    sums = list[np.ndarray]()
    release = set_union.SetUnion.release

    def noted(self, total, *, key):
        sums.append(np.asarray(total.value, np.float64) * total.grid / total.l2_bound)
        return release(self, total, key=key)

    monkeypatch.setattr(set_union.SetUnion, "release", noted)
    others = [["cat", "a"], ["b"]]
    for turn, clients in enumerate((others, [*others, own])):
        (tmp_path / str(turn)).mkdir()
        listed(people(*clients), tmp_path / str(turn))
    without, with_it = sums
    moved = with_it - np.pad(without, (0, len(with_it) - len(without)))
    assert np.linalg.norm(moved) <= 1
    assert np.count_nonzero(moved) == min(len(set(own)), MOST)


def test_two_lists_with_one_key_share_no_noise(tmp_path, monkeypatch):
    drawn = list[bytes]()
    release = set_union.SetUnion.release
    monkeypatch.setattr(set_union.SetUnion, "release", lambda *a, key: drawn.append(key.secret) or release(*a, key=key))
    for key in (keys.root(), keys.reproducible(5)):
        for own in (["cat"], ["dog"]):
            listed(people(own, ["cow"]), tmp_path, key=key)
    assert len(set(drawn)) == 4


@pytest.mark.parametrize("own", [["cat", "dog"], ["dog", "cat"], ["cow", "dog", "cat"]])
def test_words_of_equal_weight_are_listed_by_their_letters_whoever_has_them_first(tmp_path, monkeypatch, own):
    """The order in which clients have their words is not part of what is noised: one client could show in it."""
    alike = lambda self, total, *, key: Release(np.full(total.value.shape, 9.0), self.event(total), 1.0)  # noqa: E731
    monkeypatch.setattr(set_union.SetUnion, "release", alike)
    found = listed(people(own, ["dog", "cat", "cow"], ["cow"]), tmp_path)
    assert found.words == ("cat", "cow", "dog")
