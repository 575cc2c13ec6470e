"""Which fault explains what was released? A name is given only to a fault that predicts all of it.

Every candidate is planted in public clients, whole: what each of them would send then is known, with the fault and
without. If shares s_k of N private clients have the faults k, the released sums y are

    y = N (h + sum_k s_k d_k) + error,    h, d_k: mean contribution of a healthy client, and how far fault k moves it.

The error has three parts: the noise, the sampling of private clients, and that of the public ones from which h and d
are estimated. Its covariance is known (shrunken after Ledoit and Wolf 2004 where it is estimated), so the shares follow
by generalised least squares. A name must pass three tests:

- What is left over looks like chance: `explain` plants the fault in populations drawn from public clients at the
  estimated share, and asks how often they leave as much.
- No other candidate is nearly as likely, nor is a plain change of a field (`nameless`); two faults at once are tried
  where no single one comes near.
- It is likelier than `ANYTHING`: a fault that moves clients in a direction drawn at random among those of the
  candidates and, to a smaller part, among all directions. A release too noisy to tell a candidate from that is unknown.

All of it is post-processing of releases and public data; it costs nothing.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from scipy import linalg, stats

from blindsight.inspection.contrast.explained import (
    ANYTHING,
    CLOSE,
    FACELESS,
    NAMELESS,
    Explanation,
    FaultShare,
    group_of,
)

__all__ = ["Evidence", "PlantedAnswers", "explain", "likeliest", "likeliest_together", "shortlist"]

_WIDE = float(stats.norm.isf(0.025))
_POPULATIONS, _AT_ONCE = 199, 50
_FITTED = 8  # candidates that are fitted whole, the likeliest first
_ALIKE = 3  # of one fault, in different degrees
_RIVALS = 3  # changes without a name that are fitted whole
_TESTED = 5  # candidates whose fit is simulated
_PAIRED = 8  # pairs that are fitted whole, the likeliest first
_TESTED_PAIRS = 2
_TOGETHER = 24.0  # squared distance by which two faults must predict better to be looked at
_HOPELESS = 0.015  # two faults are tried if every single one fits worse: a small second one would mend any misfit
_PARALLEL = 1e-6  # squared sine of the angle below which two faults move clients in one direction
_ANY_WAY = 0.2  # share of a fault's movement that may be in any direction

PlantedAnswers = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""For each candidate the public clients it was planted in (rows of `Evidence.public`), and what they would send."""


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """Released sums with the noise of each, and what every public client would send: one row each."""

    sums: np.ndarray
    noise_std: np.ndarray
    clients: int
    public: np.ndarray


def likeliest(evidence: Evidence, planted: PlantedAnswers) -> list[tuple[float, str]]:
    """Every candidate and how badly it predicts the release at its best share, the best first: a quick look."""
    return _Quick.of(evidence, planted).ranked()


def likeliest_together(evidence: Evidence, planted: PlantedAnswers) -> list[str]:
    """The faults of the pairs that predict the release best; none if a single fault predicts it nearly as well."""
    quick = _Quick.of(evidence, {fault: sent for fault, sent in planted.items() if not fault.startswith(NAMELESS)})
    alone = min((left for left, _ in quick.ranked()), default=0.0)
    pairs = [(a, b) for left, a, b in quick.pairs()[:_TESTED_PAIRS] if left < alone - _TOGETHER]
    return list(dict.fromkeys(fault for two in pairs for fault in two))


def explain(evidence: Evidence, planted: PlantedAnswers) -> tuple[Explanation, ...]:
    """The candidates, the likeliest first; of the first few, whether it fits. If none does, pairs of them too."""
    if not planted:
        return ()
    named = {fault: sent for fault, sent in planted.items() if not fault.startswith(NAMELESS)}
    quick, healthy = _Quick.of(evidence, named), _Normal.of(evidence)
    first, rivals = shortlist(likeliest(evidence, planted))
    moved = functools.cache(lambda fault: _Moved.of(evidence, healthy, fault, *planted[fault]))
    fits = {fault: _fit(evidence, healthy, (moved(fault),)) for fault in (*first, *rivals)}
    singles = sorted((fits[fault] for fault in first), key=lambda one: one.deviance)
    singles = _tested(evidence, healthy, singles, moved)
    pairs = list[Explanation]()
    if all(one.p_value is None or one.p_value < _HOPELESS for one in singles):
        listed = quick.pairs()
        fitted = [_fit(evidence, healthy, (moved(a), moved(b))) for _, a, b in listed[:_PAIRED]]
        alone = singles[0].deviance - 2 * math.log(max(len(listed), 1))  # the best of many is better by chance
        better = sorted((one for one in fitted if one.deviance < alone), key=lambda one: one.deviance)
        pairs = _tested(evidence, healthy, better[:_TESTED_PAIRS], moved)
    tried = (*singles, *pairs, *(fits[fault] for fault in rivals))
    return (*sorted(tried, key=lambda one: one.deviance), quick.anything())


def shortlist(ranked: Sequence[tuple[float, str]]) -> tuple[list[str], list[str]]:
    """The likeliest candidates, few of them the same fault in different degrees; and the likeliest without a name."""
    first, count = list[str](), dict[str, int]()
    for _, fault in ranked:
        group = group_of(fault)
        if not fault.startswith(NAMELESS) and count.get(group, 0) < _ALIKE:
            first.append(fault)
            count[group] = count.get(group, 0) + 1
    return first[:_FITTED], [fault for _, fault in ranked if fault.startswith(NAMELESS)][:_RIVALS]


def _tested(
    evidence: Evidence, healthy: "_Normal", ordered: Sequence[Explanation], moved: Callable[[str], "_Moved"]
) -> list[Explanation]:
    """The first few with their fit; once one fits, only those that are nearly as likely could matter."""
    tested, best = list[Explanation](), math.inf
    for place, one in enumerate(ordered):
        if place < _TESTED and one.deviance < best + CLOSE:
            p_value = _p_value(evidence, healthy, one, [moved(part.fault) for part in one.parts])
            one = dataclasses.replace(one, p_value=p_value)
            best = min(best, one.deviance) if one.fits else best
        tested.append(one)
    return tested


# --- the model of a release


@dataclasses.dataclass(frozen=True, eq=False)
class _Estimate:
    """Mean and covariance of rows, the covariance shrunken by the share `shrunk` towards a multiple of the identity."""

    rows: np.ndarray
    shrunk: float

    @classmethod
    def of(cls, rows: np.ndarray) -> "_Estimate":
        from sklearn.covariance import ledoit_wolf_shrinkage  # takes a second to import, and only faults need it

        return cls(rows, float(ledoit_wolf_shrinkage(rows)) if len(rows) > 1 else 0.0)

    @functools.cached_property
    def mean(self) -> np.ndarray:
        return self.rows.mean(axis=0)

    @functools.cached_property
    def covariance(self) -> np.ndarray:
        return self.redrawn(np.ones((1, len(self.rows))))[1][0]

    def redrawn(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means and covariances if each row had occurred so often, shape (populations, rows)."""
        shares = counts / counts.sum(axis=1, keepdims=True)
        centred = self.rows - self.mean
        means = shares @ centred
        squares = (centred.T[None] * shares[:, None, :]) @ centred - means[:, :, None] * means[:, None, :]
        size = centred.shape[1]
        even = np.trace(squares, axis1=1, axis2=2)[:, None, None] / size * np.eye(size)
        return self.mean + means, (1 - self.shrunk) * squares + self.shrunk * even


@dataclasses.dataclass(frozen=True, eq=False)
class _Normal:
    """Healthy public clients: mean and covariance of what they send, in units of `scale`."""

    scale: np.ndarray
    estimate: _Estimate

    @classmethod
    def of(cls, evidence: Evidence) -> "_Normal":
        # in units of each coordinate's error, so that shrinking towards a multiple of the identity makes sense
        scale = np.sqrt(evidence.noise_std**2 + evidence.clients * evidence.public.std(axis=0) ** 2)
        return cls(scale, _Estimate.of(evidence.public / scale))


@dataclasses.dataclass(frozen=True, eq=False)
class _Moved:
    """Public clients with a fault: what they send, and how far it moves them, in units of the scale."""

    fault: str
    sent: _Estimate
    moved: _Estimate

    @classmethod
    def of(cls, evidence: Evidence, healthy: _Normal, fault: str, rows: np.ndarray, sent: np.ndarray) -> "_Moved":
        moved = (sent - evidence.public[rows]) / healthy.scale
        return cls(fault, _Estimate.of(sent / healthy.scale), _Estimate.of(moved))


def _error(
    evidence: Evidence,
    scale: np.ndarray,
    shares: np.ndarray,
    healthy: np.ndarray,
    faults: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> np.ndarray:
    """The covariance of the released sums if these shares of clients have the faults, in units of the scale.

    `healthy` is the covariance of what healthy clients send; of each fault the mean movement, its covariance, and the
    covariance of what clients with it send. All may have a first axis of populations.
    """
    n = evidence.clients
    mixed, public = max(1 - float(shares.sum()), 0.0) * healthy, healthy / len(evidence.public)
    mean = np.zeros(healthy.shape[:-1])
    for share, (step, wobble, spread) in zip(shares.tolist(), faults, strict=True):
        mixed = mixed + share * (spread + step[..., :, None] * step[..., None, :])
        public = public + share**2 * wobble
        mean = mean + share * step
    noise = np.diag((evidence.noise_std / scale) ** 2 + 1e-9)
    return noise + n * (mixed - mean[..., :, None] * mean[..., None, :]) + n**2 * public


def _error_of(evidence: Evidence, healthy: _Normal, shares: np.ndarray, faults: Sequence[_Moved]) -> np.ndarray:
    """The same, as estimated from all public clients."""
    estimates = [(one.moved.mean, one.moved.covariance / len(one.moved.rows), one.sent.covariance) for one in faults]
    return _error(evidence, healthy.scale, shares, healthy.estimate.covariance, estimates)


def _fit(evidence: Evidence, healthy: _Normal, faults: Sequence[_Moved]) -> Explanation:
    """The shares that predict the released sums best."""
    n = evidence.clients
    left = evidence.sums / healthy.scale - n * healthy.estimate.mean
    steps = n * np.stack([one.moved.mean for one in faults], axis=1)
    shares, covariance = np.full(len(faults), 0.1), np.eye(len(faults))
    factor = linalg.cho_factor(np.eye(len(left)))
    for _ in range(4):
        factor = linalg.cho_factor(_error_of(evidence, healthy, shares, faults))
        weighted = linalg.cho_solve(factor, steps)
        covariance = np.linalg.pinv(steps.T @ weighted)
        shares = np.clip(covariance @ (weighted.T @ left), 0.0, 1.0)
        shares = shares / max(float(shares.sum()), 1.0)
    residual = left - steps @ shares
    misfit = float(residual @ linalg.cho_solve(factor, residual))
    deviance = misfit + 2 * float(np.log(np.diag(factor[0])).sum())
    parts = [
        _part(one.fault, share, error)
        for one, share, error in zip(faults, shares.tolist(), np.sqrt(np.diag(covariance)).tolist(), strict=True)
    ]
    return Explanation.of(parts, deviance)


def _part(fault: str, share: float, error: float) -> FaultShare:
    return FaultShare(fault, share, max(share - _WIDE * error, 0.0), min(share + _WIDE * error, 1.0))


# --- a quick look at many candidates


@dataclasses.dataclass(frozen=True, eq=False)
class _Quick:
    """All candidates in coordinates in which the error of a healthy release is white."""

    names: Sequence[str]
    left: np.ndarray
    steps: np.ndarray  # one row for each candidate
    log_determinant: float

    @classmethod
    def of(cls, evidence: Evidence, planted: PlantedAnswers) -> "_Quick":
        healthy, n = _Normal.of(evidence), evidence.clients
        root = linalg.cholesky(_error_of(evidence, healthy, np.zeros(0), ()), lower=True)
        moved = [(sent - evidence.public[rows]).mean(axis=0) / healthy.scale for rows, sent in planted.values()]
        left = evidence.sums / healthy.scale - n * healthy.estimate.mean
        white = linalg.solve_triangular(root, np.stack([left, *(n * one for one in moved)]).T, lower=True).T
        return cls(list(planted), white[0], white[1:], 2 * float(np.log(np.diag(root)).sum()))

    def _misfit(self, chosen: Sequence[int]) -> float:
        steps = self.steps[list(chosen)].T
        shares = np.clip(np.linalg.lstsq(steps, self.left, rcond=None)[0], 0.0, 1.0)
        return float(np.sum((self.left - steps @ shares) ** 2))

    def ranked(self) -> list[tuple[float, str]]:
        """Candidates by the squared distance that the best share leaves."""
        return sorted((self._misfit([place]), name) for place, name in enumerate(self.names))

    def pairs(self) -> list[tuple[float, str, str]]:
        """Pairs of different faults, the best first, each two faults in a few degrees at most.

        All pairs are compared, not only those of the likeliest faults: the second of two faults often predicts little
        of the release alone. Two shares that are not both positive are no pair.
        """
        products, along = self.steps @ self.steps.T, self.steps @ self.left
        own = np.diag(products)
        a, b = np.triu_indices(len(own), 1)
        inner, alone = products[a, b], own[a] * own[b]
        determinant = alone - inner**2
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.stack([own[b] * along[a] - inner * along[b], own[a] * along[b] - inner * along[a]])
            shares = np.clip(shares / determinant, 0.0, 1.0)
        both = (determinant > _PARALLEL * alone) & (shares > 0).all(axis=0)
        first, second = shares
        gained = 2 * (first * along[a] + second * along[b])
        misfit = self.left @ self.left - gained + first**2 * own[a] + second**2 * own[b] + 2 * first * second * inner
        groups = [group_of(name) for name in self.names]
        best, count = list[tuple[float, str, str]](), dict[frozenset[str], int]()
        places = np.flatnonzero(both)
        for place in places[np.argsort(misfit[places], kind="stable")].tolist():
            one, other = int(a[place]), int(b[place])
            two = frozenset((groups[one], groups[other]))
            if len(two) == 2 and FACELESS not in two and count.get(two, 0) < _ALIKE:
                best.append((float(misfit[place]), self.names[one], self.names[other]))
                count[two] = count.get(two, 0) + 1
        return best

    def anything(self) -> Explanation:
        """The alternative to all candidates: movement in the directions of faults, or in any direction."""
        size = len(self.left)
        directions = [np.mean(rows, axis=0) for rows in self._by_group()]
        typical = np.mean(directions, axis=0) if directions else np.zeros((size, size))
        spread, axes = np.linalg.eigh((1 - _ANY_WAY) * typical + _ANY_WAY * np.eye(size) / size)
        along = (axes.T @ self.left) ** 2
        strengths = np.logspace(0, 6, 61)[:, None] * np.maximum(spread, 0.0)
        deviance = float(np.min(np.sum(along / (1 + strengths) + np.log1p(strengths), axis=1)))
        return Explanation(ANYTHING, 0.0, 0.0, 1.0, deviance + self.log_determinant)

    def _by_group(self) -> Iterable[list[np.ndarray]]:
        """Directions of the candidates, those of one fault together: many factors of a unit count once."""
        groups: dict[str, list[np.ndarray]] = {}
        for name, step in zip(self.names, self.steps, strict=True):
            length = float(np.linalg.norm(step))
            if length > 1e-9:
                groups.setdefault(group_of(name), []).append(np.outer(step, step) / length**2)
        return groups.values()


# --- does it fit?


def _p_value(evidence: Evidence, healthy: _Normal, one: Explanation, faults: Sequence[_Moved]) -> float:
    """How often populations with these faults deviate from their best fit as much as what was released.

    They may deviate in all coordinates together (the sum of squares), or in one of them (the largest): an unknown fault
    often shows in few. Each population is compared with public clients of its own, drawn anew, by means and covariances
    estimated from those: a hundred public clients leave much of a covariance open.
    """
    shares, n = np.array([part.share for part in one.parts]), evidence.clients
    own = [estimate.mean[None] for estimate in (healthy.estimate, *(fault.moved for fault in faults))]
    error = _error_of(evidence, healthy, shares, faults)[None]
    released = (evidence.sums / healthy.scale)[None]
    limits = _misfits(released, own[0], np.stack(own[1:], axis=1), error, n)
    dice, rarer = np.random.default_rng(0), np.zeros(2)
    for start in range(0, _POPULATIONS, _AT_ONCE):
        size = min(_AT_ONCE, _POPULATIONS - start)
        hit = dice.multinomial(n, [max(1 - float(shares.sum()), 0.0), *shares.tolist()], size).T
        sums = (evidence.noise_std / healthy.scale) * dice.standard_normal((size, len(healthy.scale)))
        for counts, sent in zip(hit, (healthy.estimate, *(fault.sent for fault in faults)), strict=True):
            sums = sums + _counts(dice, counts, len(sent.rows)) @ sent.rows
        mean, covariance = healthy.estimate.redrawn(_as_many(dice, healthy.estimate, size))
        redrawn = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
        for fault in faults:
            again = _as_many(dice, fault.sent, size)
            step, wobble = fault.moved.redrawn(again)
            redrawn.append((step, wobble / len(fault.moved.rows), fault.sent.redrawn(again)[1]))
        error = _error(evidence, healthy.scale, shares, covariance, redrawn)
        misfits = _misfits(sums, mean, np.stack([step for step, *_ in redrawn], axis=1), error, n)
        rarer += np.sum(misfits >= limits, axis=1)
    return float(min(2 * (1 + rarer.min()) / (1 + _POPULATIONS), 1.0))


def _misfits(sums: np.ndarray, mean: np.ndarray, steps: np.ndarray, error: np.ndarray, n: int) -> np.ndarray:
    """Both measures of many populations, shape (2, populations); `steps` is (populations, faults, size)."""
    left, ways = sums - n * mean, n * np.swapaxes(steps, 1, 2)
    weighted = np.linalg.solve(error, ways)  # (populations, size, faults)
    inner = np.swapaxes(ways, 1, 2) @ weighted + 1e-9 * np.eye(ways.shape[2])
    best = np.linalg.solve(inner, np.swapaxes(weighted, 1, 2) @ left[..., None])
    residual = left - (ways @ np.clip(best, 0.0, 1.0))[..., 0]
    squares = np.sum(residual * np.linalg.solve(error, residual[..., None])[..., 0], axis=1)
    spread = np.sqrt(np.diagonal(error, axis1=1, axis2=2))
    return np.stack([squares, np.max(np.abs(residual) / spread, axis=1)])


def _counts(dice: np.random.Generator, totals: np.ndarray, rows: int) -> np.ndarray:
    """How often each of the rows is drawn, with replacement, for each total."""
    return dice.multinomial(totals, np.full(rows, 1 / rows))


def _as_many(dice: np.random.Generator, one: _Estimate, populations: int) -> np.ndarray:
    """As many draws as there are rows."""
    return _counts(dice, np.full(populations, len(one.rows)), len(one.rows))
