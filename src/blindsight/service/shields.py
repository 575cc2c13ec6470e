"""Shields: narrower bounds in the few directions that public examples show to matter.

In d weights the noise of a client is about sqrt(d) sigma long, so a hostile difference may be too, and lie in one
direction, in which an honest client's noise is only sigma. Which directions count is no secret: a model does harm
through its predictions, and to first order they change along gradients. So the public examples are grouped, by response
and then by prediction, and the gradients of the groups, coarse ones first, span the first directions; the others are
those in which single examples differ most (principal components of their gradients). Within the first K directions an
honest client's noise is about sqrt(K) sigma long, and a longer difference is shortened to that and a typical step.
Honest clients lose a part of their step in these directions, hostile ones all but sqrt(K) sigma of theirs.
"""

import dataclasses
import math

import numpy as np

from blindsight.algorithms.draw_and_discard import Task, clipped
from blindsight.models import glm
from blindsight.service.bounds import UpdateBounds
from blindsight.service.nested import shorten

__all__ = ["Shield", "make_shield", "principal_directions"]

_PARTS = 4  # groups by prediction in each group by response
_PRINCIPAL = (16, 64, 128)  # principal directions, on each level
_MOST = 1 << 18  # numbers in the basis, which is read twice for each update
_SAME = 1e-6  # of a row's length: what others span
_SAMPLE = 1500  # examples for the principal directions


@dataclasses.dataclass(frozen=True)
class Shield:
    """The largest length of a difference: within the first `sizes` rows of `basis` (`radii`), and of all (`radius`)."""

    basis: np.ndarray
    sizes: tuple[int, ...]
    radii: tuple[float, ...]
    radius: float
    step: np.ndarray
    """The mean difference that the public examples predict, along the first rows of `basis`: those of the groups."""
    step_radius: float
    """The largest length of a difference along them."""

    def shorten(self, changes: np.ndarray) -> np.ndarray:
        """Shorten each row of `changes` in place, on the finest level first; which rows were shortened."""
        bounds = list(zip(self.sizes, self.radii, strict=True))
        return shorten(changes, changes @ self.basis.T, self.basis, bounds)


def principal_directions(task: Task, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The directions in which the gradients of single examples vary most at the start, most important first."""
    count = min(len(x), _SAMPLE, max(1, (1 << 24) // task.weights))
    most = min(_PRINCIPAL[-1], count, task.weights // 2, _MOST // task.weights)
    start = np.zeros(task.weights)
    rows = np.stack([glm.gradient(task.family, start, x[i : i + 1], y[i : i + 1]) for i in range(count)])
    if task.weights <= count:
        return np.linalg.eigh(rows.T @ rows)[1].T[::-1][:most]
    values, vectors = np.linalg.eigh(rows @ rows.T)  # the smaller of the two matrices
    return (vectors.T[::-1] @ rows)[:most] / np.sqrt(np.maximum(values[::-1][:most], 1e-30))[:, None]


def make_shield(task: Task, weights: np.ndarray, x: np.ndarray, y: np.ndarray, principal: np.ndarray) -> Shield:
    """The shield of a model with these weights, from public examples and their principal directions."""
    sigma, rate = math.sqrt(task.variance), task.learning_rate
    most = min(task.weights // 2, _MOST // task.weights)
    rows, sizes = list[np.ndarray](), list[int]()
    groups = _by_response(task, weights, x, y)
    parts = [part for group in groups for part in np.array_split(group, _PARTS) if len(part)]
    for level in (groups, parts):
        gradients = [glm.gradient(task.family, weights, x[group], y[group]) for group in level]
        if len(level) <= most:
            rows += gradients
            sizes.append(len(level))
    of_groups = sizes[-1] if sizes else 0
    for count in _PRINCIPAL:
        if sizes and sizes[-1] < count + len(parts) <= most and count <= len(principal):
            sizes.append(len(parts) + count)
    basis = _orthonormal([*rows, *principal], sizes[-1] if sizes else 0)
    steps = -rate * np.array([clipped(task, gradient) for gradient in gradients])
    typical = [float(np.median(np.linalg.norm(steps @ basis[:size].T, axis=1))) for size in sizes]
    radii = tuple(math.hypot(math.sqrt(size) * sigma, step) for size, step in zip(sizes, typical, strict=True))
    longest = float(np.linalg.norm(steps, axis=1).max())
    return Shield(
        basis=basis.astype(np.float32),
        sizes=tuple(sizes),
        radii=radii,
        radius=math.hypot(UpdateBounds.of(task).noise_radius, longest),
        step=basis[:of_groups] @ np.average(steps, axis=0, weights=[len(part) for part in parts]),
        step_radius=dict(zip(sizes, radii, strict=True)).get(of_groups, 0.0),
    )


def _by_response(task: Task, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """The examples of each response, or of its halves if it is a number, by what the model predicts."""
    predicted = glm.predict(task.family, weights, x)
    if predicted.ndim > 1:
        predicted = predicted[np.arange(len(x)), y.astype(np.int64)]
    values = y if task.family not in ("linear", "poisson") else y > np.median(y)
    groups = [np.flatnonzero(values == value) for value in np.unique(values)]
    return [group[np.argsort(predicted[group], kind="stable")] for group in groups]


def _orthonormal(rows: list[np.ndarray], count: int) -> np.ndarray:
    """Orthonormal rows with the span of the first independent ones."""
    matrix = np.array(rows)
    left_over = np.abs(np.diag(np.linalg.qr(matrix.T)[1]))  # of each row beside those before it
    return np.linalg.qr(matrix[left_over > _SAME * np.linalg.norm(matrix, axis=1)].T)[0].T[:count]
