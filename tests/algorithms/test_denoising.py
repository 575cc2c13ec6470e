"""Laws of denoising: nothing is changed where there is no noise, and where there is, the truth comes nearer."""

import numpy as np
import pytest

from blindsight.algorithms.denoising import denoised
from blindsight.codings.features import images, rows
from blindsight.codings.images_and_rows import Category

FEATURES = images((6, 6), frequencies=16)
COUNTS = np.full((1, 5), 300.0)


def truth() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean features, means and covariances of five classes around one common covariance."""
    random = np.random.default_rng(0)
    mean = 0.1 * random.normal(size=(1, 5, 16))
    directions = random.normal(size=(1, 5, 16, 2))
    covariance = 0.04 * np.eye(16) + 0.02 * directions @ np.swapaxes(directions, -1, -2)
    return _packed(mean, covariance), mean, covariance


def _packed(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    second = covariance + mean[..., :, None] * mean[..., None, :]
    places = np.triu_indices(16)
    twice = np.where(places[0] == places[1], 1.0, np.sqrt(2))
    scales = FEATURES.scales
    return np.concatenate([scales["mean"] * mean, scales["second"] * second[..., places[0], places[1]] * twice], -1)


def test_without_noise_the_moments_are_what_they_were():
    means, mean, covariance = truth()
    target, found, spread = denoised(FEATURES, means, np.zeros((1, 5)), COUNTS)
    assert spread is not None
    np.testing.assert_allclose(found, mean, atol=1e-9)
    np.testing.assert_allclose(spread, covariance, atol=1e-6)
    np.testing.assert_allclose(target["second"], FEATURES.unpack(means)["second"], atol=1e-6)


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.1, 10.0])
def test_the_truth_comes_nearer_and_covariances_can_be_drawn_from(noise):
    means, mean, covariance = truth()
    noisy = means + noise * np.random.default_rng(1).normal(size=means.shape)
    _, found, spread = denoised(FEATURES, noisy, np.full((1, 5), noise), COUNTS)
    assert spread is not None
    parts = FEATURES.unpack(noisy)
    raw = parts["second"] - parts["mean"][..., :, None] * parts["mean"][..., None, :]
    assert np.linalg.norm(found - mean) < 1.02 * np.linalg.norm(parts["mean"] - mean)
    assert np.linalg.norm(spread - covariance) < np.linalg.norm(raw - covariance)
    assert np.linalg.eigvalsh(spread).min() > 0


def test_rows_are_left_alone():
    features = rows([Category("a", 2), Category("b", 3)])
    means = np.random.default_rng(0).normal(size=(1, 2, features.dimension))
    target, mean, spread = denoised(features, means, np.ones((1, 2)), np.ones((1, 2)))
    assert spread is None
    np.testing.assert_array_equal(mean, target["mean"])
