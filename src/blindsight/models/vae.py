"""A variational autoencoder, Kingma and Welling 2014 (arXiv:1312.6114), trained by DP-FedAvg like a classifier.

    algorithm = dp_fedavg(vae(coding_of(people), key=key), elbo(), privacy, ...)

Unlike a GAN, all of it is trained on clients with noise, including the decoder; moments need only one round. Use it as
a baseline, or on populations large enough to afford it.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from blindsight.codings.images_and_rows import Coding, Images
from blindsight.models.latents import LatentModel
from blindsight.models.layers import Conv, ConvTranspose, Dense

__all__ = ["VAE", "elbo", "vae"]

_SLOPE = 0.2  # negative slope of the leaky ReLU


class VAE(LatentModel, eqx.Module):
    """An encoder to the mean and log variance of latents, and a decoder; `classes` is 0 if they are unconditional."""

    encoder: Any  # (examples, labels) to (examples, 2 * latents)
    decoder: Any  # (latents, labels) to raw examples
    coding: Coding = eqx.field(static=True)
    latents: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    label: str = eqx.field(static=True, default="label")

    def decode(self, latents: jax.Array, labels: jax.Array) -> jax.Array:
        """The decoder's examples, in the ranges of their fields."""
        return self.coding.activate(self.decoder(latents, labels))


def elbo(beta: float = 1.0) -> Callable[[VAE, Any, jax.Array], jax.Array]:
    """The loss: minus the evidence lower bound, with the divergence from the prior weighted by `beta`."""

    def loss(model: VAE, batch: Any, key: jax.Array) -> jax.Array:
        x = model.coding.encode(batch)
        labels = model.labels(batch)
        mean, log_variance = jnp.split(model.encoder(x, labels), 2, axis=1)
        latents = mean + jnp.exp(log_variance / 2) * jax.random.normal(key, mean.shape).astype(mean.dtype)
        divergence = jnp.sum(jnp.square(mean) + jnp.exp(log_variance) - log_variance - 1, axis=1) / 2
        return batch.mean(model.coding.misfit(model.decoder(latents, labels), x) + beta * divergence)

    return loss


def vae(
    coding: Coding,
    *,
    classes: int = 0,
    label: str = "label",
    latents: int = 16,
    channels: Sequence[int] = (16, 32),
    hidden: Sequence[int] = (64,),
    key: jax.Array,
) -> VAE:
    """A small autoencoder: convolutions for images, dense layers for rows.

    Args:
        coding: Encoding of the examples.
        classes: Number of classes to condition on; 0 for none.
        label: Field holding the class.
        latents: Dimension of the latents.
        channels: Channels of the convolutions, for images.
        hidden: Hidden layers, for rows.
        key: Key of the initial weights.
    """
    first, second = jax.random.split(key)
    if isinstance(coding, Images):
        encoder: Any = _ImageEncoder(coding, classes, latents, channels, key=first)
        decoder: Any = _ImageDecoder(coding, classes, latents, channels, key=second)
    else:
        encoder = _DenseLayers([*coding.shape, *hidden, 2 * latents], classes, key=first)
        decoder = _DenseLayers([latents, *reversed(hidden), *coding.shape], classes, key=second)
    return VAE(encoder, decoder, coding, latents, classes, label)


class _DenseLayers(eqx.Module):
    """Dense layers conditioned on the class."""

    dense: list[Dense]
    classes: int = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], classes: int, *, key: jax.Array) -> None:
        keys = jax.random.split(key, len(sizes) - 1)
        wider = [sizes[0] + classes, *sizes[1:]]
        self.dense = [Dense(a, b, key=k) for (a, b), k in zip(itertools.pairwise(wider), keys, strict=True)]
        self.classes = classes

    def __call__(self, x: jax.Array, labels: jax.Array) -> jax.Array:
        x = jnp.concatenate([x, jax.nn.one_hot(labels, self.classes, dtype=x.dtype)], axis=1) if self.classes else x
        for layer in self.dense[:-1]:
            x = jax.nn.leaky_relu(layer(x), _SLOPE)
        return self.dense[-1](x)


class _ImageEncoder(eqx.Module):
    convolutions: list[Conv]
    output: _DenseLayers

    def __init__(self, coding: Images, classes: int, latents: int, channels: Sequence[int], *, key: jax.Array) -> None:
        keys = jax.random.split(key, len(channels) + 1)
        sizes = [coding.channels, *channels]
        self.convolutions = [
            Conv(a, b, 4, stride=2, key=k) for (a, b), k in zip(itertools.pairwise(sizes), keys[1:], strict=True)
        ]
        self.output = _DenseLayers([math.prod(_coarse(coding, channels)), 2 * latents], classes, key=keys[0])

    def __call__(self, x: jax.Array, labels: jax.Array) -> jax.Array:
        for convolution in self.convolutions:
            x = jax.nn.leaky_relu(convolution(x), _SLOPE)
        return self.output(x.reshape(x.shape[0], -1), labels)


class _ImageDecoder(eqx.Module):
    """The encoder in reverse; excess pixels at the edge are cropped."""

    dense: _DenseLayers
    grow: list[ConvTranspose]
    coding: Images = eqx.field(static=True)
    coarse: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, coding: Images, classes: int, latents: int, channels: Sequence[int], *, key: jax.Array) -> None:
        keys = jax.random.split(key, len(channels) + 1)
        self.coding, self.coarse = coding, _coarse(coding, channels)
        self.dense = _DenseLayers([latents, math.prod(self.coarse)], classes, key=keys[0])
        sizes = itertools.pairwise([*reversed(channels), coding.channels])
        self.grow = [ConvTranspose(a, b, 4, key=k) for (a, b), k in zip(sizes, keys[1:], strict=True)]

    def __call__(self, latents: jax.Array, labels: jax.Array) -> jax.Array:
        x = self.dense(latents, labels).reshape(-1, *self.coarse)
        for layer in self.grow:
            x = layer(jax.nn.leaky_relu(x, _SLOPE))
        return x[:, : self.coding.height, : self.coding.width]


def _coarse(coding: Images, channels: Sequence[int]) -> tuple[int, int, int]:
    """The shape of an image after all halvings."""
    halved = 2 ** len(channels)
    return -(-coding.height // halved), -(-coding.width // halved), channels[-1]
