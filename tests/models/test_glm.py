"""Linear models: gradients are those of the losses, and agree with the libraries that people trust."""

from typing import Any

import numpy as np
import pytest
from scipy import optimize
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor

from blindsight.errors import InvalidInput
from blindsight.models import glm

CLASSES = 3


def examples(family: str, n: int = 40, d: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    x = random.uniform(size=(n, d))
    weights = random.normal(size=glm.weights_needed(family, d, CLASSES))
    y = {"linear": random.uniform(size=n), "logistic": random.integers(2, size=n), "poisson": random.poisson(2.0, n)}
    return weights, x, y.get(family, random.integers(CLASSES, size=n))


@pytest.mark.parametrize("family", glm.FAMILIES)
def test_the_gradient_is_the_slope_of_the_loss(family):
    weights, x, y = examples(family)
    slope: Any = optimize.approx_fprime(weights, lambda w: glm.loss(family, w, x, y), 1e-7)
    np.testing.assert_allclose(glm.gradient(family, weights, x, y), slope, atol=2e-6)


@pytest.mark.parametrize("family", glm.FAMILIES)
def test_the_gradient_is_the_mean_over_examples(family):
    weights, x, y = examples(family)
    each = [glm.gradient(family, weights, x[n : n + 1], y[n : n + 1]) for n in range(len(x))]
    np.testing.assert_allclose(glm.gradient(family, weights, x, y), np.mean(each, axis=0), atol=1e-14)


@pytest.mark.parametrize("family", glm.FAMILIES)
def test_no_examples_have_no_gradient_and_no_loss(family):
    weights, x, y = examples(family)
    assert not glm.gradient(family, weights, x[:0], y[:0]).any()
    assert glm.loss(family, weights, x[:0], y[:0]) == 0.0


@pytest.mark.parametrize("family", ["linear", "logistic", "multinomial", "ordinal"])
def test_coordinates_never_exceed_one_for_bounded_families(family):
    """With features and responses in [0, 1] only Poisson regression needs clipping to [-1, 1]."""
    weights, x, y = examples(family, n=200)
    weights = np.clip(weights, 0, 0.25) if family == "linear" else 30 * weights  # a linear prediction in [0, 1]
    assert np.abs(glm.gradient(family, weights, x, y)).max() <= 1.0


@pytest.mark.parametrize("family", ["multinomial", "ordinal"])
def test_probabilities_are_probabilities(family):
    weights, x, _ = examples(family)
    predicted = glm.predict(family, 5 * weights, x)
    assert predicted.shape == (40, CLASSES)
    assert predicted.min() >= 0
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0)


@pytest.mark.parametrize("family", glm.FAMILIES)
def test_huge_scores_are_finite_probabilities(family):
    if family == "linear":
        return
    weights, x, y = examples(family)
    for sign in (1, -1):
        assert np.isfinite(glm.predict(family, sign * 1e6 * np.abs(weights), x)).all()
        assert np.isfinite(glm.gradient(family, sign * 1e6 * np.abs(weights), x, y)).all()


@pytest.mark.parametrize(
    ("family", "peer"),
    [
        ("linear", LinearRegression(fit_intercept=False)),
        ("logistic", LogisticRegression(C=1e9, fit_intercept=False, tol=1e-10, max_iter=10_000)),
        ("poisson", PoissonRegressor(alpha=0, fit_intercept=False, tol=1e-10, max_iter=10_000)),
    ],
)
def test_the_best_weights_are_those_of_a_known_library(family, peer):
    weights, x, y = examples(family, n=300)
    best = optimize.minimize(
        lambda w: glm.loss(family, w, x, y), weights * 0, jac=lambda w: glm.gradient(family, w, x, y), tol=1e-12
    )
    np.testing.assert_allclose(best.x, peer.fit(x, y).coef_.ravel(), atol=2e-4)


def test_an_ordinal_model_ranks():
    """Three steps along one feature are found, with thresholds in their order."""
    x = np.linspace(0, 1, 300)[:, None]
    y = np.minimum((x[:, 0] * 3).astype(int), 2)
    best = optimize.minimize(
        lambda w: glm.loss("ordinal", w, x, y), np.zeros(3), jac=lambda w: glm.gradient("ordinal", w, x, y)
    )
    assert best.x[0] > best.x[1]  # more than 0 is likelier than more than 1
    assert np.mean(glm.predict("ordinal", best.x, x).argmax(axis=1) == y) > 0.97


def test_an_unknown_family_is_refused():
    with pytest.raises(InvalidInput, match="one of linear, logistic"):
        glm.predict("gamma", np.zeros(1), np.zeros((1, 1)))
