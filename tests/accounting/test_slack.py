"""Laws of what noise on a grid costs: next to nothing, at every epsilon that people really spend."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from blindsight.accounting import accountants, planning
from blindsight.accounting import filter as filters
from blindsight.accounting.events import Event, FixedSize, Gaussian, Poisson, Relation, Repeated
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.slack import Slack
from blindsight.accounting.statement import Statement
from blindsight.mechanisms import gaussian

DELTA = 1e-6
DEFAULT = gaussian(0.3).planned_event  # as much as an inspection releases, and about as little noise
IDEAL = Gaussian(0.3)


def test_any_number_of_inspections_can_be_shown_planned_and_budgeted(tmp_path: Path):
    """Three of them used to be too many: e^epsilon times the distance from ideal noise was more than delta."""
    book, before = Ledger(tmp_path / "ledger.db"), 0.0
    for n in range(1, 51):
        book.record(DEFAULT, population="writers")
        spent = book.spent("writers", DELTA).epsilon
        ideal = accountants.epsilon(Repeated(IDEAL, n), DELTA).epsilon
        assert ideal <= spent <= 1.001 * ideal
        assert before < spent
        before = spent
    [account] = Statement.of(book, delta=DELTA).accounts
    assert account.spent.epsilon == before <= account.adaptive_epsilon <= 1.1 * before
    assert not book.set_budget("writers", epsilon=1.1 * before, delta=DELTA).overspent
    book.record(gaussian(30.0).planned_event, population="writers")


@pytest.mark.parametrize("n", [1, 3, 10, 50])
def test_noise_can_be_planned_for_any_number_of_releases_and_epsilon(n: int):
    for epsilon in (0.5, 8.0, 80.0, 300.0):
        noise, ideal = (
            planning.solve_noise(lambda z: Repeated(make(z), n), epsilon=epsilon, delta=DELTA)  # noqa: B023
            for make in (lambda z: gaussian(z).planned_event, Gaussian)
        )
        assert ideal <= noise <= 1.001 * ideal


def test_a_population_at_any_epsilon_can_be_read(tmp_path: Path):
    book = Ledger(tmp_path / "ledger.db")
    for i, noise in enumerate((10.0, 1.0, 0.1, 0.01, 0.001, 2**-12)):
        book.record(gaussian(noise).planned_event, population=f"p{i}")
        for delta in (1e-2, 1e-6, 1e-15):
            spent = book.spent(f"p{i}", delta).epsilon
            ideal = accountants.epsilon(Gaussian(noise), delta).epsilon
            assert ideal <= spent <= 2 * ideal  # beyond all use, where only Renyi divergences can follow


# --- the argument, step by step, on noise coarse enough to be looked at


def noises(scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whole numbers, and the logarithms of their probabilities as discrete and as rounded Gaussian noise."""
    x = np.arange(-int(9 * scale), int(9 * scale) + 1)
    discrete = -(x**2) / (2 * scale**2)
    discrete -= np.log(np.sum(np.exp(discrete)))
    away = np.abs(x)
    upper, lower = stats.norm.logsf((away - 0.5) / scale), stats.norm.logsf((away + 0.5) / scale)
    return x, discrete, upper + np.log1p(-np.exp(lower - upper))


@pytest.mark.parametrize("scale", [2.0, 8.0, 64.0])
def test_the_ratio_of_the_two_noises_is_within_the_bounds_of_the_proof(scale: float):
    x, discrete, rounded = noises(scale)
    ratio = discrete - rounded
    assert np.max(ratio) <= 1 / (24 * scale**2) * (1 + 1e-6)
    assert np.max(ratio) >= 1 / (24 * scale**2) * (1 - 1e-2)  # it is reached
    assert np.all(-ratio <= x**2 / (24 * scale**4) + 1e-12)
    k = math.floor(6 * scale**2) - 1
    moment = np.sum(np.exp(discrete + (k + 1) * x**2 / (24 * scale**4)))
    assert moment <= math.exp((k + 1) / (12 * scale**2))


def test_the_claimed_delta_is_above_the_exact_one_of_discrete_noise_and_hardly_more():
    """The coarsest grid that is ever drawn on; a client moves the sum by twice the noise's scale."""
    scale = 4096
    x, discrete, _ = noises(scale)
    shifted = discrete[2 * scale :], discrete[: -2 * scale]
    event = Gaussian(0.5, kl_slack=1 / (320 * scale**4))
    for epsilon in (1.0, 6.0, 12.0):
        exact = float(np.sum(np.maximum(0.0, np.exp(shifted[1]) - math.exp(epsilon) * np.exp(shifted[0]))))
        claimed = accountants.delta(event, epsilon)
        assert exact <= claimed * (1 + 1e-9)
        assert claimed <= 1.5 * exact  # the event does not say how coarse its grid is, so the finest is counted
    assert len(x) > 8 * scale


def test_the_moments_of_whole_orders_are_those_of_the_continuous_gaussian():
    """So Renyi divergences need no slack, with sampling or without."""
    scale, shift = 3.0, 2
    x, discrete, _ = noises(scale)
    moved = -((x - shift) ** 2) / (2 * scale**2)
    moved -= np.log(np.sum(np.exp(moved)))
    for order in (2, 3, 5):
        moment = np.sum(np.exp(discrete + order * (moved - discrete)))
        assert moment == pytest.approx(math.exp((order**2 - order) * shift**2 / (2 * scale**2)), rel=1e-6)
    rate = 0.1
    mixed = np.logaddexp(math.log(1 - rate) + discrete, math.log(rate) + moved)
    costs = filters.leaf_cost(Poisson(rate, Gaussian(scale / shift)), Relation.ADD_OR_REMOVE)[4:]
    for order, cost in zip(filters.ORDERS[:4], costs, strict=False):
        for one, other in ((mixed, discrete), (discrete, mixed)):
            divergence = math.log(np.sum(np.exp(order * one + (1 - order) * other))) / (order - 1)
            assert divergence <= cost * (1 + 1e-6)


@pytest.mark.parametrize("make", [lambda g: g, lambda g: Poisson(0.1, g), lambda g: FixedSize(100, 10, g)])
def test_coarser_noise_never_costs_less(make):
    relation = Relation.REPLACE if isinstance(make(IDEAL), FixedSize) else Relation.ADD_OR_REMOVE
    before = 0.0
    for coordinates in (0, 1, 10**3, 10**6, 10**9):
        event: Event = make(Gaussian(1.0, kl_slack=coordinates / (320 * 2.0**96)))
        now = accountants.epsilon(Repeated(event, 3), DELTA, relation).epsilon
        assert before <= now * (1 + 1e-9)
        assert now < math.inf
        before = now


def test_the_distance_of_a_release_is_counted_per_number_released():
    for coordinates in (1, 1000):
        kl = coordinates / (320 * 2.0**96)
        assert Slack(0.0, kl).ratio == pytest.approx(coordinates / (24 * 2.0**48))
