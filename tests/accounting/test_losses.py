"""The losses of one event: exact counts, and divergences that equal their formulas."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from blindsight.accounting import losses
from blindsight.accounting.events import Gaussian, Laplace, Poisson, PureDP, RandomizedResponse, Relation
from blindsight.errors import RelationMismatch, UnknownEvent

EITHER = (Relation.ADD_OR_REMOVE, Relation.REPLACE)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_distribution_is_composed_exactly_as_often_as_asked(count):
    one = losses.pld(Poisson(0.1, Gaussian(1.0)), Relation.ADD_OR_REMOVE, 1e-3)
    listed = one
    for _ in range(count - 1):
        listed = listed.compose(one)
    found = losses.self_composed_pld(Poisson(0.1, Gaussian(1.0)), count, Relation.ADD_OR_REMOVE, 1e-3)
    for delta in (1e-2, 1e-5, 1e-8):
        assert found.get_epsilon_for_delta(delta) == pytest.approx(listed.get_epsilon_for_delta(delta), abs=1e-6)


@pytest.mark.parametrize("relation", EITHER)
def test_continuous_laplace_has_its_own_divergence_and_discrete_claims_its_pure_epsilon_only(relation):
    loss = 0.5 if relation is Relation.ADD_OR_REMOVE else 1.0
    upstream = RdpAccountant(list(losses.ORDERS)).compose(dp_event.LaplaceDpEvent(1 / loss)).rdp
    continuous, discrete = (losses.rdp(Laplace(2.0, discrete=discrete), relation) for discrete in (False, True))
    assert np.array_equal(continuous, upstream)
    assert np.array_equal(discrete, losses.rdp(PureDP(loss, relation), relation))
    assert np.all(discrete > continuous)


def test_a_pure_loss_has_the_divergence_of_binary_randomised_response():
    for loss in (0.3, 2.0):
        a, odds = losses.ORDERS, math.exp(loss)
        yes, no = odds / (1 + odds), 1 / (1 + odds)
        direct = np.logaddexp(
            a * math.log(yes) + (1 - a) * math.log(no), a * math.log(no) + (1 - a) * math.log(yes)
        ) / (a - 1)
        assert losses.rdp(PureDP(loss), Relation.ADD_OR_REMOVE) == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize("loss", [1e-9, 1e-7])
def test_a_tiny_pure_loss_is_quadratic(loss):
    for event in (PureDP(loss), Laplace(1 / loss), Laplace(1 / loss, discrete=True)):
        assert losses.rdp(event, Relation.ADD_OR_REMOVE) == pytest.approx(losses.ORDERS * loss**2 / 2, rel=1e-6)


def test_replacing_a_sampled_client_goes_through_the_population_without_it():
    """At rate 1 the sampled Gaussian is the Gaussian, whose divergences the triangle inequality adds in closed form."""
    z, a = 3.0, losses.ORDERS
    expected = (a - 0.5) / (a - 1) * (2 * a) / (2 * z**2) + (2 * a - 1) / (2 * z**2)
    assert losses.rdp(Poisson(1.0, Gaussian(z)), Relation.REPLACE) == pytest.approx(expected, rel=1e-9)
    assert np.all(expected >= a / (2 * (z / 2) ** 2))  # never below the truth
    sampled = losses.rdp(Poisson(0.05, Gaussian(z)), Relation.REPLACE)
    assert np.all(sampled < expected)
    assert np.all(sampled > losses.rdp(Poisson(0.05, Gaussian(z)), Relation.ADD_OR_REMOVE))


def test_pure_losses_by_relation():
    assert losses.pure_loss(Laplace(4.0), Relation.ADD_OR_REMOVE) == 0.25
    assert losses.pure_loss(Laplace(4.0), Relation.REPLACE) == 0.5
    assert losses.pure_loss(Poisson(0.1, Laplace(4.0)), Relation.ADD_OR_REMOVE) == 0.25
    assert losses.pure_loss(RandomizedResponse(1.5, 3), Relation.REPLACE) == 1.5
    assert losses.pure_loss(PureDP(1.0), Relation.REPLACE) == 2.0
    assert losses.pure_loss(Gaussian(1.0), Relation.ADD_OR_REMOVE) == math.inf
    with pytest.raises(RelationMismatch):
        losses.pure_loss(PureDP(1.0, Relation.REPLACE), Relation.ADD_OR_REMOVE)


def test_what_is_unknown_is_refused_by_name():
    for relation in EITHER:
        with pytest.raises(UnknownEvent, match="PureDP"):
            losses.pld(Poisson(0.1, PureDP(1.0)), relation, 1e-3)
        with pytest.raises(UnknownEvent, match="PureDP"):
            losses.rdp(Poisson(0.1, PureDP(1.0)), relation)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize(
    ("event", "count"),
    [
        (Poisson(0.01, Gaussian(1.0)), 1000),
        (Poisson(0.5, Gaussian(0.1)), 3),
        (Gaussian(1.0), 1),
        (Laplace(1.0), 3),
        (PureDP(0.5), 4),
    ],
    ids=str,
)
def test_epsilon_is_the_librarys_to_the_last_digits(event, count, relation):
    distribution = losses.self_composed_pld(event, count, relation, 1e-3)
    for delta in (1e-12, 1e-6, 0.1, 0.9):
        expected = distribution.get_epsilon_for_delta(delta)
        assert losses.epsilon_for_delta(distribution, delta) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_losses_whose_exponentials_are_no_numbers_any_more_are_followed_as_the_library_follows_them():
    distribution = losses.self_composed_pld(Gaussian(0.06), 8, Relation.ADD_OR_REMOVE, 0.05)
    found = losses.epsilon_for_delta(distribution, 1e-6)
    assert found == pytest.approx(distribution.get_epsilon_for_delta(1e-6), rel=1e-9)
    assert found > 745
