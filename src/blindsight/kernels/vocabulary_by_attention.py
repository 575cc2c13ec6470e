"""The cross-entropy of a large vocabulary by fused attention, for accelerators that compute it without the logits.

softmax(x T') T is an attention whose queries are the outputs x, and whose keys and values are the words' vectors T: the
mean vector of a word, from which the gradient of x follows. The gradient of T is an attention too, of the words on the
outputs. Logits of ten thousand words are written and read half a dozen times by a plain program; attention keeps them
on the chip.

Attention returns means, and gradients need sums. So both are given a few keys of zeros, whose logits are 0 and whose
share of the mean says what all others weigh: no logarithm is rounded to half precision.
"""

from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["cross_entropy_by_attention", "is_attended"]

_GENERATION, _WIDEST = 8, 128  # of the cards that have cuDNN's attention, and of the vectors that it takes
_ROWS, _WIDTH = 64, 8  # it takes multiples of these
_PARTS = 3  # numbers of half precision that hold one of single precision
_LEAST = 1e-35  # of a share, in half precision


def is_attended(table: jax.Array) -> bool:
    """Whether this machine has fused attention for vectors like these."""
    fits = table.dtype == jnp.bfloat16 and table.shape[1] + _WIDTH <= _WIDEST
    generation, _, _ = str(getattr(jax.local_devices()[0], "compute_capability", "")).partition(".")
    return fits and jax.default_backend() == "gpu" and generation.isdigit() and int(generation) >= _GENERATION


@jax.custom_vjp
def cross_entropy_by_attention(x: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
    """-log softmax(x @ table.T)[label] in float32, of (..., size), (vocabulary, size) and labels (...).

    Logits beyond 80 in size are taken for 80.
    """
    return _forward(x, table, labels)[0]


def _forward(x: jax.Array, table: jax.Array, labels: jax.Array) -> tuple[jax.Array, Any]:
    flat = x.reshape(-1, x.shape[-1]).astype(table.dtype)
    mean, weight = _weighed(flat, table, table)
    chosen = jnp.take(table, labels.reshape(-1), axis=0).astype(jnp.float32)
    total = jnp.log(weight)
    loss = total - jnp.sum(flat.astype(jnp.float32) * chosen, axis=1)
    return loss.reshape(labels.shape), (x, table, labels, mean, chosen, total)


def _backward(kept: Any, weight: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    x, table, labels, mean, chosen, total = kept
    flat, weight = x.reshape(-1, x.shape[-1]).astype(table.dtype), weight.reshape(-1, 1)
    d_x = weight * (mean - chosen)
    # the probability of a word is exp(its logit - the total), and the total is a product with ones
    rows = jnp.concatenate([flat, *_halves(-total[:, None], table.dtype)], axis=1)
    words = jnp.concatenate([table, jnp.ones((len(table), _PARTS), table.dtype)], axis=1)
    moved = weight * flat.astype(jnp.float32)
    mean_moved, mass = _weighed(words, rows, moved.astype(table.dtype))
    d_table = (mass[:, None] * mean_moved).at[labels.reshape(-1)].add(-moved)
    return d_x.reshape(x.shape).astype(x.dtype), d_table.astype(table.dtype), None


cross_entropy_by_attention.defvjp(_forward, _backward)


def _halves(x: jax.Array, dtype: Any) -> list[jax.Array]:
    """Numbers of half precision whose sum is x."""
    parts = list[jax.Array]()
    for _ in range(_PARTS):
        parts.append(x.astype(dtype))
        x = x - parts[-1].astype(jnp.float32)
    return parts


def _weighed(query: jax.Array, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
    """For each query, the mean of the values by the weights exp(query . key), and the sum of the weights."""
    count, size = value.shape
    nothing = _ROWS - count % _ROWS  # keys of zeros, at least one
    width = -(-max(query.shape[1], size + 2) // _WIDTH) * _WIDTH
    number = jnp.arange(count + nothing)[:, None]
    marks = jnp.concatenate([number < count, number >= count], axis=1).astype(value.dtype)
    marked = jnp.concatenate([jnp.pad(value, [(0, nothing), (0, 0)]), marks], axis=1)
    values = jnp.pad(marked, [(0, 0), (0, width - size - 2)])
    # queries are 0 where values are marked, so values may serve as keys
    keys = values if key is value else jnp.pad(key, [(0, nothing), (0, width - key.shape[1])])
    queries = jnp.pad(query, [(0, 0), (0, width - query.shape[1])])
    found = _attention(queries[None], keys[None], values[None])[0].astype(jnp.float32)
    share, rest = jnp.maximum(found[:, size], _LEAST), jnp.maximum(found[:, size + 1], _LEAST)
    return found[:, :size] / share[:, None], nothing * share / rest


@jax.custom_batching.custom_vmap
def _attention(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """softmax(q k') v, of arrays (batch, rows, size)."""
    fused = "cudnn" if jax.default_backend() == "gpu" else "xla"
    heads = (array[:, :, None, :] for array in (query, key, value))
    with jax.numpy_dtype_promotion("standard"):  # the plain one mixes half and single precision
        return jax.nn.dot_product_attention(*heads, scale=1.0, implementation=fused)[:, :, 0, :]


@_attention.def_vmap
def _attention_together(
    size: int, is_batched: Any, query: jax.Array, key: jax.Array, value: jax.Array
) -> tuple[jax.Array, bool]:
    """Clients are more rows where they share a table, and more batches where each has its own."""
    if not (is_batched[1] or is_batched[2]):
        rows = jnp.moveaxis(query, 0, 1).reshape(query.shape[1], -1, query.shape[3])
        found = _attention(rows, key, value)
        return jnp.moveaxis(found.reshape(len(found), size, -1, found.shape[2]), 1, 0), True
    each = [
        array if batched else jnp.broadcast_to(array, (size, *array.shape))
        for array, batched in zip((query, key, value), is_batched, strict=True)
    ]
    found = _attention(*(array.reshape(-1, *array.shape[2:]) for array in each))
    return found.reshape(size, -1, *found.shape[1:]), True
