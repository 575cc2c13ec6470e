"""Cues: named statistics of single examples, all between 0 and 1, that respond to faults.

Each client computes them on its own rows, whole columns at a time, as the field `cues`. For each arm a client sends the
mean of its examples' cues, centred at the public constant 1/2, its square, and a 1 that counts the client:

    [m_1 - 1/2, ..., m_d - 1/2, (m_1 - 1/2)^2, ..., (m_d - 1/2)^2, 1]

Whatever the examples, |m - 1/2| <= 1/2, so the L2 norm of the block is at most sqrt(d (1/4 + 1/16) + 1). The squares
give an estimate of the variance between clients from the release itself.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.backends import Batch
from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.released import DECADES, MAGNITUDE, ArmCues
from blindsight.inspection.measuring import Measured

__all__ = ["FIELD", "ArmCues", "Cues", "cues_part", "in_steps", "observe"]

FIELD = "cues"
_BATCH = 4096
_MOST_CLASSES = 16


@dataclasses.dataclass(frozen=True)
class Cues:
    """The part of a measurement that holds cues: one block for each arm."""

    names: tuple[str, ...]
    arms: tuple[str, ...]
    disjoint_by_client: bool
    name: str = "cues"

    @property
    def block(self) -> int:
        """Coordinates for one arm."""
        return 2 * len(self.names) + 1

    @property
    def coordinates(self) -> int:
        """Coordinates for all arms."""
        return self.block * len(self.arms)

    @property
    def bound(self) -> float:
        """The L2 norm that no client's part exceeds; a client with examples in several arms has a block in each."""
        blocks = 1 if self.disjoint_by_client else len(self.arms)
        return math.sqrt(blocks * (len(self.names) * (1 / 4 + 1 / 16) + 1))

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """Mean cues over the client's examples in each arm; zeros for arms without examples."""
        del key
        values = jnp.nan_to_num(batch[FIELD].astype(jnp.float32), nan=0.5)  # (examples, cues)
        counts = jnp.sum(masks, axis=1, keepdims=True)
        mean = jnp.clip(masks @ values / jnp.maximum(counts, 1.0), 0.0, 1.0) - 0.5
        blocks = jnp.concatenate([mean, mean**2, jnp.ones_like(counts)], axis=1)
        return jnp.where(counts > 0, blocks, jnp.zeros_like(blocks)).ravel()

    def read(self, measured: Measured) -> dict[str, ArmCues]:
        """The estimates of each arm from the noisy sums."""
        sums = np.asarray(measured.sums, np.float64).reshape(len(self.arms), self.block)
        return {arm: _read(arm, self.names, row, measured.noise_std) for arm, row in zip(self.arms, sums, strict=True)}

    def everyone(self, measured: Measured) -> ArmCues:
        """All arms together, if they share no client and leave none out: the comparison of a sanity check."""
        if not self.disjoint_by_client:
            raise InvalidInput("clients in several arms would count several times: measure everything as one arm")
        sums = np.asarray(measured.sums, np.float64).reshape(len(self.arms), self.block).sum(axis=0)
        return _read("everyone", self.names, sums, measured.noise_std * math.sqrt(len(self.arms)))


def _read(arm: str, names: tuple[str, ...], row: np.ndarray, noise_std: float) -> ArmCues:
    """Means, and the standard deviation between clients.

    The variance between clients is E[(m - 1/2)^2] - E[m - 1/2]^2, computed from two noisy sums. Where noise makes it
    too small, intervals would be too short, so 1.64 standard deviations of its own noise are added (it is then too
    small in 5 % of cases). That costs little, because noise in the variance weighs 1/count against the noise of the
    mean.
    """
    cues, counted = len(names), float(row[-1])
    count = max(counted, 1.0)
    centred = np.clip(row[:cues] / count, -0.5, 0.5)
    variance = row[cues : 2 * cues] / count - centred**2
    slack = 1.64 * noise_std * np.sqrt(1 + 4 * centred**2) / count
    spread = np.sqrt(np.clip(variance + slack, 0.0, 0.25 - centred**2))
    return ArmCues(arm, names, counted, noise_std, centred + 0.5, spread)


def cues_part(population: Population, arms: tuple[str, ...], *, disjoint_by_client: bool) -> Cues:
    """The part that measures the cues of `population`, which `observe` has computed."""
    if FIELD not in population.fields:
        raise InvalidInput(f"{population.name} has no cues: pass the population that cues.observe returns")
    return Cues(population.classes[FIELD], tuple(arms), disjoint_by_client)


def observe(
    population: Population,
    inputs: tuple[str, ...] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
) -> Population:
    """The population with the field `cues`: one number between 0 and 1 for each example and each cue.

    `inputs` names the fields to read, by default all but derived ones. Numbers with a public range (`ranges`) are
    measured relative to it. The names of the cues are the classes of the field `cues`.
    """
    columns = dict(population.columns)
    chosen = inputs or tuple(field for field in columns if field not in _DERIVED)
    names, values = list[str](), list[np.ndarray]()
    for field in chosen:
        if field not in columns:
            raise InvalidInput(f"{population.name} has no field {field!r}: choose one of {', '.join(columns)}")
        for name, value in _cues_of(
            field, columns[field], population.classes.get(field), (ranges or {}).get(field)
        ).items():
            names.append(name if len(chosen) == 1 or columns[field].ndim >= 3 else f"{field}: {name}")
            values.append(value)
    if not names:
        raise InvalidInput(f"{population.name} has no field to read cues from: name images, numbers or text")
    observed = population.replace({**columns, FIELD: in_steps(np.stack(values, axis=1).astype(np.float32))})
    observed.classes[FIELD] = tuple(names)
    return observed


def in_steps(values: np.ndarray) -> np.ndarray:
    """Values between 0 and 1 as multiples of 2^-12: sums over 4,096 of them are exact, in any order."""
    return np.round(values * np.float32(4096)) / np.float32(4096)


_DERIVED = ("predicted", "confidence", "is_correct", "repaired", "tried", FIELD)


def _cues_of(
    field: str, column: np.ndarray, classes: tuple[str, ...] | None, ends: tuple[float, float] | None
) -> dict[str, np.ndarray]:
    if column.dtype == TEXT:
        return _text_cues(column)
    if classes is not None:
        return {f"share of {name}": column == number for number, name in enumerate(classes[:_MOST_CLASSES])}
    if column.ndim >= 3:
        return _image_cues(column)
    if column.ndim == 1:
        return _number_cues(column, ends)
    raise InvalidInput(f"cues are read from images, single numbers and text, but {field!r} holds vectors")


# --- numbers and text


def _number_cues(column: np.ndarray, ends: tuple[float, float] | None) -> dict[str, np.ndarray]:
    """Cues of single numbers: a change of units moves the magnitude, a filled gap the shares of unusual values."""
    values = column.astype(np.float64)
    missing = ~np.isfinite(values)
    size = np.abs(np.where(missing, 0.0, values))
    if ends is not None:  # relative to a public range, small shifts become visible
        place = (np.where(missing, sum(ends) / 2, values) - ends[0]) / (ends[1] - ends[0])
        return {
            "missing": missing,
            "zero": size == 0,
            "beyond its range": (place < 0) | (place > 1),
            "place in its range": np.clip(place, 0, 1),
            "last digit": np.where(missing, 0.5, np.mod(size, 10) / 10),
        }
    return {
        "missing": missing,
        "negative": ~missing & (values < 0),
        "zero": size == 0,
        MAGNITUDE: np.clip(np.log10(1 + size) / DECADES, 0, 1),  # a factor of 1000 moves it by 3/8
        "last digit": np.where(missing, 0.5, np.mod(size, 10) / 10),  # rounding, and factors of ten
    }


def _text_cues(column: np.ndarray) -> dict[str, np.ndarray]:
    """Cues of texts: length, and shares of character classes."""
    texts = column.tolist()
    lengths = np.array([len(text) for text in texts], np.float64)

    def share(of: Callable[[str], bool]) -> np.ndarray:
        return np.array([sum(map(of, text)) for text in texts]) / np.maximum(lengths, 1)

    return {
        "length": np.clip(np.log10(1 + lengths) / 4, 0, 1),
        "upper case": share(str.isupper),
        "lower case": share(str.islower),
        "spaces": share(str.isspace),
        "digits": share(str.isdigit),
        "not ASCII": share(lambda sign: not sign.isascii()),
    }


# --- images

_IMAGE_CUES = (
    "intensity",
    "contrast",
    "polarity",
    "ink",
    "edges: vertical strokes",
    "edges: slant",
    "centroid x",
    "centroid y",
    "extent",
    "blur",
    "black",
    "white",
    "grey levels",
    "constant rows",
    "constant columns",
)


def _image_cues(images: np.ndarray) -> dict[str, np.ndarray]:
    """Cues of images, grey or colour: (examples, height, width[, colours])."""
    values = np.empty((len(images), len(_IMAGE_CUES)), np.float32)
    for start in range(0, len(images), _BATCH):
        batch = images[start : start + _BATCH]
        padded = np.zeros((_BATCH, *images.shape[1:]), images.dtype)  # one shape, compiled once
        padded[: len(batch)] = batch
        values[start : start + len(batch)] = np.asarray(_of_images(jnp.asarray(padded)))[: len(batch)]
    return dict(zip(_IMAGE_CUES, values.T, strict=True))


@jax.jit
def _of_images(images: jax.Array) -> jax.Array:
    """The cues of a batch of images, shape (images, cues)."""
    grey = images.astype(jnp.float32) / 255 if images.dtype == jnp.uint8 else images.astype(jnp.float32)
    grey = jnp.clip(jnp.nan_to_num(grey), 0, 1)
    grey = grey if grey.ndim == 3 else jnp.mean(grey, axis=-1)
    height, width = grey.shape[1:]
    total = functools.partial(jnp.sum, axis=(1, 2))
    mean = jnp.mean(grey, axis=(1, 2))
    centre = grey[:, height // 4 : height - height // 4, width // 4 : width - width // 4]
    inside = jnp.mean(centre, axis=(1, 2))
    border = (mean * height * width - inside * centre[0].size) / max(height * width - centre[0].size, 1)
    across, down = grey[:, :-1, 1:] - grey[:, :-1, :-1], grey[:, 1:, :-1] - grey[:, :-1, :-1]
    energy = total(across**2 + down**2)
    x, y = jnp.linspace(0.0, 1.0, width), jnp.linspace(0.0, 1.0, height)
    mass = total(grey)
    columns, rows = jnp.sum(grey, axis=1), jnp.sum(grey, axis=2)
    centroid_x, centroid_y = _ratio(columns @ x, mass), _ratio(rows @ y, mass)
    variance = _ratio(columns @ x**2 + rows @ y**2, mass) - jnp.where(mass > 0, centroid_x**2 + centroid_y**2, 0.5)
    inner = grey[:, 1:-1, 1:-1]
    laplacian = grey[:, 2:, 1:-1] + grey[:, :-2, 1:-1] + grey[:, 1:-1, 2:] + grey[:, 1:-1, :-2] - 4 * inner
    level = jnp.left_shift(jnp.uint32(1), jnp.minimum(grey * 32, 31).astype(jnp.uint32))
    seen = jax.lax.reduce(level, jnp.uint32(0), jax.lax.bitwise_or, (1, 2))
    flat = jnp.float32(1 / 512)
    values = [
        mean,
        2 * jnp.std(grey, axis=(1, 2)),
        _stretched((border - inside + 1) / 2, 2),
        jnp.mean((grey > 0.5).astype(jnp.float32), axis=(1, 2)),
        _stretched(_ratio(total(across**2), energy), 2),
        _stretched((1 + _ratio(2 * total(across * down), energy, 0.0)) / 2, 2),
        _stretched(centroid_x, 3),
        _stretched(centroid_y, 3),
        jnp.sqrt(jnp.clip(2 * variance, 0, 1)),
        _stretched(1 - _ratio(total(laplacian**2), total(laplacian**2) + 2 * energy, 0.0), 1.5),
        jnp.mean((grey < flat).astype(jnp.float32), axis=(1, 2)),
        jnp.mean((grey > 1 - flat).astype(jnp.float32), axis=(1, 2)),
        jax.lax.population_count(seen).astype(jnp.float32) / 32,
        jnp.mean((jnp.max(grey, axis=2) - jnp.min(grey, axis=2) < flat).astype(jnp.float32), axis=1),
        jnp.mean((jnp.max(grey, axis=1) - jnp.min(grey, axis=1) < flat).astype(jnp.float32), axis=1),
    ]
    return jnp.clip(jnp.stack(values, axis=1), 0, 1)


def _stretched(values: jax.Array, by: float) -> jax.Array:
    """Values stretched around 1/2, where they concentrate: the noise is scaled to the full range of a cue."""
    return jnp.clip(0.5 + by * (values - 0.5), 0, 1)


def _ratio(part: jax.Array, whole: jax.Array, otherwise: float = 0.5) -> jax.Array:
    return jnp.where(whole > 1e-6, part / jnp.maximum(whole, 1e-6), otherwise)
