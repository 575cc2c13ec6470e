"""Noisy arg-max: what one example can do to its party's votes is what the noise is for."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight import keys
from blindsight.accounting import accountants
from blindsight.accounting.events import Gaussian, Repeated
from blindsight.errors import InvalidInput
from blindsight.mechanisms.argmax import UNDECIDED, NoisyArgmax, noisy_argmax, winners
from blindsight.mechanisms.gaussian_mechanism import gaussian
from blindsight.mechanisms.noise import Sampler

SAMPLERS: tuple[Sampler, Sampler] = ("exact", "float")
every = pytest.mark.parametrize("sampler", SAMPLERS)


def poll(sampler: Sampler = "exact", noise: float = 1.0, **settings: float) -> NoisyArgmax:
    return noisy_argmax(3, gaussian(noise, sampler=sampler), **settings)


def test_first_and_second_equal_or_one_apart_are_undecided():
    counts = np.array([[5, 0, 0], [3, 2, 0], [2, 2, 1], [1, 3, 1], [0, 1, 4]])
    assert winners(counts, margin=1).tolist() == [0, UNDECIDED, UNDECIDED, 1, 2]
    assert winners(counts, margin=0).tolist() == [0, 0, UNDECIDED, 1, 2]
    assert winners(counts, margin=0, threshold=4).tolist() == [0, UNDECIDED, UNDECIDED, UNDECIDED, 2]


@every
@settings(derandomize=True, deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), questions=st.integers(1, 20))
def test_one_party_whatever_it_votes_moves_the_table_by_at_most_the_bound(sampler, seed, questions):
    random = np.random.default_rng(seed)
    votes = random.integers(0, 3, (4, questions))
    other = votes.copy()
    other[2] = random.integers(-5, 9, questions)  # also for classes that there are not
    some = poll(sampler)
    one, two = (some.count(ballots, n_expected=4.0) for ballots in (votes, other))
    assert one.l2_bound == two.l2_bound == math.sqrt(2 * questions)
    moved = (np.asarray(one.value, np.float64) - np.asarray(two.value, np.float64)) * (one.grid or 1.0)
    assert np.linalg.norm(moved) <= one.l2_bound * (1 + 1e-12)


def test_the_bound_is_reached_so_it_cannot_be_smaller():
    votes = np.zeros((4, 50), int)
    other = votes.copy()
    other[1] = 1
    some = poll("float")
    moved = some.count(votes, n_expected=4.0).value - some.count(other, n_expected=4.0).value
    assert np.linalg.norm(moved) == pytest.approx(math.sqrt(100))


@pytest.mark.parametrize("questions", [1, 10, 1000])
def test_it_costs_as_much_as_so_many_questions_of_sensitivity_root_two(questions):
    some = poll("float", noise=2.0)
    std = some.release(some.count(np.zeros((5, questions), int), n_expected=5.0), key=keys.root()).noise_std
    assert std == pytest.approx(2.0 * math.sqrt(2 * questions))
    each = Repeated(Gaussian(std / math.sqrt(2)), questions)
    ours, theirs = (accountants.epsilon(e, 1e-5).epsilon for e in (some.planned_event, each))
    assert ours == pytest.approx(theirs, rel=1e-3)


@every
def test_the_noise_is_as_large_as_it_says(sampler):
    """Two classes with equal votes: the lead of the first is normal with the noise of two counts."""
    some = NoisyArgmax(2, gaussian(0.5, sampler=sampler))
    questions = 4000
    votes = np.stack([np.zeros(questions, int), np.ones(questions, int), np.zeros(questions, int)])
    total = some.count(votes, n_expected=3.0)
    release = some.release(total, key=keys.reproducible(1))
    wins = np.mean(release.value == 0)  # P[lead 1 + N(0, 2 std^2) > 0]

    def p_value(std: float) -> float:
        share = stats.norm.cdf(1 / (math.sqrt(2) * std))
        return float(2 * stats.norm.sf(abs(wins - share) / math.sqrt(share * (1 - share) / questions)))

    assert p_value(release.noise_std) > 1e-3
    counts = np.asarray(some.mechanism.release(total, key=keys.reproducible(2)).value, np.float64) * 3.0
    errors = counts - [2, 1]
    spread = float(np.mean(np.square(errors)))

    def chi(std: float) -> float:
        return float(2 * stats.norm.sf(abs(spread / std**2 - 1) / math.sqrt(2 / errors.size)))

    assert chi(release.noise_std) > 1e-3
    assert chi(release.noise_std * 2 / 3) < 1e-9
    assert chi(release.noise_std * 3 / 2) < 1e-9


@every
def test_with_hardly_any_noise_it_is_the_margin_rule(sampler):
    some = poll(sampler, noise=2**-12, margin=1.5)
    votes = np.array([[0, 0, 1], [0, 0, 2], [0, 1, 2], [0, 1, 2]])
    total = some.count(votes, n_expected=4.0)
    assert some.release(total, key=keys.reproducible(3)).value.tolist() == [0, UNDECIDED, 2]


def test_winners_need_the_threshold_in_noisy_votes():
    votes = np.zeros((3, 200), int)
    some = poll("float", noise=2**-12, threshold=4)
    assert set(some.release(some.count(votes, n_expected=3.0), key=keys.reproducible(3)).value) == {UNDECIDED}


@pytest.mark.parametrize("votes", [np.zeros(3, int), np.zeros((2, 0), int), np.zeros((2, 3)), np.zeros((1, 2, 3), int)])
def test_votes_that_are_none_are_refused(votes):
    with pytest.raises(InvalidInput, match="whole numbers"):
        poll().count(votes, n_expected=2.0)


@every
def test_a_table_of_other_classes_or_a_smaller_bound_is_refused(sampler):
    import dataclasses

    total = poll(sampler).count(np.zeros((2, 4), int), n_expected=2.0)
    other = noisy_argmax(4, gaussian(1.0, sampler=sampler))
    for mechanism, sums in ((other, total), (poll(sampler), dataclasses.replace(total, l2_bound=1.0))):
        with pytest.raises(InvalidInput, match="not a table of votes"):
            mechanism.release(sums, key=keys.reproducible(1))


@pytest.mark.parametrize("bad", [{"classes": 1}, {"threshold": math.nan}, {"margin": -1.0}, {"margin": math.nan}])
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(InvalidInput):
        NoisyArgmax(**{"classes": 3, "mechanism": gaussian(1.0)} | bad)
