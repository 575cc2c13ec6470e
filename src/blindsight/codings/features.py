"""Public features whose sums describe the data well enough to fit a generator.

Every example becomes a short vector c (`Encoding`), and `Features` takes c itself, all products of two of its numbers,
and, if asked, random waves of it. Averaged over a class these are its mean, its covariance, and points of its
characteristic function. Nothing here is learnt from clients: weights and waves are fixed by their settings, ranges and
reference images are public. No example's features are longer than `bound`, whatever it holds.

==============  =======================================  ==================================================
examples        c                                        products
==============  =======================================  ==================================================
images          low frequencies, evenly spread           all: the covariance of the picture
images          strokes, where some images differ most   all: the covariance of strokes
tables          categories and bins as 0 and 1           of different columns: all two-way tables
==============  =======================================  ==================================================
"""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import fft

from blindsight.codings.images_and_rows import Category, Number, Rows
from blindsight.codings.vectors import Encoding, Marginals, Spectrum, channels_of
from blindsight.codings.wavelets import Wavelets
from blindsight.errors import InvalidInput

__all__ = ["STEP", "Features", "images", "rows", "strokes"]

STEP = 2.0**-14
"""Features are multiples of this."""

_WAVELENGTHS = (1.0, 2.0)  # of random waves, in typical distances between two examples


class Features(eqx.Module):
    """The encoding, its products and random waves of it, weighted so that an example's features have length about 1."""

    encoding: Encoding
    waves: jax.Array  # (size, waves)
    weights: tuple[float, float, float] = eqx.field(static=True)  # of the encoding, its products, its waves

    @property
    def dimension(self) -> int:
        """How many features an example has."""
        return self.encoding.size + len(self._places[0]) + 2 * self.waves.shape[1]

    @property
    def bound(self) -> float:
        """No example's features are longer."""
        first, second, third = self.weights
        radius = self.encoding.radius
        rounding = math.sqrt(self.dimension) * STEP / 2
        return math.sqrt((first * radius) ** 2 + (second * radius**2) ** 2 + third**2) * (1 + 1e-5) + rounding

    @property
    def settings(self) -> dict[str, Any]:
        """What makes these features, for the record."""
        return {**self.encoding.settings, "weights": list(self.weights), "waves": self.waves.shape[1]}

    def __call__(self, batch: Any) -> jax.Array:
        """(examples, dimension) from the fields of a batch."""
        c = self.encoding(batch)
        rows, columns = self._places
        twice = np.where(rows == columns, 1.0, math.sqrt(2)).astype(
            np.float32
        )  # an off-diagonal product stands for two
        first, second, third = self.weights
        parts = [first * c, second * c[:, rows] * c[:, columns] * twice[None]]
        if self.waves.shape[1]:
            phase = c @ self.waves
            parts.append(third / math.sqrt(self.waves.shape[1]) * jnp.concatenate([jnp.cos(phase), jnp.sin(phase)], 1))
        # in small steps, so that sums over hundreds of a client's examples are exact in any order
        return jnp.round(jnp.concatenate(parts, axis=1) * jnp.float32(1 / STEP)) * jnp.float32(STEP)

    def expected(self, c: jax.Array) -> dict[str, jax.Array]:
        """What `unpack` would find in the mean features of many encodings (..., examples, size)."""
        count = c.shape[-2]
        found = {"mean": jnp.mean(c, axis=-2)}
        if (pairs := self.encoding.pairs) is not None:
            found["second"] = jnp.where(pairs, jnp.einsum("...mk,...ml->...kl", c, c) / count, 0.0)
        if self.waves.shape[1]:
            phase = c @ self.waves
            found["waves"] = jnp.mean(jnp.concatenate([jnp.cos(phase), jnp.sin(phase)], -1), axis=-2)
        return found

    def unpack(self, means: np.ndarray) -> dict[str, np.ndarray]:
        """Mean features (..., dimension) as the mean encoding, its second moments (..., size, size), and mean waves."""
        size, (rows, columns) = self.encoding.size, self._places
        first, second, third = self.weights
        found = {"mean": means[..., :size] / first}
        if len(rows):
            values = means[..., size : size + len(rows)] / (second * np.where(rows == columns, 1.0, math.sqrt(2)))
            matrix = np.zeros((*means.shape[:-1], size, size), means.dtype)
            matrix[..., rows, columns] = matrix[..., columns, rows] = values
            found["second"] = matrix
        if self.waves.shape[1]:
            found["waves"] = means[..., size + len(rows) :] / (third / math.sqrt(self.waves.shape[1]))
        return found

    @property
    def scales(self) -> dict[str, float]:
        """What a unit of each part that `unpack` gives is in features."""
        first, second, third = self.weights
        return {"mean": first, "second": second, "waves": third / math.sqrt(max(self.waves.shape[1], 1))}

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = self.encoding.pairs
        rows, columns = np.nonzero(np.triu(np.zeros((0, 0)) if pairs is None else pairs))
        return rows, columns


def images(
    shape: Sequence[int],
    *,
    frequencies: int = 81,
    waves: int = 0,
    reference: np.ndarray | None = None,
    field: str = "image",
    seed: int = 0,
) -> Features:
    """Features of images of that shape, (height, width) or with channels last: their lowest frequencies, or all.

    Args:
        shape: Height and width, and channels if there are any.
        frequencies: Number of lowest frequencies to measure.
        waves: Number of random waves to measure beside them.
        reference: Public images, (n, *shape), that look a little like the clients': how strong a frequency is in them
            weighs it. Without them strength falls with frequency, as in photographs.
        field: Field holding the image.
        seed: Seed of the random waves.

    >>> images((28, 28), frequencies=49).dimension
    1274
    """
    if len(shape) not in (2, 3) or not min(*shape, frequencies) >= 1:
        raise InvalidInput(
            "shape must be (height, width) or (height, width, channels) and frequencies at least "
            f"1, got {tuple(shape)} and {frequencies}"
        )
    height, width, channels = shape[0], shape[1], channels_of(shape)
    frequencies = min(frequencies, height * width)
    down, across = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    pitch = np.hypot(down / height, across / width).ravel() * max(height, width)
    lowest = np.argsort(pitch, kind="stable")[:frequencies]
    each = np.eye(height * width)[lowest].reshape(-1, height, width)
    basis = np.asarray(fft.idctn(each, axes=(1, 2), norm="ortho")).reshape(frequencies, -1)
    # around mid-grey, so that an image and its negative are equally long: polarity is among the commonest faults
    centre = np.tile(np.where(lowest == 0, 0.5 * math.sqrt(height * width), 0.0), channels)
    if reference is None:
        spread = np.tile(0.1 * math.sqrt(height * width) / (1 + pitch[lowest] / 2), channels)
    else:
        spread = _spread(np.asarray(reference), basis, centre, shape)
    spread[::frequencies] = 0.18 * math.sqrt(height * width)  # brightness: half of how far black is from mid-grey
    size = frequencies * channels
    as_array = lambda values: jnp.asarray(values, jnp.float32)  # noqa: E731
    encoding = Spectrum(
        as_array(basis),
        as_array(centre),
        as_array(spread * math.sqrt(size)),
        tuple(shape),
        field,
        "1/f" if reference is None else "of public images",
    )
    return _features(encoding, waves, seed)


def strokes(reference: np.ndarray, *, size: int = 100, field: str = "image") -> Features:
    """Features of images by the strokes and edges in them: what tells classes apart, where frequencies do not.

    `reference` are images, (n, *shape), that are public or were generated from what has been released: strokes are kept
    along the `size` directions in which these differ most.
    """
    return _features(Wavelets.of_images(np.asarray(reference), size, field=field), 0, 0)


def rows(columns: Rows | Sequence[Number | Category], *, bins: int = 12, waves: int = 0, seed: int = 0) -> Features:
    """Features of mixed rows: how often every category and bin of a number occurs, alone and with every other.

    >>> rows([Number("age", 0, 100), Category("sex", 2)], bins=10).dimension
    32
    """
    given = (*columns.numbers, *columns.categories) if isinstance(columns, Rows) else tuple(columns)
    if not given or bins < 2:
        raise InvalidInput(f"rows need at least one column and two bins, got {len(given)} columns and {bins} bins")
    return _features(Marginals(given, bins), waves, seed)


def _features(encoding: Encoding, waves: int, seed: int) -> Features:
    """Most weight goes where most numbers are; half of it to the waves, if there are any."""
    if waves < 0:
        raise InvalidInput(f"waves must be 0 or more, got {waves}")
    first, second = (0.45, 0.9) if encoding.pairs is not None else (1.0, 0.0)
    share = math.sqrt(0.5) if waves else 1.0
    random = np.random.default_rng(seed)
    wavelengths = np.asarray(_WAVELENGTHS)[np.arange(waves) % len(_WAVELENGTHS)]
    directions = random.normal(size=(encoding.size, waves)) / wavelengths
    third = math.sqrt(0.5) if waves else 0.0
    return Features(encoding, jnp.asarray(directions, jnp.float32), (first * share, second * share, third))


def _spread(reference: np.ndarray, basis: np.ndarray, centre: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """How far the public images lie from mid-grey at every frequency: the root of the mean square."""
    if reference.shape[1:] != tuple(shape) or len(reference) < 2:
        raise InvalidInput(f"reference must hold at least two images of shape {tuple(shape)}, got {reference.shape}")
    numbers = reference.astype(np.float64) / (255 if reference.dtype == np.uint8 else 1)
    pixels = numbers.reshape(len(reference), -1, channels_of(shape))
    coefficients = np.einsum("npc,fp->ncf", pixels, basis, optimize=True).reshape(len(reference), -1)
    spread = np.sqrt(np.mean(np.square(coefficients - centre), axis=0))
    return np.maximum(spread, 0.02 * spread.max() + 1e-6)
