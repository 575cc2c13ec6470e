"""Laws of the Gaussian's closed form, and of the bound that also gives away in which rounds a client was."""

import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from blindsight.accounting import accountants
from blindsight.accounting.events import (
    Event,
    FixedSize,
    Gaussian,
    Laplace,
    Poisson,
    Relation,
    Repeated,
    TruncatedPoisson,
)
from blindsight.accounting.gaussian_curve import KnownRounds, gaussian_delta

MANY = settings(max_examples=60, deadline=None, derandomize=True)
ADD, REPLACE = Relation.ADD_OR_REMOVE, Relation.REPLACE


def known(event: Event, count: int = 1, relation: Relation = ADD) -> KnownRounds:
    found = KnownRounds.of({event: count}, relation)
    assert found is not None
    return found


def one_round_delta(rate: float, noise: float, epsilon: float) -> float:
    """Of one Poisson round, by integrating both directions: the truth for one release."""

    def kept(x: float) -> tuple[float, float]:
        without, there = stats.norm.pdf(x, 0, noise), stats.norm.pdf(x, 1, noise)
        return float(without), float((1 - rate) * without + rate * there)

    ends, places = (-40 * noise, 1 + 40 * noise), [0.0, 0.5, 1.0]
    found: list[float] = []
    for there, without in ((1, 0), (0, 1)):
        found.append(
            integrate.quad(
                lambda x: max(0.0, kept(x)[there] - math.exp(epsilon) * kept(x)[without]),  # noqa: B023
                *ends,
                points=places,
                limit=400,
            )[0]
        )
    return max(found)


@MANY
@given(st.floats(0.01, 30.0), st.floats(1e-9, 0.3))
def test_the_closed_form_inverts_the_librarys(mu: float, delta: float):
    epsilon = float(get_epsilon_gaussian(1 / mu, delta))
    assert float(gaussian_delta(mu, epsilon)) == pytest.approx(delta, rel=1e-6) or epsilon == 0


def test_many_at_once_are_each_as_alone_and_nothing_moved_gives_nothing_away():
    mus = np.array([0.0, 0.1, 1.0, 10.0, 1e4])
    assert gaussian_delta(mus, 2.0).tolist() == [float(gaussian_delta(mu, 2.0)) for mu in mus]
    assert float(gaussian_delta(0.0, 0.0)) == 0
    assert np.all(np.diff(gaussian_delta(mus, 2.0)) >= 0)


@pytest.mark.parametrize("rate", [0.02, 0.5])
@pytest.mark.parametrize("noise", [0.05, 0.1, 0.5, 2.0])
def test_it_is_never_below_the_truth_of_one_round_and_reaches_it_for_tiny_noise(rate: float, noise: float):
    event = Poisson(rate, Gaussian(noise))
    for delta in (1e-2, 1e-5):
        bound = known(event).epsilon(delta)
        assert one_round_delta(rate, noise, bound) <= delta * (1 + 1e-6)
        if noise <= 0.1:  # the release gives away who was in: less than log(1/rate) is lost
            assert one_round_delta(rate, noise, bound - math.log(1 / rate) - 0.05) > delta


@pytest.mark.parametrize("rounds", [1, 30])
@pytest.mark.parametrize(("event", "relation"), [(Poisson(0.03, Gaussian(1.0)), ADD), (Gaussian(1.0), ADD)])
def test_where_privacy_losses_can_be_followed_they_are_never_above_it(event: Event, relation: Relation, rounds: int):
    exact = accountants.epsilon(Repeated(event, rounds), 1e-5, relation).epsilon
    assert exact <= known(event, rounds, relation).epsilon(1e-5) * (1 + 1e-6)


def test_everyone_in_every_round_is_the_closed_form():
    for event, relation, noise in (
        (Gaussian(2.0), ADD, 2.0),
        (Gaussian(2.0), REPLACE, 1.0),
        (Poisson(1.0, Gaussian(2.0)), ADD, 2.0),
        (FixedSize(9, 9, Gaussian(2.0)), REPLACE, 1.0),
    ):
        exact = float(get_epsilon_gaussian(noise / 3, 1e-6))
        assert exact <= known(event, 9, relation).epsilon(1e-6) <= exact * (1 + 1e-6)


@pytest.mark.parametrize(
    ("event", "relation"),
    [(Poisson(0.03, Gaussian(0.02)), ADD), (FixedSize(1000, 30, Gaussian(0.04)), REPLACE)],
)
def test_rounds_with_tiny_noise_cost_what_the_rounds_a_client_is_in_cost(event: Event, relation: Relation):
    """600 rounds, 18 of which a client is in on average, and hardly ever more than 41: no more than 41 releases."""
    found = accountants.epsilon(Repeated(event, 600), 1e-5, relation).epsilon
    for rounds, is_enough in ((int(stats.binom.isf(1e-6, 600, 0.03)), True), (18, False)):
        of_so_many = float(get_epsilon_gaussian(0.02 / math.sqrt(rounds), 1e-5))
        assert (found <= of_so_many) == is_enough


def test_different_rounds_and_releases_on_everyone_are_counted_together():
    rare, often, always = Poisson(0.02, Gaussian(0.03)), Poisson(0.5, Gaussian(0.2)), Gaussian(0.1)
    together = KnownRounds.of({rare: 20, often: 4, always: 1}, ADD)
    assert together is not None
    generator = np.random.default_rng(0)
    square = generator.binomial(20, 0.02, 200_000) / 0.03**2 + generator.binomial(4, 0.5, 200_000) / 0.2**2 + 100
    drawn = gaussian_delta(np.sqrt(square), 700.0)
    assert together.delta(700.0) == pytest.approx(float(drawn.mean()), abs=5 * float(drawn.std()) / 200_000**0.5)
    assert together.delta(together.epsilon(1e-4)) == pytest.approx(1e-4, rel=1e-4)


def test_what_is_not_known_is_not_claimed():
    assert KnownRounds.of({Poisson(0.1, Laplace(1.0)): 1}, ADD) is None
    assert KnownRounds.of({TruncatedPoisson(100, 0.1, 5, Gaussian(1.0)): 1}, ADD) is None  # others take its place
    assert KnownRounds.of({FixedSize(100, 10, Gaussian(1.0)): 1}, ADD) is None
    assert KnownRounds.of({Poisson(0.5, Gaussian(1.0)): 2**62}, ADD) is None
    assert known(Poisson(0.1, Gaussian(1.0))).epsilon(1e-21) == math.inf
