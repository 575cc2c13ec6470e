"""Encodings of examples as vectors of typical norm 1, from which `features` are computed.

Ranges and frequencies are public and fixed in advance; nothing is learnt from clients.
"""

import abc
import math
from collections.abc import Sequence
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from blindsight.codings.images_and_rows import Category, Number

__all__ = ["STEP", "Encoding", "ImageVectors", "Marginals", "Spectrum", "channels_of"]

STEP = 2.0**-11
"""Clients round encoded images to multiples of this: a two-hundredth of a typical coefficient."""

_LONGEST = 4096  # bound on one coefficient's deviation from mid-grey, in steps


class Encoding(Protocol):
    """Encodes examples as vectors of typical norm 1."""

    @property
    def size(self) -> int:
        """Dimension of the vectors."""
        ...

    @property
    def radius(self) -> float:
        """Bound on the norm of the vectors."""
        ...

    @property
    def pairs(self) -> np.ndarray | None:
        """Which products of two coordinates are informative, shape (size, size) and symmetric; None if none is."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the encoding, for the record."""
        ...

    def __call__(self, batch: Any) -> jax.Array:
        """(examples, size) from the fields of a batch."""
        ...


class ImageVectors(eqx.Module):
    """The common part of encodings of images: longer vectors are scaled down, and all products are informative."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Dimension of the vectors."""

    @property
    def radius(self) -> float:
        """Longer vectors are scaled down to this norm; 1 is typical."""
        return 1.2

    @property
    def pairs(self) -> np.ndarray:
        """All of them."""
        return np.ones((self.size, self.size), bool)

    def shortened(self, c: jax.Array) -> jax.Array:
        """(n, size) with longer vectors scaled down to the radius."""
        length = jnp.sqrt(jnp.sum(jnp.square(c), axis=1, keepdims=True) + 1e-12)
        return c * jnp.minimum(1.0, self.radius / length)


class Spectrum(ImageVectors):
    """An image's lowest frequencies (cosine transform) around mid-grey, each over its public spread."""

    basis: jax.Array  # (frequencies, pixels): the basis images
    centre: jax.Array  # (size,): one number per channel and frequency
    spread: jax.Array
    shape: tuple[int, ...] = eqx.field(static=True)
    field: str = eqx.field(static=True)
    origin: str = eqx.field(static=True)

    @property
    def size(self) -> int:
        """Frequencies times channels."""
        return self.centre.shape[0]

    @property
    def settings(self) -> dict[str, Any]:
        """Shape, frequencies, and the origin of their spread."""
        return {"kind": "images", "shape": list(self.shape), "frequencies": len(self.basis), "spread": self.origin}

    def __call__(self, batch: Any) -> jax.Array:
        """`of` in multiples of `STEP`, bit for bit independent of the rest of the batch.

        Pixels relative to mid-grey and basis images are integers, products sum to less than 2^24, and norms are also
        computed in integers: nothing depends on the order of additions.
        """
        image, pixels = batch[self.field], self.basis.shape[1]
        levels = image if image.dtype == jnp.uint8 else jnp.round(jnp.clip(jnp.nan_to_num(image), 0, 1) * 255)
        around = (2 * levels.astype(jnp.float32) - 255).reshape(-1, pixels, channels_of(self.shape))
        fine = 2.0 ** max(math.floor(math.log2(max(2**24 / 255 - pixels / 2, 1) / math.sqrt(pixels))), 0)
        coefficients = jnp.einsum("npc,fp->ncf", around, jnp.round(self.basis * jnp.float32(fine)))
        c = coefficients.reshape(-1, self.size) * (1 / (self.spread * jnp.float32(510 * fine * STEP)))[None]
        whole = jnp.clip(jnp.round(c), -_LONGEST, _LONGEST).astype(jnp.int32)
        # The sum of all squares fits 32 bits once the lowest bits of each are dropped.
        drop = max(0, math.ceil(math.log2(self.size * _LONGEST**2)) - 30)
        squares = 2.0**drop * jnp.sum(jnp.square(whole) >> drop, axis=1, keepdims=True).astype(jnp.float32)
        length = jnp.sqrt(squares + (2.0**drop - 1) * self.size)  # never below the true norm
        factor = jnp.minimum(1.0, jnp.float32(self.radius / STEP) / length)
        return jnp.trunc(whole.astype(jnp.float32) * factor) * jnp.float32(STEP)

    def of(self, image: jax.Array) -> jax.Array:
        """(..., *shape), bytes or numbers from 0 to 1, to (..., size); smooth, for training."""
        scale = 1 / 255 if image.dtype == jnp.uint8 else 1.0
        before = image.shape[: image.ndim - len(self.shape)]
        pixels = image.astype(jnp.float32).reshape(-1, self.basis.shape[1], channels_of(self.shape))
        pixels = pixels * jnp.float32(scale)
        coefficients = jnp.einsum("npc,fp->ncf", pixels, self.basis).reshape(-1, self.size)
        c = self.shortened((coefficients - self.centre[None]) / self.spread[None])
        return c.reshape(*before, self.size)

    def image(self, c: jax.Array) -> jax.Array:
        """(..., size) to the images (..., *shape) with these frequencies and no others; values are not clipped."""
        before = c.shape[:-1]
        coefficients = (c.reshape(-1, self.size) * self.spread[None] + self.centre[None]).reshape(
            -1, channels_of(self.shape), len(self.basis)
        )
        return jnp.einsum("ncf,fp->npc", coefficients, self.basis).reshape(*before, *self.shape)


class Marginals(eqx.Module):
    """A row in one-hot form: a coordinate for every category and bin of a number, and one for a missing number."""

    columns: tuple[Number | Category, ...] = eqx.field(static=True)
    bins: int = eqx.field(static=True)

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of coordinates of each column."""
        return tuple(c.count if isinstance(c, Category) else self.bins + c.can_miss for c in self.columns)

    @property
    def size(self) -> int:
        """Number of coordinates of all columns."""
        return sum(self.widths)

    @property
    def radius(self) -> float:
        """Every row has one coordinate set per column."""
        return 1.0 + 1e-6

    @property
    def pairs(self) -> np.ndarray | None:
        """Products of different columns; those within a column add no information."""
        owner = np.repeat(np.arange(len(self.columns)), self.widths)
        return owner[:, None] != owner[None] if len(self.columns) > 1 else None

    @property
    def settings(self) -> dict[str, Any]:
        """The columns and the number of bins."""
        return {"kind": "rows", "columns": [column.field for column in self.columns], "bins": self.bins}

    def __call__(self, batch: Any) -> jax.Array:
        places = [self._place(column, batch[column.field]) for column in self.columns]
        hot = [jax.nn.one_hot(place, width) for place, width in zip(places, self.widths, strict=True)]
        return jnp.concatenate(hot, axis=1) / math.sqrt(len(self.columns))

    def _place(self, column: Number | Category, values: jax.Array) -> jax.Array:
        if isinstance(column, Category):
            return values.astype(jnp.int32)
        numbers = values.astype(jnp.float32)
        inside = jnp.clip(jnp.nan_to_num(numbers), column.low, column.high)
        if column.whole:  # in integers: rounding in a division could put a value into the bin below
            span = int(column.high - column.low) + 1
            place = (jnp.round(inside) - column.low).astype(jnp.int32) * self.bins // span
        else:
            place = jnp.floor((inside - column.low) / (column.high - column.low) * self.bins).astype(jnp.int32)
        missing = self.bins if column.can_miss else self.bins // 2
        return jnp.where(jnp.isnan(numbers), missing, jnp.minimum(place, self.bins - 1))


def channels_of(shape: Sequence[int]) -> int:
    """Number of channels of an image."""
    return shape[2] if len(shape) == 3 else 1
