"""Classifiers: logistic regression, a multi-layer perceptron, a small convolutional network; and their loss.

A model is a function of a batch: (batch, ...) to logits (batch, classes). Images may be bytes or numbers in [0, 1].
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

from blindsight.models.layers import Conv, Dense, softmax_cross_entropy

__all__ = [
    "CLASSIFIERS",
    "CNN",
    "IMAGES_ONLY",
    "MLP",
    "ClassifierSizes",
    "Logistic",
    "Loss",
    "accuracy",
    "cross_entropy",
]

Loss = Callable[[Any, Any, jax.Array], jax.Array]
"""(model, batch, key) to the mean loss over the batch's real examples."""


class Logistic(eqx.Module):
    """Logistic regression on the flattened input."""

    output: Dense

    def __init__(self, shape: Sequence[int], classes: int, *, key: jax.Array) -> None:
        self.output = Dense(math.prod(shape), classes, key=key)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.output(_flat(_numbers(x)))


class MLP(eqx.Module):
    """Dense layers with `activation` between them, on the flattened input."""

    layers: list[Dense]
    activation: Callable[[jax.Array], jax.Array] = eqx.field(static=True)

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        hidden: Sequence[int] = (128,),
        activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
        key: jax.Array,
    ) -> None:
        sizes = [math.prod(shape), *hidden, classes]
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = [Dense(a, b, key=k) for (a, b), k in zip(itertools.pairwise(sizes), keys, strict=True)]
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        x = _flat(_numbers(x))
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class CNN(eqx.Module):
    """Convolutions of stride 2, each halving the image, then one dense layer and the output.

    Noise grows with the number of weights, so it is small by default: 58,000 weights for 28 x 28 and 10 classes.
    """

    convolutions: list[Conv]
    dense: Dense
    output: Dense
    activation: Callable[[jax.Array], jax.Array] = eqx.field(static=True)

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        *,
        channels: Sequence[int] = (16, 32),
        kernel: int = 5,
        hidden: int = 32,
        activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
        key: jax.Array,
    ) -> None:
        height, width, *colours = shape
        sizes = [math.prod(colours), *channels]
        keys = jax.random.split(key, len(channels) + 2)
        self.convolutions = [
            Conv(a, b, kernel, stride=2, key=k) for (a, b), k in zip(itertools.pairwise(sizes), keys[2:], strict=True)
        ]
        for _ in channels:
            height, width = -(-height // 2), -(-width // 2)
        self.dense = Dense(height * width * channels[-1], hidden, key=keys[0])
        self.output = Dense(hidden, classes, key=keys[1])
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        x = _numbers(x)
        x = x[..., None] if x.ndim == 3 else x
        for convolution in self.convolutions:
            x = self.activation(convolution(x))
        return self.output(self.activation(self.dense(_flat(x))))


class ClassifierSizes(Protocol):
    """What a run's settings say of a classifier (`config.ModelSettings`); each kind reads what it needs."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Sizes of the dense layers."""
        ...

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of the convolutions."""
        ...

    @property
    def kernel(self) -> int:
        """Height and width of the convolutions' kernels."""
        ...

    @property
    def activation(self) -> Literal["relu", "tanh"]:
        """The function between layers."""
        ...


def _logistic(sizes: ClassifierSizes, shape: Sequence[int], classes: int, key: jax.Array) -> Logistic:
    del sizes
    return Logistic(shape, classes, key=key)


def _mlp(sizes: ClassifierSizes, shape: Sequence[int], classes: int, key: jax.Array) -> MLP:
    return MLP(shape, classes, hidden=sizes.hidden, activation=_ACTIVATIONS[sizes.activation], key=key)


def _cnn(sizes: ClassifierSizes, shape: Sequence[int], classes: int, key: jax.Array) -> CNN:
    return CNN(
        shape,
        classes,
        channels=sizes.channels,
        kernel=sizes.kernel,
        hidden=sizes.hidden[0],
        activation=_ACTIVATIONS[sizes.activation],
        key=key,
    )


_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {"relu": jax.nn.relu, "tanh": jnp.tanh}
CLASSIFIERS: dict[str, Callable[[ClassifierSizes, Sequence[int], int, jax.Array], Any]] = {
    "logistic": _logistic,
    "mlp": _mlp,
    "cnn": _cnn,
}
"""Every classifier by the `kind` that RUN.toml calls it: (sizes, shape of an example, classes, key) to the model."""

IMAGES_ONLY = frozenset({"cnn"})
"""Kinds that read one image, not rows of numbers."""


def cross_entropy(inputs: str | Sequence[str] = "image", label: str = "label") -> Loss:
    """The softmax cross-entropy of a classifier; several scalar `inputs` are concatenated."""

    def loss(model: Any, batch: Any, key: jax.Array) -> jax.Array:
        del key
        labels = batch[label].astype(jnp.int32)
        return batch.mean(softmax_cross_entropy(model(_gather(batch, inputs)), labels))

    return loss


def accuracy(inputs: str | Sequence[str] = "image", label: str = "label") -> Loss:
    """The fraction of examples classified correctly."""

    def share(model: Any, batch: Any, key: jax.Array) -> jax.Array:
        del key
        right = jnp.argmax(model(_gather(batch, inputs)), axis=-1).astype(jnp.int32) == batch[label].astype(jnp.int32)
        return batch.mean(right.astype(jnp.float32))

    return share


def _gather(batch: Any, inputs: str | Sequence[str]) -> jax.Array:
    if isinstance(inputs, str) or len(inputs) == 1:
        return batch[inputs if isinstance(inputs, str) else inputs[0]]
    return jnp.stack([_numbers(batch[field]) for field in inputs], axis=-1)


def _numbers(x: jax.Array) -> jax.Array:
    """Bytes scaled to [0, 1]; other numbers unchanged."""
    return x.astype(jnp.float32) * jnp.float32(1 / 255) if x.dtype == jnp.uint8 else x.astype(jnp.float32)


def _flat(x: jax.Array) -> jax.Array:
    return x.reshape(x.shape[0], -1)
