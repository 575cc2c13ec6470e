"""The Bayesian accountant of Triastcyn and Faltings: a diagnostic, never a guarantee.

A. Triastcyn and B. Faltings, "Generating Higher-Fidelity Synthetic Datasets with Privacy Guarantees", Algorithms
15(7):232, 2022, Section 2.4; introduced in "Bayesian Differential Privacy for Machine Learning", arXiv:1901.09697.

In each step m pairs of gradients are drawn that differ by one record added or removed. With d_j the distance of pair j
and sigma the standard deviation of the noise in the same units, the cost of the step for every order lambda is::

    c_j    = log E_{k ~ B(lambda + 1, q)} exp((k^2 - k) d_j^2 / (2 sigma^2))                              (Eq. 6)
    c_j    = log E_{k ~ B(lambda, q)}     exp((k^2 + k) d_j^2 / (2 sigma^2))                              (Eq. 7)
    cost   = (1/T) log(mean + F^-1(1 - gamma, m - 1) / sqrt(m - 1) * deviation),  both of exp(T c_j)      (Eq. 8)
    log(delta - (1 - (1 - gamma)^t)) <= sum of t costs - lambda epsilon                                   (Eq. 9)

Eq. 7 is never below Eq. 6, so the paper's maximum of the two (Eq. 5) is Eq. 7. Eq. 6 alone is valid, because for the
sampled Gaussian the other direction costs less (Mironov, Talwar and Zhang 2019); it is the default.

Limits of the number:

* For large T, Eq. 8 is the largest c_j of the sample: an outlier rarer than 1/m is neither seen nor counted.
* The confidence is nominal: exp(T c_j) is far from normal, identical pairs pay nothing for it, and the best lambda is
  picked afterwards at no charge (all as published).
* The confidence term is divided by T. Fewer than T steps are allowed (Hoelder's inequality holds for any exponent at
  or above the steps taken), but this is conservative for the true cost only: a T set too large *lowers* the estimate.
* Raising a small distance alone narrows the deviation and can lower the cost; scaling all of them up cannot.
"""

import dataclasses
import math
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from blindsight.accounting.guarantee import Guarantee, round_up
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.wording import percent

__all__ = ["BayesianAccountant", "BayesianConfig", "BayesianDiagnostic", "step_cost"]

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesianConfig:
    """Settings fixed before training begins.

    `rate` is q, the probability that a record takes part in a step. `gamma` is the chance, per step, that the estimate
    is too low; the default is the published 1e-16 as its code rounds it. `distance_bound`, if given, is the largest
    distance that clipping allows; a larger one (by more than the rounding of single precision) is refused.
    """

    rounds: int
    rate: float
    sigma: float
    lambdas: tuple[int, ...] = tuple(range(1, 65))
    gamma: float = 2.0**-53
    bound: Literal["eq6", "eq7"] = "eq6"
    distance_bound: float | None = None

    def __post_init__(self) -> None:
        orders = bool(self.lambdas) and all(_is_whole(order) and order >= 1 for order in self.lambdas)
        _require(_is_whole(self.rounds) and self.rounds >= 1, "rounds", "a whole number >= 1", self.rounds)
        _require(0 < self.rate <= 1, "rate", "in (0, 1]", self.rate)
        _require(0 < self.sigma < math.inf, "sigma", "positive and finite", self.sigma)
        _require(orders, "lambdas", "one or more whole numbers >= 1", self.lambdas)
        # Below, SciPy's quantile is silently wrong (half of what it should be, at 1e-200 and 4 pairs) or infinite.
        _require(1e-100 <= self.gamma < 0.5, "gamma", "in [1e-100, 0.5)", self.gamma)
        _require(self.bound in ("eq6", "eq7"), "bound", "'eq6' or 'eq7'", self.bound)
        if self.distance_bound is not None:
            _require(0 < self.distance_bound < math.inf, "distance_bound", "positive and finite", self.distance_bound)


def step_cost(config: BayesianConfig, distances: npt.ArrayLike) -> Floats:
    """The cost of one step for each of `config.lambdas` (Eq. 8); zero distances cost exactly zero.

    >>> config = BayesianConfig(rounds=100, rate=0.01, sigma=1.0, lambdas=(1, 32))
    >>> step_cost(config, np.array([0.1, 0.2, 0.3, 0.4, 0.5])).round(6)
    array([0.019938, 0.092074])
    """
    values = _checked(config, distances)
    # Once per distinct distance: rounding differences between equals, times a weight of 1e15, would look like spread.
    distinct, counts = np.unique(values, return_counts=True)
    free = len(values) - 1
    # By symmetry this is the quantile at 1 - gamma, which would round to 1.
    weight = -float(special.stdtrit(free, config.gamma)) / math.sqrt(free)
    # A ratio that overflows is refused just below, with a better message than numpy's.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squares = (distinct / config.sigma) ** 2
        logs = [config.rounds * np.repeat(_pair_costs(config, order, squares), counts) for order in config.lambdas]
    if not all(np.isfinite(log).all() for log in logs):
        raise InvalidInput(
            f"a distance of {values.max():.3g} against noise of {config.sigma:.3g} has no finite cost: "
            f"check that both are in the same units"
        )
    return np.array([_log_upper_mean(log, weight) for log in logs]) / config.rounds


@dataclasses.dataclass(frozen=True, kw_only=True)
class BayesianDiagnostic:
    """An estimate for typical records, never reported without the classical guarantee.

    `pairs` is the smallest sample of any step, `largest_distance` the largest distance in all of them, `failure` the
    nominal probability that some step was estimated too low (it is part of `delta`). Computed from private gradients
    and itself unprotected, it must not reach a report that claims a guarantee.
    """

    simulation_only: ClassVar[bool] = True
    epsilon: float
    delta: float
    pairs: int
    largest_distance: float
    steps: int
    rounds: int
    failure: float
    bound: str
    classical: Guarantee

    def __post_init__(self) -> None:
        if not isinstance(self.classical, Guarantee):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PrivacyError(
                f"a Bayesian number is not reported without the classical guarantee: "
                f"pass a Guarantee as classical, not {self.classical!r}"
            )

    @property
    def confidence(self) -> float:
        """The nominal probability that no step was estimated too low."""
        return 1 - self.failure

    def unprotected(self, records: int, *, delta: float | None = None) -> float:
        """At most how many of `records` are expected to exceed a `delta` of their own (default: the classical one).

        By Eq. 12 and Markov's inequality, P(Delta(epsilon, x') > d) <= delta_mu / d for a random record x'.
        """
        own = (self.classical.delta or self.delta) if delta is None else delta
        _require(0 < own <= 1, "delta", "in (0, 1]", own)
        _require(_is_whole(records) and records >= 0, "records", "a whole number >= 0", records)
        return records * min(1.0, self.delta / own)

    def __str__(self) -> str:
        return (
            f"Bayesian {round_up(self.epsilon)} at delta {self.delta:.3g} for typical records, simulation only "
            f"({self.pairs:,} pairs, largest distance {self.largest_distance:.4g}, "
            f"{self.steps:,} of {self.rounds:,} rounds, {self.bound}); classical {self.classical}"
        )

    def explain(self, *, records: int | None = None) -> str:
        """A paragraph in plain words: which records the number covers, and which it misses."""
        lines = [
            f"This is a diagnostic, not a guarantee; the guarantee is the classical one: {self.classical}. "
            f"The Bayesian accountant estimates epsilon {round_up(self.epsilon)} at delta {self.delta:.3g} for typical "
            f"records only: each step looked at {self.pairs:,} pairs, the largest distance was "
            f"{self.largest_distance:.4g}, and an outlier rarer than 1 in {self.pairs:,} is invisible to it, though "
            f"outliers are most at risk. Its confidence (wrong with probability {self.failure:.3g}) is nominal. It was "
            f"computed from private gradients and is itself unprotected: do not publish it. "
            f"By Markov's inequality up to {percent(self.unprotected(1), 3)} of typical records may be unprotected, "
            f"that is, exceed a delta of {self.classical.delta or self.delta:.3g} of their own."
        ]
        if records is not None:
            lines.append(f"Of {records:,} records, up to {self.unprotected(records):.3g} are expected unprotected.")
        if self.steps < self.rounds:
            lines.append(
                f"Only {self.steps:,} of {self.rounds:,} planned rounds were run; a plan longer than the run makes "
                f"this estimate lower, not safer."
            )
        return " ".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, including the classical guarantee."""
        extra = {"confidence": self.confidence, "simulation_only": self.simulation_only}
        return dataclasses.asdict(self) | extra | {"classical": self.classical.to_dict()}


class BayesianAccountant:
    """Adds up the cost of each step; `report` is the only way to read it.

    >>> accountant = BayesianAccountant(BayesianConfig(rounds=100, rate=0.01, sigma=1.0))
    >>> accountant.record(np.array([0.1, 0.2, 0.3, 0.4, 0.5]))
    >>> classical = Guarantee(epsilon=1.5, delta=1e-5, accountant="PLD", participation="Poisson, 1 %", releases=1)
    >>> print(accountant.report(delta=1e-5, classical=classical))
    Bayesian 0.3235 at delta 1e-05 for typical records, simulation only (5 pairs, largest distance 0.5, 1 of 100 ...
    """

    def __init__(self, config: BayesianConfig) -> None:
        self.config = config
        self.steps = 0
        self._cost: Floats = np.zeros(len(config.lambdas))
        self._log_confidence = 0.0
        self._pairs = 0
        self._largest = 0.0

    def record(self, distances: npt.ArrayLike) -> None:
        """Counts one step from its sampled distances ||g - g'||; a refused step changes nothing."""
        if self.steps >= self.config.rounds:
            raise PrivacyError(
                f"all {self.config.rounds} planned rounds are used, and the cost of each depends on "
                "their number: plan more rounds and account for all of them again"
            )
        values = _checked(self.config, distances)
        self._cost = self._cost + step_cost(self.config, values)
        self._log_confidence += math.log1p(-self.config.gamma)
        self._pairs = min(self._pairs or len(values), len(values))
        self._largest = max(self._largest, float(values.max()))
        self.steps += 1

    def report(
        self, *, classical: Guarantee, delta: float | None = None, epsilon: float | None = None
    ) -> BayesianDiagnostic:
        """The diagnostic for a given `delta` or a given `epsilon` (one of them), with the classical guarantee."""
        if self.steps == 0:
            raise InvalidInput("no step has been recorded, so there is nothing to report: record each step's distances")
        failure = -math.expm1(self._log_confidence)
        if delta is not None and epsilon is None:
            epsilon = self._epsilon(delta, failure)
        elif epsilon is not None and delta is None:
            delta = self._delta(epsilon, failure)
        else:
            raise InvalidInput("give either delta or epsilon; the other is computed")
        return BayesianDiagnostic(
            epsilon=epsilon,
            delta=delta,
            pairs=self._pairs,
            largest_distance=self._largest,
            steps=self.steps,
            rounds=self.config.rounds,
            failure=failure,
            bound=self.config.bound,
            classical=classical,
        )

    def _epsilon(self, delta: float, failure: float) -> float:
        _require(0 < delta < 1, "delta", "between 0 and 1", delta)
        if delta <= failure:
            raise PrivacyError(
                f"delta = {delta:.3g} does not cover the probability {failure:.3g} that one of {self.steps} estimates "
                f"is too low: account again with gamma well below {delta / self.steps:.1g}, or ask for a larger delta"
            )
        return float(np.min((self._cost - math.log(delta - failure)) / self.config.lambdas))

    def _delta(self, epsilon: float, failure: float) -> float:
        _require(0 <= epsilon < math.inf, "epsilon", ">= 0 and finite", epsilon)
        exponent = float(np.min(self._cost - epsilon * np.array(self.config.lambdas)))
        delta = failure + math.exp(min(exponent, 0.0))
        if delta >= 1:
            raise PrivacyError(f"no delta below 1 can be stated at epsilon = {epsilon:.3g}: ask for a larger epsilon")
        return delta


def _pair_costs(config: BayesianConfig, order: int, squares: Floats) -> Floats:
    """Eq. 6 or 7 of every pair, as log(1 + E[exp(.) - 1]): never negative, and exact where the cost is tiny."""
    n, sign = (order + 1, -1) if config.bound == "eq6" else (order, 1)
    k = np.arange(1 if sign > 0 else 2, n + 1, dtype=np.float64)[:, None]  # below these the exponent is zero
    choose: Floats = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    chance: Floats = special.xlogy(k, config.rate) + special.xlog1py(n - k, -config.rate)
    exponent = (k**2 + sign * k) / 2 * squares
    terms = choose + chance + exponent + np.log(-np.expm1(-exponent))
    return np.logaddexp(0.0, np.logaddexp.reduce(terms, axis=0))


def _log_upper_mean(logs: Floats, weight: float) -> float:
    """log(mean + weight * deviation) of exp(logs), with the largest factored out."""
    top = float(logs.max())
    below = np.expm1(logs - top)  # in [-1, 0]
    scale = -float(below.min())
    if scale == 0:  # all equal: no deviation
        return top
    return top + math.log1p(float(below.mean()) + weight * scale * float(np.std(below / scale)))


def _checked(config: BayesianConfig, distances: npt.ArrayLike) -> Floats:
    """The distances in double precision, or a refusal."""
    try:
        given = np.asarray(distances)
    except ValueError:
        given = np.array(None)
    if given.ndim != 1 or given.dtype.kind not in "fiu" or len(given) < 2:
        raise InvalidInput(
            f"distances must be at least 2 real numbers, one for each pair, got {given.dtype} of shape {given.shape}"
        )
    values = given.astype(np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InvalidInput("distances must be finite and not negative: look for a gradient that overflowed")
    if config.distance_bound is not None and values.max() > config.distance_bound * (1 + 1e-6):
        raise PrivacyError(
            f"a distance of {values.max():.6g} exceeds the bound of {config.distance_bound:.6g} "
            "that clipping should ensure: clip each contribution, or state the true bound"
        )
    return values


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _require(holds: bool, name: str, rule: str, value: object) -> None:
    if not holds:
        raise InvalidInput(f"{name} must be {rule}, got {value!r}")
