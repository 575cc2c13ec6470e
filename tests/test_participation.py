"""The laws of taking part: every cohort as its event says, and a test that would notice if it were not."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from blindsight import keys, participation
from blindsight.accounting import accountants
from blindsight.accounting.events import (
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
    flatten,
)
from blindsight.errors import InvalidInput, RelationMismatch
from blindsight.participation import FixedSizeRounds, Full, TruncatedPoissonRounds, Unproven

laws = settings(derandomize=True, deadline=None, max_examples=150)

SEED = keys.reproducible(77)
NOISE = Gaussian(1.0, kl_slack=1e-12)
ACCEPT, REJECT = 1e-3, 1e-9  # p-values: what is right lies above the first, what is wrong below the second


def fit(counts: Any, probabilities: Any = None) -> float:
    """The p-value of the chi-square test that `counts` come from `probabilities`, by default all alike."""
    counts = np.asarray(counts, np.float64)
    expected = None if probabilities is None else counts.sum() * np.asarray(probabilities)
    return float(stats.chisquare(counts, expected).pvalue)


def attendance(draw: Callable[[int], np.ndarray], rounds: int, population: int) -> np.ndarray:
    """Row by row, who was there."""
    rows = np.zeros((rounds, population), dtype=bool)
    for t in range(rounds):
        rows[t, draw(t)] = True
    return rows


def tally(cohorts: Iterable[np.ndarray], cells: list[tuple[int, ...]]) -> list[int]:
    seen = Counter(tuple(cohort.tolist()) for cohort in cohorts)
    assert set(seen) <= set(cells)
    return [seen[cell] for cell in cells]


def subsets(population: int, *sizes: int) -> list[tuple[int, ...]]:
    return [cell for size in sizes for cell in itertools.combinations(range(population), size)]


# Poisson.


def independence(rows: np.ndarray, rate: float) -> dict[str, float]:
    """p-values that each client takes part with `rate`, independently of the others and of the round before."""
    rounds, population = rows.shape
    spread = rate * (1 - rate)
    z = (rows - rate) / math.sqrt(spread)
    alone = np.sum(z, axis=0) / math.sqrt(rounds)
    sizes = rows.sum(axis=1)
    pairs = (z.T @ z)[np.triu_indices(population, 1)] / math.sqrt(rounds)
    again = np.sum(z[1:] * z[:-1], axis=0) / math.sqrt(rounds - 1)
    variance = float(np.sum((sizes - population * rate) ** 2) / (population * spread))
    return {
        "mean": float(stats.binomtest(int(rows.sum()), rows.size, rate).pvalue),
        "each client": float(stats.chi2.sf(np.sum(alone**2), population)),
        "variance": 2 * min(float(stats.chi2.sf(variance, rounds)), float(stats.chi2.cdf(variance, rounds))),
        "pairs": float(stats.chi2.sf(np.sum(pairs**2), pairs.size)),
        "rounds": float(stats.chi2.sf(np.sum(again**2), population)),
    }


def test_poisson_cohorts_are_independent_coins():
    rule, rounds = participation.poisson(40, 10), 4000
    rows = attendance(lambda t: rule.draw(key=SEED.derive("cohort", t)), rounds, 40)
    [leaf] = flatten(rule.event(NOISE))
    assert isinstance(leaf, TruncatedPoisson)
    assert min(independence(rows, leaf.rate).values()) > ACCEPT
    for wrong in (2 / 3, 0.95, 1.05, 3 / 2):
        assert independence(rows, leaf.rate * wrong)["mean"] < REJECT

    rng = np.random.default_rng(0)
    coins = rng.random(rows.shape)
    assert min(independence(coins < 0.25, 0.25).values()) > ACCEPT
    assert independence(coins < 0.25 * 2 / 3, 0.25)["mean"] < REJECT
    assert independence(coins < 0.25 * 3 / 2, 0.25)["mean"] < REJECT
    uneven = coins < np.linspace(0.2, 0.3, 40)
    assert independence(uneven, 0.25)["each client"] < REJECT
    fixed = participation.fixed_size(40, 10)
    same_size = attendance(lambda t: fixed.draw(key=SEED.derive("cohort", t)), rounds, 40)
    assert independence(same_size, 0.25)["variance"] < REJECT
    in_pairs = np.repeat(coins[:, :20] < 0.25, 2, axis=1)
    assert independence(in_pairs, 0.25)["pairs"] < REJECT
    assert independence(in_pairs, 0.25)["variance"] < REJECT
    stubborn = np.repeat(coins[: rounds // 2] < 0.25, 2, axis=0)
    assert independence(stubborn, 0.25)["rounds"] < REJECT


@pytest.mark.parametrize(("population", "cohort", "limit"), [(8, 4, 2), (6, 4.5, 1), (5, 2.5, 3)])
def test_beyond_the_limit_every_subset_is_equally_likely(population, cohort, limit):
    rule = participation.poisson(population, cohort, limit=limit)
    cells = subsets(population, *range(limit + 1))
    rate = cohort / population
    mass = [float(stats.binom.pmf(k, population, rate)) for k in range(limit)]
    mass.append(1 - sum(mass))
    law = [mass[len(cell)] / math.comb(population, len(cell)) for cell in cells]
    drawn = [rule.draw(key=SEED.derive("truncated", t)) for t in range(6000)]
    assert fit(tally(drawn, cells), law) > ACCEPT

    def first_come(t: int) -> np.ndarray:
        stream = SEED.derive("truncated", t).stream()
        return np.flatnonzero(stream.bernoulli(rate, population))[:limit]

    assert fit(tally(map(first_come, range(6000)), cells), law) < REJECT


def overflow(rule: TruncatedPoissonRounds, limit: int) -> float:
    return float(stats.binom.sf(limit, rule.population, rule.rate))


@laws
@given(population=st.integers(1, 10**7), share=st.floats(-7, 0).map(lambda p: 10.0**p))
@example(population=1, share=1.0)
@example(population=10**9, share=1e-6)
@example(population=100, share=1.0)
@example(population=100, share=0.999)
@example(population=342_477, share=5000 / 342_477)
def test_by_default_the_limit_is_all_but_never_reached_and_no_larger_than_that_takes(population, share):
    rule = participation.poisson(population, max(population * share, 1e-3))
    assert 1 <= rule.limit <= population
    assert overflow(rule, rule.limit) < 1e-15
    if rule.limit < population:
        # what the accountant asks: that none of the others crowd a client out
        assert float(stats.binom.sf(rule.limit - 1, population - 1, rule.rate)) <= 1.01e-16
        assert overflow(rule, rule.limit - 2) > 0.99e-16


def test_a_limit_that_is_never_reached_costs_nothing():
    rule = participation.poisson(2000, 20)
    [leaf] = flatten(rule.event(Gaussian(1.0), 50))
    assert isinstance(leaf, TruncatedPoisson)
    ideal = Repeated(Poisson(leaf.rate, Gaussian(1.0)), 50)
    truncated = accountants.epsilon(rule.event(Gaussian(1.0), 50), 1e-6, rule.relation).epsilon
    assert truncated == pytest.approx(accountants.epsilon(ideal, 1e-6).epsilon, rel=1e-6)


def test_a_limit_of_ones_own_is_kept():
    rule = participation.poisson(100, 50, limit=7)
    assert rule.limit == 7
    assert {len(rule.draw(key=SEED.derive("own", t))) for t in range(50)} == {7}
    assert participation.poisson(100, 50, limit=100).limit == 100


def test_a_poisson_cohort_may_be_empty():
    rule = participation.poisson(1000, 0.5)
    sizes = [len(rule.draw(key=SEED.derive("rare", t))) for t in range(400)]
    nobody = sizes.count(0)
    assert stats.binomtest(nobody, 400, math.exp(-0.5)).pvalue > ACCEPT
    assert stats.binomtest(nobody, 400, math.exp(-0.5) * 2 / 3).pvalue < REJECT
    assert rule.n_expected == 0.5


# Fixed size.


@pytest.mark.parametrize(("population", "cohort"), [(6, 2), (5, 4), (7, 1), (6, 3)])
def test_fixed_cohorts_are_uniform_and_of_their_size(population, cohort):
    rule = participation.fixed_size(population, cohort)
    cells = subsets(population, cohort)
    drawn = [rule.draw(key=SEED.derive("fixed", t)) for t in range(5000)]
    assert fit(tally(drawn, cells)) > ACCEPT
    [leaf] = flatten(rule.event(NOISE))
    assert isinstance(leaf, FixedSize)
    there = sum(0 in cohort for cohort in drawn)
    rate = leaf.cohort / leaf.population
    assert stats.binomtest(there, 5000, rate).pvalue > ACCEPT
    assert stats.binomtest(there, 5000, rate * 2 / 3).pvalue < REJECT
    assert stats.binomtest(there, 5000, min(1.0, rate * 3 / 2)).pvalue < REJECT

    def careless(t: int) -> np.ndarray:
        """Orders by three bits of each word: ties go to whoever comes first."""
        words = SEED.derive("fixed", t).stream().words(population) & np.uint64(7)
        return np.sort(np.argsort(words, stable=True)[:cohort])

    assert fit(tally(map(careless, range(5000)), cells)) < REJECT


def test_fixed_rounds_are_accounted_under_replace_only():
    rule = participation.fixed_size(1000, 100)
    event = rule.event(Gaussian(2.0), 3)
    assert rule.relation is Relation.REPLACE
    assert 0 < accountants.epsilon(event, 1e-6, rule.relation).epsilon < math.inf
    with pytest.raises(RelationMismatch, match="fixed_size"):
        accountants.epsilon(event, 1e-6, Relation.ADD_OR_REMOVE)


# Full.


@pytest.mark.parametrize("population", [1, 2, 17])
def test_in_full_participation_all_are_there(population):
    rule = participation.full(population)
    assert rule.draw().tolist() == rule.draw(key=SEED).tolist() == list(range(population))
    assert (rule.limit, rule.n_expected) == (population, float(population))


# Unproven.


@laws
@given(
    population=st.integers(1, 12),
    share=st.floats(0.01, 1),
    most=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_nobody_takes_part_more_often_than_promised(population, share, most, seed):
    rule = participation.unproven(population, math.ceil(population * share), max_participations=most)
    rng = np.random.default_rng(seed)
    participated = np.zeros(population, dtype=np.int64)
    for t in range(30):
        available = rng.integers(0, population, rng.integers(0, 2 * population + 1))  # some twice
        before = participated.copy()
        cohort = rule.draw(key=SEED.derive("turn", seed, t), available=available, participated=participated)
        assert np.array_equal(participated, before)
        assert cohort.dtype == np.int64
        assert len(cohort) <= rule.limit == population
        assert cohort.tolist() == sorted(set(cohort.tolist()))
        eligible = {i for i in available.tolist() if participated[i] < most}
        assert set(cohort.tolist()) <= eligible
        participated[cohort] += 1
    assert participated.max(initial=0) <= most
    [(release, count)] = flatten(rule.event(NOISE, 30)).items()
    assert release == NOISE
    assert count == most >= participated.max()


def unproven_rounds(rule: Unproven, without: int | None, rounds: int, key: keys.Key) -> np.ndarray:
    """Who takes part in which round if everyone turns up, or everyone but one."""
    available = np.array([i for i in range(rule.population) if i != without])
    participated = np.zeros(rule.population, np.int64)

    def draw(t: int) -> np.ndarray:
        cohort = rule.draw(key=key.derive("cohort", t), available=available, participated=participated)
        participated[cohort] += 1
        return cohort

    return attendance(draw, rounds, rule.population)


@laws
@given(
    population=st.integers(2, 12),
    share=st.floats(0.05, 1),
    most=st.integers(1, 4),
    who=st.integers(0, 11),
    seed=st.integers(0, 2**32),
)
@example(population=3, share=0.67, most=1, who=0, seed=0)
def test_one_client_more_changes_nobody_elses_rounds(population, share, most, who, seed):
    """Neighbouring populations, the same coins: the rounds of all others are the same, in every round to the end."""
    rule = participation.unproven(population, math.ceil(population * share), max_participations=most)
    who, key = who % population, SEED.derive("neighbours", seed)
    there, away = (unproven_rounds(rule, without, 20, key) for without in (None, who))
    others = np.arange(population) != who
    assert np.array_equal(there[:, others], away[:, others])
    assert not away[:, who].any()
    assert there[:, who].sum() <= most


@pytest.mark.parametrize(("cohort", "most", "rounds"), [(99, 1, 1), (60, 2, 5), (100, 3, 4)])
def test_the_claimed_epsilon_is_that_of_the_sums_that_neighbours_really_make(cohort, most, rounds):
    """All others send -S, the client +S. Given the coins, the release is a Gaussian about a known mean for either
    population, so its epsilon is the closed form of the distance between the means, in S over the noise."""
    rule = participation.unproven(100, cohort, max_participations=most)
    parts = np.full(100, -1.0)
    parts[17] = 1.0
    farthest = 0.0
    for seed in range(40):
        rows = (unproven_rounds(rule, without, rounds, SEED.derive("sums", seed)) for without in (None, 17))
        there, away = (row @ parts for row in rows)
        farthest = max(farthest, float(np.linalg.norm(there - away)))
    claimed = accountants.epsilon(rule.event(Gaussian(1.0), rounds), 1e-5, rule.relation).epsilon
    real = get_epsilon_gaussian(1.0 / farthest, 1e-5)
    assert real <= claimed <= real * (1 + 1e-6)


def test_whoever_turns_up_is_kept_by_a_coin_of_its_own():
    rule, rounds = participation.unproven(40, 10, max_participations=10**6), 4000
    everyone, none = np.arange(40), np.zeros(40, np.int64)
    rows = attendance(lambda t: rule.draw(key=SEED.derive("own", t), available=everyone, participated=none), rounds, 40)
    assert min(independence(rows, rule.rate).values()) > ACCEPT
    for wrong in (2 / 3, 0.95, 1.05, 3 / 2):
        assert independence(rows, rule.rate * wrong)["mean"] < REJECT


def turn(rule: Unproven, available: Any, participated: Any) -> list[int]:
    return rule.draw(key=SEED, available=available, participated=participated).tolist()


def test_whoever_turns_up_may_be_listed_in_any_way():
    rule = participation.unproven(5, 5, max_participations=1)
    nobody = np.zeros(5)
    for available in ([4, 0], (0, 4), np.array([4, 0, 4], np.uint8), np.array([0, 4], np.int32)):
        assert turn(rule, available, nobody) == [0, 4]
    assert turn(rule, [], nobody) == turn(rule, np.array([]), nobody) == turn(rule, np.arange(0), nobody) == []
    assert turn(rule, range(3), nobody) == [0, 1, 2]
    assert turn(rule, np.arange(5), np.ones(5)) == []
    assert turn(rule, np.arange(5), nobody) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("available", [[-1], [5], [0, 5], [-1, 2], [0.0, 1.0], [math.nan], [True] * 5, ["0"]])
def test_clients_that_do_not_exist_are_refused(available):
    rule = participation.unproven(5, 3, max_participations=1)
    with pytest.raises(InvalidInput, match="available must list client indices from 0 to 4"):
        turn(rule, np.array(available), np.zeros(5))


@pytest.mark.parametrize("shape", [(), (4,), (6,), (5, 1), (1, 5), (0,)])
def test_counts_for_another_population_are_refused(shape):
    rule = participation.unproven(5, 3, max_participations=1)
    with pytest.raises(InvalidInput, match="participated must have a count for each of 5 clients"):
        turn(rule, np.arange(3), np.zeros(shape, np.int64))


# Every rule.


RULES: dict[str, Any] = {
    "poisson": participation.poisson(50, 12.5),
    "truncated": participation.poisson(50, 12.5, limit=10),
    "fixed": participation.fixed_size(50, 12),
    "full": participation.full(50),
    "unproven": participation.unproven(50, 12, max_participations=3),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


def draw(rule: Any, key: keys.Key) -> np.ndarray:
    if isinstance(rule, Unproven):
        return rule.draw(key=key, available=np.arange(50), participated=np.zeros(50, np.int64))
    return rule.draw(key=key)


@every_rule
def test_a_cohort_is_a_sorted_list_of_clients_up_to_the_limit(rule):
    sizes: set[int] = set()
    for t in range(200):
        cohort = draw(rule, SEED.derive("cohort", t))
        sizes.add(len(cohort))
        assert cohort.dtype == np.int64
        assert cohort.tolist() == sorted(set(cohort.tolist()))
        assert set(cohort.tolist()) <= set(range(50))
    assert max(sizes) <= rule.limit
    assert type(rule.limit) is int
    varies = isinstance(rule, TruncatedPoissonRounds | Unproven)
    assert (len(sizes) > 1) == varies
    assert varies or sizes == {rule.limit}


@every_rule
def test_the_key_decides(rule):
    cohorts = [tuple(draw(rule, SEED.derive("cohort", t)).tolist()) for t in range(20)]
    again = [tuple(draw(rule, SEED.derive("cohort", t)).tolist()) for t in range(20)]
    assert cohorts == again
    assert len(set(cohorts)) == (1 if isinstance(rule, Full) else 20)
    others = [tuple(draw(rule, keys.reproducible(78).derive("cohort", t)).tolist()) for t in range(20)]
    assert isinstance(rule, Full) or not set(cohorts) & set(others)


@every_rule
def test_keys_and_limits_are_given_by_name(rule):
    others = (np.arange(50), np.zeros(50)) if isinstance(rule, Unproven) else ()
    calls: list[tuple[Any, Any]] = [(rule.draw, (SEED, *others))]
    calls += [(make, (50, 12, 3)) for make in (participation.poisson, participation.unproven)]
    for call, arguments in calls:
        with pytest.raises(TypeError, match="positional"):
            call(*arguments)


@every_rule
def test_the_divisor_is_known_before_the_draw(rule):
    expected = {"poisson": 12.5, "truncated": 12.5, "fixed": 12.0, "full": 50.0, "unproven": 12.0}
    [name] = [name for name, other in RULES.items() if other is rule]
    for t in range(20):
        draw(rule, SEED.derive("cohort", t))
        assert rule.n_expected == expected[name]
    assert type(rule.n_expected) is float


@every_rule
def test_a_rule_cannot_be_changed_nor_its_relation_chosen(rule):
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.population = 3
    with pytest.raises(TypeError, match="relation"):
        type(rule)(**dataclasses.asdict(rule))
    assert rule.relation is (Relation.REPLACE if isinstance(rule, FixedSizeRounds) else Relation.ADD_OR_REMOVE)


@every_rule
@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 4, 1000])
def test_every_round_is_counted(rule, rounds):
    leaves = flatten(rule.event(NOISE, rounds))
    expected = min(rounds, 3) if isinstance(rule, Unproven) else rounds
    assert sum(leaves.values()) == expected
    assert len(leaves) == (1 if rounds else 0)
    assert flatten(rule.event(NOISE)) == flatten(rule.event(NOISE, 1))


def test_the_event_says_how_the_cohort_was_drawn():
    assert RULES["poisson"].event(NOISE, 7) == Repeated(TruncatedPoisson(50, 0.25, RULES["poisson"].limit, NOISE), 7)
    assert RULES["truncated"].event(NOISE, 7) == Repeated(TruncatedPoisson(50, 0.25, 10, NOISE), 7)
    assert RULES["fixed"].event(NOISE, 7) == Repeated(FixedSize(50, 12, NOISE), 7)
    assert RULES["full"].event(NOISE, 7) == Repeated(NOISE, 7)
    assert RULES["unproven"].event(NOISE, 7) == Repeated(NOISE, 3)
    assert RULES["unproven"].event(NOISE, 2) == Repeated(NOISE, 2)


@every_rule
@pytest.mark.parametrize("noise", [Laplace(1.0), RandomizedResponse(1.0, 2), PureDP(1.0), NonPrivate()])
def test_amplification_is_claimed_for_gaussian_noise_only(rule, noise):
    if isinstance(rule, TruncatedPoissonRounds | FixedSizeRounds):
        way = "truncated Poisson" if isinstance(rule, TruncatedPoissonRounds) else "fixed-size"
        with pytest.raises(
            RelationMismatch, match=rf"^{way} participation .* not for {noise.name}; .*Gaussian mechanism$"
        ):
            rule.event(noise)
    else:
        assert set(flatten(rule.event(noise, 2))) == {noise}


@every_rule
@pytest.mark.parametrize("rounds", [-1, math.nan])
def test_fewer_than_no_rounds_are_refused(rule, rounds):
    with pytest.raises(InvalidInput, match="count"):
        rule.event(NOISE, rounds)


# The edges.


def test_a_cohort_of_everybody_is_everybody():
    for population in (1, 2, 30):
        everybody = list(range(population))
        poisson = participation.poisson(population, population)
        assert (poisson.limit, poisson.rate) == (population, 1.0)
        rules = [poisson, participation.fixed_size(population, population)]
        assert all(rule.draw(key=SEED.derive("all", t)).tolist() == everybody for rule in rules for t in range(5))
        unproven = participation.unproven(population, population, max_participations=1)
        assert turn(unproven, everybody, np.zeros(population)) == everybody


def test_a_population_of_one():
    rule = participation.poisson(1, 0.25)
    assert rule.limit == 1
    there = sum(len(rule.draw(key=SEED.derive("alone", t))) for t in range(2000))
    assert stats.binomtest(there, 2000, 0.25).pvalue > ACCEPT
    assert stats.binomtest(there, 2000, 0.25 * 2 / 3).pvalue < REJECT
    assert stats.binomtest(there, 2000, 0.25 * 3 / 2).pvalue < REJECT


MAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "poisson": lambda population, cohort: participation.poisson(population, cohort),
    "truncated": lambda population, cohort: participation.poisson(population, cohort, limit=1),
    "rounds": lambda population, cohort: TruncatedPoissonRounds(population, cohort, 1),
    "fixed": lambda population, cohort: participation.fixed_size(population, cohort),
    "unproven": lambda population, cohort: participation.unproven(population, cohort, max_participations=1),
}
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@every_maker
@pytest.mark.parametrize("cohort", [0, -1, 11, 10.5, math.nan, math.inf, -math.inf])
def test_a_cohort_that_cannot_be_drawn_is_refused(make, cohort):
    with pytest.raises(InvalidInput, match="the cohort must be positive and at most the population of 10, got"):
        make(10, cohort)


@every_maker
@pytest.mark.parametrize("population", [0, -1, 0.5, 10.5, math.nan, math.inf, -math.inf])
def test_a_population_that_does_not_exist_is_refused(make, population):
    with pytest.raises(InvalidInput, match="the population must be a whole number of clients, at least one, got"):
        make(population, 1)
    with pytest.raises(InvalidInput, match="the population must be a whole number of clients, at least one, got"):
        participation.full(population)


def test_only_coins_can_have_a_broken_cohort():
    assert participation.poisson(10, 2.5).n_expected == 2.5
    assert participation.unproven(10, 2.5, max_participations=1).n_expected == 2.5
    with pytest.raises(InvalidInput, match=r"cohort must be a whole number, got 2\.5"):
        MAKERS["fixed"](10, 2.5)


@pytest.mark.parametrize("limit", [0, -1, 11])
def test_a_limit_outside_the_population_is_refused(limit):
    with pytest.raises(InvalidInput, match=f"limit must lie between 1 and the population 10, got {limit}"):
        participation.poisson(10, 2, limit=limit)


@pytest.mark.parametrize("limit", [2.5, math.nan, math.inf])
def test_a_limit_that_is_no_whole_number_is_refused(limit):
    with pytest.raises(InvalidInput, match="limit must be a whole number"):
        participation.poisson(10, 2, limit=limit)


@pytest.mark.parametrize("most", [0, -1])
def test_fewer_than_one_participation_is_refused(most):
    with pytest.raises(InvalidInput, match=f"max_participations must be at least 1, got {most}"):
        participation.unproven(10, 2, max_participations=most)


@pytest.mark.parametrize("most", [1.5, 0.5, math.nan, math.inf])
def test_half_a_participation_is_refused(most):
    """It would be counted as 1.5 releases, and used twice."""
    with pytest.raises(InvalidInput, match="max_participations must be a whole number"):
        participation.unproven(10, 2, max_participations=most)


def test_whole_numbers_may_be_written_as_floats():
    million: Any = 1e6
    assert participation.poisson(million, 10, limit=million) == participation.poisson(10**6, 10, limit=10**6)
    assert participation.fixed_size(10, np.float64(3)) == participation.fixed_size(10, 3)  # type: ignore[arg-type]
    for rule in (participation.fixed_size(million, np.int64(3)), participation.full(million)):  # type: ignore[arg-type]
        assert type(rule.population) is int
        assert type(rule.limit) is int
    unproven = participation.unproven(million, 3.0, max_participations=2.0)  # type: ignore[arg-type]
    assert [type(x) for x in (unproven.population, unproven.max_participations)] == [int] * 2
    assert participation.fixed_size(10, 3.0).draw(key=SEED).size == 3  # type: ignore[arg-type]
