"""Weaker observers: the exact curve, against closed forms, other mathematics and the published lemmas."""

import math

import numpy as np
import pytest
from scipy import special

from blindsight.accounting.events import Gaussian, Laplace
from blindsight.accounting.informal import against_snapshots, largest_loss_of_a_pair, many_laplaces
from blindsight.errors import InvalidInput


@pytest.mark.parametrize(
    ("updates", "expected"),
    [(1, 1.0), (4, 0.855), (9, 0.732), (16, 0.632), (25, 0.550), (100, 0.317), (400, 0.163), (1000, 0.1020)],
)
def test_the_curve_goes_through_known_points(updates, expected):
    assert many_laplaces(1.0, updates, 1e-8) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, math.log(32)])
@pytest.mark.parametrize("delta", [1e-8, 1e-3])
def test_one_laplace_has_its_closed_form(epsilon, delta):
    # delta(e) = 1 - exp((e - epsilon) / 2) for one Laplace noise
    assert many_laplaces(epsilon, 1, delta) == pytest.approx(epsilon + 2 * math.log1p(-delta), abs=1e-4 * epsilon)


@pytest.mark.parametrize(("epsilon", "updates"), [(1.0, 3), (3.0, 8), (0.2, 20)])
def test_the_density_by_bessel_functions_gives_the_same(epsilon, updates):
    """The sum of T Laplace noises has the density |x|^v K_v(|x|) / (sqrt(pi) 2^v Gamma(T)), v = T - 1/2."""
    order, step = updates - 0.5, epsilon / 500
    x = np.abs((np.arange(400_000) - 200_000) * step + step / 2)

    def log_density(at: np.ndarray) -> np.ndarray:
        return order * np.log(at) + np.log(special.kve(order, at)) - at

    normaliser = 0.5 * math.log(math.pi) + order * math.log(2) + special.gammaln(updates)
    density = np.exp(np.where(x < 600, log_density(np.minimum(x, 600)), -np.inf) - normaliser)
    assert density.sum() * step == pytest.approx(1, abs=1e-6)
    found = many_laplaces(epsilon, updates, 1e-6)
    excess = np.maximum(density[500:] - math.exp(found) * density[:-500], 0).sum() * step
    assert excess == pytest.approx(1e-6, rel=0.01)


def test_more_updates_hide_more_and_many_end_as_a_gaussian():
    found = [many_laplaces(1.0, updates, 1e-8) for updates in (1, 2, 5, 30, 200, 3000)]
    assert found == sorted(found, reverse=True)
    normal = against_snapshots(
        Gaussian(2 * math.sqrt(2)), epsilon=1, weights=9, whole_update=True, instances=5, updates=3000, delta=1e-8
    )
    assert found[-1] == pytest.approx(normal.later, rel=0.01)


def test_lemma_1_holds_for_one_weight_and_fails_for_several():
    assert largest_loss_of_a_pair(1.0, 1) == pytest.approx(0.5)
    for weights, expected in ((3, 0.735), (5, 0.958), (10, 0.9997), (20, 1.0)):
        assert largest_loss_of_a_pair(1.0, weights) == pytest.approx(expected, abs=6e-4)
    assert largest_loss_of_a_pair(3.0, 1) == pytest.approx(1.5)


def test_no_pair_of_instances_shows_more_of_a_whole_update():
    """Search for two instances and two steps that tell more than log((e^epsilon + 1) / 2), and find none that does."""
    random, epsilon = np.random.default_rng(0), 1.5
    informal = against_snapshots(
        Laplace(2 / epsilon), epsilon=epsilon, weights=2, whole_update=True, instances=20, updates=1, delta=1e-8
    )
    assert informal.snapshot == pytest.approx(math.log((math.exp(epsilon) + 1) / 2))
    apart = random.normal(size=(200_000, 2)) * random.exponential(size=(200_000, 1)) * epsilon
    steps = random.laplace(size=(2, 200_000, 2))
    steps *= epsilon / 2 / np.abs(steps).sum(axis=2, keepdims=True)
    ends = np.abs(apart[None] + steps).sum(axis=2), np.abs(steps - apart[None]).sum(axis=2)
    log_likelihood = np.logaddexp(-ends[0], -ends[1])
    largest = np.abs(log_likelihood[0] - log_likelihood[1]).max()
    assert 0.8 * (informal.snapshot or 0) < largest <= (informal.snapshot or 0) + 1e-9


def test_the_published_numbers_stand_beside_and_understate():
    informal = against_snapshots(
        Laplace(2.0), epsilon=1.0, weights=387, whole_update=False, instances=20, updates=100, delta=1e-8
    )
    assert informal.snapshot_published == pytest.approx(19 / 40)
    assert informal.snapshot == pytest.approx(1.0)
    assert informal.later_published == pytest.approx(0.298, abs=5e-4)
    assert (informal.later_published or 0) < informal.later
    assert informal.survival == 1 / 20
    assert str(informal).startswith("informal, not a guarantee")


def test_what_is_not_known_is_not_said():
    informal = against_snapshots(
        Gaussian(1.0), epsilon=1.0, weights=3, whole_update=True, instances=5, updates=10, delta=1e-6
    )
    assert informal.snapshot is None
    assert "unknown" in str(informal)
    with pytest.raises(InvalidInput, match="updates must be 1"):
        against_snapshots(Gaussian(1.0), epsilon=1, weights=3, whole_update=True, instances=5, updates=0, delta=1e-6)
