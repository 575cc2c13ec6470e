"""A poll: one client, one vote; noisy counts of a public list of labels."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from blindsight import keys
from blindsight.errors import InvalidInput
from blindsight.mechanisms.gaussian_mechanism import GaussianMechanism, gaussian
from blindsight.mechanisms.laplace_mechanism import LaplaceMechanism, laplace
from blindsight.mechanisms.tallies import Tally, Votes, votes

MECHANISMS: dict[str, Callable[[float], GaussianMechanism | LaplaceMechanism]] = {
    "gaussian exact": gaussian,
    "gaussian float": lambda z: gaussian(z, sampler="float"),
    "laplace exact": laplace,
    "laplace float": lambda z: laplace(z, sampler="float"),
}
LABELS = ("cat", "dog", "axolotl")
every = pytest.mark.parametrize("name", list(MECHANISMS))


def poll(name: str, noise_multiplier: float = 1.0, labels: tuple[str, ...] = LABELS) -> Votes:
    return votes(labels, MECHANISMS[name](noise_multiplier))


def ballots(some: Votes, **counts: int) -> np.ndarray:
    return np.array([some.part(label) for label, count in counts.items() for _ in range(count)])


def test_a_part_is_one_vote_or_nothing():
    some = poll("gaussian exact")
    assert [some.part(label).tolist() for label in (*LABELS, None)] == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert some.part("dog").dtype == np.float32


@pytest.mark.parametrize("label", ["", "Cat", "cats", "snake"])
def test_a_vote_for_an_unknown_label_is_refused(label):
    with pytest.raises(InvalidInput, match=f"{label!r} is not one of the labels"):
        poll("gaussian exact").part(label)


@pytest.mark.parametrize("labels", [(), ("a", "a"), ("a", "b", "a")])
def test_labels_must_be_different_and_at_least_one(labels):
    with pytest.raises(InvalidInput, match="distinct, and at least one"):
        votes(labels, gaussian(1.0))


def test_one_label_is_enough():
    some = poll("gaussian exact", 2**-12, ("only",))
    tally = some.release(some.count(ballots(some, only=3), n_expected=3.0), key=keys.reproducible(1)).value
    assert tally.counts == pytest.approx([3], abs=0.01)


def test_labels_are_kept_in_their_order_whatever_they_come_in():
    assert votes(["b", "a"], gaussian(1.0)).labels == ("b", "a")  # pyright: ignore[reportArgumentType]
    assert isinstance(hash(votes(["b", "a"], gaussian(1.0))), int)  # pyright: ignore[reportArgumentType]


# Counting.


@every
def test_with_hardly_any_noise_everyone_is_counted(name):
    some = poll(name, 2**-12)
    total = some.count(ballots(some, cat=5, dog=7, axolotl=1), n_expected=20.0)
    release = some.release(total, key=keys.reproducible(1))
    assert release.value.labels == LABELS
    assert release.value.counts.dtype == np.float64
    assert release.value.counts == pytest.approx([5, 7, 1], abs=0.01)
    assert release.value.winner == "dog"
    assert release.value.margin == pytest.approx(2, abs=0.01)


@every
def test_counts_are_the_mechanisms_shares_times_what_was_expected(name):
    some = poll(name, 2.0)
    total = some.count(ballots(some, cat=30, dog=3), n_expected=40.0)
    tally, shares = (m.release(total, key=keys.reproducible(2)) for m in (some, some.mechanism))
    assert tally.value.counts == pytest.approx(40 * np.asarray(shares.value, np.float64), rel=1e-12)
    assert tally.event == shares.event == some.event(total) == some.mechanism.event(total)
    std = 2.0 if isinstance(some.mechanism, GaussianMechanism) else math.sqrt(2) * 2.0
    assert tally.noise_std == tally.value.noise_std == pytest.approx(std)
    assert shares.noise_std == pytest.approx(std / 40)


@every
def test_counts_are_unbiased_and_as_noisy_as_they_say(name):
    some = poll(name, 3.0)
    total = some.count(ballots(some, cat=20, dog=10), n_expected=25.0)
    tallies = [some.release(total, key=keys.reproducible(i)).value for i in range(300)]
    errors = np.array([tally.counts for tally in tallies]) - [20, 10, 0]
    std = tallies[0].noise_std

    def p_value(errors: np.ndarray, std: float) -> float:
        kurtosis = 3 if isinstance(some.mechanism, GaussianMechanism) else 6
        z = (float(np.mean(errors**2)) / std**2 - 1) / math.sqrt((kurtosis - 1) / errors.size)
        return float(2 * stats.norm.sf(abs(z)))

    assert p_value(errors, std) > 1e-3
    assert p_value(errors, std * 2 / 3) < 1e-9
    assert p_value(errors, std * 3 / 2) < 1e-9
    assert np.all(np.abs(errors.mean(axis=0)) < 4 * std / math.sqrt(300))


@every
def test_nobody_voted_and_nobody_can_tell(name):
    some = poll(name)
    total = some.count(np.zeros((0, 3), np.float32), n_expected=5.0)
    assert np.all(some.release(total, key=keys.reproducible(3)).value.counts != 0)


# One client, one vote.


ballot = arrays.arrays(np.float32, 3, elements=st.floats(-100, 100, width=32))


@every
@settings(derandomize=True, deadline=None, max_examples=30)
@given(stuffed=ballot, others=st.integers(0, 3))
def test_one_client_moves_the_counts_by_at_most_one(name, stuffed, others):
    some = poll(name, 1.0)
    rest = [some.part(LABELS[i]) for i in range(others)]
    padding = [np.zeros(3, np.float32)] * (3 - others)  # so that shapes compile once
    without, with_it = (
        some.count(np.array([*rest, *padding, own]), n_expected=4.0) for own in (np.zeros(3, np.float32), stuffed)
    )
    assert (without.l1_bound, without.l2_bound) == (1, 1)
    step = without.grid or 1.0
    moved = np.abs(np.asarray(with_it.value, np.float64) - np.asarray(without.value, np.float64)) * step
    assert np.sum(moved) <= 1 + (1e-6 if without.grid is None else 1e-12)
    assert math.sqrt(np.sum(moved**2)) <= 1 + 1e-6


@every
def test_a_stuffed_ballot_counts_once(name):
    some = poll(name, 2**-12)
    parts = np.array([[1000, 0, 0], [0, 1, 0], [0, 1, 0], [10, 10, 0], [np.nan, 0, 0]], np.float32)
    tally = some.release(some.count(parts, n_expected=5.0), key=keys.reproducible(4)).value
    assert tally.counts == pytest.approx([1.5, 2.5, 0], abs=0.01)
    assert tally.winner == "dog"


# The tally.


def test_the_winner_is_ahead_by_the_margin():
    tally = Tally(("a", "b", "c"), np.array([2.0, 9.5, 7.0]), 1.0)
    assert (tally.winner, tally.margin) == ("b", 2.5)
    assert Tally(("a", "b"), np.array([-3.0, -1.0]), 1.0).margin == 2
    assert Tally(("a", "b"), np.array([4.0, 4.0]), 1.0).margin == 0
    assert Tally(("a", "b"), np.array([4.0, 4.0]), 1.0).winner == "a"


def test_a_tally_cannot_be_changed():
    tally = Tally(("a",), np.array([1.0]), 1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        tally.noise_std = 0.0  # pyright: ignore[reportAttributeAccessIssue]


def test_what_was_expected_is_said_by_name():
    some = poll("gaussian exact")
    with pytest.raises(TypeError, match="positional"):
        some.count(ballots(some, cat=1), 1.0)  # pyright: ignore[reportCallIssue]


def test_without_an_opponent_the_margin_is_infinite():
    tally = Tally(("only",), np.array([-2.0]), 1.0)
    assert (tally.winner, tally.margin) == ("only", math.inf)


@every
@pytest.mark.parametrize("labels", [LABELS[:2], (*LABELS, "snake")])
def test_a_sum_over_other_labels_is_refused_before_noise_is_drawn(name, labels):
    some, other = poll(name), poll(name, labels=labels)
    total = other.count(ballots(other, cat=1), n_expected=1.0)
    for attempt in (some.event, lambda total: some.release(total, key=keys.reproducible(1))):
        with pytest.raises(InvalidInput, match="not a sum of votes for the 3 labels"):
            attempt(total)


def test_the_poll_keeps_its_mechanism():
    assert isinstance(poll("laplace exact").mechanism, LaplaceMechanism)
    assert poll("gaussian float") == Votes(LABELS, gaussian(1.0, sampler="float"))
