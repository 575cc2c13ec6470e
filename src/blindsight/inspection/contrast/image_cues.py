"""Cues of images: brightness, strokes, place and sharpness, many images at a time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["image_cues"]

_BATCH = 4096
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
_COLOUR_CUES = ("red over blue",)


def image_cues(images: np.ndarray) -> dict[str, np.ndarray]:
    """Cues of images, grey or colour: (examples, height, width[, colours])."""
    names = (*_IMAGE_CUES, *(_COLOUR_CUES if _is_colour(images.shape) else ()))
    values = np.empty((len(images), len(names)), np.float32)
    for start in range(0, len(images), _BATCH):
        batch = images[start : start + _BATCH]
        padded = np.zeros((_BATCH, *images.shape[1:]), images.dtype)  # one shape, compiled once
        padded[: len(batch)] = batch
        values[start : start + len(batch)] = np.asarray(_of_images(jnp.asarray(padded)))[: len(batch)]
    return dict(zip(names, values.T, strict=True))


def _is_colour(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and shape[3] >= 3


@jax.jit
def _of_images(images: jax.Array) -> jax.Array:
    """The cues of a batch of images, shape (images, cues)."""
    grey = images.astype(jnp.float32) / 255 if images.dtype == jnp.uint8 else images.astype(jnp.float32)
    colours = grey = jnp.clip(jnp.nan_to_num(grey), 0, 1)
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
    if _is_colour(images.shape):
        means = jnp.mean(colours, axis=(1, 2))
        values.append((1 + means[:, 0] - means[:, 2]) / 2)
    return jnp.clip(jnp.stack(values, axis=1), 0, 1)


def _stretched(values: jax.Array, by: float) -> jax.Array:
    """Values concentrate around 1/2, so they are stretched there: the noise is scaled to the full range of a cue."""
    return jnp.clip(0.5 + by * (values - 0.5), 0, 1)


def _ratio(part: jax.Array, whole: jax.Array, otherwise: float = 0.5) -> jax.Array:
    return jnp.where(whole > 1e-6, part / jnp.maximum(whole, 1e-6), otherwise)
