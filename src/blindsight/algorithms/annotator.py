"""A closed-form classifier from released moments, to label generated examples.

Every class is a normal distribution of features such as `codings.features.strokes`, with the released mean and
covariance after denoising; an example gets the class under which it is likeliest (Fisher 1936; with a covariance per
class, quadratic discriminant analysis). There is no training and no cost: it is post-processing of one release, and
labels examples generated from another under the guarantee of both.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from blindsight.accounting.guarantee import Guarantee
from blindsight.algorithms.denoising import denoised
from blindsight.algorithms.moments import Moments
from blindsight.codings.vectors import Encoding
from blindsight.errors import InvalidInput
from blindsight.keys import Key

__all__ = ["Annotator", "annotator"]

_TEMPERATURE = 8.0  # features depend on each other beyond their covariance, so likelihoods are overconfident


@dataclasses.dataclass(frozen=True, eq=False)
class Annotator:
    """Classes as normal distributions of an encoding: means (classes, size) and whitening matrices.

    `whiten[k]` maps an example's deviation from mean k to its Mahalanobis distance; `prior` holds the other terms of
    the log-likelihood: the classes' frequencies and log-determinants.
    """

    encoding: Encoding
    classes: tuple[str, ...]
    means: np.ndarray
    whiten: np.ndarray  # (classes, size, size)
    prior: np.ndarray  # (classes,)
    guarantee: Guarantee | None = None

    def log_likelihoods(self, images: np.ndarray, *, batch: int = 500) -> np.ndarray:
        """The log-likelihood of every image under every class, up to a constant, (n, classes)."""
        if len(images) == 0:
            raise InvalidInput("there is nothing to label: give at least one image")
        means, whiten = (jnp.asarray(values, jnp.float32) for values in (self.means, self.whiten))
        parts = np.array_split(images, -(-len(images) // batch))
        far = [np.asarray(_squared_distances(self.encoding, means, whiten, jnp.asarray(part))) for part in parts]
        return self.prior[None] - np.concatenate(far).astype(np.float64) / 2

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """The probability of every class, (n, classes), with a temperature: soft labels for training a student."""
        return special.softmax(self.log_likelihoods(images) / _TEMPERATURE, axis=1)

    def labels(self, images: np.ndarray) -> np.ndarray:
        """The likeliest class of every image."""
        return self.log_likelihoods(images).argmax(axis=1)

    def draw(self, labels: np.ndarray, *, key: Key, spread: float = 1.0) -> np.ndarray:
        """An encoding drawn from the distribution of each label's class, (n, size)."""
        random = np.random.default_rng(np.frombuffer(key.derive("annotator").secret, np.uint32))
        normal = spread * random.normal(size=(len(labels), self.means.shape[1]))
        widen = np.linalg.inv(self.whiten)
        drawn = np.empty(normal.shape, np.float32)
        for label in np.unique(labels):
            drawn[labels == label] = self.means[label] + normal[labels == label] @ widen[label].T
        return drawn


def annotator(moments: Moments, *, arm: int = 0) -> Annotator:
    """The classifier of these moments of images: post-processing, at no cost."""
    _, mean, covariance = denoised(moments.features, moments.means, moments.noise, moments.counts)
    if covariance is None:
        raise InvalidInput("labelling needs covariances, which only moments of images have: measure images or strokes")
    mean, covariance, counts = mean[arm], covariance[arm], moments.counts[arm]
    values, vectors = np.linalg.eigh(covariance)
    whiten = np.swapaxes(vectors, -1, -2) / np.sqrt(values)[..., None]
    prior = np.log(counts / counts.sum()) - np.sum(np.log(values), axis=-1) / 2
    return Annotator(moments.features.encoding, moments.classes, mean, whiten, prior, moments.guarantee)


@eqx.filter_jit
def _squared_distances(encoding: Any, means: jax.Array, whiten: jax.Array, images: jax.Array) -> jax.Array:
    """(n, classes): class by class, to save memory."""
    c = encoding.of(images)
    return jax.lax.map(lambda own: jnp.sum(jnp.square((c - own[0][None]) @ own[1].T), axis=1), (means, whiten)).T
