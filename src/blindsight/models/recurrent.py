"""Recurrent layers that stay fast when every client has its own weights: CIFG and LSTM with projected outputs."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from blindsight.models.layers import add_bias, glorot

__all__ = ["CIFG", "LSTM", "CellState"]

CellState = tuple[jax.Array, jax.Array]
"""The cell, (batch, cells) in float32, and the last output, (batch, outputs)."""

Mix = Callable[..., tuple[jax.Array, jax.Array]]
"""(cell, *gates), gates between -1 and 1, to the next cell and its output before the projection."""

_SIGMOID, _TANH = 0.5, 1.0  # s tanh(s x) + 1 - s is the logistic function for s = 1/2 and tanh for s = 1
_UNROLLED = 20  # steps: more take longer to compile
_NEIGHBOURS = 8  # processors read this many numbers at once, if rows start at a multiple of it


class _Recurrent(eqx.Module):
    """A recurrent layer with a projected output; `scales` and `mix` say what its gates are and do."""

    weight: jax.Array  # (inputs + outputs, gates * cells)
    bias: jax.Array  # (gates * cells,)
    projection: jax.Array  # (cells, outputs)

    scales: ClassVar[tuple[float, ...]]
    mix: ClassVar[Mix]

    def __init__(self, inputs: int, cells: int, outputs: int, *, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        gates = len(self.scales)
        self.weight = glorot(first, (inputs + outputs, gates * cells), inputs + outputs, cells)
        self.bias = jnp.zeros(gates * cells)
        self.projection = glorot(second, (cells, outputs), cells, outputs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """(batch, time, inputs) to (batch, time, outputs), from a state of zeros."""
        return _recur(self, x, self.mix, self.scales)

    def begin(self, batch: int) -> CellState:
        """The state of zeros before the first step."""
        return _begin(self.projection, batch)

    def advance(self, state: CellState, x: jax.Array) -> tuple[CellState, jax.Array]:
        """One step: (batch, inputs) to the next state and (batch, outputs)."""
        now = x.astype(self.weight.dtype)
        state, _ = _step(self.mix, self.scales, state, now, self.weight, self.bias, self.projection)
        return state, state[1]


class CIFG(_Recurrent):
    """An LSTM with an input gate of one minus the forget gate (Greff et al. 2017) and a projected output.

    It has a quarter fewer weights than an LSTM, and is the recurrent layer of Hard et al. 2018 and Ramaswamy et al.
    2020. Gates are in the order forget, output, candidate.
    """

    scales = (_SIGMOID, _SIGMOID, _TANH)

    def __init__(self, inputs: int, cells: int, outputs: int, *, key: jax.Array) -> None:
        super().__init__(inputs, cells, outputs, key=key)
        self.bias = self.bias.at[:cells].set(1.0)  # so that cells remember initially

    @staticmethod
    def mix(cell: jax.Array, forget: jax.Array, output: jax.Array, candidate: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The next cell and its output before the projection."""
        cell = forget * cell + (1 - forget) * candidate
        return cell, output * jnp.tanh(cell)


class LSTM(_Recurrent):
    """A long short-term memory with a projected output, gates in the order input, forget, candidate, output."""

    scales = (_SIGMOID, _SIGMOID, _TANH, _SIGMOID)

    def __init__(self, inputs: int, cells: int, outputs: int, *, key: jax.Array) -> None:
        super().__init__(inputs, cells, outputs, key=key)

    @staticmethod
    def mix(
        cell: jax.Array, enter: jax.Array, forget: jax.Array, candidate: jax.Array, output: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The next cell and its output before the projection."""
        cell = forget * cell + enter * candidate
        return cell, output * jnp.tanh(cell)


def _recur(layer: _Recurrent, x: jax.Array, mix: Mix, scales: tuple[float, ...]) -> jax.Array:
    """Runs a recurrent layer over time.

    Cells are padded to a multiple of eight with cells of zero weights, which stay zero.
    """
    cells, dtype = layer.projection.shape[0], layer.weight.dtype
    more = -cells % _NEIGHBOURS

    def widen(gates: jax.Array) -> jax.Array:
        apart = gates.reshape(*gates.shape[:-1], -1, cells)
        return jnp.pad(apart, [(0, 0)] * (apart.ndim - 1) + [(0, more)]).reshape(*gates.shape[:-1], -1)

    weight, bias, projection = layer.weight, layer.bias, layer.projection
    if more:
        weight, bias, projection = widen(weight), widen(bias), jnp.pad(projection, [(0, more), (0, 0)])
    over_time = jnp.swapaxes(x.astype(dtype), 0, 1)
    return jnp.swapaxes(_recurrence(mix, scales, over_time, weight, bias, projection), 0, 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _recurrence(
    mix: Mix, scales: tuple[float, ...], x: jax.Array, weight: jax.Array, bias: jax.Array, projection: jax.Array
) -> jax.Array:
    """(time, batch, inputs) to (time, batch, outputs), from a state of zeros.

    Products are in the weights' dtype; the cell, which accumulates over time, is float32. The gradient is explicit:
    backpropagation through a scan would add to the gradients of both weight matrices at every step, which is most of
    the work with weights per client. Here each is one product over all steps.
    """
    return _recurrence_forward(mix, scales, x, weight, bias, projection)[0]


def _recurrence_forward(
    mix: Mix, scales: tuple[float, ...], x: jax.Array, weight: jax.Array, bias: jax.Array, projection: jax.Array
) -> Any:
    def advance(state: CellState, now: jax.Array) -> Any:
        after, entering = _step(mix, scales, state, now, weight, bias, projection)
        return after, (after[1], entering, state[0])

    begin = _begin(projection, x.shape[1])
    _, (leaving, entering, cells) = jax.lax.scan(advance, begin, x, unroll=_unrolled(len(x)))
    return leaving, (x, leaving, entering, cells, weight, projection)


def _step(
    mix: Mix,
    scales: tuple[float, ...],
    state: CellState,
    now: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    projection: jax.Array,
) -> tuple[CellState, jax.Array]:
    """The state after one step, and what entered its gates."""
    cell, output = state
    entering = add_bias(jnp.concatenate([now, output], axis=-1) @ weight, bias)
    cell, shown = mix(cell, *_gates(scales, entering))
    return (cell, shown.astype(now.dtype) @ projection), entering


def _gates(scales: tuple[float, ...], entering: jax.Array) -> list[jax.Array]:
    """The gates one by one: as one array they would be written, and read again for the cell."""
    parts = jnp.split(entering.astype(jnp.float32), len(scales), axis=-1)
    return [scale * jnp.tanh(scale * part) + (1 - scale) for scale, part in zip(scales, parts, strict=True)]


def _begin(projection: jax.Array, batch: int) -> CellState:
    cells, outputs = projection.shape
    return jnp.zeros((batch, cells), jnp.float32), jnp.zeros((batch, outputs), projection.dtype)


def _recurrence_backward(mix: Mix, scales: tuple[float, ...], kept: Any, gradient: jax.Array) -> tuple[jax.Array, ...]:
    x, leaving, entering, cells, weight, projection = kept
    steps, inputs, outputs = len(x), x.shape[-1], leaving.shape[-1]

    def retreat(state: tuple[jax.Array, ...], now: Any) -> Any:
        d_cell, d_output, d_entered = state
        number, d_leaving, entering, cell = now
        d_output = d_output + d_leaving
        d_shown = (d_output @ projection.T).astype(jnp.float32)
        gates = _gates(scales, entering)
        (_, shown), pull_back = jax.vjp(mix, cell, *gates)
        d_cell, *d_gates = pull_back((d_cell, d_shown))
        slopes = [scale**2 - jnp.square(gate - (1 - scale)) for scale, gate in zip(scales, gates, strict=True)]
        d_entering = jnp.concatenate([d_gate * slope for d_gate, slope in zip(d_gates, slopes, strict=True)], axis=-1)
        d_entering = d_entering.astype(x.dtype)
        d_x, d_before = jnp.split(d_entering @ weight.T, [inputs], axis=-1)
        # written where it is read: a scan would put time before clients, and the product needs each client's together
        d_entered = jax.lax.dynamic_update_index_in_dim(d_entered, d_entering, number, axis=0)
        return (d_cell, d_before, d_entered), (d_x, d_output, shown.astype(x.dtype))

    end = jnp.zeros_like(cells[0]), jnp.zeros_like(gradient[0]), jnp.zeros_like(entering)
    over_time = jnp.arange(steps, dtype=jnp.int32), gradient, entering, cells
    (_, _, d_entered), (d_x, d_outputs, shown) = jax.lax.scan(
        retreat, end, over_time, reverse=True, unroll=_unrolled(steps)
    )
    before = jnp.concatenate([jnp.zeros_like(leaving[:1]), leaving[:-1]])
    ones = jnp.ones((*x.shape[:-1], _NEIGHBOURS), x.dtype)  # their product is the gradient of the bias
    read = jnp.concatenate([x, before, ones], axis=-1)
    d_weights = jnp.einsum("tbi,tbg->ig", read, d_entered)
    d_projection = jnp.einsum("tbc,tbo->co", shown, d_outputs)
    return d_x, d_weights[: inputs + outputs], d_weights[inputs + outputs], d_projection


_recurrence.defvjp(_recurrence_forward, _recurrence_backward)


def _unrolled(steps: int) -> int:
    """How many steps are compiled one after the other: on an accelerator a loop's every iteration copies its state."""
    return 1 if jax.default_backend() == "cpu" else min(steps, _UNROLLED)
