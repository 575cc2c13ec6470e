"""Convolutions as patches and one matrix product, in the form that suits the processor.

With a model per client, XLA turns `lax.conv` into a slow grouped convolution; on CPUs its gradients are slower by an
order of magnitude. Cutting an image into patches and summing patches are transposes of each other, and each is the
other's gradient here, so that gradients of gradients (a critic's penalty) are as fast.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.kernels.winograd import KERNELS, winograd

__all__ = ["add_patches", "convolve", "patches"]

_MANY = 8  # from this many channels on, a CPU is faster with tiles than with patches
_CACHED = 1 << 19  # size of the patches; above it, a CPU convolves image by image, to stay in its cache


def convolve(x: jax.Array, weight: jax.Array, kernel: int, stride: int, padding: str) -> jax.Array:
    """(batch, height, width, channels) with a weight of (kernel * kernel * channels, outputs)."""
    if jax.default_backend() != "cpu":
        if stride == 1 and weight.shape[1] < x.shape[-1]:
            return _products_first(_padded(x, kernel, stride, padding), weight, kernel)
        return patches(x, kernel, stride, padding) @ weight
    if stride == 1 and kernel in KERNELS and x.shape[-1] >= _MANY and x.dtype == jnp.float32:
        return winograd(_padded(x, kernel, stride, padding), weight, kernel)
    if x.size * kernel**2 // stride**2 > _CACHED:
        return _image_by_image(x, weight, kernel, stride, padding)
    return patches(x, kernel, stride, padding) @ weight


def _products_first(x: jax.Array, weight: jax.Array, kernel: int) -> jax.Array:
    """A convolution of stride 1 to fewer channels: what every pixel adds to each of its places, and then their sums.

    An image and its products are smaller than its patches by the number of elements in a kernel.
    """
    channels, outputs = x.shape[-1], weight.shape[1]
    by_place = jnp.swapaxes(weight.reshape(kernel**2, channels, outputs), 0, 1).reshape(channels, -1)
    parts = x @ by_place
    rows, columns = _places(x.shape, kernel, 1)
    places = [(i, j, (i * kernel + j) * outputs) for i in range(kernel) for j in range(kernel)]
    return sum(
        (
            parts[:, i : i + rows, j : j + columns, first : first + outputs].astype(jnp.float32)
            for i, j, first in places
        ),
        start=jnp.float32(0),
    ).astype(x.dtype)


def patches(x: jax.Array, kernel: int, stride: int, padding: str) -> jax.Array:
    """(batch, height, width, channels) to (batch, rows, columns, kernel * kernel * channels)."""
    x = _padded(x, kernel, stride, padding)
    if jax.default_backend() == "cpu":
        return _slices(x, kernel, stride)
    return _gathered(x, x.shape, kernel, stride)


def add_patches(parts: jax.Array, kernel: int, stride: int) -> jax.Array:
    """The transpose of `patches` without padding: every patch is added where it came from."""
    batch, rows, columns, size = parts.shape
    height, width = (stride * (count - 1) + kernel for count in (rows, columns))
    return _added(parts, (batch, height, width, size // kernel**2), kernel, stride)


def _padded(x: jax.Array, kernel: int, stride: int, padding: str) -> jax.Array:
    pads = [_same(size, kernel, stride) for size in x.shape[1:3]]
    return jnp.pad(x, [(0, 0), *pads, (0, 0)]) if padding == "SAME" else x


def _slices(x: jax.Array, kernel: int, stride: int) -> jax.Array:
    """Patches by slices, which a CPU copies row by row."""
    rows, columns = _places(x.shape, kernel, stride)
    parts = [
        x[:, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(kernel)
        for j in range(kernel)
    ]
    return jnp.concatenate(parts, axis=-1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _gathered(x: jax.Array, shape: tuple[int, ...], kernel: int, stride: int) -> jax.Array:
    """Patches by one table of indices, which is faster than many slices on an accelerator."""
    batch, height, width, channels = shape
    rows, columns = _places(shape, kernel, stride)
    pixels = x.reshape(batch, height * width, channels)
    pairs = x.dtype == jnp.bfloat16 and channels % 2 == 0  # two half-precision numbers move as one word
    words = jax.lax.bitcast_convert_type(pixels.reshape(*pixels.shape[:2], -1, 2), jnp.uint32) if pairs else pixels
    gathered = jnp.take(words, _pixels(height, width, kernel, stride), axis=1, mode="clip")
    gathered = jax.lax.bitcast_convert_type(gathered, x.dtype) if pairs else gathered
    return gathered.reshape(batch, rows, columns, kernel**2 * channels)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _added(parts: jax.Array, shape: tuple[int, ...], kernel: int, stride: int) -> jax.Array:
    """The transpose of `_gathered`: for every pixel of images of that shape, the sum over the patches with it."""
    batch, height, width, channels = shape
    pieces = parts.reshape(batch, -1, channels)
    gathered = jnp.take(pieces, _pieces(height, width, kernel, stride), axis=1, mode="fill", fill_value=0)
    return jnp.sum(gathered.astype(jnp.float32), axis=2).astype(parts.dtype).reshape(shape)


_gathered.defvjp(lambda *given: (_gathered(*given), None), lambda *given: (_added(given[-1], *given[:3]),))
_added.defvjp(lambda *given: (_added(*given), None), lambda *given: (_gathered(given[-1], *given[:3]),))


@functools.cache
def _pixels(height: int, width: int, kernel: int, stride: int) -> np.ndarray:
    """The pixel index of every element of every patch: (patches, kernel * kernel)."""
    rows, columns = _places((1, height, width), kernel, stride)
    corner = stride * (np.arange(rows)[:, None] * width + np.arange(columns)[None])
    place = np.arange(kernel)[:, None] * width + np.arange(kernel)[None]
    return (corner.reshape(-1, 1) + place.reshape(1, -1)).astype(np.int32)


@functools.cache
def _pieces(height: int, width: int, kernel: int, stride: int) -> np.ndarray:
    """For every pixel, its indices in the flattened patches; an index beyond the last is padding."""
    pixels = _pixels(height, width, kernel, stride).ravel()
    order = np.argsort(pixels, kind="stable")
    counts = np.bincount(pixels, minlength=height * width)
    rank = np.arange(pixels.size) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((height * width, counts.max()), pixels.size, np.int32)
    table[pixels[order], rank] = order
    return table


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _image_by_image(x: jax.Array, weight: jax.Array, kernel: int, stride: int, padding: str) -> jax.Array:
    """A convolution that stores the patches of one image at a time; the gradient recomputes them."""
    return jax.lax.map(lambda image: (patches(image[None], kernel, stride, padding) @ weight)[0], x)


def _image_by_image_forward(x: jax.Array, weight: jax.Array, kernel: int, stride: int, padding: str) -> Any:
    return _image_by_image(x, weight, kernel, stride, padding), (x, weight)


def _image_by_image_backward(
    kernel: int, stride: int, padding: str, kept: Any, gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, weight = kept

    def on_image(total: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        image, d_output = now
        total = total + jnp.einsum("hwp,hwo->po", patches(image[None], kernel, stride, padding)[0], d_output)
        return total, _add_patches(d_output @ weight.T, image.shape, kernel, stride, padding)

    d_weight, d_x = jax.lax.scan(on_image, jnp.zeros_like(weight), (x, gradient))
    return d_x, d_weight


_image_by_image.defvjp(_image_by_image_forward, _image_by_image_backward)


def _add_patches(parts: jax.Array, shape: Sequence[int], kernel: int, stride: int, padding: str) -> jax.Array:
    """The transpose of `patches` for one image: every patch is added where it came from."""
    height, width, channels = shape
    pads = [_same(size, kernel, stride) if padding == "SAME" else (0, 0) for size in (height, width)]
    whole = jnp.zeros((height + sum(pads[0]), width + sum(pads[1]), channels), parts.dtype)
    rows, columns = (stride * (size - 1) + 1 for size in parts.shape[:2])
    parts = parts.reshape(*parts.shape[:2], kernel, kernel, channels)
    for i in range(kernel):
        for j in range(kernel):
            whole = whole.at[i : i + rows : stride, j : j + columns : stride].add(parts[:, :, i, j])
    return whole[pads[0][0] : pads[0][0] + height, pads[1][0] : pads[1][0] + width]


def _places(shape: Sequence[int], kernel: int, stride: int) -> tuple[int, int]:
    """Number of rows and columns of patches."""
    return (shape[1] - kernel) // stride + 1, (shape[2] - kernel) // stride + 1


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    missing = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return missing // 2, missing - missing // 2
