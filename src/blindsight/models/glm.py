"""Generalised linear models in NumPy: predictions, losses and gradients, everything a client needs.

Five families, each convex in its weights. With features x in [0, 1] and linear predictor x @ w:

============  ======================  ===========================================  =========================
family        response y              prediction                                   gradient of one example
============  ======================  ===========================================  =========================
linear        number                  x @ w                                        (prediction - y) x
logistic      0 or 1                  sigmoid(x @ w)                               (prediction - y) x
poisson       count                   exp(x @ w)                                   (prediction - y) x
multinomial   class 0..C-1            softmax(x @ w_c), weights class by class     (prediction_c - [y = c]) x
ordinal       class 0..C-1, ordered   sigmoid(b_j + x @ w): P(y > j)               mean over the C-1 thresholds
============  ======================  ===========================================  =========================

An ordinal model is C-1 logistic models of "y > j" that share the weights of the features; its weights are b_0..b_{C-2},
then w. Unlike the proportional-odds likelihood it is defined for thresholds in any order, which noise may cause (Rennie
and Srebro 2005, the all-threshold loss).
"""

from typing import Literal, get_args

import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["FAMILIES", "Family", "gradient", "loss", "predict", "weights_needed"]

Family = Literal["linear", "logistic", "multinomial", "poisson", "ordinal"]

FAMILIES: tuple[str, ...] = get_args(Family)

_LARGEST_EXPONENT = 700.0  # exp of more overflows


def weights_needed(family: str, features: int, classes: int = 2) -> int:
    """Number of weights of a model with `features` coordinates."""
    _check(family)
    if family == "multinomial":
        return classes * features
    return classes - 1 + features if family == "ordinal" else features


def predict(family: str, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The expected response (examples,), or for multinomial and ordinal the probabilities (examples, classes).

    >>> predict("logistic", np.array([0.0, 1.0]), np.array([[1.0, 0.0], [1.0, 1.0]])).round(3)
    array([0.5  , 0.731])
    """
    _check(family)
    weights, x = np.asarray(weights, np.float64), np.asarray(x, np.float64)
    if family == "multinomial":
        return _softmax(x @ weights.reshape(-1, x.shape[1]).T)
    if family == "ordinal":
        more = -np.sort(-_more_than(weights, x), axis=1)  # noise may have reordered the thresholds
        edges = np.hstack([np.ones((len(x), 1)), more, np.zeros((len(x), 1))])
        return edges[:, :-1] - edges[:, 1:]
    return _mean(family, x @ weights)


def loss(family: str, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """The mean negative log-likelihood of the examples, without terms independent of the weights."""
    _check(family)
    weights, x, y = np.asarray(weights, np.float64), np.asarray(x, np.float64), np.asarray(y)
    if not len(x):
        return 0.0
    if family == "multinomial":
        scores = x @ weights.reshape(-1, x.shape[1]).T
        top = scores.max(axis=1, keepdims=True)
        normaliser = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1))
        return float(np.mean(normaliser - scores[np.arange(len(x)), y.astype(np.int64)]))
    if family == "ordinal":
        scores, passed = _thresholds(weights, x), _passed(y, weights, x)
        return float(np.mean(np.logaddexp(0.0, scores) - passed * scores))
    scores = x @ weights
    if family == "linear":
        return float(np.mean((scores - y) ** 2) / 2)
    if family == "logistic":
        return float(np.mean(np.logaddexp(0.0, scores) - y * scores))
    return float(np.mean(_mean(family, scores) - y * scores))


def gradient(family: str, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The gradient of `loss`: the mean over the examples, (weights,) in float64; zeros without examples.

    >>> gradient("logistic", np.zeros(2), np.array([[1.0, 0.5]]), np.array([1]))
    array([-0.5 , -0.25])
    """
    _check(family)
    weights, x, y = np.asarray(weights, np.float64), np.asarray(x, np.float64), np.asarray(y)
    if not len(x):
        return np.zeros(len(weights))
    if family == "multinomial":
        excess = _softmax(x @ weights.reshape(-1, x.shape[1]).T)
        excess[np.arange(len(x)), y.astype(np.int64)] -= 1.0
        return (excess.T @ x).ravel() / len(x)
    if family == "ordinal":
        excess = (_more_than(weights, x) - _passed(y, weights, x)) / (len(weights) - x.shape[1])
        return np.concatenate([excess.sum(axis=0), excess.sum(axis=1) @ x]) / len(x)
    return (_mean(family, x @ weights) - y) @ x / len(x)


def _mean(family: str, scores: np.ndarray) -> np.ndarray:
    if family == "logistic":
        return _sigmoid(scores)
    return np.exp(np.minimum(scores, _LARGEST_EXPONENT)) if family == "poisson" else scores


def _sigmoid(scores: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -scores))  # no overflow on either side


def _softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _thresholds(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    thresholds = len(weights) - x.shape[1]
    return weights[None, :thresholds] + (x @ weights[thresholds:])[:, None]


def _more_than(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _sigmoid(_thresholds(weights, x))


def _passed(y: np.ndarray, weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    return (y[:, None] > np.arange(len(weights) - x.shape[1])[None]).astype(np.float64)


def _check(family: str) -> None:
    if family not in FAMILIES:
        raise InvalidInput(f"family must be one of {', '.join(FAMILIES)}, got {family!r}")
