"""Membership scores of planted clients under a released model, one for each way to plant them.

A client that took part leaves any model slightly better on the client's own examples, and slightly further along the
direction that the client sent. The auditor's coins decide which canaries are planted (`one_run`).
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from blindsight import trees
from blindsight.audit.planting import direction
from blindsight.backends import Batch
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.models.classifiers import Loss
from blindsight.trees import Tree

__all__ = ["client_scores", "direction_scores"]


def client_scores(model: Any, clients: Population, loss: Loss) -> np.ndarray:
    """Minus the mean `loss(model, batch, key)` on each client's examples; all clients have the same number."""
    sizes = np.unique(clients.sizes)
    if len(sizes) != 1 or sizes[0] == 0:
        raise InvalidInput("clients are scored in one batch: give each of them the same number of examples")
    count = int(sizes[0])
    columns = {
        field: jnp.asarray(column.reshape(clients.size, count, *column.shape[1:]))
        for field, column in clients.columns.items()
        if column.dtype.kind in "biuf"
    }
    return -np.asarray(_losses(model, columns, loss), np.float64)


@eqx.filter_jit
def _losses(model: Any, columns: dict[str, jax.Array], loss: Loss) -> jax.Array:
    def one(fields: dict[str, jax.Array]) -> jax.Array:
        weight = jnp.ones(len(next(iter(fields.values()))), jnp.float32)
        return loss(model, Batch(fields, weight), jax.random.key(0)).astype(jnp.float32)

    return jax.lax.map(one, columns)


def direction_scores(before: Any, after: Any, count: int, *, key: Key) -> np.ndarray:
    """How far the model moved along each of `count` directions, as membership scores."""
    moved = trees.sub(eqx.filter(after, eqx.is_inexact_array), eqx.filter(before, eqx.is_inexact_array))
    return np.asarray(_along(moved, jnp.arange(1, count + 1), key.jax()))


@jax.jit
def _along(moved: Tree, numbers: jax.Array, key: jax.Array) -> jax.Array:
    def one(number: jax.Array) -> jax.Array:
        products = jax.tree.map(lambda a, b: jnp.sum(a * b), moved, direction(moved, number, key))
        return functools.reduce(jnp.add, jax.tree.leaves(products))

    return jax.lax.map(one, numbers)
