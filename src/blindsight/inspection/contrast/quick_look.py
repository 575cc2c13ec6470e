"""A quick look at all candidates and pairs of them: which are worth a closer one?"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import linalg

from blindsight.inspection.contrast.explained import ANYTHING, FACELESS, NAMELESS, Explanation, group_of
from blindsight.inspection.contrast.predicting import Evidence, Normal, PlantedAnswers, Scatter, error_of

__all__ = ["Quick", "likeliest", "likeliest_together", "shortlist"]

_FITTED = 8  # candidates that are fitted whole, the likeliest first
_ALIKE = 3  # of one fault, in different degrees
_RIVALS = 3  # changes without a name that are fitted whole
_PAIRS = 2
_TOGETHER = 24.0  # squared distance by which two faults must predict better to be looked at
_PARALLEL = 1e-6  # squared sine of the angle below which two faults move clients in one direction
_ANY_WAY = 0.2  # share of a fault's movement that may be in any direction


def likeliest(evidence: Evidence, planted: PlantedAnswers) -> list[tuple[float, str]]:
    """Every candidate and how badly it predicts the release at its best share, the best first: a quick look."""
    return Quick.of(evidence, planted).ranked()


def likeliest_together(evidence: Evidence, planted: PlantedAnswers) -> list[str]:
    """The faults of the pairs that predict the release best; none if a single fault predicts it nearly as well."""
    quick = Quick.of(evidence, {fault: sent for fault, sent in planted.items() if not fault.startswith(NAMELESS)})
    alone = min((left for left, _ in quick.ranked()), default=0.0)
    pairs = [(a, b) for left, a, b in quick.pairs()[:_PAIRS] if left < alone - _TOGETHER]
    return list(dict.fromkeys(fault for two in pairs for fault in two))


def shortlist(ranked: Sequence[tuple[float, str]]) -> tuple[list[str], list[str]]:
    """The likeliest candidates, few of them the same fault in different degrees; and the likeliest without a name."""
    first, count = list[str](), dict[str, int]()
    for _, fault in ranked:
        group = group_of(fault)
        if not fault.startswith(NAMELESS) and count.get(group, 0) < _ALIKE:
            first.append(fault)
            count[group] = count.get(group, 0) + 1
    return first[:_FITTED], [fault for _, fault in ranked if fault.startswith(NAMELESS)][:_RIVALS]


@dataclasses.dataclass(frozen=True, eq=False)
class Quick:
    """All candidates in coordinates in which the error of a healthy release is white."""

    names: list[str]
    left: np.ndarray
    steps: np.ndarray  # one row for each candidate
    root: np.ndarray

    @property
    def log_determinant(self) -> float:
        """Of the covariance of a healthy release's error."""
        return 2 * float(np.log(np.diag(self.root)).sum())

    @classmethod
    def of(cls, evidence: Evidence, planted: PlantedAnswers) -> "Quick":
        """Of a release, and of what public clients with each fault send."""
        healthy, n = Normal.of(evidence), evidence.clients
        root = linalg.cholesky(error_of(evidence, healthy, np.zeros(0), ()), lower=True)
        moved = [(sent - evidence.public[rows]).mean(axis=0) / healthy.scale for rows, sent in planted.values()]
        left = evidence.sums / healthy.scale - n * healthy.estimate.mean
        white = linalg.solve_triangular(root, np.stack([left, *(n * one for one in moved)]).T, lower=True).T
        return cls(list(planted), white[0], white[1:], root)

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
        """The alternative to all candidates: movement in the directions of faults, or in any direction.

        Most faults make the model fail. So with arms by accuracy, `FACELESS` clients may come on top of it.
        """
        spread, axes = np.linalg.eigh(self._directions())
        weights = 1 / (1 + np.logspace(0, 6, 61)[:, None] * np.maximum(spread, 0.0))  # (strengths, size)
        along = axes.T @ self.left
        deviances = np.sum(weights * along**2 - np.log(weights), axis=1)
        if FACELESS in self.names:
            failing = axes.T @ self.steps[self.names.index(FACELESS)]
            inner, both = weights @ failing**2, weights @ (failing * along)
            strengths = np.logspace(-4, 0, 21)[:, None]  # squared share of clients
            gained = both**2 / (1 / strengths + inner)
            deviances = deviances + np.minimum(np.log1p(strengths * inner) - gained, 0.0)
        return Explanation(ANYTHING, 0.0, 0.0, 1.0, float(np.min(deviances)) + self.log_determinant)

    def scatter(self) -> Scatter:
        """Directions in which a fault may move clients differently."""
        return Scatter(self.root, self.root @ linalg.cholesky(self._directions(), lower=True))

    def _directions(self) -> np.ndarray:
        size = len(self.left)
        directions = [np.mean(rows, axis=0) for rows in self._by_group()]
        typical = np.mean(directions, axis=0) if directions else np.zeros((size, size))
        return (1 - _ANY_WAY) * typical + _ANY_WAY * np.eye(size) / size

    def _by_group(self) -> Iterable[list[np.ndarray]]:
        """Directions of the candidates, those of one fault together: many factors of a unit count once."""
        groups: dict[str, list[np.ndarray]] = {}
        for name, step in zip(self.names, self.steps, strict=True):
            length = float(np.linalg.norm(step))
            if length > 1e-9:
                groups.setdefault(group_of(name), []).append(np.outer(step, step) / length**2)
        return groups.values()
