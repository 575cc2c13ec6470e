"""Laws of the filter that decides budgets: true when questions follow from answers, and not much dearer otherwise."""

import itertools
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from blindsight.accounting import accountants
from blindsight.accounting import filter as filters
from blindsight.accounting.composition import Share, Split
from blindsight.accounting.events import (
    Composed,
    Event,
    FixedSize,
    Gaussian,
    Laplace,
    NonPrivate,
    Poisson,
    PureDP,
    RandomizedResponse,
    Relation,
    Repeated,
    TruncatedPoisson,
    Unit,
)
from blindsight.accounting.gaussian_curve import gaussian_delta
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.spending import Spending
from blindsight.errors import BudgetExceeded, RelationMismatch, UnknownEvent
from blindsight.mechanisms import gaussian

ADD, REPLACE = Relation.ADD_OR_REMOVE, Relation.REPLACE
MANY = settings(max_examples=40, deadline=None, derandomize=True)
DELTA = 1e-6


def filtered(event: Event, delta: float = DELTA, relation: Relation = ADD) -> float:
    return filters.spent(filters.cost(event, relation), delta)


# --- two branches: the second release depends on what the first one said


BUDGET = 4.0  # at DELTA
FIRST = 0.04  # mu of the first release
WHERE = 3.74  # up to this outcome the second release is Gaussian, beyond it is randomised response


def branches(scale: float) -> tuple[Event, Event]:
    """At scale 1 the first release and either of these are, as plans, just within the budget."""
    return Gaussian(1 / (0.8369 * scale)), PureDP(3.8511 * scale)


def left_over(event: Event, epsilon: np.ndarray) -> np.ndarray:
    """sup P(A) - e^epsilon Q(A) of one release, also for negative epsilon."""
    if isinstance(event, Gaussian):
        mu = 1 / event.noise_multiplier
        return stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    assert isinstance(event, PureDP)
    right = 1 / (1 + math.exp(-event.epsilon))
    inside = right - np.exp(epsilon) * (1 - right)
    return np.where(epsilon >= event.epsilon, 0.0, np.where(epsilon <= -event.epsilon, 1 - np.exp(epsilon), inside))


def exact_delta(low: Event, high: Event) -> float:
    """Of a Gaussian release x, then `low` or `high` by what x was: what is left after the loss of x, over all x."""
    x = np.linspace(-8, 9, 60_001)
    loss = FIRST * x - FIRST**2 / 2
    second = np.where(x < WHERE, left_over(low, BUDGET - loss), left_over(high, BUDGET - loss))
    return float(np.trapezoid(stats.norm.pdf(x - FIRST) * second, x))


def may_release(path: Path, second: Event) -> bool:
    book = Ledger(path)
    book.set_budget("phones", epsilon=BUDGET, delta=DELTA)
    book.record(Gaussian(1 / FIRST), population="phones")
    try:
        book.record(second, population="phones")
    except BudgetExceeded:
        return False
    return True


def test_a_question_that_follows_from_an_answer_cannot_exceed_the_budget(tmp_path: Path):
    """As plans both branches fit, and together they use the delta of the budget twice."""
    low, high = branches(1.0)
    for second in (low, high):
        plan = Composed((Gaussian(1 / FIRST), second))
        assert accountants.epsilon(plan, DELTA).epsilon == pytest.approx(BUDGET, rel=1e-3)
    assert exact_delta(low, high) > 1.9 * DELTA
    granted: list[Event] = []
    for which in (0, 1):
        for number in itertools.count():
            event = branches(0.99**number)[which]
            if may_release(tmp_path / f"{which}-{number}.db", event):
                granted.append(event)
                break
    assert exact_delta(*granted) <= DELTA
    assert exact_delta(*granted) > 0.1 * DELTA  # and the budget is of use


def test_the_first_release_is_a_plan_and_if_it_is_all_that_was_planned_nothing_follows(tmp_path: Path):
    """It was chosen before anything was read; with one that no filter lets through the budget is spent."""
    planned = accountants.epsilon(Gaussian(2.0), DELTA).epsilon
    assert filtered(Gaussian(2.0)) > planned
    book = Ledger(tmp_path / "ledger.db")
    book.set_budget("phones", epsilon=planned, delta=DELTA)
    book.record(Gaussian(2.0), population="phones")
    balance = book.balance("phones")
    assert balance is not None
    assert balance.adaptive_epsilon == balance.spent.epsilon == planned
    assert not balance.overspent
    for more in (Gaussian(1e6), PureDP(1e-9)):
        with pytest.raises(BudgetExceeded):
            book.record(more, population="phones")
    book.set_budget("tablets", epsilon=planned, delta=DELTA)
    book.record(Gaussian(1e3), population="tablets")
    with pytest.raises(BudgetExceeded):
        book.record(Gaussian(2.0), population="tablets")


def test_arms_that_share_no_client_have_a_first_release_each(tmp_path: Path):
    planned = accountants.epsilon(Gaussian(2.0), DELTA).epsilon
    split, other = (Split(name, "rule", ("a", "b")) for name in ("one", "other"))
    book = Ledger(tmp_path / "ledger.db")
    book.set_budget("phones", epsilon=planned, delta=DELTA)
    for arm in split.arms:
        book.record(Gaussian(2.0), population="phones", split=split, arm=arm)
    assert book.adaptive_epsilon("phones") == planned
    for again, arm in ((None, ""), (split, "a"), (other, "a")):
        with pytest.raises(BudgetExceeded):
            book.record(Gaussian(1e3), population="phones", split=again, arm=arm)
    book.set_budget("phones", epsilon=2 * planned, delta=DELTA)
    book.record(Gaussian(1e3), population="phones")
    assert book.adaptive_epsilon("phones") > 1.01 * planned


# --- against the numbers for a plan


EVENTS: dict[str, tuple[Event, Relation]] = {
    "Gaussian": (Gaussian(1.5), ADD),
    "discrete": (gaussian(1.5).planned_event, ADD),
    "Gaussian, replace": (Gaussian(3.0), REPLACE),
    "reproducible": (Gaussian(1.5, reproducible=True), ADD),
    "Laplace": (Laplace(2.0), ADD),
    "discrete Laplace": (Laplace(2.0, discrete=True), ADD),
    "randomised response": (RandomizedResponse(1.0, 4), REPLACE),
    "pure": (PureDP(0.3), ADD),
    "Poisson": (Poisson(0.02, Gaussian(1.0)), ADD),
    "Poisson, replace": (Poisson(0.02, Gaussian(2.0)), REPLACE),
    "Poisson Laplace": (Poisson(0.1, Laplace(1.0)), ADD),
    "default limit": (TruncatedPoisson(1000, 0.02, 90, Gaussian(1.0)), ADD),
    "limit that matters": (TruncatedPoisson(1000, 0.02, 20, Gaussian(1.0)), ADD),
    "fixed size": (FixedSize(1000, 20, Gaussian(3.0)), REPLACE),
}


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize(("event", "relation"), EVENTS.values(), ids=EVENTS.keys())
def test_it_is_never_below_the_number_for_a_plan(event: Event, relation: Relation, count: int):
    for delta in (1e-3, 1e-6):
        planned = accountants.epsilon(Repeated(event, count), delta, relation).epsilon
        assert planned * (1 - 1e-6) <= filtered(Repeated(event, count), delta, relation) < math.inf


@MANY
@given(st.floats(0.05, 50.0), st.integers(1, 1000), st.floats(-12, -4).map(lambda power: 10.0**power))
def test_gaussian_releases_cost_a_few_percent_more_than_as_a_plan(noise: float, count: int, delta: float):
    planned = accountants.epsilon(Repeated(Gaussian(noise), count), delta).epsilon
    assert planned <= filtered(Repeated(Gaussian(noise), count), delta) <= 1.1 * planned + 0.02


@pytest.mark.parametrize("loss", [0.01, 0.3, 1.0, 8.0])
def test_the_gaussian_that_a_pure_loss_is_counted_as_dominates_it_and_is_the_least_that_does(loss: float):
    square = filters.leaf_cost(PureDP(loss), ADD)[1]
    at = np.linspace(0, loss * 1.01, 500)
    pure = left_over(PureDP(loss), at)
    assert all(gaussian_delta(math.sqrt(square), e) >= p - 1e-12 for e, p in zip(at, pure, strict=True))
    assert float(gaussian_delta(math.sqrt(square) * 0.999, 0.0)) < pure[0]


def test_pure_losses_add_up_at_no_delta():
    for n in (1, 2, 5):
        assert filtered(Repeated(PureDP(0.5), n), 1e-30) == pytest.approx(0.5 * n)
    many = filtered(Repeated(PureDP(0.01), 10_000))
    assert accountants.epsilon(Repeated(PureDP(0.01), 10_000), DELTA).epsilon <= many < 10


def test_sampled_rounds_are_amplified():
    for q in (0.01, 0.1):
        rounds = Repeated(Poisson(q, Gaussian(2.0)), 100)
        assert filtered(rounds) < 0.5 * filtered(Repeated(Gaussian(2.0), 100))


def test_a_limit_that_displaces_others_is_charged_two_bounds():
    assert filtered(TruncatedPoisson(100, 0.5, 5, Gaussian(4.0))) == filtered(Gaussian(2.0))


def test_what_protects_nothing_is_in_no_budget_and_what_nobody_can_bound_is_refused():
    for event in (NonPrivate(), Gaussian(0.0), PureDP(math.inf), Composed((Gaussian(5.0), NonPrivate()))):
        assert filtered(event) == math.inf
        assert not filters.is_within(filters.cost(event, ADD), 1e200, 0.5)
    with pytest.raises(UnknownEvent):
        filters.cost(Poisson(0.1, PureDP(1.0)), ADD)
    with pytest.raises(RelationMismatch):
        filters.cost(FixedSize(10, 5, Gaussian(1.0)), ADD)


@MANY
@given(st.lists(st.sampled_from([event for event, relation in EVENTS.values() if relation is ADD]), max_size=6))
def test_costs_add_up_and_more_never_costs_less(events: list[Event]):
    total, before = filters.NOTHING, 0.0
    for event in events:
        total = total + filters.cost(event, ADD)
        now = filters.spent(total, DELTA)
        assert now >= before
        before = now
    assert np.allclose(total, filters.cost(Composed(tuple(events)), ADD), rtol=1e-12)


def test_the_budget_that_was_spent_is_just_enough():
    for event, relation in EVENTS.values():
        cost = filters.cost(event, relation)
        spent = filters.spent(cost, DELTA)
        assert filters.is_within(cost, spent, DELTA)
        assert not filters.is_within(cost, spent * (1 - 1e-9), DELTA)


def test_the_shares_of_delta_add_up_to_no_more_than_delta():
    """What each filter alone would let through, at its own share: together they are one delta."""
    single = [np.where(np.arange(len(filters.NOTHING)) == i, 0.0, math.inf) for i in range(4, len(filters.NOTHING))]
    at = 3.0
    shares: list[float] = []
    for alone, order in zip(single, filters.ORDERS, strict=True):
        alone[3] = 0.0

        def excess(level: float, alone: np.ndarray = alone, order: int = order) -> float:
            total = np.where(alone == 0.0, 0.0, math.inf)
            total[4 + filters.ORDERS.index(order)] = level
            return 1.0 if filters.is_within(total, at, DELTA) else -1.0

        if excess(0.0) < 0:
            continue  # this order can never help at so small a delta
        level = float(optimize.brentq(excess, 0.0, 10.0))  # pyright: ignore[reportArgumentType]
        shares.append(math.exp((order - 1) * (level - at + math.log1p(-1 / order)) - math.log(order)))
    gaussian_only = np.full_like(filters.NOTHING, math.inf)
    gaussian_only[2:4] = 0.0

    def excess_of_mu(mu: float) -> float:
        total = gaussian_only.copy()
        total[1] = mu**2
        return 1.0 if filters.is_within(total, at, DELTA) else -1.0

    mu = float(optimize.brentq(excess_of_mu, 0.01, 5.0))  # pyright: ignore[reportArgumentType]
    shares.append(float(gaussian_delta(mu, at)))
    assert len(shares) > 5
    assert 0.5 * DELTA < sum(shares) <= DELTA * (1 + 1e-6)


# --- speed


def test_ten_thousand_checks_take_less_than_a_second():
    """Half of them of one event, half all different, on arms as well."""
    spending = Spending()
    split = '{"arms":["a","b"],"name":"n","rule":"r"}'
    shares = [
        Share(
            Gaussian(1000.0 if i % 2 else 1000.0 + i), Unit.CLIENT, ADD, split * (i % 3 > 0), "ab"[i % 2] * (i % 3 > 0)
        )
        for i in range(10_000)
    ]
    started = time.process_time()
    for share in shares:
        assert filters.is_within(spending.with_more(share), 8.0, DELTA)
        spending.add(share)
    assert time.process_time() - started < 1.0
