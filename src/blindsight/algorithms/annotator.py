"""A classifier that is read off released moments, in closed form: for labels of what a generator made.

Every class is a normal distribution of its features (`codings.features.strokes`, say) with the mean and covariance that
were released, less what is known to be noise; an example belongs to the class under which it is likeliest (Fisher 1936;
with a covariance for each class, quadratic discriminant analysis). There is nothing to train and nothing to pay: it is
post-processing of one release, and labels what was generated from another under the guarantee of both.
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

_TEMPERATURE = 8.0  # features hang together in more ways than a covariance says: likelihoods are too sure of themselves


@dataclasses.dataclass(frozen=True, eq=False)
class Annotator:
    """Classes as normal distributions of an encoding: means (classes, size), and what whitens them.

    `whiten[k]` times an example's distance from mean k is as long as the example is unlikely; `prior` holds what else
    there is in the logarithm of the likelihood: the classes' shares and volumes.
    """

    encoding: Encoding
    classes: tuple[str, ...]
    means: np.ndarray
    whiten: np.ndarray  # (classes, size, size)
    prior: np.ndarray  # (classes,)
    guarantee: Guarantee | None = None

    def log_likelihoods(self, images: np.ndarray, *, batch: int = 500) -> np.ndarray:
        """Of every image in every class, up to a constant, (n, classes)."""
        if len(images) == 0:
            raise InvalidInput("there is nothing to label: give at least one image")
        means, whiten = (jnp.asarray(values, jnp.float32) for values in (self.means, self.whiten))
        parts = np.array_split(images, -(-len(images) // batch))
        far = [np.asarray(_squared_distances(self.encoding, means, whiten, jnp.asarray(part))) for part in parts]
        return self.prior[None] - np.concatenate(far).astype(np.float64) / 2

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """Of every class, (n, classes), tempered: labels for students that should know what was unsure."""
        return special.softmax(self.log_likelihoods(images) / _TEMPERATURE, axis=1)

    def labels(self, images: np.ndarray) -> np.ndarray:
        """The likeliest class of every image."""
        return self.log_likelihoods(images).argmax(axis=1)

    def draw(self, labels: np.ndarray, *, key: Key, spread: float = 1.0) -> np.ndarray:
        """An encoding from the distribution of every label's class, (n, size)."""
        random = np.random.default_rng(np.frombuffer(key.derive("annotator").secret, np.uint32))
        normal = spread * random.normal(size=(len(labels), self.means.shape[1]))
        widen = np.linalg.inv(self.whiten)
        drawn = np.empty(normal.shape, np.float32)
        for label in np.unique(labels):
            drawn[labels == label] = self.means[label] + normal[labels == label] @ widen[label].T
        return drawn


def annotator(moments: Moments, *, arm: int = 0) -> Annotator:
    """The classifier that these moments of images are: post-processing, free of cost."""
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
    """(n, classes): one class after the other, so that nothing large is held."""
    c = encoding.of(images)
    return jax.lax.map(lambda own: jnp.sum(jnp.square((c - own[0][None]) @ own[1].T), axis=1), (means, whiten)).T
