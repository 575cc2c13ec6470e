"""The papers' own arithmetic, which reproduces every epsilon they print, and the rows of their tables.

None of these numbers is a guarantee. The federated papers (000, 001) feed z = noise / clip into a bound for rounds of
fixed size (Wang, Balle and Kasiviswanathan 2019, Theorem 27) and convert by Mironov 2017, Proposition 3. That bound is
for replacing a client, which moves the clipped sum by twice the clip: the correct multiplier is z / 2. Paper 003 uses
its own formula. Paper 002 claims Bayesian DP, which holds for typical records.
"""

import dataclasses
import math

import numpy as np

from blindsight.accounting import sampled_gaussian
from blindsight.errors import InvalidInput

__all__ = ["BAYESIAN_ROWS", "FEDERATED_ROWS", "LOSS_NOISE_ROWS", "BayesianRow", "FederatedRow", "LossNoiseRow"]
__all__ += ["bayesian_failure", "fixed_size_epsilon", "loss_noise_epsilon"]


def fixed_size_epsilon(population: int, cohort: int, noise_multiplier: float, rounds: int, delta: float) -> float:
    """Epsilon as papers 000 and 001 compute it: not a guarantee, see the module's first lines.

    >>> round(fixed_size_epsilon(250_000, 1000, 1.0, 1000, 4e-8), 2)
    2.38
    """
    if not (1 <= cohort <= population and noise_multiplier > 0 and rounds >= 1 and 0 < delta < 1):
        raise InvalidInput("the papers' arithmetic needs cohort <= population, positive noise and 0 < delta < 1")
    orders = np.arange(2, 64)
    one_round = sampled_gaussian.fixed_size_renyi(noise_multiplier, cohort / population, orders)
    return float(np.min(rounds * one_round - math.log(delta) / (orders - 1)))


def loss_noise_epsilon(rate: float, steps: int, noise: float, delta: float) -> float:
    """Epsilon by Equation 18 of paper 003: 2 q sqrt(T ln(1/delta)) / sigma.

    >>> round(loss_noise_epsilon(256 / 7814, 1000, 1.0, 1e-5), 4)
    7.0306
    """
    return 2 * rate * math.sqrt(steps * math.log(1 / delta)) / noise


def bayesian_failure(bayesian_delta: float, delta: float) -> float:
    """The chance that a random record is not (epsilon, delta)-DP under (epsilon, bayesian_delta)-BDP: Markov, Eq. 12.

    >>> round(bayesian_failure(1e-10, 1e-5), 12)
    1e-05
    """
    return min(1.0, bayesian_delta / delta)


@dataclasses.dataclass(frozen=True)
class FederatedRow:
    """One row of a privacy table of 000 or 001; `published` as printed there."""

    where: str
    population: int
    cohort: int
    noise_multiplier: float
    rounds: int
    delta: float
    published: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class LossNoiseRow:
    """One row of Table 2 of 003."""

    where: str
    records: int
    batch: int
    steps: int
    noise: float
    published: str
    delta: float = 1e-5


@dataclasses.dataclass(frozen=True)
class BayesianRow:
    """A row of Table 1 of 002: a claim of (epsilon, bayesian_delta)-BDP, which the paper takes as (epsilon, delta)-DP.

    The paper prints clip, noise and epochs but no batch size; 64 is assumed where a classical epsilon is computed.
    """

    where: str
    noise: float
    clip: float = 0.5
    epochs: int = 400
    records: int = 60_000
    batch: int = 64
    epsilon: float = 1.0
    bayesian_delta: float = 1e-10
    delta: float = 1e-5


def _scenario(where: str, simulated: tuple[int, float], real: tuple[int, float, str]) -> list[FederatedRow]:
    """A realistic population and its simulation, as paired in Tables 3 and 13."""
    return [
        FederatedRow(where, real[0], 1000, 1.0, 1000, real[1], real[2]),
        FederatedRow(f"{where}, simulated", simulated[0], 10, 0.01, 1000, simulated[1], "9.99e6"),
    ]


FEDERATED_ROWS: dict[str, list[FederatedRow]] = {
    "000": [
        *_scenario("Table 3, Fig. 3a", (425, 2.35e-3), (250_000, 4.00e-8, "2.38")),
        *_scenario("Table 3, Fig. 3b", (2_125, 4.71e-4), (1_250_000, 8.00e-9, "1.48")),
        *_scenario("Table 3, Fig. 6", (850, 1.18e-3), (500_000, 2.00e-8, "1.79")),
        *_scenario("Table 13, Fig. 7a", (2_905, 3.44e-4), (1_708_824, 5.85e-9, "1.47")),
        *_scenario("Table 13, Fig. 7b", (3_340, 2.99e-4), (1_964_706, 5.09e-9, "1.40")),
        *_scenario("Table 13, Fig. 8a", (3_400, 2.94e-4), (2_000_000, 5.00e-9, "1.39")),
        *_scenario("Table 13, Fig. 8b", (3_282, 3.05e-4), (1_930_588, 5.18e-9, "1.40")),
        FederatedRow(
            "Section 5", 342_477, 5000, 1.0, 2000, 2.92e-6, "9.22",
            "Table 5 prints N = 342,777, which would give 9.21: a typing error there",
        ),
    ],
    "001": [
        FederatedRow(
            f"Table 5, N = {millions}M", millions * 10**6, 20_000, 0.8, 2001, (millions * 1e6) ** -1.1, published,
            "Algorithm 1 counts rounds from 0 to T = 2000: 2,001 rounds",
        )
        for millions, published in ((2, "9.86"), (3, "6.73"), (4, "5.36"), (5, "4.54"), (10, "3.27"))
    ],
}  # fmt: skip

LOSS_NOISE_ROWS: list[LossNoiseRow] = [
    LossNoiseRow(f"{data}, sigma = {noise}", records, batch, steps, noise, published)
    for data, records, batch, steps, epsilons in (
        ("Adult", 7_814, 256, 1_000, ("7.0306", "4.6870", "2.3435", "1.4061")),
        ("MNIST", 12_000, 128, 10_000, ("7.2385", "4.8257", "2.4128", "1.4477")),
        ("Fashion-MNIST", 12_000, 128, 10_000, ("7.2385", "4.8257", "2.4128", "1.4477")),
    )
    for noise, published in zip((1.0, 1.5, 3.0, 5.0), epsilons, strict=True)
]

BAYESIAN_ROWS: list[BayesianRow] = [
    BayesianRow("Table 1, MNIST", noise=0.01),
    BayesianRow("Table 1, Fashion-MNIST", noise=0.02),
]
