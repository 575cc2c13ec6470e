"""Which fault explains what was released? A name is given only to a fault that predicts all of it.

Every candidate is planted in public clients, whole: what each of them would send then is known, with the fault and
without. If shares s_k of N private clients have the faults k, the released sums y are

    y = N (h + sum_k s_k d_k) + error,    h, d_k: mean contribution of a healthy client, and how far fault k moves it.

The error has three parts: the noise, the sampling of private clients, and that of the public ones from which h and d
are estimated. Its covariance is known (shrunken after Ledoit and Wolf 2004 where it is estimated), so the shares follow
by generalised least squares. A name must pass three tests:

- What is left over looks like chance: `explain` plants the fault in populations drawn from public clients at the
  estimated share, and asks how often they leave as much.
- No other candidate is nearly as likely; two faults at once are tried where no single one comes near.
- It is likelier than `ANYTHING`: a fault that moves clients in a direction drawn at random among those of the
  candidates and, to a smaller part, among all directions. A release too noisy to tell a candidate from that is unknown.

All of it is post-processing of releases and public data; it costs nothing.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy import linalg, stats

from blindsight.inspection.contrast.explained import ANYTHING, Explanation, Part, group_of

__all__ = ["Evidence", "Planted", "explain", "likeliest"]

_WIDE = float(stats.norm.isf(0.025))
_POPULATIONS = 199
_FITTED = 8  # candidates that are fitted whole, the likeliest first
_TESTED = 5  # candidates whose fit is simulated
_PAIRED = 8  # candidates of which pairs are tried
_HOPELESS = 0.015  # two faults are tried if every single one fits worse: a small second one would mend any misfit
_ANY_WAY = 0.2  # share of a fault's movement that may be in any direction

Planted = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""For each candidate the public clients it was planted in (rows of `Evidence.public`), and what they would send."""


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """Released sums with the noise of each, and what every public client would send: one row each."""

    sums: np.ndarray
    noise_std: np.ndarray
    clients: int
    public: np.ndarray


def likeliest(evidence: Evidence, planted: Planted) -> list[tuple[float, str]]:
    """Every candidate and how badly it predicts the release at its best share, the best first: a quick look."""
    return _Quick.of(evidence, planted).ranked()


def explain(evidence: Evidence, planted: Planted) -> tuple[Explanation, ...]:
    """The candidates, the likeliest first; of the first few, whether it fits. If none does, pairs of them too."""
    if not planted:
        return ()
    quick, healthy = _Quick.of(evidence, planted), _Normal.of(evidence)
    first = [fault for _, fault in quick.ranked()[:_FITTED]]
    known = {fault: _Moved.of(evidence, healthy, fault, *planted[fault]) for fault in first}
    singles = sorted((_fit(evidence, healthy, (one,)) for one in known.values()), key=lambda one: one.deviance)
    singles = _tested(evidence, healthy, singles, known)
    pairs = list[Explanation]()
    if all(one.p_value is None or one.p_value < _HOPELESS for one in singles):
        twos = [(known[a], known[b]) for a, b in quick.pairs(first[:_PAIRED])]
        fitted = sorted((_fit(evidence, healthy, two) for two in twos[:_TESTED]), key=lambda one: one.deviance)
        pairs = _tested(evidence, healthy, fitted[:2], known)
    return (*sorted((*singles, *pairs), key=lambda one: one.deviance), quick.anything())


def _tested(
    evidence: Evidence, healthy: "_Normal", ordered: Sequence[Explanation], known: Mapping[str, "_Moved"]
) -> list[Explanation]:
    first = [one.fault for one in ordered[:_TESTED]]
    return [
        dataclasses.replace(one, p_value=_p_value(evidence, healthy, one, [known[part.fault] for part in one.parts]))
        if one.fault in first
        else one
        for one in ordered
    ]


# --- the model of a release


@dataclasses.dataclass(frozen=True, eq=False)
class _Normal:
    """Healthy public clients: mean and covariance of what they send, in units of `scale`."""

    mean: np.ndarray
    covariance: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, evidence: Evidence) -> "_Normal":
        # in units of each coordinate's error, so that shrinking towards a multiple of the identity makes sense
        spread = evidence.public.std(axis=0)
        scale = np.sqrt(evidence.noise_std**2 + evidence.clients * spread**2)
        return cls(evidence.public.mean(axis=0), _covariance(evidence.public, scale), scale)


@dataclasses.dataclass(frozen=True, eq=False)
class _Moved:
    """Public clients with a fault: what they send, and how far it moves them."""

    fault: str
    sent: np.ndarray
    moved: np.ndarray
    step: np.ndarray  # mean movement, in units of the scale
    spread: np.ndarray  # covariance of what they send
    wobble: np.ndarray  # covariance of the mean movement, as far as public clients are few

    @classmethod
    def of(cls, evidence: Evidence, healthy: _Normal, fault: str, rows: np.ndarray, sent: np.ndarray) -> "_Moved":
        moved, scale = sent - evidence.public[rows], healthy.scale
        wobble = _covariance(moved, scale) / len(moved)
        return cls(fault, sent, moved, moved.mean(axis=0) / scale, _covariance(sent, scale), wobble)


def _covariance(rows: np.ndarray, scale: np.ndarray) -> np.ndarray:
    from sklearn.covariance import ledoit_wolf  # takes a second to import, and only faults need it

    return np.asarray(ledoit_wolf(rows / scale)[0]) if len(rows) > 1 else np.zeros((rows.shape[1],) * 2)


def _error(evidence: Evidence, healthy: _Normal, shares: np.ndarray, faults: Sequence[_Moved]) -> np.ndarray:
    """The covariance of the released sums if these shares of clients have the faults, in units of the scale."""
    n, scale = evidence.clients, healthy.scale
    well = max(1 - float(shares.sum()), 0.0)
    mixed, public = well * healthy.covariance, healthy.covariance / len(evidence.public)
    mean = np.tensordot(shares, np.stack([one.step for one in faults]), 1)
    for share, one in zip(shares.tolist(), faults, strict=True):
        mixed = mixed + share * (one.spread + np.outer(one.step, one.step))
        public = public + share**2 * one.wobble
    error = np.diag((evidence.noise_std / scale) ** 2) + n * (mixed - np.outer(mean, mean)) + n**2 * public
    return error + 1e-9 * np.eye(len(scale))


def _fit(evidence: Evidence, healthy: _Normal, faults: Sequence[_Moved]) -> Explanation:
    """The shares that predict the released sums best."""
    n = evidence.clients
    left = (evidence.sums - n * healthy.mean) / healthy.scale
    steps = n * np.stack([one.step for one in faults], axis=1)
    shares, covariance = np.full(len(faults), 0.1), np.eye(len(faults))
    factor = linalg.cho_factor(np.eye(len(left)))
    for _ in range(4):
        factor = linalg.cho_factor(_error(evidence, healthy, shares, faults))
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


def _part(fault: str, share: float, error: float) -> Part:
    return Part(fault, share, max(share - _WIDE * error, 0.0), min(share + _WIDE * error, 1.0))


# --- a quick look at many candidates


@dataclasses.dataclass(frozen=True, eq=False)
class _Quick:
    """All candidates in coordinates in which the error of a healthy release is white."""

    names: Sequence[str]
    left: np.ndarray
    steps: np.ndarray  # one row for each candidate
    log_determinant: float

    @classmethod
    def of(cls, evidence: Evidence, planted: Planted) -> "_Quick":
        healthy, n = _Normal.of(evidence), evidence.clients
        nobody: Sequence[_Moved] = [_nothing(healthy)]
        root = linalg.cholesky(_error(evidence, healthy, np.zeros(1), nobody), lower=True)
        moved = [(sent - evidence.public[rows]).mean(axis=0) for rows, sent in planted.values()]
        both = np.stack([evidence.sums - n * healthy.mean, *(n * one for one in moved)]) / healthy.scale
        white = linalg.solve_triangular(root, both.T, lower=True).T
        return cls(list(planted), white[0], white[1:], 2 * float(np.log(np.diag(root)).sum()))

    def _misfit(self, chosen: Sequence[int]) -> float:
        steps = self.steps[list(chosen)].T
        shares = np.clip(np.linalg.lstsq(steps, self.left, rcond=None)[0], 0.0, 1.0)
        return float(np.sum((self.left - steps @ shares) ** 2))

    def ranked(self) -> list[tuple[float, str]]:
        """Candidates by the squared distance that the best share leaves."""
        return sorted((self._misfit([place]), name) for place, name in enumerate(self.names))

    def pairs(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Pairs of different faults among these, the best first."""
        places = {name: self.names.index(name) for name in names}
        twos = [(a, b) for a, b in itertools.combinations(names, 2) if group_of(a) != group_of(b)]
        return sorted(twos, key=lambda two: self._misfit([places[name] for name in two]))

    def anything(self) -> Explanation:
        """The alternative to all candidates: movement in the directions of faults, or in any direction."""
        size = len(self.left)
        directions = [np.mean(rows, axis=0) for rows in self._by_group()]
        known = np.mean(directions, axis=0) if directions else np.zeros((size, size))
        spread, axes = np.linalg.eigh((1 - _ANY_WAY) * known + _ANY_WAY * np.eye(size) / size)
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


def _nothing(healthy: _Normal) -> _Moved:
    size = len(healthy.mean)
    empty, square = np.zeros((0, size)), np.zeros((size, size))
    return _Moved("", empty, empty, np.zeros(size), square, square)


# --- does it fit?


def _p_value(evidence: Evidence, healthy: _Normal, one: Explanation, faults: Sequence[_Moved]) -> float:
    """How often populations with these faults deviate from their best fit as much as what was released.

    They may deviate in all coordinates together (the sum of squares), or in one of them (the largest): an unknown fault
    often shows in few.
    """
    shares, n, scale = np.array([part.share for part in one.parts]), evidence.clients, healthy.scale
    error = _error(evidence, healthy, shares, faults)
    factor, spread = linalg.cho_factor(error), np.sqrt(np.diag(error))

    def misfit(sums: np.ndarray, mean: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Both measures of many populations at once, shape (2, populations); steps: (populations, faults, size)."""
        left, steps = (sums - n * mean) / scale, n * steps / scale
        weighted = linalg.cho_solve(factor, steps.reshape(-1, len(scale)).T).T.reshape(steps.shape)
        inner = np.einsum("pfs,pgs->pfg", steps, weighted) + 1e-9 * np.eye(len(faults))
        best = np.linalg.solve(inner, np.einsum("pfs,ps->pf", weighted, left)[..., None])[..., 0]
        residual = left - np.einsum("pf,pfs->ps", np.clip(best, 0.0, 1.0), steps)
        squares = (residual * linalg.cho_solve(factor, residual.T).T).sum(axis=1)
        return np.stack([squares, np.max(np.abs(residual) / spread, axis=1)])

    dice = np.random.default_rng(0)
    hit = dice.multinomial(n, [*shares.tolist(), max(1 - float(shares.sum()), 0.0)], _POPULATIONS)
    sums = _drawn(dice, hit[:, -1], evidence.public)
    for count, fault in zip(hit.T, faults, strict=False):
        sums = sums + _drawn(dice, count, fault.sent)
    sums = sums + evidence.noise_std * dice.standard_normal(sums.shape)
    mean = _redrawn(dice, evidence.public)
    steps = np.stack([_redrawn(dice, fault.moved) for fault in faults], axis=1)
    own_steps = np.stack([fault.moved.mean(axis=0) for fault in faults])[None]
    own = misfit(evidence.sums[None], healthy.mean[None], own_steps)
    rarer = (1 + np.sum(misfit(sums, mean, steps) >= own, axis=1)) / (1 + _POPULATIONS)
    return float(min(2 * rarer.min(), 1.0))


def _drawn(dice: np.random.Generator, counts: Sequence[int] | np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums over that many rows, drawn with replacement: one sum for each count."""
    even = np.full(len(rows), 1 / len(rows))
    return dice.multinomial(np.asarray(counts), even) @ rows


def _redrawn(dice: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    """Means of as many rows, drawn with replacement."""
    return _drawn(dice, np.full(_POPULATIONS, len(rows)), rows) / len(rows)
