"""The distributions and divergences are the library's, and exact where the library's are not."""

import itertools
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import privacy_loss_distribution as library
from dp_accounting.rdp import RdpAccountant
from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_sample_wor_gaussian

from blindsight.accounting import accountants, losses, sampled_gaussian
from blindsight.accounting.as_published import fixed_size_epsilon
from blindsight.accounting.events import FixedSize, Gaussian, Poisson, Relation, Repeated, TruncatedPoisson
from blindsight.errors import PrivacyError
from blindsight.privacy import Privacy

INTERVAL = 1e-3
RELATIONS = {
    Relation.ADD_OR_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Relation.REPLACE: NeighboringRelation.REPLACE_ONE,
}


def assert_same(ours: Any, theirs: Any) -> None:
    for side in ("_pmf_remove", "_pmf_add"):
        one, other = (getattr(distribution, side).to_dense_pmf() for distribution in (ours, theirs))
        assert one._lower_loss == other._lower_loss
        np.testing.assert_allclose(one._probs, other._probs, rtol=1e-9, atol=2e-12)
        assert one._infinity_mass == pytest.approx(other._infinity_mass, rel=1e-9, abs=1e-15)
    for epsilon in (0.0, 0.3, 1.0, 4.0):
        assert ours.get_delta_for_epsilon(epsilon) == pytest.approx(
            theirs.get_delta_for_epsilon(epsilon), rel=1e-8, abs=1e-12
        )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("rate", [1e-4, 0.1, 0.5, 0.9, 1 - 1e-6, 1.0])
@pytest.mark.parametrize("noise_multiplier", [0.6, 5.0])
def test_poisson_is_the_librarys(noise_multiplier, rate, relation):
    theirs = library.from_gaussian_mechanism(
        noise_multiplier,
        sampling_prob=rate,
        neighboring_relation=RELATIONS[relation],
        value_discretization_interval=INTERVAL,
    )
    assert_same(sampled_gaussian.poisson(noise_multiplier, rate, relation, INTERVAL), theirs)


@pytest.mark.parametrize(
    ("population", "rate", "limit"),
    [(1000, 0.05, 60), (1000, 0.05, 50), (1000, 0.05, 1000), (100, 0.3, 5), (30, 1.0, 7), (1, 0.5, 1)],
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_truncated_poisson_is_the_librarys(population, rate, limit, relation):
    theirs = library.from_truncated_subsampled_gaussian_mechanism(
        population,
        rate,
        limit,
        1.5,
        neighboring_relation=RELATIONS[relation],
        value_discretization_interval=INTERVAL,
    )
    ours = sampled_gaussian.truncated_poisson(1.5, population, rate, limit, relation, INTERVAL)
    assert_same(ours, theirs)


@pytest.mark.parametrize("rate", [1e-4, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("noise_multiplier", [0.6, 1.0, 5.0])
def test_losses_rounded_down_are_the_librarys(noise_multiplier, rate):
    theirs = library.from_gaussian_mechanism(
        noise_multiplier,
        sampling_prob=rate,
        pessimistic_estimate=False,
        use_connect_dots=False,
        value_discretization_interval=INTERVAL,
    )
    ours = sampled_gaussian.optimistic_poisson(noise_multiplier, rate, INTERVAL)
    assert_same(ours, theirs)
    upper = sampled_gaussian.poisson(noise_multiplier, rate, Relation.ADD_OR_REMOVE, INTERVAL)
    assert ours.get_delta_for_epsilon(1.0) <= upper.get_delta_for_epsilon(1.0)


@pytest.mark.parametrize(("rate", "noise_multiplier"), [(0.3, 0.5), (0.01, 1.0), (0.9, 1.0), (1e-3, 2.0), (0.1, 0.01)])
def test_divergences_of_whole_orders_are_the_librarys(rate, noise_multiplier):
    orders = np.array([2, 3, 17, 64, 512])
    theirs = RdpAccountant(orders.tolist())
    theirs.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise_multiplier)))
    ours = sampled_gaussian.poisson_renyi(noise_multiplier, rate, orders)
    np.testing.assert_allclose(ours, theirs.rdp, rtol=1e-8)


@pytest.mark.parametrize(("rate", "noise_multiplier"), [(1e-9, 1.0), (1e-12, 3.0), (1e-3, 1e5), (0.5, 1e4)])
def test_divergences_keep_their_digits_where_the_moment_rounds_to_one(rate, noise_multiplier):
    with mpmath.workdps(80):
        for order in (2, 5, 30):
            coins = [mpmath.binomial(order, k) * mpmath.mpf(rate) ** k for k in range(order + 1)]
            coins = [coin * (1 - mpmath.mpf(rate)) ** (order - k) for k, coin in enumerate(coins)]
            powers = [
                mpmath.exp(mpmath.mpf(k * k - k) / (2 * mpmath.mpf(noise_multiplier) ** 2)) for k in range(order + 1)
            ]
            exact = mpmath.log(mpmath.fdot(coins, powers)) / (order - 1)
            ours = sampled_gaussian.poisson_renyi(noise_multiplier, rate, np.array([order]))[0]
            assert float(ours / exact) == pytest.approx(1.0, rel=1e-10)


@pytest.mark.parametrize("rate", [1e-6, 0.004, 0.1, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 3.0])
def test_divergences_of_fixed_size_rounds_are_the_librarys(noise_multiplier, rate):
    orders = np.array([2, 3, 4, 17, 63, 64, 256, 512])
    theirs = _compute_rdp_sample_wor_gaussian(rate, noise_multiplier, orders.tolist())
    np.testing.assert_allclose(sampled_gaussian.fixed_size_renyi(noise_multiplier, rate, orders), theirs, rtol=1e-12)


@pytest.mark.parametrize(("noise_multiplier", "rate"), [(1.0, 0.1), (10.0, 0.5), (30.0, 0.99), (1e4, 0.004)])
def test_divergences_of_fixed_size_rounds_are_never_below_their_bound(noise_multiplier, rate):
    """With much noise the differences cancel: what is left of them may exceed the exact ones, but not fall below."""
    orders = np.array([2, 3, 6, 21, 50])
    with mpmath.workdps(200):
        twice = 2 * mpmath.mpf(noise_multiplier) ** 2
        moments = [mpmath.exp((order - 1) * order / twice) for order in range(53)]
        sizes, left = [], moments
        for _ in range(51):
            left = [after - before for before, after in itertools.pairwise(left)]
            sizes.append(abs(left[0]))
        fixed = sampled_gaussian.fixed_size_renyi(noise_multiplier, rate, orders)
        for order, ours in zip(orders.tolist(), fixed.tolist(), strict=True):
            total = mpmath.mpf(1)
            for many in range(2, order + 1):
                around = 4 * mpmath.sqrt(sizes[2 * (many // 2) - 1] * sizes[2 * ((many + 1) // 2) - 1])
                if many == 2:
                    around = 4 * (moments[2] - 1)
                total += mpmath.binomial(order, many) * mpmath.mpf(rate) ** many * min(around, 2 * moments[many])
            assert ours >= mpmath.log(total) / (order - 1) * (1 - mpmath.mpf(10) ** -8)


def test_divergences_of_a_cohort_with_a_limit_are_above_its_distribution_and_those_without_a_limit():
    unlimited = losses.rdp(Poisson(0.05, Gaussian(1.5)), Relation.ADD_OR_REMOVE)
    for limit in (50, 60, 90):
        event = Repeated(TruncatedPoisson(1000, 0.05, limit, Gaussian(1.5)), 7)
        ours = sampled_gaussian.truncated_poisson(1.5, 1000, 0.05, limit, Relation.ADD_OR_REMOVE, 1e-3).self_compose(7)
        assert accountants.epsilon_by_renyi(event, 1e-5) >= losses.epsilon_for_delta(ours, 1e-5)
        assert np.all(losses.rdp(event.event, Relation.ADD_OR_REMOVE) >= unlimited)
    never = losses.rdp(TruncatedPoisson(1000, 0.05, 1000, Gaussian(1.5)), Relation.ADD_OR_REMOVE)
    np.testing.assert_allclose(never, unlimited, rtol=1e-12)


def test_a_million_million_rounds_have_a_bound():
    privacy = Privacy(population=10**12, cohort=1000, rounds=10**12, noise_multiplier=1.0)
    assert 1 < privacy.guarantee(delta=1e-14).epsilon < 20


@pytest.mark.parametrize(("noise_multiplier", "rate", "count"), [(1.0, 0.01, 50), (40.0, 0.004, 3000), (0.6, 1.0, 2)])
def test_composition_on_arrays_is_the_librarys(noise_multiplier, rate, count):
    one = sampled_gaussian.poisson(noise_multiplier, rate, Relation.ADD_OR_REMOVE, INTERVAL)
    ours, theirs = losses.self_composed(one, count), one.self_compose(count)
    rounding = 1e-15 + count * 2.0**-52  # what the accountant allows for
    for side in ("_pmf_remove", "_pmf_add"):
        mine, other = (getattr(distribution, side).to_dense_pmf() for distribution in (ours, theirs))
        assert (mine._lower_loss, mine._discretization) == (other._lower_loss, other._discretization)
        assert mine._infinity_mass == other._infinity_mass
        np.testing.assert_allclose(mine._probs, other._probs, rtol=1e-12, atol=rounding * other._probs.max())
    for delta in (1e-3, 1e-6, 1e-9):
        least, most = (losses.epsilon_for_delta(theirs, delta + sign * rounding) for sign in (1, -1))
        assert least <= losses.epsilon_for_delta(ours, delta) <= most


def test_losses_that_spread_over_too_many_points_have_another_bound():
    """10^12 rounds at this noise would take 2.7 TiB: plans ended in a MemoryError."""
    often = Repeated(TruncatedPoisson(100, 0.1, 60, Gaussian(0.3)), 10**12)
    assert np.isfinite(accountants.epsilon(often, 0.01).epsilon)
    one = sampled_gaussian.poisson(0.3, 0.1, Relation.ADD_OR_REMOVE, 0.05)
    with pytest.raises(PrivacyError, match="points of a grid"):
        losses.self_composed(one, 10**12)
    fixed = Repeated(FixedSize(1000, 100, Gaussian(0.3)), 10**11)
    assert 0 <= accountants.fixed_size_lower(fixed, 0.1) < accountants.epsilon(fixed, 0.1, Relation.REPLACE).epsilon


@pytest.mark.parametrize("noise_multiplier", [1e7, 1e9, 1e12])
def test_divergences_of_fixed_size_rounds_exist_however_much_noise_there_is(noise_multiplier):
    divergences = sampled_gaussian.fixed_size_renyi(noise_multiplier, 1e-6, np.arange(2, 64))
    assert np.all(divergences >= 0)
    assert divergences[0] < 1e-20
    assert np.isfinite(fixed_size_epsilon(10**12, 10**6, noise_multiplier, 10, 1e-9))


def test_few_points_are_composed_as_arrays(monkeypatch):
    """As dictionaries they would be raised to the power of the count first, digit by digit."""
    one = sampled_gaussian.poisson(40.0, 0.004, Relation.ADD_OR_REMOVE, INTERVAL)
    few = type(one._pmf_remove)
    assert few is not type(one._pmf_remove.to_dense_pmf())

    def composed(*_: object) -> None:
        raise AssertionError("a dictionary was composed")

    monkeypatch.setattr(few, "self_compose", composed)
    assert losses.epsilon_for_delta(losses.self_composed(one, 10**6), 1e-6) > 0
