"""The cross-entropy of a large vocabulary without its logits.

The logits of ten thousand words are by far the largest array in a language model, and only their sums matter. Here they
are computed for a thousand words at a time, and once more for the gradient. A CPU's cache holds a block, so both passes
together take half as long as writing and reading all logits. On an accelerator even a block exceeds the cache, and the
second computation has a cost, so `Embedding.cross_entropy` does this only on CPUs.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["cross_entropy_in_blocks"]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def cross_entropy_in_blocks(x: jax.Array, table: jax.Array, labels: jax.Array, block: int) -> jax.Array:
    """-log softmax(x @ table.T)[label] in float32, of (..., size), (vocabulary, size) and labels (...).

    Products are in the table's dtype and add up in float32.
    """
    return _forward(x, table, labels, block)[0]


def _forward(x: jax.Array, table: jax.Array, labels: jax.Array, block: int) -> tuple[jax.Array, Any]:
    flat, parts = x.reshape(-1, x.shape[-1]).astype(table.dtype), _parts(table, block)

    def add(state: tuple[jax.Array, jax.Array], now: tuple[jax.Array, jax.Array]) -> Any:
        largest, mass = state
        logits, _ = _logits(flat, *now, len(table))
        larger = jnp.maximum(largest, jnp.max(logits, axis=1))
        here = jnp.sum(jnp.exp(logits - larger[:, None]), axis=1)
        return (larger, mass * jnp.exp(largest - larger) + here), None

    start = jnp.full(len(flat), -jnp.inf, jnp.float32), jnp.zeros(len(flat), jnp.float32)
    (largest, mass), _ = jax.lax.scan(add, start, (_numbers(parts), parts))
    total = largest + jnp.log(mass)
    chosen = jnp.take(table, labels.reshape(-1), axis=0).astype(jnp.float32)
    loss = total - jnp.sum(flat.astype(jnp.float32) * chosen, axis=1)
    return loss.reshape(labels.shape), (x, table, labels, total)


def _backward(block: int, kept: Any, weight: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    x, table, labels, total = kept
    flat, parts = x.reshape(-1, x.shape[-1]).astype(table.dtype), _parts(table, block)
    weight, labels = weight.reshape(-1, 1), labels.reshape(-1, 1).astype(jnp.int32)

    def add(d_x: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        logits, words = _logits(flat, *now, len(table))
        probability = jnp.exp(logits - total[:, None])
        slope = ((probability - (words == labels).astype(jnp.float32)) * weight).astype(table.dtype)
        wide = functools.partial(jnp.matmul, preferred_element_type=jnp.float32)
        return d_x + wide(slope, now[1]), wide(slope.T, flat)

    d_x, d_parts = jax.lax.scan(add, jnp.zeros(flat.shape, jnp.float32), (_numbers(parts), parts))
    d_table = d_parts.reshape(-1, table.shape[1])[: len(table)]
    return d_x.reshape(x.shape).astype(x.dtype), d_table.astype(table.dtype), None


cross_entropy_in_blocks.defvjp(_forward, _backward)


def _parts(table: jax.Array, block: int) -> jax.Array:
    """The table in blocks of words, the last one filled up with zeros."""
    number = -(-len(table) // block)
    return jnp.pad(table, [(0, number * block - len(table)), (0, 0)]).reshape(number, block, -1)


def _numbers(parts: jax.Array) -> jax.Array:
    return jnp.arange(len(parts), dtype=jnp.int32)


def _logits(x: jax.Array, number: jax.Array, part: jax.Array, vocabulary: int) -> tuple[jax.Array, jax.Array]:
    """The logits of one block, minus infinity beyond the vocabulary, and the words that they are of."""
    logits = jnp.matmul(x, part.T, preferred_element_type=jnp.float32)
    words = number * len(part) + jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1)
    return jnp.where(words < vocabulary, logits, -jnp.inf), words
