"""The papers' own arithmetic: every printed digit, and a twin written from the formula."""

import dataclasses
import math
from typing import Any

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.accounting.as_published import (
    BAYESIAN_ROWS,
    FEDERATED_ROWS,
    LOSS_NOISE_ROWS,
    FederatedRow,
    LossNoiseRow,
    bayesian_failure,
    fixed_size_epsilon,
    loss_noise_epsilon,
)
from blindsight.errors import InvalidInput

laws = settings(derandomize=True, deadline=None, max_examples=60)


def printed(value: float, published: str) -> str:
    """`value` to as many digits as were published."""
    if "e" in published:
        mantissa, exponent = f"{value:.{len(published.split('e')[0]) - 2}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.{len(published.split('.')[1])}f}"


def of(row: FederatedRow, **changes: Any) -> float:
    row = dataclasses.replace(row, **changes)
    return fixed_size_epsilon(row.population, row.cohort, row.noise_multiplier, row.rounds, row.delta)


# Golden rows.


ROWS = [row for rows in FEDERATED_ROWS.values() for row in rows]
REPRODUCED = [
    2.3797, 9.9932e6, 1.4825, 9.9900e6, 1.7874, 9.9918e6, 1.4718, 9.9894e6, 1.3980, 9.9891e6, 1.3935, 9.9890e6,
    1.4041, 9.9891e6, 9.2223, 9.8595, 6.7347, 5.3574, 4.5353, 3.2693,
]  # fmt: skip


@pytest.mark.parametrize(("row", "digits"), list(zip(ROWS, REPRODUCED, strict=True)), ids=lambda row: str(row)[:60])
def test_every_federated_row_is_reproduced_to_its_last_digit_and_beyond(row: FederatedRow, digits: float):
    found = of(row)
    assert printed(found, row.published) == row.published
    assert found == pytest.approx(digits, rel=6e-5)


@pytest.mark.parametrize("row", LOSS_NOISE_ROWS, ids=lambda row: row.where)
def test_every_row_of_003_is_reproduced_to_its_last_digit(row: LossNoiseRow):
    assert printed(loss_noise_epsilon(row.batch / row.records, row.steps, row.noise, row.delta), row.published) == (
        row.published
    )


def test_all_rows_are_there():
    assert [len(FEDERATED_ROWS[paper]) for paper in ("000", "001")] == [15, 5]
    assert len(LOSS_NOISE_ROWS) == 12
    assert len(BAYESIAN_ROWS) == 2
    wheres = [row.where for rows in (*FEDERATED_ROWS.values(), LOSS_NOISE_ROWS, BAYESIAN_ROWS) for row in rows]
    assert len(set(wheres)) == len(wheres)
    simulated = [row for row in FEDERATED_ROWS["000"] if row.published == "9.99e6"]
    assert [row.noise_multiplier for row in simulated] == [0.01] * 7
    assert [row.cohort for row in simulated] == [10] * 7


def test_the_first_round_is_counted_in_001():
    """Algorithm 1 runs from 0 to T = 2000. With 2,000 rounds N = 5M rounds to 4.53, one unit below the print."""
    by_population = {row.population: row for row in FEDERATED_ROWS["001"]}
    assert {row.rounds for row in by_population.values()} == {2001}
    assert printed(of(by_population[5_000_000], rounds=2000), "4.54") == "4.53"
    others = [row for row in by_population.values() if row.population != 5_000_000]
    assert [printed(of(row, rounds=2000), row.published) for row in others] == [row.published for row in others]
    assert all("2,001" in row.note for row in by_population.values())


def test_deltas_of_001_are_population_to_the_minus_1_1():
    for row in FEDERATED_ROWS["001"]:
        assert row.delta == pytest.approx(row.population**-1.1, rel=1e-12)
        assert row.noise_multiplier == pytest.approx(3.2e-5 * 20_000 / 0.8)


def test_the_typing_error_of_000_table_5():
    [section] = [row for row in FEDERATED_ROWS["000"] if row.where.startswith("Section 5")]
    assert of(section, population=342_777) == pytest.approx(9.2133, abs=5e-5)
    assert printed(of(section, population=342_777), "9.22") == "9.21"
    assert "342,777" in section.note
    assert "9.21" in section.note


# Theorem 27 of Wang, Balle and Kasiviswanathan 2019, and Proposition 3 of Mironov 2017, in 80 digits.


def theorem_27(rate: Any, noise: Any, order: int) -> Any:
    """Renyi divergence of a round of fixed size with Gaussian noise: the bound as it stands in the paper."""

    def moment(x: int) -> Any:  # exp((x - 1) * divergence of order x), which is 1 at 0 and 1
        return mp.exp(mp.mpf(x) * (x - 1) / (2 * noise**2))

    def difference(degree: int) -> Any:  # forward differences of the moments at 0
        return mp.fsum((-1) ** (degree - i) * mp.binomial(degree, i) * moment(i) for i in range(degree + 1))

    total = mp.mpf(1)
    total += mp.binomial(order, 2) * rate**2 * min(4 * (moment(2) - 1), 2 * moment(2))
    for j in range(3, order + 1):
        even, odd = difference(2 * (j // 2)), difference(2 * -(-j // 2))
        total += mp.binomial(order, j) * rate**j * min(4 * mp.sqrt(even * odd), 2 * moment(j))
    return mp.log(total) / (order - 1)


def twin(population: int, cohort: int, noise: float, rounds: int, delta: float, orders: range) -> float:
    with mp.workdps(80):
        rate = mp.mpf(cohort) / population
        return float(min(rounds * theorem_27(rate, mp.mpf(noise), a) - mp.log(delta) / (a - 1) for a in orders))


@pytest.mark.parametrize(
    ("row", "best"),
    [("Table 3, Fig. 3a", 10), ("Table 3, Fig. 3a, simulated", 2), ("Section 5", 4), ("Table 5, N = 4M", 6)],
)
def test_the_arithmetic_is_theorem_27_and_proposition_3(row: str, best: int):
    [found] = [each for rows in FEDERATED_ROWS.values() for each in rows if each.where == row]
    orders = range(max(2, best - 1), best + 2)
    settled = (found.population, found.cohort, found.noise_multiplier, found.rounds, found.delta)
    assert of(found) == pytest.approx(twin(*settled, orders), rel=1e-9)
    assert twin(*settled, range(best, best + 1)) == twin(*settled, orders)


@settings(laws, max_examples=8)
@given(
    population=st.integers(10, 10**6),
    fraction=st.floats(1e-5, 0.5),
    noise=st.floats(0.3, 2),
    rounds=st.integers(1, 3000),
    delta=st.floats(1e-9, 1e-2),
)
def test_the_arithmetic_is_never_above_the_twin_at_a_few_orders(
    population: int, fraction: float, noise: float, rounds: int, delta: float
):
    cohort = max(1, int(population * fraction))
    assert fixed_size_epsilon(population, cohort, noise, rounds, delta) <= (
        twin(population, cohort, noise, rounds, delta, range(2, 7)) * (1 + 1e-9)
    )


def test_a_cohort_of_everyone_is_the_gaussian_of_mironov():
    expected = min(100 * order / (2 * 3.0**2) + math.log(1e5) / (order - 1) for order in range(2, 64))
    assert fixed_size_epsilon(50, 50, 3.0, 100, 1e-5) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("population", "cohort", "noise", "rounds", "delta"),
    [
        (10, 11, 1.0, 5, 1e-5),
        (10, 0, 1.0, 5, 1e-5),
        (10, 5, 0.0, 5, 1e-5),
        (10, 5, -1.0, 5, 1e-5),
        (10, 5, math.nan, 5, 1e-5),
        (10, 5, 1.0, 0, 1e-5),
        (10, 5, 1.0, 5, 0.0),
        (10, 5, 1.0, 5, -1e-5),
        (10, 5, 1.0, 5, 1.0),
        (10, 5, 1.0, 5, 1.5),
        (10, 5, 1.0, 5, math.nan),
        (10, -5, 1.0, 5, 1e-5),
        (10, 5, 1.0, -1, 1e-5),
    ],
)
def test_settings_that_make_no_sense_are_refused(population: int, cohort: int, noise: float, rounds: int, delta: float):
    with pytest.raises(InvalidInput, match="the papers' arithmetic needs"):
        fixed_size_epsilon(population, cohort, noise, rounds, delta)


def test_the_edges_of_sense_are_allowed():
    assert math.isfinite(fixed_size_epsilon(1, 1, 1.0, 1, 0.5))
    assert math.isfinite(fixed_size_epsilon(10, 1, 1.0, 1, 1e-300))


# Equations of 003 and 002.


@laws
@given(rate=st.floats(1e-4, 1), steps=st.integers(1, 10**6), noise=st.floats(0.1, 50), delta=st.floats(1e-12, 0.5))
def test_equation_18_word_for_word(rate: float, steps: int, noise: float, delta: float):
    with mp.workdps(40):
        expected = 2 * mp.mpf(rate) * mp.sqrt(steps * mp.log(1 / mp.mpf(delta))) / mp.mpf(noise)
    assert loss_noise_epsilon(rate, steps, noise, delta) == pytest.approx(float(expected), rel=1e-12)


def test_the_preconditions_of_equation_18_fail_in_every_row():
    """epsilon < q^2 T is what the theorem behind it asks for."""
    for row in LOSS_NOISE_ROWS:
        rate = row.batch / row.records
        assert float(row.published) > rate**2 * row.steps


def test_markov_s_inequality_of_002():
    assert bayesian_failure(1e-10, 1e-5) == pytest.approx(1e-5)
    assert bayesian_failure(1e-10, 1e-10) == 1
    assert bayesian_failure(1e-3, 1e-5) == 1
    assert bayesian_failure(0.0, 1e-5) == 0


def test_the_rows_of_002():
    assert [(row.noise, row.clip, row.epochs, row.records, row.batch) for row in BAYESIAN_ROWS] == [
        (0.01, 0.5, 400, 60_000, 64),
        (0.02, 0.5, 400, 60_000, 64),
    ]
    assert {(row.epsilon, row.bayesian_delta, row.delta) for row in BAYESIAN_ROWS} == {(1.0, 1e-10, 1e-5)}


def test_the_settings_of_every_row_are_the_printed_ones():
    """A transcription guard: where, population, cohort, noise, rounds and delta."""
    assert [(row.population, row.delta) for row in FEDERATED_ROWS["000"]] == [
        (250_000, 4.00e-8), (425, 2.35e-3), (1_250_000, 8.00e-9), (2_125, 4.71e-4), (500_000, 2.00e-8), (850, 1.18e-3),
        (1_708_824, 5.85e-9), (2_905, 3.44e-4), (1_964_706, 5.09e-9), (3_340, 2.99e-4), (2_000_000, 5.00e-9),
        (3_400, 2.94e-4), (1_930_588, 5.18e-9), (3_282, 3.05e-4), (342_477, 2.92e-6),
    ]  # fmt: skip
    for row in FEDERATED_ROWS["000"]:
        share = 1 if row.published in ("9.99e6", "9.22") else 100  # 1/N for simulations and Section 5, else 1/(100 N)
        assert row.delta == pytest.approx(1 / (share * row.population), rel=5e-3)
    assert [(row.records, row.batch, row.steps) for row in LOSS_NOISE_ROWS[::4]] == [
        (7_814, 256, 1_000),
        (12_000, 128, 10_000),
        (12_000, 128, 10_000),
    ]
    assert {row.delta for row in LOSS_NOISE_ROWS} == {1e-5}
    assert [row.noise for row in LOSS_NOISE_ROWS] == [1.0, 1.5, 3.0, 5.0] * 3
