"""Examples as arrays that a generative model reads and generates, and back: images, or mixed rows.

The output of a network is `raw`; `activate` maps it to the range of `encode`. Ranges of numbers are fixed in advance: a
range computed from the data would be a release.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.errors import InvalidInput

__all__ = ["Category", "Coding", "Described", "Images", "Number", "Rows", "coding_of"]


class Coding(Protocol):
    """An encoding of examples; hashable, so that a model can contain it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one encoded example."""
        ...

    def encode(self, batch: Any) -> jax.Array:
        """The examples of a batch as (examples, *shape)."""
        ...

    def activate(self, raw: jax.Array) -> jax.Array:
        """The network's output, mapped to the range of `encode`."""
        ...

    def misfit(self, raw: jax.Array, x: jax.Array) -> jax.Array:
        """-log p(x | raw) of each example, up to a constant: the reconstruction loss of an autoencoder."""
        ...

    def decode(self, x: Any) -> dict[str, np.ndarray]:
        """Encoded examples as columns of a population."""
        ...


@dataclasses.dataclass(frozen=True)
class Images:
    """Images as (height, width, channels) with numbers from -1 (black) to 1."""

    height: int
    width: int
    channels: int = 1
    field: str = "image"

    @property
    def shape(self) -> tuple[int, ...]:
        """Height, width, channels."""
        return self.height, self.width, self.channels

    def encode(self, batch: Any) -> jax.Array:
        """Bytes, or numbers from 0 to 1, as numbers from -1 to 1."""
        image = batch[self.field]
        largest = 255.0 if image.dtype == jnp.uint8 else 1.0
        return image.astype(jnp.float32).reshape(-1, *self.shape) * jnp.float32(2 / largest) - 1.0

    def activate(self, raw: jax.Array) -> jax.Array:
        """Every pixel between -1 and 1."""
        return jnp.tanh(raw)

    def misfit(self, raw: jax.Array, x: jax.Array) -> jax.Array:
        """The cross-entropy of pixels as probabilities of ink; their logit is 2 raw, because the image is tanh(raw)."""
        logits, ink = 2 * raw, (x + 1) / 2
        return jnp.sum(jax.nn.softplus(logits) - ink * logits, axis=(1, 2, 3))

    def decode(self, x: Any) -> dict[str, np.ndarray]:
        """Images of bytes, without an axis for a single channel."""
        image = np.round((np.clip(np.asarray(x, np.float32), -1, 1) + 1) * 127.5).astype(np.uint8)
        return {self.field: image[..., 0] if self.channels == 1 else image}


@dataclasses.dataclass(frozen=True)
class Number:
    """A column of numbers in a public range; values outside are clamped. Missing ones (NaN) can have a flag."""

    field: str
    low: float
    high: float
    can_miss: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise InvalidInput(f"the range of {self.field} must be finite and not empty, got {self.low} to {self.high}")


@dataclasses.dataclass(frozen=True)
class Category:
    """A column of codes from 0 to `count` - 1."""

    field: str
    count: int


@dataclasses.dataclass(frozen=True)
class Rows:
    """Mixed columns, concatenated: numbers from -1 to 1, then their flags (1 if missing), then one-hot categories."""

    numbers: tuple[Number, ...] = ()
    categories: tuple[Category, ...] = ()
    spread: float = 0.1  # standard deviation of a number around an autoencoder's output, on the scale of -1 to 1

    def __post_init__(self) -> None:
        if not self.numbers and not self.categories:
            raise InvalidInput("rows need at least one column: give numbers, categories or both")

    @property
    def shape(self) -> tuple[int, ...]:
        """One axis: numbers, flags, and one coordinate per category code."""
        return (len(self.numbers) + len(self._flagged) + sum(column.count for column in self.categories),)

    @property
    def _flagged(self) -> tuple[Number, ...]:
        return tuple(column for column in self.numbers if column.can_miss)

    def encode(self, batch: Any) -> jax.Array:
        """The encoded rows; a missing number is the middle of its range, with its flag set."""
        values = {column.field: batch[column.field].astype(jnp.float32) for column in self.numbers}
        parts: list[jax.Array] = []
        for column in self.numbers:
            scaled = (values[column.field] - column.low) * jnp.float32(2 / (column.high - column.low)) - 1.0
            parts.append(jnp.where(jnp.isnan(scaled), 0.0, jnp.clip(scaled, -1.0, 1.0))[:, None])
        parts += [jnp.isnan(values[column.field]).astype(jnp.float32)[:, None] for column in self._flagged]
        parts += [jax.nn.one_hot(batch[column.field].astype(jnp.int32), column.count) for column in self.categories]
        return jnp.concatenate(parts, axis=1)

    def activate(self, raw: jax.Array) -> jax.Array:
        """Numbers between -1 and 1, flags between 0 and 1, and probabilities of each category's codes."""
        numbers, flags, categories = self._split(raw)
        shares = [jax.nn.softmax(part, axis=1) for part in categories]
        return jnp.concatenate([jnp.tanh(numbers), jax.nn.sigmoid(flags), *shares], axis=1)

    def misfit(self, raw: jax.Array, x: jax.Array) -> jax.Array:
        """Numbers are normal around tanh(raw), flags are Bernoulli, categories have a softmax."""
        numbers, flags, categories = self._split(raw)
        true_numbers, true_flags, true_categories = self._split(x)
        total = jnp.sum(jnp.square((jnp.tanh(numbers) - true_numbers) / self.spread) / 2, axis=1)
        total += jnp.sum(jax.nn.softplus(flags) - true_flags * flags, axis=1)
        for part, truth in zip(categories, true_categories, strict=True):
            total -= jnp.sum(jax.nn.log_softmax(part, axis=1) * truth, axis=1)
        return total

    def decode(self, x: Any) -> dict[str, np.ndarray]:
        """Numbers in their own units, and the likeliest code of every category."""
        numbers, flags, categories = (np.asarray(x)[:, places] for places in self._places())
        columns: dict[str, np.ndarray] = {}
        for place, column in enumerate(self.numbers):
            value = column.low + (np.clip(numbers[:, place], -1, 1) + 1) / 2 * (column.high - column.low)
            columns[column.field] = np.round(value) if column.whole else value
        for place, column in enumerate(self._flagged):
            columns[column.field] = np.where(flags[:, place] > 0.5, np.nan, columns[column.field])
        edges = np.cumsum([column.count for column in self.categories])[:-1]
        for column, part in zip(self.categories, np.split(categories, edges, axis=1), strict=bool(self.categories)):
            columns[column.field] = np.argmax(part, axis=1).astype(np.int32)
        return columns

    def _places(self) -> tuple[slice, slice, slice]:
        ends = np.cumsum([0, len(self.numbers), len(self._flagged), *(column.count for column in self.categories)])
        return slice(0, int(ends[1])), slice(int(ends[1]), int(ends[2])), slice(int(ends[2]), int(ends[-1]))

    def _split(self, x: jax.Array) -> tuple[jax.Array, jax.Array, list[jax.Array]]:
        numbers, flags, categories = (x[:, places] for places in self._places())
        edges = np.cumsum([column.count for column in self.categories])[:-1].tolist()
        return numbers, flags, jnp.split(categories, edges, axis=1) if self.categories else []


class Described(Protocol):
    """The part of a population used here: `codings` must not import `data`."""

    @property
    def name(self) -> str:
        """Its name in messages."""
        ...

    @property
    def fields(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The dtype and shape of every field."""
        ...

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The class names of the fields that have them."""
        ...


def coding_of(
    population: Described,
    *,
    label: str | None = "label",
    ranges: Mapping[str, tuple[float, float]] | None = None,
    can_miss: Sequence[str] = (),
) -> Images | Rows:
    """The coding of `population` without `label`: its images, or otherwise all its columns.

    `ranges` are the public ranges of numeric columns; all must be given. Text is left out.
    """
    fields = {name: field for name, field in population.fields.items() if field[0].kind in "biuf" and name != label}
    for field, (_, shape) in fields.items():
        if len(shape) in (2, 3):
            return Images(*shape, field=field) if len(shape) == 3 else Images(shape[0], shape[1], field=field)
    public_ranges = ranges or {}
    numbers: list[Number] = []
    categories: list[Category] = []
    for field, (dtype, shape) in fields.items():
        if shape:
            raise InvalidInput(f"{field} of {population.name} is neither an image nor a single number: leave it out")
        if field in population.classes:
            categories.append(Category(field, len(population.classes[field])))
        elif field in public_ranges:
            low, high = public_ranges[field]
            numbers.append(Number(field, low, high, field in can_miss, whole=dtype.kind in "iu"))
        else:
            raise InvalidInput(f'give the public range of {field}: ranges={{"{field}": (low, high), ...}}')
    return Rows(tuple(numbers), tuple(categories))
