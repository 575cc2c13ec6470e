"""The distributions are the library's, probability by probability."""

from typing import Any

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as library

from blindsight.accounting import sampled_gaussian
from blindsight.accounting.events import Relation

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
