"""Names above a threshold: what only one client has is paid for, in plans, in budgets and in words."""

import math
from pathlib import Path

import pytest

from blindsight.accounting import filter as filters
from blindsight.accounting.accountants import delta, epsilon
from blindsight.accounting.assumptions import TRUSTED_WITH_NAMES
from blindsight.accounting.events import Composed, Gaussian, Poisson, Relation, Repeated, Thresholded
from blindsight.accounting.gaussian_curve import gaussian_delta
from blindsight.accounting.guarantee import certify
from blindsight.algorithms.set_union import CHANCE
from blindsight.errors import InvalidInput, UnknownEvent

ADD, REPLACE = Relation.ADD_OR_REMOVE, Relation.REPLACE


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("count", [1, 7])
def test_it_costs_its_delta_beside_the_noise(relation, count):
    noise, chance = Gaussian(2.0), 1e-8
    both = Repeated(Thresholded(chance, noise), count)
    for at in (0.1, 1.0, 3.0):
        alone = delta(Repeated(noise, count), at, relation)
        assert delta(both, at, relation) == pytest.approx(alone + count * chance, rel=1e-12)
    left = epsilon(Repeated(noise, count), 1e-6 - count * chance, relation).epsilon
    assert epsilon(both, 1e-6, relation).epsilon == pytest.approx(left, rel=1e-12)
    assert left > epsilon(Repeated(noise, count), 1e-6, relation).epsilon


def test_a_delta_that_is_used_up_promises_nothing():
    assert epsilon(Thresholded(1e-6, Gaussian(5.0)), 1e-6).epsilon == math.inf
    assert epsilon(Repeated(Thresholded(3e-7, Gaussian(5.0)), 4), 1e-6).epsilon == math.inf
    assert epsilon(Thresholded(1e-9, Gaussian(0.0)), 1e-6).epsilon == math.inf


@pytest.mark.parametrize("noise", [0.7, 2.0])
@pytest.mark.parametrize("chance", [1e-3, 0.3])
@pytest.mark.parametrize("at", [0.0, 0.5, 2.0, 5.0])
def test_the_claim_is_true_of_one_shared_and_one_own_name_and_noise_alone_is_too_little(noise, chance, at):
    """The client has a name that others have, whose noisy sum is seen, and one of its own, seen with chance / 3."""
    seen, mu = chance / 3, 1 / noise
    there = seen + (1 - seen) * float(gaussian_delta(mu, at - math.log1p(-seen)))
    back = float(gaussian_delta(mu, at + math.log1p(-seen)))
    claimed = delta(Thresholded(chance, Gaussian(noise)), at)
    assert max(there, back) <= claimed
    assert there > delta(Gaussian(noise), at)


def test_a_budget_counts_it_and_refuses_what_its_share_of_delta_does_not_hold():
    event = Thresholded(1e-9, Gaussian(3.0))
    cost = filters.cost(Repeated(event, 10), ADD)
    assert filters.spent(cost, 1e-6) >= epsilon(Repeated(event, 10), 1e-6).epsilon
    assert filters.spent(filters.cost(Repeated(event, 101), ADD), 1e-6) == math.inf  # a tenth of delta is used up
    assert filters.spent(filters.cost(Repeated(Gaussian(3.0), 101), ADD), 1e-6) < math.inf
    together = filters.cost(Composed((event, Gaussian(2.0))), ADD)
    assert together[1] == pytest.approx(1 / 9 + 1 / 4)


def test_as_many_lists_of_words_fit_a_budget_as_the_documentation_says():
    """Asked one after the other, each at the budget's own delta: after that no budget would allow another."""
    lists = Repeated(Thresholded(CHANCE * 1e-6, Gaussian(30.0)), 99)
    assert filters.spent(filters.cost(lists, ADD), 1e-6) < 1.1 * epsilon(lists, 1e-6).epsilon
    text = (Path(__file__).parents[2] / "docs" / "asking.md").read_text(encoding="utf-8")
    assert f"a budget allows {lists.count} such lists at its own" in text


def test_it_is_not_amplified_and_holds_gaussian_noise_only():
    for account in (lambda event: epsilon(event, 1e-6), lambda event: filters.cost(event, ADD)):
        with pytest.raises(UnknownEvent):
            account(Poisson(0.1, Thresholded(1e-9, Gaussian(1.0))))
    with pytest.raises(InvalidInput, match="Gaussian"):
        Thresholded(1e-9, Poisson(0.1, Gaussian(1.0)))
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        Thresholded(0.0, Gaussian(1.0))


def test_the_guarantee_says_who_is_trusted():
    listed = certify(Thresholded(1e-9, Gaussian(1.0, reproducible=True)), delta=1e-6).assumptions
    assert TRUSTED_WITH_NAMES.format(unit="client") in listed
    assert any("seed" in sentence for sentence in listed)
    assert certify(Thresholded(1e-9, Gaussian(1.0)), delta=1e-6).releases == 1
