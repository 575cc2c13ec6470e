"""Denoises released moments by shrinkage with the known standard deviation of the noise; nothing is tuned."""

import math
from typing import Any

import numpy as np

from blindsight.codings.features import Features
from blindsight.codings.vectors import Spectrum
from blindsight.codings.wavelets import Wavelets

__all__ = ["denoised"]


def denoised(
    features: Features, means: np.ndarray, noise: np.ndarray, counts: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray | None]:
    """Released mean features as targets for a generator, the class means among them, and for images the covariances.

    `noise` is the standard deviation of every mean feature of each arm and class, `counts` the size of each.
    """
    parts = features.unpack(means)
    if not isinstance(
        features.encoding, Spectrum | Wavelets
    ):  # a generator of shares cannot follow noise below 0 or above 1
        return parts, parts["mean"], None
    scales = features.scales
    mean = _shrunk_means(parts["mean"], noise / scales["mean"], counts)
    covariance = _covariances(parts, noise / scales["mean"], noise / scales["second"], counts)
    second = covariance + mean[..., :, None] * mean[..., None, :]
    return {**parts, "mean": mean, "second": second}, mean, covariance


def _shrunk_means(mean: np.ndarray, noise: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Each class mean shrunk towards its arm's mean by the amount expected from noise (James and Stein 1961)."""
    share = counts / counts.sum(axis=1, keepdims=True)
    middle = np.einsum("ac,ack->ak", share, mean)[:, None]
    apart = np.sum(np.square(mean - middle), axis=-1)
    kept = np.maximum(0.0, 1 - mean.shape[-1] * np.square(noise) / np.maximum(apart, 1e-30))
    return middle + kept[..., None] * (mean - middle)


def _covariances(
    parts: dict[str, np.ndarray], mean_noise: np.ndarray, noise: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """The covariance of each class: its arm's, which has the least noise, plus its deviation beyond the noise.

    Symmetric noise of this size has eigenvalues up to noise * sqrt(2 size) and none beyond (Wigner 1958): a class's
    deviation from its arm is kept where its eigenvalues exceed half of that, minus what the noise adds to them.
    """
    mean, second = parts["mean"], parts["second"]
    size = mean.shape[-1]
    raw = second - mean[..., :, None] * mean[..., None, :]
    raw = raw + np.square(mean_noise)[..., None, None] * np.eye(size)  # the product squares the noise of the mean
    share = counts / counts.sum(axis=1, keepdims=True)
    pooled = np.einsum("ac,ackl->akl", share, raw)[:, None]
    pooled_edge = np.sqrt(np.sum(np.square(share * noise), axis=1) * 2 * size)[:, None, None]
    typical = np.maximum(np.trace(pooled, axis1=-2, axis2=-1), 1e-9)[..., None] / size
    floor = typical * np.clip(0.1 + 0.1 * pooled_edge / typical, 0.1, 0.2)
    values, vectors = np.linalg.eigh(pooled)
    common = _matrix(np.maximum(values - pooled_edge / 2, floor), vectors)
    values, vectors = np.linalg.eigh(raw - pooled)
    edge = (noise * math.sqrt(2 * size) / 2)[..., None]
    own = _matrix(np.sign(values) * np.sqrt(np.maximum(np.square(values) - np.square(edge), 0.0)), vectors)
    values, vectors = np.linalg.eigh(common + own)
    return _matrix(np.maximum(values, floor), vectors)


def _matrix(values: np.ndarray, vectors: Any) -> np.ndarray:
    return np.einsum("...ik,...k,...jk->...ij", vectors, values, vectors, optimize=True)
