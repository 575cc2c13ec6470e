"""How similar samples are to real examples. It compares with real data, so all of it is `simulation_only`.

Distances are between what a classifier sees (`hidden`): its last layer before the output knows which differences
matter, and pixels do not. One number is never enough: precision says whether samples are like real examples, recall
whether all real examples could have been samples; a generator without recall cannot show what only a few clients have.
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

    `frechet`: the distance of the two normal distributions that are most like samples and real examples (0 is best);
    `class_frechet`: the mean of the same within every class; `agreement`: how often the classifier finds the class in a
    sample that it was asked for; `precision` and `recall`: see `precision_and_recall`; `nearest`: the median distance
    of a sample to the training examples, over that of other real examples (far below 1: samples are copies).
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
    made: tuple[np.ndarray, np.ndarray],
    real: tuple[np.ndarray, np.ndarray],
    training: np.ndarray,
    classifier: CNN | MLP,
    *,
    neighbours: int = 3,
) -> Fidelity:
    """Compare samples and their classes with real examples and theirs, in the features of `classifier`.

    `training` are the examples the samples were generated from; `real` should be different ones.
    """
    (samples, asked), (examples, labels) = made, real
    seen, truth, known = (hidden(classifier, images) for images in (samples, examples, training))
    agree = [np.asarray(_logits(classifier, part)).argmax(axis=1) for part in _parts(samples)]
    classes = [label for label in np.unique(labels) if min(np.sum(asked == label), np.sum(labels == label)) > 1]
    within = [frechet(seen[asked == label], truth[labels == label]) for label in classes]
    precision, recall = precision_and_recall(truth, seen, neighbours=neighbours)
    return Fidelity(
        frechet=frechet(seen, truth),
        class_frechet=float(np.mean(within)) if within else float("nan"),
        agreement=float(np.mean(np.concatenate(agree) == asked)),
        precision=precision,
        recall=recall,
        nearest=float(np.median(nearest(seen, known)) / max(float(np.median(nearest(truth, known))), 1e-12)),
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


def precision_and_recall(real: np.ndarray, made: np.ndarray, *, neighbours: int = 3) -> tuple[float, float]:
    """Kynkäänniemi et al. 2019: the share of samples within reach of real examples, and the other way round.

    A vector reaches as far as its `neighbours`-th neighbour on its own side.
    """
    if min(len(real), len(made)) <= neighbours:
        raise InvalidInput(f"more than {neighbours} vectors are needed on either side, got {len(real)} and {len(made)}")
    return _within_reach(made, real, neighbours), _within_reach(real, made, neighbours)


def nearest(made: np.ndarray, training: np.ndarray) -> np.ndarray:
    """The distance of every sample to the nearest training example: `simulation_only`, it looks at clients' data."""
    return np.asarray(pairwise_distances_argmin_min(made, training)[1])


def hidden(classifier: CNN | MLP, images: np.ndarray) -> np.ndarray:
    """What the classifier's last layer but one makes of the images, (n, units)."""
    before_output = eqx.tree_at(_output, classifier, lambda x: x)
    return np.concatenate([np.asarray(_logits(before_output, part), np.float64) for part in _parts(images)])


def _output(classifier: CNN | MLP) -> Any:
    return classifier.output if isinstance(classifier, CNN) else classifier.layers[-1]


def _within_reach(asked: np.ndarray, centres: np.ndarray, neighbours: int) -> float:
    reach = NearestNeighbors(n_neighbors=neighbours + 1).fit(centres).kneighbors(centres)[0][:, -1]  # itself is one
    inside = pairwise_distances_chunked(asked, centres, reduce_func=lambda part, _: (part <= reach).any(axis=1))
    return float(np.mean(np.concatenate(list(inside))))


def _parts(images: np.ndarray) -> list[np.ndarray]:
    return np.array_split(images, -(-len(images) // 1000))


@eqx.filter_jit
def _logits(classifier: Any, images: Any) -> jax.Array:
    return classifier(jnp.asarray(images))
