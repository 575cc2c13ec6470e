"""Generative adversarial networks: a critic that tells real examples from generated ones, and a generator.

There are two pairs (a third is in `selu_gan`). `paper_gan` is that of Augenstein et al. 2020 (arXiv:1911.06679,
Appendix C.2), who cite a tutorial for MNIST and give three numbers: 128 latents, a gradient penalty of 10, and rates of
plain SGD. The rest follows the code of their experiments: ReLU in the generator, leaky ReLU of slope 0.01 in the
critic, batch norms without a scale, Glorot weights; its weight decay of 2.5e-5 is left out. Batch norms always use the
current batch: running averages would have to leave the clients too. The critic has 6,556,865 parameters and the
generator 13,285,217.

`compact_gan` is for training with privacy: noise grows with the square root of the critic's size, so the critic is
small, and no part of it reads more than one example. The generator's size costs nothing, as it never sees clients'
data. Both can be conditioned on the class. Examples are images or rows of mixed columns (`coding`).
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from blindsight.codings.images_and_rows import Coding, Images
from blindsight.errors import InvalidInput
from blindsight.models.latents import LatentModel
from blindsight.models.layers import Conv, ConvTranspose, Dense, LayerNorm

__all__ = [
    "GAN",
    "CompactImageGenerator",
    "compact_gan",
    "critic_loss",
    "fake_loss",
    "generator_loss",
    "paper_gan",
    "real_loss",
]

_SLOPE = 0.01  # negative slope of the leaky ReLU in the paper's critic
_STEEPER = 0.2


class GAN(LatentModel, eqx.Module):
    """A generator and its critic; `classes` is 0 if both are unconditional."""

    generator: Any  # (latents, labels) to encoded examples
    critic: Any  # (examples, labels, weights) to one score per example; only batch norms use the weights
    coding: Coding = eqx.field(static=True)
    latents: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    label: str = eqx.field(static=True, default="label")

    def decode(self, latents: jax.Array, labels: jax.Array) -> jax.Array:
        """The generator's examples."""
        return self.generator(latents, labels)


def critic_loss(gan: GAN, critic: Any, batch: Any, key: jax.Array, penalty: float = 10.0) -> jax.Array:
    """The improved Wasserstein loss of `critic` (Gulrajani et al. 2017, arXiv:1704.00028) on a client's batch.

    Every real example is paired with a generated one of the same class; between them, the critic's slope should be 1.
    """
    latent_key, between_key = jax.random.split(key)
    real, labels, weight = gan.coding.encode(batch), gan.labels(batch), batch.weight
    latents = jax.random.normal(latent_key, (real.shape[0], gan.latents))
    fake = jax.lax.stop_gradient(gan.generator(latents, labels))
    too_steep = _steepness(critic, real, fake, labels, weight, between_key)
    # stacked, so that the weights are read once for both; each is a separate batch for batch norms
    scores = jax.vmap(lambda x: critic(x, labels, weight))(jnp.stack([fake, real]))
    return batch.mean(scores[0] - scores[1] + penalty * too_steep)


def real_loss(gan: GAN, critic: Any, batch: Any, key: jax.Array, penalty: float = 0.0) -> jax.Array:
    """The part of the critic's loss that depends on real examples: minus their scores and WGAN-GP's gradient penalty.

    The penalty is taken between a real example and a generated one, so it belongs here. Without it (WGAN, Arjovsky et
    al. 2017, arXiv:1701.07875) this part does not depend on generated examples.
    """
    real, labels, weight = gan.coding.encode(batch), gan.labels(batch), batch.weight
    loss = -critic(real, labels, weight)
    if penalty:
        latent_key, between_key = jax.random.split(key)
        latents = jax.random.normal(latent_key, (real.shape[0], gan.latents))
        fake = jax.lax.stop_gradient(gan.generator(latents, labels))
        loss = loss + penalty * _steepness(critic, real, fake, labels, weight, between_key)
    return batch.mean(loss)


def fake_loss(gan: GAN, critic: Any, key: jax.Array, count: int) -> jax.Array:
    """The other part: the mean score of `count` generated examples of random classes. It uses no client data."""
    fake, labels = _generated(gan, gan.generator, key, count)
    return jnp.mean(critic(jax.lax.stop_gradient(fake), labels, jnp.ones(count)))


def _steepness(
    critic: Any, real: jax.Array, fake: jax.Array, labels: jax.Array, weight: jax.Array, key: jax.Array
) -> jax.Array:
    """(slope - 1)^2 of the critic at a random point between each real example and a generated one."""
    share = jax.random.uniform(key, (real.shape[0],) + (1,) * (real.ndim - 1))
    between = real + jnp.broadcast_to(share, real.shape) * (fake - real)
    slopes = jax.grad(lambda x: jnp.sum(critic(x, labels, weight) * weight))(between)
    lengths = jnp.sqrt(jnp.sum(jnp.square(slopes), axis=tuple(range(1, real.ndim))) + 1e-10)
    return jnp.square(lengths - 1)


def generator_loss(gan: GAN, generator: Any, key: jax.Array, count: int) -> jax.Array:
    """Minus the mean score of `count` generated examples of random classes. It uses no client data."""
    fake, labels = _generated(gan, generator, key, count)
    return -jnp.mean(gan.critic(fake, labels, jnp.ones(count)))


def _generated(gan: GAN, generator: Any, key: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    latent_key, label_key = jax.random.split(key)
    labels = jax.random.randint(label_key, (count,), 0, max(gan.classes, 1))
    return generator(jax.random.normal(latent_key, (count, gan.latents)), labels), labels


def paper_gan(coding: Images | None = None, *, latents: int = 128, key: jax.Array) -> GAN:
    """The paper's pair, for images with sides that are multiples of 4; unconditional."""
    coding = coding or Images(28, 28)
    if coding.height % 4 or coding.width % 4:
        raise InvalidInput(
            f"the paper's networks need images with sides that are multiples of 4, not {coding.height} x "
            f"{coding.width}: use compact_gan"
        )
    generator_key, critic_key = jax.random.split(key)
    critic = _PaperCritic(coding, key=critic_key)
    return GAN(_PaperGenerator(coding, latents, key=generator_key), critic, coding, latents, 0)


def compact_gan(
    coding: Coding,
    *,
    classes: int = 0,
    label: str = "label",
    latents: int = 64,
    channels: Sequence[int] = (16, 32, 64),
    hidden: Sequence[int] = (128, 64),
    width: int = 64,
    key: jax.Array,
) -> GAN:
    """A critic of few parameters, convolutions for images or dense layers for rows, and a generator.

    Args:
        coding: Encoding of the examples.
        classes: Number of classes to condition on; 0 for none.
        label: Field holding the class.
        latents: Dimension of the latents.
        channels: Channels of the critic's convolutions, for images.
        hidden: Hidden layers of the critic, for rows.
        width: Channels of the generator at its coarsest scale, or a quarter of its hidden units.
        key: Key of the initial weights.
    """
    if not width >= 16 or width % 4:
        raise InvalidInput(f"the generator's width must be a multiple of 4, at least 16, got {width}")
    generator_key, critic_key = jax.random.split(key)
    if isinstance(coding, Images):
        critic: Any = _CompactImageCritic(coding, classes, channels, key=critic_key)
        generator: Any = CompactImageGenerator(coding, classes, latents, width, key=generator_key)
    else:
        critic = _CompactRowCritic(coding, classes, hidden, key=critic_key)
        generator = _CompactRowGenerator(coding, classes, latents, 4 * width, key=generator_key)
    return GAN(generator, critic, coding, latents, classes, label)


class _PaperGenerator(eqx.Module):
    dense: list[Dense]
    grow: list[ConvTranspose]
    output: Conv
    shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, coding: Images, latents: int, *, key: jax.Array) -> None:
        keys = jax.random.split(key, 5)
        self.shape = coding.height // 4, coding.width // 4, 256
        self.dense = [Dense(latents, 1024, key=keys[0]), Dense(1024, math.prod(self.shape), key=keys[1])]
        self.grow = [ConvTranspose(256, 64, 4, key=keys[2]), ConvTranspose(64, 32, 4, key=keys[3])]
        self.output = Conv(32, coding.channels, 4, key=keys[4])

    def __call__(self, latents: jax.Array, labels: jax.Array) -> jax.Array:
        x, weight = latents, jnp.ones(len(labels))
        for layer in self.dense:
            x = jax.nn.relu(_batch_normed(layer, x, weight))
        x = x.reshape(-1, *self.shape)
        for layer in self.grow:
            x = jax.nn.relu(_batch_normed(layer, x, weight))
        return jnp.tanh(self.output(x))


class _PaperCritic(eqx.Module):
    convolutions: list[Conv]
    dense: Dense
    output: Dense

    def __init__(self, coding: Images, *, key: jax.Array) -> None:
        keys = jax.random.split(key, 4)
        self.convolutions = [
            Conv(coding.channels, 64, 4, stride=2, key=keys[0]),
            Conv(64, 128, 4, stride=2, key=keys[1]),
        ]
        self.dense = Dense(coding.height // 4 * (coding.width // 4) * 128, 1024, key=keys[2])
        self.output = Dense(1024, 1, key=keys[3])

    def __call__(self, x: jax.Array, labels: jax.Array, weight: jax.Array) -> jax.Array:
        for convolution in self.convolutions:
            x = jax.nn.leaky_relu(convolution(x), _SLOPE)
        x = _batch_normed(self.dense, x.reshape(x.shape[0], -1), weight)
        return self.output(jax.nn.leaky_relu(x, _SLOPE))[:, 0]


class CompactImageGenerator(eqx.Module):
    """Latents and class to a coarse image of many channels, upsampled twice by 2 and cropped to size."""

    dense: list[Dense]
    norms: list[LayerNorm]
    grow: list[ConvTranspose]
    output: Conv
    coding: Images = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    coarse: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, coding: Images, classes: int, latents: int, width: int, *, key: jax.Array) -> None:
        keys = jax.random.split(key, 5)
        half, quarter = width // 2, width // 4
        self.coarse = -(-coding.height // 4), -(-coding.width // 4), width
        self.dense = [
            Dense(latents + classes, 4 * width, key=keys[0]),
            Dense(4 * width, math.prod(self.coarse), key=keys[1]),
        ]
        self.grow = [ConvTranspose(width, half, 4, key=keys[2]), ConvTranspose(half, quarter, 4, key=keys[3])]
        self.norms = [LayerNorm(4 * width), LayerNorm(width), LayerNorm(half), LayerNorm(quarter)]
        self.output = Conv(quarter, coding.channels, 5, key=keys[4])
        self.coding, self.classes = coding, classes

    def __call__(self, latents: jax.Array, labels: jax.Array) -> jax.Array:
        x = jax.nn.relu(self.norms[0](self.dense[0](with_class(latents, labels, self.classes))))
        x = jax.nn.relu(self.norms[1](self.dense[1](x).reshape(-1, *self.coarse)))
        for layer, norm in zip(self.grow, self.norms[2:], strict=True):
            x = jax.nn.relu(norm(layer(x)))
        return self.coding.activate(self.output(x)[:, : self.coding.height, : self.coding.width])


class _CompactImageCritic(eqx.Module):
    """Convolutions that halve the image, then a linear score, with one shared term and one per class."""

    convolutions: list[Conv]
    output: Dense
    by_class: jax.Array  # (classes, features)

    def __init__(self, coding: Images, classes: int, channels: Sequence[int], *, key: jax.Array) -> None:
        keys = jax.random.split(key, len(channels) + 1)
        sizes = [coding.channels, *channels]
        self.convolutions = [
            Conv(a, b, 4, stride=2, key=k) for (a, b), k in zip(itertools.pairwise(sizes), keys[1:], strict=True)
        ]
        height, width = coding.height, coding.width
        for _ in channels:
            height, width = -(-height // 2), -(-width // 2)
        self.output = Dense(height * width * channels[-1], 1, key=keys[0])
        self.by_class = jnp.zeros((classes, height * width * channels[-1]))

    def __call__(self, x: jax.Array, labels: jax.Array, weight: jax.Array) -> jax.Array:
        for convolution in self.convolutions:
            x = jax.nn.leaky_relu(convolution(x), _STEEPER)
        return class_score(self, x.reshape(x.shape[0], -1), labels)


class _CompactRowGenerator(eqx.Module):
    dense: list[Dense]
    norms: list[LayerNorm]
    coding: Coding = eqx.field(static=True)
    classes: int = eqx.field(static=True)

    def __init__(self, coding: Coding, classes: int, latents: int, hidden: int, *, key: jax.Array) -> None:
        sizes = [latents + classes, hidden, hidden, *coding.shape]
        keys = jax.random.split(key, len(sizes) - 1)
        self.dense = [Dense(a, b, key=k) for (a, b), k in zip(itertools.pairwise(sizes), keys, strict=True)]
        self.norms = [LayerNorm(hidden), LayerNorm(hidden)]
        self.coding, self.classes = coding, classes

    def __call__(self, latents: jax.Array, labels: jax.Array) -> jax.Array:
        x = with_class(latents, labels, self.classes)
        for layer, norm in zip(self.dense, self.norms, strict=False):
            x = jax.nn.relu(norm(layer(x)))
        return self.coding.activate(self.dense[-1](x))


class _CompactRowCritic(eqx.Module):
    dense: list[Dense]
    output: Dense
    by_class: jax.Array  # (classes, features)

    def __init__(self, coding: Coding, classes: int, hidden: Sequence[int], *, key: jax.Array) -> None:
        sizes = [*coding.shape, *hidden]
        keys = jax.random.split(key, len(sizes))
        self.dense = [Dense(a, b, key=k) for (a, b), k in zip(itertools.pairwise(sizes), keys[1:], strict=True)]
        self.output = Dense(hidden[-1], 1, key=keys[0])
        self.by_class = jnp.zeros((classes, hidden[-1]))

    def __call__(self, x: jax.Array, labels: jax.Array, weight: jax.Array) -> jax.Array:
        for layer in self.dense:
            x = jax.nn.leaky_relu(layer(x), _STEEPER)
        return class_score(self, x, labels)


def class_score(critic: Any, features: jax.Array, labels: jax.Array) -> jax.Array:
    """The score of each example's features; the class adds a term (projection discriminator)."""
    score = critic.output(features)[:, 0]
    classes = critic.by_class.shape[0]
    if not classes:
        return score
    by_class = features @ critic.by_class.T  # compute all classes, then select: gathering rows is slow to differentiate
    return score + jnp.sum(by_class * jax.nn.one_hot(labels, classes), axis=1)


def with_class(latents: jax.Array, labels: jax.Array, classes: int) -> jax.Array:
    """The latents, with the class one-hot if there are classes."""
    return jnp.concatenate([latents, jax.nn.one_hot(labels, classes)], axis=1) if classes else latents


def _batch_normed(layer: Any, x: jax.Array, weight: jax.Array) -> jax.Array:
    """The layer normalised to mean 0 and variance 1 over the batch's real examples, then its bias.

    An example of weight 0 is padding and does not affect the statistics.
    """
    x = layer(x)
    axes = tuple(range(x.ndim - 1))
    share = (weight / jnp.maximum(jnp.sum(weight), 1.0)).reshape(-1, *(1,) * (x.ndim - 1))
    share = jnp.broadcast_to(share / math.prod(x.shape[1:-1]), x.shape)
    mean = jnp.broadcast_to(jnp.sum(x * share, axis=axes), x.shape)
    variance = jnp.broadcast_to(jnp.sum(jnp.square(x - mean) * share, axis=axes), x.shape)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-3) + jnp.broadcast_to(layer.bias, x.shape)
