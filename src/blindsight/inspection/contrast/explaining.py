"""Which fault explains what was released? A name is given only to a fault that predicts all of it.

The shares of the clients that have a fault follow by generalised least squares (`predicting`). A name must pass three
tests:

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
from collections.abc import Callable, Sequence

import numpy as np
from scipy import linalg, stats

from blindsight.inspection.contrast.explained import CLOSE, FACELESS, NAMELESS, Explanation, FaultShare, tolerance_of
from blindsight.inspection.contrast.predicting import (
    Evidence,
    MeanAndCovariance,
    Moved,
    Normal,
    PlantedAnswers,
    Scatter,
    error_covariance,
    error_of,
)
from blindsight.inspection.contrast.quick_look import Quick, likeliest, shortlist

__all__ = ["explain"]

_WIDE = float(stats.norm.isf(0.025))
_POPULATIONS, _AT_ONCE = 199, 50
_PLENTY = 10  # populations that fit worse
_TESTED = 5  # candidates whose fit is simulated
_PAIRED = 8  # pairs that are fitted whole, the likeliest first
_TESTED_PAIRS = 2
_SECOND = 24.0  # by how much the deviance of two faults must be below that of one
_HOPELESS = 0.015  # two faults are tried if every single one fits worse: a small second one would mend any misfit
_MISMATCHES = (0.0, 0.25, 0.5, 0.75, 1.0)  # tried, in shares of what is tolerated


def explain(evidence: Evidence, planted: PlantedAnswers) -> tuple[Explanation, ...]:
    """The candidates, the likeliest first; of the first few, whether it fits. If none does, pairs of them too."""
    if not planted:
        return ()
    named = {fault: sent for fault, sent in planted.items() if not fault.startswith(NAMELESS)}
    quick, healthy = Quick.of(evidence, named), Normal.of(evidence)
    first, rivals = shortlist(likeliest(evidence, planted))
    first += [FACELESS] if FACELESS in planted and FACELESS not in first else []
    moved = functools.cache(lambda fault: Moved.of(evidence, healthy, fault, *planted[fault]))
    scatter = quick.scatter()
    fits = {fault: _fit(evidence, healthy, (moved(fault),), scatter) for fault in (*first, *rivals)}
    singles = sorted((fits[fault] for fault in first), key=lambda one: one.deviance)
    singles = _tested(evidence, healthy, singles, moved, scatter)
    pairs = list[Explanation]()
    if all(one.p_value is None or one.p_value < _HOPELESS for one in singles):
        listed = quick.pairs()
        fitted = [_fit(evidence, healthy, (moved(a), moved(b)), scatter) for _, a, b in listed[:_PAIRED]]
        alone = singles[0].deviance - _SECOND - 2 * math.log(max(len(listed), 1))  # the best of many gains by chance
        better = sorted((one for one in fitted if one.deviance < alone), key=lambda one: one.deviance)
        pairs = _tested(evidence, healthy, better[:_TESTED_PAIRS], moved, scatter)
    tried = (*singles, *pairs, *(fits[fault] for fault in rivals))
    return (*sorted(tried, key=lambda one: one.deviance), quick.anything())


def _tested(
    evidence: Evidence,
    healthy: Normal,
    ordered: Sequence[Explanation],
    moved: Callable[[str], Moved],
    scatter: Scatter,
) -> list[Explanation]:
    """The first few with their fit and intervals; once one fits, only those that are nearly as likely could matter."""
    tested, best = list[Explanation](), math.inf
    for place, one in enumerate(ordered):
        if place < _TESTED and one.deviance < best + CLOSE:
            one = _simulated(evidence, healthy, one, [moved(part.fault) for part in one.parts], scatter)
            best = min(best, one.deviance) if one.fits else best
        tested.append(one)
    return tested


def _fit(evidence: Evidence, healthy: Normal, faults: Sequence[Moved], scatter: Scatter) -> Explanation:
    """The shares that predict the released sums best, and the mismatch that does."""
    most = max(tolerance_of(one.fault) for one in faults)
    mismatches = [most * share for share in _MISMATCHES] if most else [0.0]
    fits = [_fit_with(evidence, healthy, faults, scatter, mismatch) for mismatch in mismatches]
    return min(fits, key=lambda one: one.deviance)


def _fit_with(
    evidence: Evidence, healthy: Normal, faults: Sequence[Moved], scatter: Scatter, mismatch: float
) -> Explanation:
    n = evidence.clients
    left, differently = evidence.sums / healthy.scale - n * healthy.estimate.mean, scatter.root @ scatter.root.T
    steps = n * np.stack([one.moved.mean for one in faults], axis=1)
    shares, covariance = np.full(len(faults), 0.1), np.eye(len(faults))
    factor = linalg.cho_factor(np.eye(len(left)))
    for _ in range(4):
        differing = scatter.length(evidence, shares, faults, mismatch) ** 2 * differently
        factor = linalg.cho_factor(error_of(evidence, healthy, shares, faults) + differing)
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
    return Explanation.of(parts, deviance, mismatch)


def _part(fault: str, share: float, error: float) -> FaultShare:
    """The share with its interval. Others' version may also be stronger or weaker, which only the share would show."""
    error = math.hypot(error, share * tolerance_of(fault) / math.sqrt(3))  # anything up to what is tolerated
    return FaultShare(fault, share, max(share - _WIDE * error, 0.0), min(share + _WIDE * error, 1.0))


# --- does it fit?


def _simulated(
    evidence: Evidence, healthy: Normal, one: Explanation, faults: Sequence[Moved], scatter: Scatter
) -> Explanation:
    """The explanation with its p-value, and with intervals no narrower than in simulated populations with these faults.

    The p-value is how often they deviate from their best fit as much as what was released: in all coordinates together
    (the sum of squares), or in one of them (the largest), because an unknown fault often shows in few. Each population
    is compared with public clients of its own, drawn anew, by means and covariances estimated from those: a hundred
    public clients leave much of a covariance open.
    """
    shares, n = np.array([part.share for part in one.parts]), evidence.clients
    own = [estimate.mean[None] for estimate in (healthy.estimate, *(fault.moved for fault in faults))]
    turn = scatter.length(evidence, shares, faults, one.mismatch) * scatter.root.T
    differently = turn.T @ turn
    error = (error_of(evidence, healthy, shares, faults) + differently)[None]
    released = (evidence.sums / healthy.scale)[None]
    limits, _ = _misfits(released, own[0], np.stack(own[1:], axis=1), error, n)
    dice, rarer, found = np.random.default_rng(0), np.zeros(2), list[np.ndarray]()
    for start in range(0, _POPULATIONS, _AT_ONCE):
        size = min(_AT_ONCE, _POPULATIONS - start)
        hit = dice.multinomial(n, [max(1 - float(shares.sum()), 0.0), *shares.tolist()], size).T
        sums = (evidence.noise_std / healthy.scale) * dice.standard_normal((size, len(healthy.scale)))
        sums = sums + dice.standard_normal(sums.shape) @ turn
        for counts, sent in zip(hit, (healthy.estimate, *(fault.sent for fault in faults)), strict=True):
            sums = sums + _counts(dice, counts, len(sent.rows)) @ sent.rows
        mean, covariance = healthy.estimate.redrawn(_as_many(dice, healthy.estimate, size))
        redrawn = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
        for fault in faults:
            again = _as_many(dice, fault.sent, size)
            step, wobble = fault.moved.redrawn(again)
            redrawn.append((step, wobble / len(fault.moved.rows), fault.sent.redrawn(again)[1]))
        error = error_covariance(evidence, healthy.scale, shares, covariance, redrawn) + differently
        misfits, best = _misfits(sums, mean, np.stack([step for step, *_ in redrawn], axis=1), error, n)
        rarer = rarer + np.sum(misfits >= limits, axis=1)
        found += [*best]
        if rarer.min() >= _PLENTY:  # far from any threshold: Besag and Clifford 1991
            break
    p_value = float(min(2 * (1 + rarer.min()) / (1 + len(found)), 1.0))
    parts = [
        dataclasses.replace(part, low=min(part.low, wider.low), high=max(part.high, wider.high))
        for part, error in zip(one.parts, np.std(found, axis=0).tolist(), strict=True)
        for wider in [_part(part.fault, part.share, error)]
    ]
    return dataclasses.replace(Explanation.of(parts, one.deviance, one.mismatch), p_value=p_value)


def _misfits(
    sums: np.ndarray, mean: np.ndarray, steps: np.ndarray, error: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Both measures of many populations, shape (2, populations), and their best shares, (populations, faults).

    `steps` is (populations, faults, size).
    """
    left, ways = sums - n * mean, n * np.swapaxes(steps, 1, 2)
    weighted = np.linalg.solve(error, ways)  # (populations, size, faults)
    inner = np.swapaxes(ways, 1, 2) @ weighted + 1e-9 * np.eye(ways.shape[2])
    best = np.linalg.solve(inner, np.swapaxes(weighted, 1, 2) @ left[..., None])
    residual = left - (ways @ np.clip(best, 0.0, 1.0))[..., 0]
    squares = np.sum(residual * np.linalg.solve(error, residual[..., None])[..., 0], axis=1)
    spread = np.sqrt(np.diagonal(error, axis1=1, axis2=2))
    return np.stack([squares, np.max(np.abs(residual) / spread, axis=1)]), best[..., 0]


def _counts(dice: np.random.Generator, totals: np.ndarray, rows: int) -> np.ndarray:
    """How often each of the rows is drawn, with replacement, for each total."""
    return dice.multinomial(totals, np.full(rows, 1 / rows))


def _as_many(dice: np.random.Generator, one: MeanAndCovariance, populations: int) -> np.ndarray:
    """As many draws as there are rows."""
    return _counts(dice, np.full(populations, len(one.rows)), len(one.rows))
