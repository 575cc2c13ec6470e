"""Public features: their sums describe the data well enough to fit a generator.

Every example becomes a short vector c (`Encoding`). `Features` are c itself and all products of two of its
coordinates. Averaged over a class these are its mean and its second moments. Nothing here is learnt from clients:
weights are fixed, and ranges and reference images are public. The norm of any example's features is at most `bound`.

==============  =======================================  ==================================================
examples        c                                        products
==============  =======================================  ==================================================
images          low frequencies, scaled by their spread  all: the covariance of the image
images          strokes, where public images differ most all: the covariance of strokes
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


class Features(eqx.Module):
    """The encoding and its products, weighted so that an example's features have norm about 1."""

    encoding: Encoding
    weights: tuple[float, float] = eqx.field(static=True)  # of the encoding and of its products

    @property
    def dimension(self) -> int:
        """Number of features of an example."""
        return self.encoding.size + len(self._places[0])

    @property
    def bound(self) -> float:
        """Bound on the norm of an example's features."""
        (first, second), radius = self.weights, self.encoding.radius
        rounding = math.sqrt(self.dimension) * STEP / 2
        return math.sqrt((first * radius) ** 2 + (second * radius**2) ** 2) * (1 + 1e-5) + rounding

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the features, for the record."""
        return {**self.encoding.settings, "weights": list(self.weights)}

    def __call__(self, batch: Any) -> jax.Array:
        """(examples, dimension) from the fields of a batch."""
        c = self.encoding(batch)
        rows, columns = self._places
        twice = np.where(rows == columns, 1.0, math.sqrt(2)).astype(np.float32)  # an off-diagonal product counts twice
        first, second = self.weights
        parts = [first * c, second * c[:, rows] * c[:, columns] * twice[None]]
        # rounded, so that sums over hundreds of a client's examples are exact in any order
        return jnp.round(jnp.concatenate(parts, axis=1) * jnp.float32(1 / STEP)) * jnp.float32(STEP)

    def expected(self, c: jax.Array) -> dict[str, jax.Array]:
        """What `unpack` returns for the mean features of these encodings (..., examples, size)."""
        count = c.shape[-2]
        parts = {"mean": jnp.mean(c, axis=-2)}
        if (pairs := self.encoding.pairs) is not None:
            parts["second"] = jnp.where(pairs, jnp.einsum("...mk,...ml->...kl", c, c) / count, 0.0)
        return parts

    def unpack(self, means: np.ndarray) -> dict[str, np.ndarray]:
        """Mean features (..., dimension) as the mean encoding and its second moments (..., size, size)."""
        size, (rows, columns) = self.encoding.size, self._places
        first, second = self.weights
        parts = {"mean": means[..., :size] / first}
        if len(rows):
            values = means[..., size : size + len(rows)] / (second * np.where(rows == columns, 1.0, math.sqrt(2)))
            matrix = np.zeros((*means.shape[:-1], size, size), means.dtype)
            matrix[..., rows, columns] = matrix[..., columns, rows] = values
            parts["second"] = matrix
        return parts

    @property
    def scales(self) -> dict[str, float]:
        """Scale of each part that `unpack` returns, in features."""
        return dict(zip(("mean", "second"), self.weights, strict=True))

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = self.encoding.pairs
        rows, columns = np.nonzero(np.triu(np.zeros((0, 0)) if pairs is None else pairs))
        return rows, columns


def images(
    shape: Sequence[int],
    *,
    frequencies: int = 81,
    reference: np.ndarray | None = None,
    field: str = "image",
) -> Features:
    """Features of images of that shape, (height, width) or with channels last: their lowest frequencies.

    `reference` are public images, (n, *shape), roughly like the clients': each frequency is scaled by its strength in
    them. By default strength falls with frequency, as in photographs.

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
    # centred on mid-grey, so that an image and its negative have equal norm: inversion is among the commonest faults
    centre = np.tile(np.where(lowest == 0, 0.5 * math.sqrt(height * width), 0.0), channels)
    if reference is None:
        spread = np.tile(0.1 * math.sqrt(height * width) / (1 + pitch[lowest] / 2), channels)
    else:
        spread = _spread(np.asarray(reference), basis, centre, shape)
    spread[::frequencies] = 0.18 * math.sqrt(
        height * width
    )  # brightness: about a third of the distance from black to mid-grey
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
    return _features(encoding)


def strokes(reference: np.ndarray, *, size: int = 100, field: str = "image") -> Features:
    """Features of the strokes and edges in images, which separate classes where frequencies do not.

    `reference` are images, (n, *shape), that are public or were generated from releases: strokes are projected on the
    `size` directions in which these vary most.
    """
    return _features(Wavelets.of_images(np.asarray(reference), size, field=field))


def rows(columns: Rows | Sequence[Number | Category], *, bins: int = 12) -> Features:
    """Features of mixed rows: the frequency of every category and bin of a number, and of every pair of them.

    >>> rows([Number("age", 0, 100), Category("sex", 2)], bins=10).dimension
    32
    """
    given = (*columns.numbers, *columns.categories) if isinstance(columns, Rows) else tuple(columns)
    if not given or bins < 2:
        raise InvalidInput(f"rows need at least one column and two bins, got {len(given)} columns and {bins} bins")
    return _features(Marginals(given, bins))


def _features(encoding: Encoding) -> Features:
    """Most of the weight is for the products, which are most of the features."""
    return Features(encoding, (0.45, 0.9) if encoding.pairs is not None else (1.0, 0.0))


def _spread(reference: np.ndarray, basis: np.ndarray, centre: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The root mean square deviation of the public images from mid-grey at every frequency."""
    if reference.shape[1:] != tuple(shape) or len(reference) < 2:
        raise InvalidInput(f"reference must hold at least two images of shape {tuple(shape)}, got {reference.shape}")
    numbers = reference.astype(np.float64) / (255 if reference.dtype == np.uint8 else 1)
    pixels = numbers.reshape(len(reference), -1, channels_of(shape))
    coefficients = np.einsum("npc,fp->ncf", pixels, basis, optimize=True).reshape(len(reference), -1)
    spread = np.sqrt(np.mean(np.square(coefficients - centre), axis=0))
    return np.maximum(spread, 0.02 * spread.max() + 1e-6)
