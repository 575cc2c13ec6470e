"""Generators fitted to moments: all classes and arms at once, from shared latents.

Each (arm, class) is a simple distribution given by its moments (`start`), deformed by one small shared network. So
samples exist before any training, and arms differ where their moments do: sample i has the same latent, and so the same
style, in every arm and class.
"""

import math
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from blindsight.codings.features import Features
from blindsight.codings.images_and_rows import Category
from blindsight.codings.vectors import Marginals, Spectrum
from blindsight.errors import InvalidInput
from blindsight.models.layers import Dense

__all__ = ["Generator", "ImageGenerator", "RowGenerator", "draw", "generator_for"]

_EDGE = 12.0  # sharpness of the soft clipping of pixels between black and white


class Generator(Protocol):
    """Generates examples of every arm and class from latents."""

    @property
    def latent(self) -> int:
        """Dimension of the latents."""
        ...

    @property
    def groups(self) -> tuple[int, int]:
        """Number of arms and classes."""
        ...

    def encoded(self, latents: jax.Array) -> jax.Array:
        """(n, latent) to (arms, classes, n, size): the expected encoding of the examples."""
        ...

    def examples(self, latents: np.ndarray, uniforms: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of shape (arms, classes, n, ...); `uniforms` (n, columns) supply the remaining randomness."""
        ...


class _Bend(eqx.Module):
    """The shared network: latents and (arm, class) to corrections that are initially zero."""

    first: Dense
    group: jax.Array  # (arms, classes, width)
    second: Dense
    last: jax.Array  # (width, outputs)

    def __init__(self, arms: int, classes: int, latent: int, width: int, outputs: int, *, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.first, self.second = Dense(latent, width, key=keys[0]), Dense(width, width, key=keys[1])
        self.group = jax.random.normal(keys[2], (arms, classes, width))
        self.last = jnp.zeros((width, outputs))

    def __call__(self, latents: jax.Array) -> jax.Array:
        hidden = jax.nn.silu(self.first(latents)[None, None] + self.group[:, :, None])
        return jax.nn.silu(self.second(hidden)) @ self.last


class ImageGenerator(eqx.Module):
    """Images with normally distributed low frequencies, deformed, and pixels clipped between black and white."""

    mean: jax.Array  # (arms, classes, size)
    factor: jax.Array  # (arms, classes, size, size): a square root of the covariance
    bend: _Bend
    spectrum: Spectrum

    @classmethod
    def start(cls, spectrum: Spectrum, mean: np.ndarray, covariance: np.ndarray, *, key: jax.Array) -> "ImageGenerator":
        """The generator with these means and positive semi-definite covariances of the encoding."""
        arms, classes, size = mean.shape
        values, vectors = np.linalg.eigh(covariance)
        factor = np.einsum("acik,ack,acjk->acij", vectors, np.sqrt(np.maximum(values, 0)), vectors)
        bend = _Bend(arms, classes, size, 256, size, key=key)
        return cls(jnp.asarray(mean, jnp.float32), jnp.asarray(factor, jnp.float32), bend, spectrum)

    @property
    def latent(self) -> int:
        """One number per frequency."""
        return self.mean.shape[-1]

    @property
    def groups(self) -> tuple[int, int]:
        """Arms and classes."""
        return self.mean.shape[0], self.mean.shape[1]

    def __call__(self, latents: jax.Array) -> jax.Array:
        """(n, latent) to images (arms, classes, n, *shape), from 0 to 1."""
        normal = self.mean[:, :, None] + jnp.einsum("nk,ackl->acnl", latents, self.factor)
        spectrum = jax.lax.stop_gradient(self.spectrum)  # fixed, as the features are
        x = spectrum.image(normal + self.bend(latents) / math.sqrt(self.latent))
        return (jax.nn.softplus(_EDGE * x) - jax.nn.softplus(_EDGE * (x - 1.0))) / _EDGE

    def encoded(self, latents: jax.Array) -> jax.Array:
        """The spectrum of the images."""
        return jax.lax.stop_gradient(self.spectrum).of(self(latents))

    def examples(self, latents: np.ndarray, uniforms: np.ndarray) -> dict[str, np.ndarray]:
        """The images as bytes."""
        del uniforms  # a latent determines the whole image
        images = np.asarray(_called(self, jnp.asarray(latents, jnp.float32)))
        return {self.spectrum.field: np.round(255 * np.clip(images, 0, 1)).astype(np.uint8)}


class RowGenerator(eqx.Module):
    """Mixed rows: each latent gives a distribution for each column, sampled independently."""

    logits: jax.Array  # (arms, classes, size)
    bend: _Bend
    marginals: Marginals

    @classmethod
    def start(cls, marginals: Marginals, mean: np.ndarray, *, key: jax.Array) -> "RowGenerator":
        """The generator with independent columns, with these means of the encoding as probabilities."""
        arms, classes, size = mean.shape
        parts: list[np.ndarray] = []
        for block in np.split(mean, np.cumsum(marginals.widths)[:-1], axis=-1):
            share = np.maximum(block, 0.0) + 1e-3 / math.sqrt(len(marginals.columns))
            parts.append(np.log(share / share.sum(axis=-1, keepdims=True)))
        bend = _Bend(arms, classes, 24, 128, size, key=key)
        return cls(jnp.asarray(np.concatenate(parts, axis=-1), jnp.float32), bend, marginals)

    @property
    def latent(self) -> int:
        """Inputs of the network."""
        return self.bend.first.weight.shape[0]

    @property
    def groups(self) -> tuple[int, int]:
        """Arms and classes."""
        return self.logits.shape[0], self.logits.shape[1]

    def __call__(self, latents: jax.Array) -> list[jax.Array]:
        """(n, latent) to the probabilities of every column's bins, (arms, classes, n, width) each."""
        logits = self.logits[:, :, None] + self.bend(latents)
        edges = np.cumsum(self.marginals.widths)[:-1].tolist()
        return [jax.nn.softmax(block, axis=-1) for block in jnp.split(logits, edges, axis=-1)]

    def encoded(self, latents: jax.Array) -> jax.Array:
        """Probabilities in place of the rows drawn from them: products of two columns have the same mean."""
        return jnp.concatenate(self(latents), axis=-1) / math.sqrt(len(self.marginals.columns))

    def examples(self, latents: np.ndarray, uniforms: np.ndarray) -> dict[str, np.ndarray]:
        """Codes of categories, and numbers uniform within their bin; missing ones are NaN."""
        if uniforms.shape[1] < 2 * len(self.marginals.columns):
            raise InvalidInput(f"rows need {2 * len(self.marginals.columns)} uniform numbers, got {uniforms.shape[1]}")
        columns: dict[str, np.ndarray] = {}
        shares = _called(self, jnp.asarray(latents, jnp.float32))
        for number, (column, share) in enumerate(zip(self.marginals.columns, shares, strict=True)):
            chosen, inside = uniforms[:, 2 * number], uniforms[:, 2 * number + 1]
            ladder = np.cumsum(np.asarray(share, np.float64), axis=-1)
            place = np.sum(ladder[..., :-1] < chosen[:, None] * ladder[..., -1:], axis=-1)
            if isinstance(column, Category):
                columns[column.field] = place.astype(np.int32)
                continue
            bins = self.marginals.bins
            if column.whole:  # uniform over the integers in the bin
                span = int(column.high - column.low) + 1
                first, beyond = -(-place * span // bins), -(-(place + 1) * span // bins)
                value = column.low + first + np.floor(inside * np.maximum(beyond - first, 1))
            else:
                value = column.low + (place + inside) / bins * (column.high - column.low)
            columns[column.field] = np.where(place == bins, np.nan, np.clip(value, column.low, column.high))
        return columns


def generator_for(
    features: Features, mean: np.ndarray, covariance: np.ndarray | None, *, key: jax.Array
) -> ImageGenerator | RowGenerator:
    """The generator for these features, initialised at these moments."""
    encoding = features.encoding
    if isinstance(encoding, Spectrum) and covariance is not None:
        return ImageGenerator.start(encoding, mean, covariance, key=key)
    if isinstance(encoding, Marginals):
        return RowGenerator.start(encoding, mean, key=key)
    raise InvalidInput("there is no generator for these features: use features.images or features.rows")


def draw(
    generator: Any, per_class: int, *, key: Any, spread: float = 1.0
) -> tuple[tuple[dict[str, np.ndarray], ...], np.ndarray]:
    """`per_class` examples of every class for each arm, from the same latents, and their labels; class by class.

    `key` is a `Key`; the examples are public whichever key is used. A `spread` below 1 draws more typical examples than
    the distribution has, which look cleaner and hide rare ones.
    """
    if per_class < 1:
        raise InvalidInput(f"draw at least one example per class, got {per_class}")
    random = np.random.default_rng(np.frombuffer(key.derive("examples").secret, np.uint32))
    arms, classes = generator.groups
    latents = (spread * random.normal(size=(per_class, generator.latent))).astype(np.float32)
    columns = len(generator.marginals.columns) if isinstance(generator, RowGenerator) else 0
    drawn = generator.examples(latents, random.random((per_class, 2 * columns)))
    flat = {field: values.reshape(arms, classes * per_class, *values.shape[3:]) for field, values in drawn.items()}
    labels = np.repeat(np.arange(classes, dtype=np.int32), per_class)
    return tuple({field: values[arm] for field, values in flat.items()} for arm in range(arms)), labels


@eqx.filter_jit
def _called(generator: Any, latents: jax.Array) -> Any:
    return generator(latents)
