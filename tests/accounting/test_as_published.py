"""The papers' own arithmetic reproduces every digit they print, and equals its formula written out plainly."""

import math

import mpmath
import pytest

from blindsight.accounting import as_published
from blindsight.accounting.as_published import FEDERATED_ROWS, LOSS_NOISE_ROWS, FederatedRow, LossNoiseRow
from blindsight.errors import InvalidInput

ROWS = [row for rows in FEDERATED_ROWS.values() for row in rows]


def epsilon_of(row: FederatedRow, rounds: int | None = None, population: int | None = None) -> float:
    return as_published.fixed_size_epsilon(
        population or row.population, row.cohort, row.noise_multiplier, rounds or row.rounds, row.delta
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.where} {row.population}")
def test_every_published_epsilon_of_the_federated_papers(row):
    found = epsilon_of(row)
    if "e" in row.published:
        assert f"{found:.2e}" == f"{float(row.published):.2e}"
    else:
        assert f"{found:.2f}" == row.published


def test_all_rows_of_all_tables_are_there():
    assert [len(rows) for rows in FEDERATED_ROWS.values()] == [15, 5]
    assert len(LOSS_NOISE_ROWS) == 12
    simulated = [row for row in FEDERATED_ROWS["000"] if row.where.endswith("simulated")]
    assert len(simulated) == 7
    assert {(row.cohort, row.noise_multiplier) for row in simulated} == {(10, 0.01)}


def test_one_row_needs_the_round_zero_to_be_counted():
    five_million = FEDERATED_ROWS["001"][3]
    assert five_million.population == 5_000_000
    assert f"{epsilon_of(five_million, rounds=2000):.2f}" == "4.53"  # the paper prints 4.54
    assert f"{epsilon_of(five_million, rounds=2001):.2f}" == "4.54"


def test_the_population_in_table_5_of_000_is_a_typing_error():
    language = FEDERATED_ROWS["000"][-1]
    assert f"{epsilon_of(language, population=342_777):.2f}" == "9.21"
    assert language.published == "9.22"


@pytest.mark.parametrize("row", LOSS_NOISE_ROWS, ids=lambda row: row.where)
def test_every_published_epsilon_of_the_loss_noise_paper(row: LossNoiseRow):
    found = as_published.loss_noise_epsilon(row.batch / row.records, row.steps, row.noise, row.delta)
    assert f"{found:.4f}" == row.published


def naive_epsilon(population: int, cohort: int, noise: float, rounds: int, delta: float) -> float:
    """Wang, Balle and Kasiviswanathan 2019, Theorem 27, and Mironov 2017, Proposition 3, as they stand."""
    rate = mpmath.mpf(cohort) / population

    def moment(order: int):  # E exp of (order-1) times the Renyi divergence of the Gaussian
        return mpmath.exp(mpmath.mpf(order) * (order - 1) / (2 * mpmath.mpf(noise) ** 2))

    def ternary(order: int):  # the forward difference of the moments: the Pearson-Vajda divergence of even order
        return sum((-1) ** k * mpmath.binomial(order, k) * moment(order - k) for k in range(order + 1))

    best = mpmath.inf
    for order in range(2, 31):
        two = min(4 * (mpmath.exp(mpmath.mpf(noise) ** -2) - 1), 2 * mpmath.exp(mpmath.mpf(noise) ** -2))
        total = 1 + rate**2 * mpmath.binomial(order, 2) * two
        for j in range(3, order + 1):
            even = mpmath.sqrt(ternary(2 * (j // 2)) * ternary(2 * -(-j // 2)))
            total += rate**j * mpmath.binomial(order, j) * min(4 * even, 2 * moment(j))
        best = min(best, (rounds * mpmath.log(total) - mpmath.log(delta)) / (order - 1))
    return float(best)


def test_the_arithmetic_is_the_theorem_written_out():
    with mpmath.workdps(80):
        for setting in ((342_477, 5000, 1.0, 2000, 2.92e-6), (1000, 50, 2.0, 30, 1e-3), (5000, 100, 0.7, 10, 1e-2)):
            found = as_published.fixed_size_epsilon(*setting)
            assert found == pytest.approx(naive_epsilon(*setting), rel=1e-9), setting


def test_markov_and_its_limit():
    assert as_published.bayesian_failure(1e-10, 1e-5) == pytest.approx(1e-5, rel=1e-12)
    assert as_published.bayesian_failure(1e-3, 1e-5) == 1.0


@pytest.mark.parametrize(
    "bad",
    [(10, 11, 1.0, 1, 0.1), (10, 0, 1.0, 1, 0.1), (10, 1, 0.0, 1, 0.1), (10, 1, 1.0, 0, 0.1),
     (10, 1, 1.0, 1, 0.0), (10, 1, 1.0, 1, 1.0), (10, 1, math.nan, 1, 0.1)],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(bad):
    with pytest.raises(InvalidInput):
        as_published.fixed_size_epsilon(*bad)
