"""Layers that stay fast when every client has weights of its own. Batches come first, channels last.

Convolutions are patches and one matrix product: with a model per client, XLA turns `lax.conv` into a slow grouped
convolution, and on CPUs its gradients are slower by an order of magnitude. Norms look at one example only: statistics
over a batch would make one client's update depend on how its examples happen to be batched, and running averages of
them would leave the client without noise.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

__all__ = ["CIFG", "LSTM", "Conv", "ConvTranspose", "Dense", "Embedding", "GroupNorm", "LayerNorm", "max_pool"]


class Dense(eqx.Module):
    """x @ weight + bias."""

    weight: jax.Array  # (inputs, outputs)
    bias: jax.Array  # (outputs,)

    def __init__(self, inputs: int, outputs: int, *, key: jax.Array) -> None:
        self.weight = _glorot(key, (inputs, outputs), inputs, outputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return _add(x @ self.weight, self.bias)


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
        self.kernel, self.stride, self.padding = kernel, stride, padding
        self.weight = _glorot(key, (kernel**2 * inputs, outputs), kernel**2 * inputs, kernel**2 * outputs)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return _add(patches(x, self.kernel, self.stride, self.padding) @ self.weight, self.bias)


class ConvTranspose(eqx.Module):
    """The transpose of a convolution with SAME padding: height and width grow by `stride`."""

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
        pieces = (x @ self.weight).reshape(batch, height, width, self.kernel, self.kernel, -1)
        whole = self._overlap(self._overlap(pieces, axis=1), axis=2)
        return _add(whole, self.bias)

    def _overlap(self, pieces: jax.Array, *, axis: int) -> jax.Array:
        """Adds up the pieces along one axis of the image; those of the kernel's first remaining axis overlap."""
        size, shifts = pieces.shape[axis] * self.stride, pieces.shape[3]
        cut = (shifts - self.stride) // 2
        total = jnp.zeros(())
        for shift in range(shifts):
            spread = [(0, 0, 0)] * (pieces.ndim - 1)
            spread[axis] = (shift, shifts - shift - 1, self.stride - 1)
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
        return jnp.take(self.table, tokens, axis=0)

    def logits(self, x: jax.Array) -> jax.Array:
        """The inner product of `x` with every token's vector."""
        return x @ self.table.T


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

    def step(self, gates: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array]:
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

    def step(self, gates: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array]:
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


def max_pool(x: jax.Array, size: int = 2) -> jax.Array:
    """The largest of every `size` x `size` block; a rest at the edge is left out."""
    batch, height, width, channels = x.shape
    rows, columns = height // size, width // size
    blocks = x[:, : rows * size, : columns * size].reshape(batch, rows, size, columns, size, channels)
    return jnp.max(blocks, axis=(2, 4))


def _recur(layer: CIFG | LSTM, step: Callable[..., Any], x: jax.Array) -> jax.Array:
    """Runs a recurrent layer over time; what depends on the inputs alone is one matrix product for all times."""
    inputs = x.shape[-1]
    entering = jnp.swapaxes(_add(x @ layer.weight[:inputs], layer.bias), 0, 1)

    def advance(state: tuple[jax.Array, jax.Array], now: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        cell, output = state
        cell, leaving = step(now + output @ layer.weight[inputs:], cell)
        output = leaving @ layer.projection
        return (cell, output), output

    cells, outputs = layer.projection.shape
    start = jnp.zeros((x.shape[0], cells), x.dtype), jnp.zeros((x.shape[0], outputs), x.dtype)
    _, leaving = jax.lax.scan(advance, start, entering)
    return jnp.swapaxes(leaving, 0, 1)


def _standardised(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    mean = jnp.mean(x, axis=axes, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axis=axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5)


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    missing = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return missing // 2, missing - missing // 2


def _add(x: jax.Array, bias: jax.Array) -> jax.Array:
    return x + jnp.broadcast_to(bias, x.shape)


def _glorot(key: jax.Array, shape: tuple[int, ...], fan_in: float, fan_out: float) -> jax.Array:
    limit = math.sqrt(6 / (fan_in + fan_out))
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)
