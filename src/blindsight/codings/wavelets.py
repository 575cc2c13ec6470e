"""Encodes images by their strokes and edges: their strength in every direction, at two scales, block by block.

The first layer of a scattering transform (Bruna and Mallat 2013, arXiv:1203.1513): convolve the image with small waves
in a few directions, take the modulus of the responses, and average it over blocks of the image. Unlike pixels and
frequencies, these are stable under small shifts. Private classifiers on such fixed features beat private networks
(Tramer and Boneh 2021, arXiv:2011.11660). Nothing here is learnt from clients: the waves are fixed, and the directions
come from images that are public or already released.
"""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from blindsight.codings.vectors import ImageVectors, channels_of
from blindsight.errors import InvalidInput
from blindsight.kernels.patches import convolve

__all__ = ["OnStrokes", "Wavelets", "check_strokes"]

_KERNEL, _SCALES, _DIRECTIONS = 9, 2, 8
_STRIDE, _POOL = 2, 2  # responses at every other pixel, averaged two by two: blocks of four by four pixels
_BRIGHTNESS = 0.3  # weight of a block's mean relative to its responses


def check_strokes(shape: Sequence[int], size: int, images: int) -> None:
    """Refuse images of unsuitable shape, or too few of them for this many directions."""
    if len(shape) not in (2, 3) or min(shape[:2]) < _KERNEL or any(side % (_STRIDE * _POOL) for side in shape[:2]):
        raise InvalidInput(f"strokes need images with sides of 12, 16, 20, ... pixels, got {tuple(shape)}")
    if not 1 <= size < images:
        raise InvalidInput(f"{size} directions need more images than that, got {images}")


class Wavelets(ImageVectors):
    """Strengths of strokes projected on the directions in which some images vary most, partly whitened."""

    filters: jax.Array  # (kernel * kernel, responses * 2): the waves' real and imaginary parts, alternating
    centre: jax.Array  # (strengths,)
    directions: jax.Array  # (strengths, size)
    shape: tuple[int, ...] = eqx.field(static=True)
    field: str = eqx.field(static=True)

    @classmethod
    def of_images(cls, images: np.ndarray, size: int, *, field: str = "image") -> "Wavelets":
        """The encoding with the main directions of images (n, *shape) that are public or already released."""
        shape = images.shape[1:]
        check_strokes(shape, size, len(images))
        filters = jnp.asarray(_waves(), jnp.float32)
        measured = [
            np.asarray(_strengths(filters, jnp.asarray(part)))
            for part in np.array_split(images, len(images) // 500 + 1)
        ]
        strengths = np.concatenate(measured).astype(np.float64)
        centre = strengths.mean(axis=0)
        spread, directions = np.linalg.eigh(np.cov(strengths, rowvar=False))
        kept = slice(-1, -size - 1, -1)
        directions = directions[:, kept] / np.maximum(spread[kept], 1e-9 * spread[-1]) ** 0.25
        typical = np.median(np.linalg.norm((strengths - centre) @ directions, axis=1))
        as_array = lambda values: jnp.asarray(values, jnp.float32)  # noqa: E731
        return cls(filters, as_array(centre), as_array(directions / typical), tuple(shape), field)

    @property
    def size(self) -> int:
        """Number of directions."""
        return self.directions.shape[1]

    @property
    def settings(self) -> dict[str, Any]:
        """Shape and size."""
        return {"kind": "strokes", "shape": list(self.shape), "size": self.size}

    def __call__(self, batch: Any) -> jax.Array:
        return self.of(batch[self.field])

    @eqx.filter_jit
    def of(self, image: jax.Array) -> jax.Array:
        """(n, *shape), bytes or numbers from 0 to 1, to (n, size)."""
        return self.shortened((_strengths(self.filters, image) - self.centre[None]) @ self.directions)


class OnStrokes(eqx.Module):
    """A classifier on the strokes of an image alone: `network` on (n, size) numbers of typical size 1.

    The strokes are fixed; only the network is trained.
    """

    strokes: Wavelets
    network: Any

    def __call__(self, x: jax.Array) -> jax.Array:
        """(n, *shape) to logits."""
        return self.network(math.sqrt(self.strokes.size) * jax.lax.stop_gradient(self.strokes).of(x))


@jax.jit
def _strengths(filters: jax.Array, image: jax.Array) -> jax.Array:
    """(n, *shape) to (n, blocks * (responses + 1) * channels)."""
    height, width = image.shape[1:3]
    scale = jnp.float32(1 / 255 if image.dtype == jnp.uint8 else 1.0)
    x = image.astype(jnp.float32).reshape(-1, height, width, channels_of(image.shape[1:])) * scale
    planes = jnp.moveaxis(x, -1, 1).reshape(-1, height, width, 1)  # every channel separately
    responses = convolve(planes, filters, _KERNEL, _STRIDE, "SAME")
    strength = jnp.sqrt(jnp.sum(jnp.square(responses.reshape(*responses.shape[:3], -1, 2)), axis=-1) + 1e-8)
    parts = [_averaged(strength, _POOL), _BRIGHTNESS * _averaged(planes, _STRIDE * _POOL)]
    return jnp.concatenate(parts, axis=-1).reshape(len(image), -1)


def _averaged(x: jax.Array, side: int) -> jax.Array:
    n, height, width, channels = x.shape
    return jnp.mean(x.reshape(n, height // side, side, width // side, side, channels), axis=(2, 4))


def _waves() -> np.ndarray:
    """Morlet waves: complex, of mean zero, twice as wide across as along their direction, of modulus sum 1."""
    half = _KERNEL // 2
    down, across = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float64)
    columns: list[np.ndarray] = []
    for scale in range(_SCALES):
        width, pitch = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale
        for direction in range(_DIRECTIONS):
            angle = math.pi * direction / _DIRECTIONS
            along = across * math.cos(angle) + down * math.sin(angle)
            beside = down * math.cos(angle) - across * math.sin(angle)
            bell = np.exp(-(along**2 + beside**2 / 4) / (2 * width**2))
            wave = bell * np.exp(1j * pitch * along)
            wave = wave - bell * wave.sum() / bell.sum()
            wave = wave / np.abs(wave).sum()
            columns += [wave.real.ravel(), wave.imag.ravel()]
    return np.stack(columns, axis=1)
