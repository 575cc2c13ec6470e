"""Examples as vectors of typical length 1, from which `features` are computed.

Ranges and frequencies are public and fixed in advance; nothing is learnt from clients.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from blindsight.codings.images_and_rows import Category, Number

__all__ = ["STEP", "Encoding", "Marginals", "Spectrum", "channels_of"]

STEP = 2.0**-11
"""Clients write images in multiples of this: a two-hundredth of what a frequency typically is."""

_RADIUS = 1.2  # an image of typical length 1 may be this long
_LONGEST = 4096  # steps that one frequency may be off mid-grey


class Encoding(Protocol):
    """Writes examples as vectors of typical length 1."""

    @property
    def size(self) -> int:
        """How many numbers an example becomes."""
        ...

    @property
    def radius(self) -> float:
        """No example's vector is longer."""
        ...

    @property
    def pairs(self) -> np.ndarray | None:
        """Which products of two of the numbers say something, shape (size, size) and symmetric; None: none does."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """What makes it, for the record."""
        ...

    def __call__(self, batch: Any) -> jax.Array:
        """(examples, size) from the fields of a batch."""
        ...


class Spectrum(eqx.Module):
    """An image's lowest frequencies (cosine transform) around mid-grey, each over its public spread."""

    basis: jax.Array  # (frequencies, pixels): the images that the frequencies are
    centre: jax.Array  # (size,): one number for each channel and frequency
    spread: jax.Array
    shape: tuple[int, ...] = eqx.field(static=True)
    field: str = eqx.field(static=True)
    origin: str = eqx.field(static=True)

    @property
    def size(self) -> int:
        """Frequencies times channels."""
        return self.centre.shape[0]

    @property
    def radius(self) -> float:
        """Longer vectors are shortened to this."""
        return _RADIUS

    @property
    def pairs(self) -> np.ndarray:
        """All of them."""
        return np.ones((self.size, self.size), bool)

    @property
    def settings(self) -> dict[str, Any]:
        """Shape, frequencies, and where their spread comes from."""
        return {"kind": "images", "shape": list(self.shape), "frequencies": len(self.basis), "spread": self.origin}

    def __call__(self, batch: Any) -> jax.Array:
        """`of` in multiples of `STEP`, the same bit for bit whatever else is in the batch.

        Pixels around mid-grey and frequencies are whole numbers whose products add up to less than 2^24, and lengths
        are measured in whole numbers too: nothing depends on the order in which a processor adds.
        """
        image, pixels = batch[self.field], self.basis.shape[1]
        levels = image if image.dtype == jnp.uint8 else jnp.round(jnp.clip(jnp.nan_to_num(image), 0, 1) * 255)
        around = (2 * levels.astype(jnp.float32) - 255).reshape(-1, pixels, channels_of(self.shape))
        fine = 2.0 ** max(math.floor(math.log2(max(2**24 / 255 - pixels / 2, 1) / math.sqrt(pixels))), 0)
        coefficients = jnp.einsum("npc,fp->ncf", around, jnp.round(self.basis * jnp.float32(fine)))
        c = coefficients.reshape(-1, self.size) * (1 / (self.spread * jnp.float32(510 * fine * STEP)))[None]
        whole = jnp.clip(jnp.round(c), -_LONGEST, _LONGEST).astype(jnp.int32)
        squares = 16.0 * jnp.sum(jnp.square(whole) >> 4, axis=1, keepdims=True).astype(jnp.float32)
        length = jnp.sqrt(squares + 15.0 * self.size)  # never less than the true one
        factor = jnp.minimum(1.0, jnp.float32(self.radius / STEP) / length)
        return jnp.trunc(whole.astype(jnp.float32) * factor) * jnp.float32(STEP)

    def of(self, image: jax.Array) -> jax.Array:
        """(..., *shape), bytes or numbers from 0 to 1, to (..., size); smooth, for what learns from it."""
        scale = 1 / 255 if image.dtype == jnp.uint8 else 1.0
        before = image.shape[: image.ndim - len(self.shape)]
        pixels = image.astype(jnp.float32).reshape(-1, self.basis.shape[1], channels_of(self.shape)) * jnp.float32(
            scale
        )
        coefficients = jnp.einsum("npc,fp->ncf", pixels, self.basis).reshape(-1, self.size)
        c = (coefficients - self.centre[None]) / self.spread[None]
        length = jnp.sqrt(jnp.sum(jnp.square(c), axis=1, keepdims=True) + 1e-12)
        return (c * jnp.minimum(1.0, self.radius / length)).reshape(*before, self.size)

    def image(self, c: jax.Array) -> jax.Array:
        """(..., size) to the images (..., *shape) that have these frequencies and no others; any numbers."""
        before = c.shape[:-1]
        coefficients = (c.reshape(-1, self.size) * self.spread[None] + self.centre[None]).reshape(
            -1, channels_of(self.shape), len(self.basis)
        )
        return jnp.einsum("ncf,fp->npc", coefficients, self.basis).reshape(*before, *self.shape)


class Marginals(eqx.Module):
    """A row as 0 and 1: one place for every category and for every bin of a number, and one for a missing number."""

    columns: tuple[Number | Category, ...] = eqx.field(static=True)
    bins: int = eqx.field(static=True)

    @property
    def widths(self) -> tuple[int, ...]:
        """How many places each column has."""
        return tuple(c.count if isinstance(c, Category) else self.bins + c.can_miss for c in self.columns)

    @property
    def size(self) -> int:
        """The places of all columns."""
        return sum(self.widths)

    @property
    def radius(self) -> float:
        """Every row has one place in each column."""
        return 1.0 + 1e-6

    @property
    def pairs(self) -> np.ndarray | None:
        """Products of different columns; within one they say nothing that the column alone does not."""
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
        if column.whole:  # in whole numbers, or a division would put some into the bin below
            span = int(column.high - column.low) + 1
            place = (jnp.round(inside) - column.low).astype(jnp.int32) * self.bins // span
        else:
            place = jnp.floor((inside - column.low) / (column.high - column.low) * self.bins).astype(jnp.int32)
        missing = self.bins if column.can_miss else self.bins // 2
        return jnp.where(jnp.isnan(numbers), missing, jnp.minimum(place, self.bins - 1))


def channels_of(shape: Sequence[int]) -> int:
    """How many numbers a pixel has."""
    return shape[2] if len(shape) == 3 else 1
