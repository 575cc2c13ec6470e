"""The one-run bound: its law, its limits, and the numbers others get."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blindsight.accounting import accountants
from blindsight.accounting.events import Gaussian, Relation
from blindsight.audit.one_run import guess_numbers, largest_refuted, lower_bound, p_value
from blindsight.errors import InvalidInput

FEW = [(50, 50), (20, 0)]


def p_value_in_words(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The theorem with sums instead of tails: beta + 2 m delta max_i P[v > Binomial >= v - i] / i."""
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    exactly = [math.comb(guesses, k) * q**k * (1 - q) ** (guesses - k) for k in range(guesses + 1)]
    best = max((sum(exactly[correct - i : correct]) / i for i in range(1, correct + 1)), default=0.0)
    return min(1.0, sum(exactly[correct:]) + 2 * canaries * delta * best)


@given(st.integers(1, 40), st.data(), st.floats(0, 6), st.sampled_from([0.0, 1e-6, 1e-3]))
def test_the_p_value_is_the_theorems(guesses: int, data: st.DataObject, epsilon: float, delta: float):
    correct = data.draw(st.integers(0, guesses))
    ours = p_value(correct, guesses, 50, epsilon=epsilon, delta=delta)
    assert ours == pytest.approx(p_value_in_words(correct, guesses, 50, epsilon, delta), abs=1e-12)


def test_a_smaller_epsilon_or_more_correct_guesses_are_more_surprising():
    for delta in (0.0, 1e-5):
        values = [p_value(180, 200, 1000, epsilon=e, delta=delta) for e in np.linspace(0, 8, 200)]
        assert all(a <= b + 1e-15 for a, b in itertools.pairwise(values))
        bounds = [largest_refuted(v, 200, 1000, delta=delta, significance=0.05) for v in range(201)]
        assert all(a <= b for a, b in itertools.pairwise(bounds))
        assert bounds[100] == 0 < bounds[200]
    assert largest_refuted(200, 200, 1000, delta=1e-5, significance=0.05) < largest_refuted(
        200, 200, 1000, delta=0.0, significance=0.05
    )


def test_with_every_guess_right_the_bound_is_the_closed_form():
    """q^r = alpha at delta 0: epsilon = ln(q / (1 - q)), about ln(m / ln(1 / alpha))."""
    bound = lower_bound(np.arange(1000.0), np.arange(1000) >= 500, delta=0.0, guesses=[(500, 500)])
    q = 0.05 ** (1 / 1000)
    assert bound.epsilon == pytest.approx(math.log(q / (1 - q)), abs=1e-6)
    assert bound.epsilon == pytest.approx(math.log(1000 / math.log(20)), abs=0.01)
    assert bound.epsilon == bound.most
    assert (bound.guesses, bound.correct) == (1000, 1000)


@pytest.mark.parametrize(("epsilon", "canaries"), [(0.5, 200), (2.0, 200)])
def test_randomised_response_is_accused_of_more_than_it_does_in_5_percent_at_most(epsilon: float, canaries: int):
    generator = np.random.default_rng(1)
    runs, alarms, bounds = 200, 0, list[float]()
    for _ in range(runs):
        coins = generator.random(canaries) < 0.5
        truthful = generator.random(canaries) < 1 / (1 + math.exp(-epsilon))
        answers = np.where(truthful, coins, ~coins) + 1e-3 * generator.random(canaries)
        bound = lower_bound(answers, coins, delta=0.0, guesses=FEW)
        alarms += bound.epsilon > epsilon
        bounds.append(bound.epsilon)
    assert alarms <= 18  # 5 % is 10; more than 18 has a probability of 0.5 %
    assert np.mean(bounds) > epsilon / 10  # and it is not a bound that always says 0


@pytest.mark.parametrize("noise", [2.0, 0.5])
def test_the_gaussian_mechanism_is_accused_of_more_than_it_does_in_5_percent_at_most(noise: float):
    generator, delta = np.random.default_rng(2), 1e-4
    true = accountants.epsilon(Gaussian(noise), delta, Relation.ADD_OR_REMOVE).epsilon
    bounds: list[float] = []
    for _ in range(150):
        coins = generator.random(200) < 0.5
        bounds.append(lower_bound(coins + noise * generator.normal(size=200), coins, delta=delta, guesses=FEW).epsilon)
    assert np.sum(np.array(bounds) > true) <= 14
    assert np.mean(bounds) > 0.02 * true


def test_a_broken_mechanism_is_accused():
    coins = np.random.default_rng(3).random(300) < 0.5
    assert lower_bound(coins.astype(float), coins, delta=1e-5).epsilon > 3


def test_scores_that_know_nothing_show_nothing():
    generator = np.random.default_rng(4)
    bounds = [lower_bound(generator.random(400), generator.random(400) < 0.5, delta=1e-5).epsilon for _ in range(40)]
    assert np.mean(np.array(bounds) > 0) <= 0.15


def test_what_others_get_on_the_same_scores():
    """1.305 and 3.544 of jax_privacy 2.0.0: guesses of "in" alone, one threshold for each corner of the hull of the
    ROC curve, and the error shared between the corners. The hull is found by looking at the coins, which a union bound
    does not cover: our rules are fixed before, and their bounds differ.
    """
    generator = np.random.default_rng(0)
    theirs, ours = list[float](), list[float]()
    for distance in (0.0, 1.0, 3.0):
        inside, outside = np.sort(generator.normal(distance, 1, 500)), np.sort(generator.normal(0, 1, 500))
        thresholds = np.append(np.union1d(inside, outside), np.inf)
        corners = hull(np.searchsorted(inside, thresholds), np.searchsorted(outside, thresholds))
        found = [
            largest_refuted(500 - x, 1000 - x - y, 1000, delta=1e-5, significance=0.05 / len(corners))
            for x, y in corners
        ]
        theirs.append(round(max(found), 3))
        coins = np.arange(1000) < 500
        ours.append(lower_bound(np.concatenate([inside, outside]), coins, delta=1e-5).epsilon)
    assert theirs == [0.0, 1.305, 3.544]
    assert ours == pytest.approx([0.0, 1.506, 4.179], abs=0.002)


def hull(x: np.ndarray, y: np.ndarray) -> list[tuple[int, int]]:
    """The corners of the least concave curve above the points."""
    kept: list[tuple[int, int]] = []
    for point in zip(x.tolist(), y.tolist(), strict=True):
        while len(kept) >= 2:
            (x1, y1), (x2, y2) = kept[-2:]
            if (y2 - y1) * (point[0] - x2) > (point[1] - y2) * (x2 - x1):
                break
            kept.pop()
        kept.append(point)
    return kept


def test_the_coins_decide_nothing_but_what_was_right():
    """Which canaries are guessed depends on the scores alone, ties included."""
    scores, coins = np.zeros(64), np.arange(64) % 2 == 0
    one = lower_bound(scores, coins, delta=0.0, guesses=[(8, 8)])
    other = lower_bound(scores, ~coins, delta=0.0, guesses=[(8, 8)])
    assert one.correct + other.correct == 16


def test_several_rules_share_the_permitted_error():
    """Two rules, both all right: each has 2.5 %, and q^20 = 0.025 is what the longer one shows."""
    scores, coins = np.arange(40.0), np.arange(40) >= 20
    bound = lower_bound(scores, coins, delta=0.0, guesses=[(10, 10), (5, 5)])
    q = 0.025 ** (1 / 20)
    assert bound.epsilon == pytest.approx(math.log(q / (1 - q)), abs=1e-6)
    assert bound.epsilon < lower_bound(scores, coins, delta=0.0, guesses=[(10, 10)]).epsilon
    assert lower_bound(-scores, coins, delta=0.0, guesses=[(10, 10)]).correct == 0  # high scores mean "in"


def test_few_canaries_are_guessed_by_few_rules():
    assert guess_numbers(1) == [(1, 0)]
    assert all(1 <= sum(rule) <= count for count in range(1, 40) for rule in guess_numbers(count))
    assert len(guess_numbers(1000)) == 8


@pytest.mark.parametrize(
    ("scores", "coins", "options", "words"),
    [
        ([1.0], [True, False], {}, "one score and one coin"),
        ([1.0], [1], {}, "one score and one coin"),
        ([math.nan], [True], {}, "is NaN"),
        ([1.0], [True], {"confidence": 1.0}, "confidence"),
        ([1.0], [True], {"guesses": [(1, 1)]}, "number of guesses must be between"),
        ([1.0], [True], {"delta": 2.0}, "delta between 0 and 1"),
    ],
)
def test_what_makes_no_sense_is_refused(scores: list[float], coins: list[bool], options: dict[str, Any], words: str):
    no_delta: dict[str, Any] = {"delta": 0.0}
    with pytest.raises(InvalidInput, match=words):
        lower_bound(scores, np.array(coins), **(no_delta | options))


def test_more_correct_guesses_than_guesses_are_refused():
    with pytest.raises(InvalidInput, match="correct <= guesses <= canaries"):
        p_value(3, 2, 10, epsilon=1.0, delta=0.0)
