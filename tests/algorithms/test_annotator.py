"""Laws of the annotator: it is Bayes' rule for normal classes, noise is survived, and the guarantee stays with it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from blindsight import keys
from blindsight.accounting.guarantee import Guarantee
from blindsight.algorithms.annotator import annotator
from blindsight.algorithms.moments import MomentsPart
from blindsight.codings.features import images, rows
from blindsight.codings.images_and_rows import Category
from blindsight.errors import InvalidInput

FEATURES = images((6, 6), frequencies=4)
KEY = keys.reproducible(0)


def moments(noise: float = 0.0, shares: tuple[float, float] = (0.5, 0.5)):
    """Two classes that differ in mean and covariance, as 1,000 clients would release them."""
    mean = np.array([[-0.2, 0.1, 0.0, 0.0], [0.2, 0.0, 0.1, 0.0]])
    covariance = np.stack([np.diag([0.03, 0.05, 0.02, 0.04]), np.diag([0.04, 0.02, 0.05, 0.03])])
    second = covariance + mean[:, :, None] * mean[:, None]
    places = np.triu_indices(4)
    twice = np.where(places[0] == places[1], 1.0, np.sqrt(2))
    scales = FEATURES.scales
    features = np.concatenate([scales["mean"] * mean, scales["second"] * second[:, places[0], places[1]] * twice], 1)
    sums = 1000 * np.array(shares)[:, None] * np.concatenate([np.full((2, 1), 0.4), features], axis=1)
    sums = sums + noise * np.random.default_rng(0).normal(size=sums.shape)
    part = MomentsPart(FEATURES, ("all",), ("a", "b"))
    return part.read(sums, noise), mean, covariance


def pictures(count: int = 200) -> np.ndarray:
    return np.random.default_rng(1).integers(60, 196, (count, 6, 6)).astype(np.uint8)


def test_without_noise_it_is_the_rule_of_bayes():
    released, mean, covariance = moments(shares=(0.7, 0.3))
    found = annotator(released).log_likelihoods(pictures())
    c = np.asarray(FEATURES.encoding({"image": jnp.asarray(pictures())}), np.float64)
    expected = np.stack(
        [
            np.log(share) + stats.multivariate_normal(mean[k], covariance[k]).logpdf(c)
            for k, share in enumerate((0.7, 0.3))
        ]
    ).T
    np.testing.assert_allclose(found[:, 0] - found[:, 1], expected[:, 0] - expected[:, 1], atol=1e-2)


def test_draws_have_the_moments_and_are_named_by_their_class():
    released, mean, covariance = moments()
    labeller = annotator(released)
    labels = np.repeat([0, 1], 4000)
    drawn = labeller.draw(labels, key=KEY)
    for label in range(2):
        np.testing.assert_allclose(drawn[labels == label].mean(axis=0), mean[label], atol=0.02)
        np.testing.assert_allclose(np.cov(drawn[labels == label].T), covariance[label], atol=0.004)
    wider = labeller.draw(labels, key=KEY, spread=2.0)
    np.testing.assert_allclose(wider[labels == 0].var(axis=0), 4 * drawn[labels == 0].var(axis=0), rtol=1e-3)


def test_noise_is_survived_and_probabilities_are_less_sure_than_likelihoods():
    clear, noisy = (annotator(moments(noise)[0]) for noise in (0.0, 1.0))
    asked = pictures()
    assert np.mean(clear.labels(asked) == noisy.labels(asked)) > 0.8
    assert np.all(np.isfinite(noisy.log_likelihoods(asked)))
    shares = clear.probabilities(asked)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(shares.argmax(axis=1), clear.labels(asked))
    sure = np.asarray(jax.nn.softmax(jnp.asarray(clear.log_likelihoods(asked)), axis=1))
    assert shares.max(axis=1).mean() < sure.max(axis=1).mean()


def test_it_has_the_guarantee_of_its_moments():
    promise = Guarantee(epsilon=1.0, delta=1e-5, accountant="PLD", participation="full", releases=1)
    released, _, _ = moments()
    assert annotator(dataclasses.replace(released, guarantee=promise)).guarantee is promise


def test_what_has_no_covariance_cannot_label():
    features = rows([Category("a", 2), Category("b", 3)])
    part = MomentsPart(features, ("all",), ("a", "b"))
    with pytest.raises(InvalidInput, match="labelling needs covariances"):
        annotator(part.read(np.ones((2, 1 + features.dimension)), 0.0))
    with pytest.raises(InvalidInput, match="at least one image"):
        annotator(moments()[0]).labels(np.zeros((0, 6, 6), np.uint8))
