"""Layers that stay fast when every client has weights of its own. Batches come first, channels last.

Convolutions are patches and one matrix product: with a model per client, XLA turns `lax.conv` into a slow grouped
convolution, and on CPUs its gradients are slower by an order of magnitude. Norms look at one example only: statistics
over a batch would make one client's update depend on how its examples happen to be batched, and running averages of
them would leave the client without noise.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from blindsight.errors import InvalidInput

__all__ = ["CIFG", "LSTM", "Conv", "ConvTranspose", "Dense", "Embedding", "GroupNorm", "LayerNorm"]
__all__ += ["max_pool", "softmax_cross_entropy"]


_CACHED = 1 << 19  # numbers in patches; a CPU convolves image by image where there are more, to stay in its cache

Step = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
"""(gates, cell) to the next cell and what leaves it, example for example."""


class Dense(eqx.Module):
    """x @ weight + bias."""

    weight: jax.Array  # (inputs, outputs)
    bias: jax.Array  # (outputs,)

    def __init__(self, inputs: int, outputs: int, *, key: jax.Array) -> None:
        self.weight = _glorot(key, (inputs, outputs), inputs, outputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return _add(_product(x, self.weight), self.bias)


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
        self.weight = _glorot(key, (kernel**2 * inputs, outputs), kernel**2 * inputs, kernel**2 * outputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.astype(self.weight.dtype)
        if jax.default_backend() == "cpu" and x.size * self.kernel**2 // self.stride**2 > _CACHED:
            return _add(_image_by_image(x, self.weight, self.kernel, self.stride, self.padding), self.bias)
        return _add(patches(x, self.kernel, self.stride, self.padding) @ self.weight, self.bias)


class ConvTranspose(eqx.Module):
    """The transpose of `Conv` with SAME padding and this stride: height and width grow by `stride`.

    It maps as the gradient of that convolution does, and as `lax.conv_transpose(..., "SAME", transpose_kernel=True)`:
    of the kernel - stride rows that overlap too many, half are cut at the top and left, rounded down, the rest at the
    bottom and right. A kernel smaller than its stride leaves gaps.
    """

    weight: jax.Array  # (inputs, kernel * kernel * outputs)
    bias: jax.Array  # (outputs,)
    kernel: int = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 2, key: jax.Array) -> None:
        self.kernel, self.stride = kernel, stride
        fan_in = inputs * kernel**2 / stride**2
        self.weight = _glorot(key, (inputs, kernel**2 * outputs), fan_in, kernel**2 * outputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        batch, height, width, _ = x.shape
        pieces = _product(x, self.weight).reshape(batch, height, width, self.kernel, self.kernel, -1)
        whole = self._overlap(self._overlap(pieces, axis=1), axis=2)
        return _add(whole, self.bias)

    def _overlap(self, pieces: jax.Array, *, axis: int) -> jax.Array:
        """Adds up the pieces along one axis of the image; those of the kernel's first remaining axis overlap."""
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
        return _add(_standardised(x, (-1,)) * jnp.broadcast_to(self.scale, x.shape), self.shift)


class GroupNorm(eqx.Module):
    """Mean 0 and variance 1 over each image and group of channels, then a scale and a shift for each channel."""

    scale: jax.Array
    shift: jax.Array
    groups: int = eqx.field(static=True)

    def __init__(self, channels: int, groups: int) -> None:
        if groups < 1 or channels % groups:
            raise InvalidInput(f"{channels} channels do not fall into {groups} groups of equal size")
        self.scale, self.shift, self.groups = jnp.ones(channels), jnp.zeros(channels), groups

    def __call__(self, x: jax.Array) -> jax.Array:
        grouped = x.reshape(*x.shape[:-1], self.groups, -1)
        axes = (*range(1, x.ndim - 1), x.ndim)
        normal = _standardised(grouped, axes).reshape(x.shape)
        return _add(normal * jnp.broadcast_to(self.scale, x.shape), self.shift)


class Embedding(eqx.Module):
    """A vector for each token; `logits` uses the same vectors as output weights."""

    table: jax.Array  # (vocabulary, size)

    def __init__(self, vocabulary: int, size: int, *, key: jax.Array) -> None:
        self.table = jax.random.normal(key, (vocabulary, size)) / math.sqrt(size)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """The tokens' vectors, in float32 so that the gradients of a frequent token add up without loss."""
        return jnp.take(self.table.astype(jnp.float32), tokens, axis=0)

    def logits(self, x: jax.Array) -> jax.Array:
        """The inner product of `x` with every token's vector."""
        return _product(x, self.table.T)


class CIFG(eqx.Module):
    """An LSTM whose input gate is one minus its forget gate (Greff et al. 2017), with a projected output.

    A quarter fewer weights than an LSTM: the recurrent layer of Hard et al. 2018 and Ramaswamy et al. 2020.
    """

    weight: jax.Array  # (inputs + outputs, 3 * cells): forget, output, candidate
    bias: jax.Array  # (3 * cells,)
    projection: jax.Array  # (cells, outputs)

    def __init__(self, inputs: int, cells: int, outputs: int, *, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.weight = _glorot(first, (inputs + outputs, 3 * cells), inputs + outputs, cells)
        self.bias = jnp.concatenate([jnp.ones(cells), jnp.zeros(2 * cells)])  # remember, to begin with
        self.projection = _glorot(second, (cells, outputs), cells, outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """(batch, time, inputs) to (batch, time, outputs), from a state of zeros."""
        return _recur(self, self.step, x)

    @staticmethod
    def step(gates: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The next cell and what leaves it, before the projection."""
        forget, output, candidate = jnp.split(gates, 3, axis=-1)
        forget = jax.nn.sigmoid(forget)
        cell = forget * cell + (1 - forget) * jnp.tanh(candidate)
        return cell, jax.nn.sigmoid(output) * jnp.tanh(cell)


class LSTM(eqx.Module):
    """A long short-term memory with a projected output, gates in the order input, forget, candidate, output."""

    weight: jax.Array  # (inputs + outputs, 4 * cells)
    bias: jax.Array  # (4 * cells,)
    projection: jax.Array  # (cells, outputs)

    def __init__(self, inputs: int, cells: int, outputs: int, *, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.weight = _glorot(first, (inputs + outputs, 4 * cells), inputs + outputs, cells)
        self.bias = jnp.zeros(4 * cells)
        self.projection = _glorot(second, (cells, outputs), cells, outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """(batch, time, inputs) to (batch, time, outputs), from a state of zeros."""
        return _recur(self, self.step, x)

    @staticmethod
    def step(gates: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The next cell and what leaves it, before the projection."""
        enter, forget, candidate, output = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
        return cell, jax.nn.sigmoid(output) * jnp.tanh(cell)


def patches(x: jax.Array, kernel: int, stride: int, padding: str) -> jax.Array:
    """(batch, height, width, channels) to (batch, rows, columns, kernel * kernel * channels), by slices alone."""
    if padding == "SAME":
        pads = [_same(size, kernel, stride) for size in x.shape[1:3]]
        x = jnp.pad(x, [(0, 0), *pads, (0, 0)])
    rows, columns = ((size - kernel) // stride + 1 for size in x.shape[1:3])
    parts = [
        x[:, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(kernel)
        for j in range(kernel)
    ]
    return jnp.concatenate(parts, axis=-1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _image_by_image(x: jax.Array, weight: jax.Array, kernel: int, stride: int, padding: str) -> jax.Array:
    """A convolution that holds the patches of one image at a time, in the gradient too, which makes them again."""
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
    """The transpose of `patches` for one image: every patch is added where it was taken from."""
    height, width, channels = shape
    pads = [_same(size, kernel, stride) if padding == "SAME" else (0, 0) for size in (height, width)]
    whole = jnp.zeros((height + sum(pads[0]), width + sum(pads[1]), channels), parts.dtype)
    rows, columns = (stride * (size - 1) + 1 for size in parts.shape[:2])
    parts = parts.reshape(*parts.shape[:2], kernel, kernel, channels)
    for i in range(kernel):
        for j in range(kernel):
            whole = whole.at[i : i + rows : stride, j : j + columns : stride].add(parts[:, :, i, j])
    return whole[pads[0][0] : pads[0][0] + height, pads[1][0] : pads[1][0] + width]


def max_pool(x: jax.Array, size: int = 2) -> jax.Array:
    """The largest of every `size` x `size` block; a rest at the edge is left out."""
    batch, height, width, channels = x.shape
    rows, columns = height // size, width // size
    blocks = x[:, : rows * size, : columns * size].reshape(batch, rows, size, columns, size, channels)
    return jnp.max(blocks, axis=(2, 4))


@jax.custom_vjp
def softmax_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """-log softmax(logits)[label], in float32 whatever the logits are.

    A vocabulary's logits are the largest thing in a language model: they are read and written in their own dtype, and
    what the gradient needs is one number for each example beside them, not a second array of probabilities.
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


def _recur(layer: CIFG | LSTM, step: Step, x: jax.Array) -> jax.Array:
    """Runs a recurrent layer over time; what depends on the inputs alone is one matrix product for all times."""
    inputs = x.shape[-1]
    entering = jnp.swapaxes(_add(_product(x, layer.weight[:inputs]), layer.bias), 0, 1)
    return jnp.swapaxes(_recurrence(step, entering, layer.weight[inputs:], layer.projection), 0, 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recurrence(step: Step, entering: jax.Array, recurrent: jax.Array, projection: jax.Array) -> jax.Array:
    """(time, batch, gates) to (time, batch, outputs), from a state of zeros.

    Products are in the weights' dtype; the cell, which adds up over time, is float32. The gradient is written out
    because going backwards through a scan adds to the gradients of both weight matrices at every time, which with
    weights for every client is most of the work: here they are one product each, over all times at once.
    """
    return _recurrence_forward(step, entering, recurrent, projection)[0]


def _recurrence_forward(step: Step, entering: jax.Array, recurrent: jax.Array, projection: jax.Array) -> Any:
    def advance(state: tuple[jax.Array, jax.Array], now: jax.Array) -> tuple[tuple[jax.Array, jax.Array], Any]:
        cell, output = state
        gates = now + output @ recurrent
        after, leaving = step(gates.astype(jnp.float32), cell)
        after_output = leaving.astype(projection.dtype) @ projection
        return (after, after_output), (after_output, gates, cell, output)

    batch = entering.shape[1]
    cells, outputs = projection.shape
    start = jnp.zeros((batch, cells), jnp.float32), jnp.zeros((batch, outputs), entering.dtype)
    _, (leaving, gates, before, outputs_before) = jax.lax.scan(advance, start, entering)
    return leaving, (gates, before, outputs_before, recurrent, projection)


def _recurrence_backward(step: Step, kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    gates, before, outputs_before, recurrent, projection = kept

    def retreat(state: tuple[jax.Array, jax.Array], now: Any) -> tuple[tuple[jax.Array, jax.Array], Any]:
        d_cell, d_output = state
        d_leaving, gate, cell = now
        d_output = d_output + d_leaving
        _, pull_back = jax.vjp(step, gate.astype(jnp.float32), cell)
        d_gates, d_before = pull_back((d_cell, (d_output @ projection.T).astype(jnp.float32)))
        d_gates = d_gates.astype(gate.dtype)
        return (d_before, d_gates @ recurrent.T), (d_gates, d_output)

    end = jnp.zeros_like(before[0]), jnp.zeros_like(gradient[0])
    _, (d_gates, d_outputs) = jax.lax.scan(retreat, end, (gradient, gates, before), reverse=True)
    _, leaving = step(gates.astype(jnp.float32), before)
    d_recurrent = jnp.einsum("tbo,tbg->og", outputs_before, d_gates)
    d_projection = jnp.einsum("tbc,tbo->co", leaving.astype(projection.dtype), d_outputs)
    return d_gates, d_recurrent, d_projection


_recurrence.defvjp(_recurrence_forward, _recurrence_backward)


def _standardised(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide, axis=axes, keepdims=True)
    variance = jnp.mean(jnp.square(wide - mean), axis=axes, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype)


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    missing = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return missing // 2, missing - missing // 2


def _product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x @ weight in the weight's dtype: a model in half precision reads its inputs in half precision too."""
    return x.astype(weight.dtype) @ weight


def _add(x: jax.Array, bias: jax.Array) -> jax.Array:
    return x + jnp.broadcast_to(bias, x.shape)


def _glorot(key: jax.Array, shape: tuple[int, ...], fan_in: float, fan_out: float) -> jax.Array:
    limit = math.sqrt(6 / (fan_in + fan_out))
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)
