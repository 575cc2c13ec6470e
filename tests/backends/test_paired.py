"""Laws of pairs: distances are those of recomputed means, the sum stays what it was, and units agree."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blindsight import keys
from blindsight.accounting.bayesian import BayesianAccountant
from blindsight.backends import Simulation
from blindsight.backends.paired import Paired, bayesian_config
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.privacy import Privacy

KEY = keys.reproducible(3)
BOUND = 0.5
EXPECTED = 4.0
SIZES = (2, 1, 3, 0, 2, 5, 1, 1)


def population(seed=0) -> Population:
    x = np.random.default_rng(seed).normal(0, 0.5, (sum(SIZES), 3)).astype(np.float32)
    return Population({"x": x}, sizes=SIZES, name="points")


def mean_of(broadcast, examples, key):
    """An update without dice: the mean of the client's examples."""
    batch = examples.batch(examples.order(5, key=None), 0, 5)
    weight = jnp.broadcast_to(batch.weight[:, None], batch["x"].shape)
    return jnp.sum(batch["x"] * weight, axis=0) / jnp.maximum(jnp.sum(batch.weight), 1.0) * broadcast


def cohort(pairs=8, record=lambda distances: None, clients: Any = (0, 1, 2), seed=0, **settings) -> Any:
    backend = Paired(Simulation(population(seed), **settings), pairs=pairs, record=record)
    return backend.cohort(np.array(clients), n_expected=EXPECTED, key=KEY)


@pytest.mark.parametrize("chunk", [1, 3])
def test_distances_are_those_of_means_recomputed_with_a_client_added_or_removed(chunk):
    """All eight clients are drawn: three are in the cohort and are removed from it, the others are added."""
    seen: list[np.ndarray] = []
    here = (0, 1, 2)
    cohort(record=seen.append, clients=here, chunk=chunk).sum(mean_of, 1.0, l2_bound=BOUND)
    plain = Simulation(population())

    def mean(clients):
        total = plain.cohort(np.array(sorted(clients), np.int64), n_expected=EXPECTED, key=KEY)
        return np.asarray(total.sum(mean_of, 1.0, l2_bound=BOUND).value) / EXPECTED

    neighbours = [set(here) ^ {client} for client in range(8)]
    expected = [np.linalg.norm(mean(here) - mean(other)) for other in neighbours]
    assert 0.0 in expected  # of the client that has nothing
    np.testing.assert_allclose(seen[0], expected, rtol=1e-5, atol=1e-8)


def test_the_sum_is_the_same_with_pairs_and_without():
    for grid in (None, 2.0**-20):
        plain = Simulation(population()).cohort(np.arange(3), n_expected=EXPECTED, key=KEY)
        sums = [c.sum(mean_of, 1.0, l2_bound=BOUND, grid=grid) for c in (plain, cohort())]
        np.testing.assert_array_equal(sums[0].value, sums[1].value)
        assert [s.l2_bound for s in sums] == [BOUND, BOUND]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e10])
def test_no_distance_exceeds_what_the_clip_allows(scale):
    seen: list[np.ndarray] = []
    paired = cohort(record=seen.append)
    paired.sum(mean_of, scale, l2_bound=BOUND)
    assert np.all(seen[0] <= BOUND / EXPECTED)
    assert (seen[0].max() > 0.99 * BOUND / EXPECTED) == (scale >= 1)
    about = paired.simulation_only
    assert (about["pairs"], about["largest_distance"], int(about["clients"])) == (8, seen[0].max(), 3)


def test_clients_are_drawn_anew_each_round_whoever_is_in_the_cohort():
    seen: list[np.ndarray] = []
    backend = Paired(Simulation(population()), pairs=2, record=seen.append)
    for number in range(40):
        key = KEY.derive("round", number)
        backend.cohort(np.arange(2), n_expected=EXPECTED, key=key).sum(mean_of, 0.1, l2_bound=BOUND)
    assert {len(distances) for distances in seen} == {2}
    assert len({round(float(d), 7) for distances in seen for d in distances}) == 8  # everyone comes up


def test_one_call_measures_all_pairs():
    """The update is traced, not called for every pair."""
    calls = []

    def counted(broadcast, examples, key):
        calls.append(1)
        return mean_of(broadcast, examples, key)

    cohort(pairs=8).sum(counted, 1.0, l2_bound=BOUND)
    with_eight = len(calls)
    calls.clear()
    cohort(pairs=2).sum(counted, 1.0, l2_bound=BOUND)
    assert max(with_eight, len(calls)) <= 3  # the sum has a call or two of its own


def test_the_accountant_is_told_rate_and_noise_in_the_units_of_the_mean():
    privacy = Privacy(population=1000, cohort=20, rounds=50, noise_multiplier=2.0, clip=0.5)
    found = bayesian_config(privacy, gamma=1e-20)
    assert (found.rounds, found.rate, found.gamma) == (50, 0.02, 1e-20)
    assert found.sigma == pytest.approx(2.0 * 0.5 / 20)
    assert found.distance_bound == pytest.approx(0.5 / 20)


def test_if_everyone_is_clipped_the_estimate_is_no_less_than_the_renyi_bound():
    """Pairs that are all alike, at the clip: the sampled Gaussian at the run's own noise multiplier."""
    import dp_accounting
    from dp_accounting import rdp

    privacy = Privacy(population=1000, cohort=20, rounds=50, noise_multiplier=2.0, clip=0.5)
    accountant = BayesianAccountant(bayesian_config(privacy))
    for _ in range(50):
        accountant.record(np.full(8, 0.5 / 20))
    found = accountant.report(delta=1e-5, classical=privacy.guarantee(delta=1e-5)).epsilon
    reference = rdp.RdpAccountant([order + 1 for order in range(1, 65)])
    reference.compose(dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(2.0)), 50)
    orders = np.arange(1, 65)
    assert found == pytest.approx(np.min(reference.rdp - np.log(1e-5) / orders), rel=1e-6)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InvalidInput, match="poisson"):
        bayesian_config(Privacy(population=9, cohort=3, rounds=1, noise_multiplier=1.0, participation="fixed"))
    with pytest.raises(InvalidInput, match="needs noise"):
        bayesian_config(Privacy.none(population=9, cohort=3, rounds=1))
    for pairs in (1, 9):
        with pytest.raises(InvalidInput, match="pairs must be between 2"):
            cohort(pairs=pairs)
    with pytest.raises(InvalidInput, match="adaptive clipping"):
        cohort().sum(mean_of, 1.0, l2_bound={"a": 1.0})
