"""How similar samples are to real examples. It compares with real data, so all of it is `simulation_only`.

Distances are between a classifier's features (`hidden`): unlike pixels, its last hidden layer represents the
differences that matter. One number is never enough: precision measures whether samples look like real examples, recall
whether they cover all real examples. A generator without recall cannot show what only a few clients have.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg
from sklearn.metrics import pairwise_distances_argmin_min, pairwise_distances_chunked
from sklearn.neighbors import NearestNeighbors

from blindsight.errors import InvalidInput
from blindsight.models.classifiers import CNN, MLP

__all__ = ["Fidelity", "fidelity", "frechet", "hidden", "nearest", "precision_and_recall"]


@dataclasses.dataclass(frozen=True)
class Fidelity:
    """The quality of samples compared with real examples.

    `frechet`: the distance of normal distributions fitted to samples and to real examples (0 is best);
    `class_frechet`: its mean within classes; `agreement`: how often the classifier predicts the class that a sample was
    generated for; `precision` and `recall`: see `precision_and_recall`; `nearest`: the median distance of a sample to
    the training examples, divided by that of other real examples (far below 1: samples are copies).
    """

    frechet: float
    class_frechet: float
    agreement: float
    precision: float
    recall: float
    nearest: float
    simulation_only: bool = True

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def fidelity(
    generated: tuple[np.ndarray, np.ndarray],
    real: tuple[np.ndarray, np.ndarray],
    training: np.ndarray,
    classifier: CNN | MLP,
) -> Fidelity:
    """Compare samples and their classes with real examples and theirs, in the features of `classifier`.

    `training` are the examples the samples were generated from; `real` should be different ones.
    """
    (samples, intended), (examples, labels) = generated, real
    seen, truth, trained = (hidden(classifier, images) for images in (samples, examples, training))
    agree = [np.asarray(_logits(classifier, part)).argmax(axis=1) for part in _parts(samples)]
    classes = [label for label in np.unique(labels) if min(np.sum(intended == label), np.sum(labels == label)) > 1]
    within = [frechet(seen[intended == label], truth[labels == label]) for label in classes]
    precision, recall = precision_and_recall(truth, seen)
    return Fidelity(
        frechet=frechet(seen, truth),
        class_frechet=float(np.mean(within)) if within else float("nan"),
        agreement=float(np.mean(np.concatenate(agree) == intended)),
        precision=precision,
        recall=recall,
        nearest=float(np.median(nearest(seen, trained)) / max(float(np.median(nearest(truth, trained))), 1e-12)),
    )


def frechet(one: np.ndarray, other: np.ndarray) -> float:
    """|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)) of two sets of vectors (Heusel et al. 2017, for any features).

    >>> frechet(np.array([[0.0], [2.0]]), np.array([[3.0], [5.0]]))
    9.0
    """
    if min(len(one), len(other)) < 2:
        raise InvalidInput("a Frechet distance needs at least two vectors on either side")
    mean = np.sum(np.square(one.mean(axis=0) - other.mean(axis=0)))
    first, second = (np.atleast_2d(np.cov(side, rowvar=False, dtype=np.float64)) for side in (one, other))
    values, vectors = linalg.eigh(first)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    shared = np.sqrt(np.maximum(linalg.eigvalsh(root @ second @ root), 0.0)).sum()  # the trace of (C1 C2)^(1/2)
    return max(float(mean + np.trace(first) + np.trace(second) - 2 * shared), 0.0)


def precision_and_recall(real: np.ndarray, samples: np.ndarray, *, neighbours: int = 3) -> tuple[float, float]:
    """Kynkäänniemi et al. 2019: the share of samples within reach of real examples, and vice versa.

    A vector reaches as far as its `neighbours`-th nearest neighbour in its own set.
    """
    if min(len(real), len(samples)) <= neighbours:
        raise InvalidInput(
            f"more than {neighbours} vectors are needed on either side, got {len(real)} and {len(samples)}"
        )
    return _within_reach(samples, real, neighbours), _within_reach(real, samples, neighbours)


def nearest(samples: np.ndarray, training: np.ndarray) -> np.ndarray:
    """The distance of every sample to the nearest training example: `simulation_only`, since it reads clients' data."""
    return np.asarray(pairwise_distances_argmin_min(samples, training)[1])


def hidden(classifier: CNN | MLP, images: np.ndarray) -> np.ndarray:
    """The activations of the classifier's last hidden layer, (n, units)."""
    before_output = eqx.tree_at(_output, classifier, lambda x: x)
    return np.concatenate([np.asarray(_logits(before_output, part), np.float64) for part in _parts(images)])


def _output(classifier: CNN | MLP) -> Any:
    return classifier.output if isinstance(classifier, CNN) else classifier.layers[-1]


def _within_reach(vectors: np.ndarray, centres: np.ndarray, neighbours: int) -> float:
    reach = NearestNeighbors(n_neighbors=neighbours + 1).fit(centres).kneighbors(centres)[0][:, -1]  # itself is one
    inside = pairwise_distances_chunked(vectors, centres, reduce_func=lambda part, _: (part <= reach).any(axis=1))
    return float(np.mean(np.concatenate(list(inside))))


def _parts(images: np.ndarray) -> list[np.ndarray]:
    return np.array_split(images, -(-len(images) // 1000))


@eqx.filter_jit
def _logits(classifier: Any, images: Any) -> jax.Array:
    return classifier(jnp.asarray(images))
