"""Models with which a party votes.

=====================  ==============================================================  ==================
voter                  trained on                                                      its votes
=====================  ==============================================================  ==================
`PrivateLinear`        raw examples, by noisy gradients                                are free
`OnSynthetic`          the party's own generated examples, any estimator               are free
`PrivateNetwork`       raw examples, by any algorithm that trains privately            are free
`GivenModel`           elsewhere, at the cost of its event                             are free
`OnRawData`            raw examples, any estimator                                     must be protected
=====================  ==============================================================  ==================
"""

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from blindsight.accounting.events import Event, Repeated
from blindsight.algorithms.dp_fedavg import Algorithm
from blindsight.algorithms.parties.generators import train_privately
from blindsight.algorithms.parties.party import Predict, Shard, SyntheticExamples, predictor
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms import gaussian
from blindsight.mechanisms.release import marked
from blindsight.privacy import Privacy
from blindsight.trees import BoundedSum

__all__ = ["GivenModel", "OnRawData", "OnSynthetic", "PrivateLinear", "PrivateNetwork", "flat"]

_BIAS = 0.3  # the constant feature, small beside features of length 1
_LONGEST = 1e15  # larger features are dropped: scores must stay finite
_ROOM = 1 - 1e-5  # exceeds the error of a gradient's norm, computed in floating point


def flat(inputs: np.ndarray) -> np.ndarray:
    """Inputs as flat rows of numbers; bytes are scaled to [0, 1]."""
    rows = inputs.reshape(len(inputs), math.prod(inputs.shape[1:]))  # works without examples
    return rows.astype(np.float32) / np.float32(255 if rows.dtype == np.uint8 else 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateLinear:
    """Multinomial logistic regression on public `features`, by full-batch descent with noisy clipped gradients.

    After Abadi et al. 2016 (arXiv:1607.00133), without sampling: `noise_multiplier` is that of all steps together. An
    example's gradient is the outer product of its features and its residual, so its norm has a closed form and
    per-example gradients are never materialised. Both factors are rounded to whole multiples of steps whose product is
    the grid's: every gradient lies on the grid, no longer than the clip, and sums of them are exact in any order. The
    generated examples, which are public, centre the features.
    """

    noise_multiplier: float
    features: Callable[[np.ndarray], np.ndarray] = flat
    steps: int = 60
    clip: float = 0.5
    learning_rate: float = 40.0
    momentum: float = 0.9
    is_private: bool = dataclasses.field(default=True, init=False)

    def __call__(self, shard: Shard, synthetic: SyntheticExamples, *, key: Key) -> Predict:
        """The trained model; all steps are in the party's ledger before the first."""
        mechanism = gaussian(self.noise_multiplier * math.sqrt(self.steps))
        grid = mechanism.step(self.clip)
        public = self.features(synthetic.inputs)
        middle = public.mean(axis=0)
        longest = float(np.sqrt(np.mean(np.square(public - middle).sum(axis=1)))) or 1.0

        def rows(inputs: np.ndarray) -> np.ndarray:
            values = (self.features(inputs) - middle) / np.float32(longest)
            return np.concatenate([values, np.full((len(values), 1), _BIAS)], axis=1, dtype=np.float32)

        with np.errstate(over="ignore", invalid="ignore"):  # no single example may make it fail
            x = _usable(rows(shard.inputs))
        truth = np.eye(shard.classes, dtype=np.float32)[shard.labels]
        whole, unit = _whole_multiples(x, math.sqrt(grid / self.clip))
        lengths = np.linalg.norm(whole, axis=1) * unit
        weights = np.zeros((x.shape[1], shard.classes), np.float32)
        velocity, average = np.zeros_like(weights), np.zeros_like(weights)
        event = marked(mechanism.planned_event, key)
        shard.record(Repeated(event, self.steps), key=key, note=f"{self.steps} gradients")
        for step in range(self.steps):
            residual = _softmax(x @ weights) - truth
            long = np.linalg.norm(residual.astype(np.float64), axis=1) * lengths
            scale = np.minimum(1.0, self.clip * _ROOM / np.maximum(long, 1e-30))
            parts = np.nan_to_num(np.trunc(residual * (scale * unit / grid)[:, None]))  # never longer than before
            gradients = (whole.T @ parts).astype(np.int64)
            total = BoundedSum(gradients, l2_bound=self.clip, n_expected=shard.expected, grid=grid)
            gradient = np.asarray(mechanism.release(total, key=key.derive("gradient", step)).value)
            velocity = self.momentum * velocity + gradient
            weights = weights - np.float32(self.learning_rate) * velocity
            average += weights * (step >= self.steps // 2)
        return lambda inputs: np.argmax(rows(inputs) @ average, axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OnSynthetic:
    """Any estimator, fitted to the party's own generated examples and their classes: post-processing."""

    estimator: Any
    is_private: bool = dataclasses.field(default=True, init=False)

    def __call__(self, shard: Shard, synthetic: SyntheticExamples, *, key: Key) -> Predict:
        """The fitted estimator; it does not use the shard."""
        del shard, key
        return _fitted(self.estimator, synthetic.inputs, synthetic.labels)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PrivateNetwork:
    """A network trained in rounds with examples as clients: `make` returns the algorithm for `privacy`."""

    make: Callable[[Privacy], Algorithm]
    privacy: Privacy
    field: str = "image"
    is_private: bool = dataclasses.field(default=True, init=False)

    def __call__(self, shard: Shard, synthetic: SyntheticExamples, *, key: Key) -> Predict:
        """The trained network."""
        del synthetic
        return predictor(train_privately(shard, self.make(self.privacy), self.privacy, key=key, field=self.field))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GivenModel:
    """A model trained elsewhere on the party's examples (a network, an ONNX file, a function).

    With the `event` of private training its votes are free; without one it counts as trained on raw data.
    """

    model: Any
    event: Event | None = None

    @property
    def is_private(self) -> bool:
        """Whether its training was private, at the cost of `event`."""
        return self.event is not None

    def __call__(self, shard: Shard, synthetic: SyntheticExamples, *, key: Key) -> Predict:
        """The model; its cost is in the party's ledger first."""
        del synthetic
        if self.event is not None:
            shard.record(self.event, key=key, note="a model that was trained elsewhere")
        return predictor(self.model)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OnRawData:
    """Any estimator, or function `(inputs, labels)` to a model, fitted to the party's raw examples: no protection."""

    estimator: Any
    is_private: bool = dataclasses.field(default=False, init=False)

    def __call__(self, shard: Shard, synthetic: SyntheticExamples, *, key: Key) -> Predict:
        """The fitted model."""
        del synthetic, key
        return _fitted(self.estimator, shard.inputs, shard.labels)


def _fitted(estimator: Any, inputs: np.ndarray, labels: np.ndarray) -> Predict:
    if hasattr(estimator, "fit"):
        return predictor(copy.deepcopy(estimator).fit(inputs.reshape(len(inputs), -1), labels))
    if not callable(estimator):
        raise InvalidInput(f"give an estimator or a function of inputs and labels, got {type(estimator).__name__}")
    return predictor(estimator(inputs, labels))


def _usable(rows: np.ndarray) -> np.ndarray:
    """The rows, with unusable ones set to zero: such an example adds nothing to any sum."""
    is_usable = np.abs(rows).max(axis=1, initial=0.0) < _LONGEST  # NaN never is
    return np.where(is_usable[:, None], rows, np.float32(0))


def _whole_multiples(rows: np.ndarray, precision: float) -> tuple[np.ndarray, np.ndarray]:
    """Each row in whole multiples of a unit of its own, about `precision` of its length: the numbers, and the units."""
    rows = rows.astype(np.float64)
    unit = 2.0 ** np.round(np.log2(np.maximum(np.linalg.norm(rows, axis=1), 1e-30) * precision))
    return np.rint(rows / unit[:, None]), unit


def _softmax(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)
