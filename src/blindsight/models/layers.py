"""Layers that stay fast when every client has its own weights. The batch axis comes first, channels last.

Norms use one example only: batch statistics would make a client's update depend on how its examples are batched, and
their running averages would leave the client without noise. (`patches` explains convolutions; recurrent layers are in
`recurrent`.)
"""

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from blindsight.errors import InvalidInput
from blindsight.kernels.patches import add_patches, convolve
from blindsight.kernels.vocabulary import cross_entropy_in_blocks
from blindsight.kernels.vocabulary_by_attention import cross_entropy_by_attention, is_attended

__all__ = ["Conv", "ConvTranspose", "Dense", "Embedding", "LayerNorm", "max_pool", "softmax_cross_entropy"]

_BLOCK = 1000  # number of words for which a batch of logits fits into a processor's cache


class Dense(eqx.Module):
    """x @ weight + bias."""

    weight: jax.Array  # (inputs, outputs)
    bias: jax.Array  # (outputs,)

    def __init__(self, inputs: int, outputs: int, *, key: jax.Array) -> None:
        self.weight = glorot(key, (inputs, outputs), inputs, outputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return add_bias(product(x, self.weight), self.bias)


class Conv(eqx.Module):
    """A convolution of (batch, height, width, channels) with a square kernel; `padding` is SAME or VALID."""

    weight: jax.Array  # (kernel * kernel * inputs, outputs)
    bias: jax.Array  # (outputs,)
    kernel: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    padding: str = eqx.field(static=True)

    def __init__(
        self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, padding: str = "SAME", key: jax.Array
    ) -> None:
        if padding not in ("SAME", "VALID"):
            raise InvalidInput(f"padding must be SAME or VALID, got {padding!r}")
        self.kernel, self.stride, self.padding = kernel, stride, padding
        self.weight = glorot(key, (kernel**2 * inputs, outputs), kernel**2 * inputs, kernel**2 * outputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.astype(self.weight.dtype)
        return add_bias(convolve(x, self.weight, self.kernel, self.stride, self.padding), self.bias)


class ConvTranspose(eqx.Module):
    """The transpose of `Conv` with SAME padding and this stride: height and width grow by `stride`.

    It equals the gradient of that convolution, and `lax.conv_transpose(..., "SAME", transpose_kernel=True)`: of the
    kernel - stride excess rows, half (rounded down) are cut at the top and left, the rest at the bottom and right. A
    kernel smaller than its stride leaves gaps.
    """

    weight: jax.Array  # (inputs, kernel * kernel * outputs)
    bias: jax.Array  # (outputs,)
    kernel: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 2, key: jax.Array) -> None:
        self.kernel, self.stride = kernel, stride
        fan_in = inputs * kernel**2 / stride**2
        self.weight = glorot(key, (inputs, kernel**2 * outputs), fan_in, kernel**2 * outputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        batch, height, width, _ = x.shape
        pieces = product(x, self.weight).reshape(batch, height, width, self.kernel, self.kernel, -1)
        if jax.default_backend() == "cpu":
            return add_bias(self._overlap(self._overlap(pieces, axis=1), axis=2), self.bias)
        return add_bias(self._together(pieces.reshape(batch, height, width, -1)), self.bias)

    def _together(self, pieces: jax.Array) -> jax.Array:
        """The same at once, which is faster on an accelerator."""
        height, width = (self.stride * size for size in pieces.shape[1:3])
        cut, gap = max(0, self.kernel - self.stride) // 2, max(0, self.stride - self.kernel)
        whole = jnp.pad(add_patches(pieces, self.kernel, self.stride), [(0, 0), (0, gap), (0, gap), (0, 0)])
        return whole[:, cut : cut + height, cut : cut + width]

    def _overlap(self, pieces: jax.Array, *, axis: int) -> jax.Array:
        """Sum the pieces along one axis of the image; those along the kernel's first remaining axis overlap."""
        size, shifts = pieces.shape[axis] * self.stride, pieces.shape[3]
        cut, gap = max(0, shifts - self.stride) // 2, max(0, self.stride - shifts)
        total = jnp.zeros(())
        for shift in range(shifts):
            spread = [(0, 0, 0)] * (pieces.ndim - 1)
            spread[axis] = (shift, shifts - shift - 1 + gap, self.stride - 1)
            part = jax.lax.pad(pieces[:, :, :, shift], jnp.zeros((), pieces.dtype), spread)
            total = part if shift == 0 else total + part
        return jax.lax.slice_in_dim(total, cut, cut + size, axis=axis)


class LayerNorm(eqx.Module):
    """Mean 0 and variance 1 over the last axis, then a scale and a shift."""

    scale: jax.Array
    shift: jax.Array

    def __init__(self, size: int) -> None:
        self.scale, self.shift = jnp.ones(size), jnp.zeros(size)

    def __call__(self, x: jax.Array) -> jax.Array:
        return add_bias(_standardised(x, (-1,)) * jnp.broadcast_to(self.scale, x.shape), self.shift)


class Embedding(eqx.Module):
    """A vector for each token; `logits` uses the same vectors as output weights."""

    table: jax.Array  # (vocabulary, size)

    def __init__(self, vocabulary: int, size: int, *, key: jax.Array) -> None:
        self.table = jax.random.normal(key, (vocabulary, size)) / math.sqrt(size)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """The tokens' vectors, in float32 so that the gradients of a frequent token sum without loss."""
        return jnp.take(self.table.astype(jnp.float32), tokens, axis=0)

    def logits(self, x: jax.Array) -> jax.Array:
        """The inner product of `x` with every token's vector."""
        return product(x, self.table.T)

    def cross_entropy(self, x: jax.Array, labels: jax.Array) -> jax.Array:
        """The cross-entropy of `logits(x)`; the logits of a large vocabulary are not stored where that is faster."""
        if len(self.table) > _BLOCK and jax.default_backend() == "cpu":
            return cross_entropy_in_blocks(x, self.table, labels, _BLOCK)
        if len(self.table) > _BLOCK and is_attended(self.table):
            return cross_entropy_by_attention(x, self.table, labels)
        return softmax_cross_entropy(self.logits(x), labels)


def max_pool(x: jax.Array, size: int = 2) -> jax.Array:
    """The maximum of every `size` x `size` block; a remainder at the edge is dropped. Ties go to the first."""
    batch, height, width, channels = x.shape
    rows, columns = height // size, width // size
    whole = x[:, : rows * size, : columns * size]
    return _largest(whole.reshape(batch, rows, size, columns, size, channels), size)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _largest(blocks: jax.Array, size: int) -> jax.Array:
    """(batch, rows, size, columns, size, channels) to (batch, rows, columns, channels).

    The gradient needs only the index of the maximum, a byte per block, not the image.
    """
    return _largest_and_which(blocks, size)[0]


def _largest_and_which(blocks: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    parts = [blocks[:, :, i, :, j] for i in range(size) for j in range(size)]
    largest, which = parts[0], jnp.zeros(parts[0].shape, jnp.uint8)
    for number, part in enumerate(parts[1:], 1):
        which = jnp.where(part > largest, jnp.uint8(number), which)
        largest = jnp.maximum(largest, part)
    return largest, which


def _largest_gradient(size: int, which: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    place = jnp.arange(size**2, dtype=jnp.uint8).reshape(1, 1, size, 1, size, 1)
    was_largest = which[:, :, None, :, None] == place
    return (jnp.where(was_largest, gradient[:, :, None, :, None], jnp.zeros((), gradient.dtype)),)


_largest.defvjp(_largest_and_which, _largest_gradient)


@jax.custom_vjp
def softmax_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """-log softmax(logits)[label], in float32 for logits of any dtype.

    The logits of a vocabulary are the largest array in a language model: they are read and written in their own dtype,
    and the gradient needs one further number per example, not a second array of probabilities.
    """
    return _cross_entropy(logits, labels)[0]


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    total = jax.nn.logsumexp(logits.astype(jnp.float32), axis=-1)
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return total - chosen.astype(jnp.float32), (logits, labels, total)


def _cross_entropy_gradient(kept: Any, weight: jax.Array) -> tuple[jax.Array, None]:
    logits, labels, total = kept
    probability = jnp.exp(logits.astype(jnp.float32) - total[..., None])
    classes = jax.lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1)
    gradient = (probability - (classes == labels[..., None]).astype(jnp.float32)) * weight[..., None]
    return gradient.astype(logits.dtype), None


softmax_cross_entropy.defvjp(_cross_entropy, _cross_entropy_gradient)


def _standardised(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide, axis=axes, keepdims=True)
    variance = jnp.mean(jnp.square(wide - mean), axis=axes, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype)


def product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x @ weight in the weight's dtype: a model in half precision also reads its inputs in half precision."""
    return x.astype(weight.dtype) @ weight


def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """x + bias along the last axis."""
    return x + jnp.broadcast_to(bias, x.shape)


def glorot(key: jax.Array, shape: tuple[int, ...], fan_in: float, fan_out: float) -> jax.Array:
    """Initial weights as in Glorot and Bengio 2010."""
    limit = math.sqrt(6 / (fan_in + fan_out))
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)
