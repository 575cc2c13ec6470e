"""Models of Equinox: trained on public data, run row by row in whole batches, and identified by a digest."""

import hashlib
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from blindsight.models.classifiers import CNN, Logistic
from blindsight.models.layers import softmax_cross_entropy

__all__ = ["fit", "module_digest", "module_scores"]


def fit(
    model: Any,
    inputs: np.ndarray,
    labels: np.ndarray,
    *,
    epochs: int = 3,
    batch_size: int = 100,
    learning_rate: float = 1e-3,
    key: jax.Array,
) -> Any:
    """The classifier trained centrally with Adam on public data. No privacy.

    Args:
        model: A fresh classifier.
        inputs: Public examples.
        labels: Their classes.
        epochs: Passes over the examples.
        batch_size: Examples per step.
        learning_rate: Learning rate of Adam.
        key: Key of the example order.
    """
    optimizer = optax.adam(learning_rate)
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean(softmax_cross_entropy(eqx.combine(params, static)(x), y))

    @jax.jit
    def step(params: Any, state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, Any]:
        updates, state = optimizer.update(jax.grad(loss)(params, x, y), state)
        return jax.tree.map(lambda a, b: a + b, params, updates), state

    state, size = optimizer.init(params), min(batch_size, len(inputs))
    for number in range(epochs):
        order = np.asarray(jax.random.permutation(jax.random.fold_in(key, number), len(inputs)))
        for start in range(0, len(inputs) - size + 1, size):
            rows = order[start : start + size]
            with jax.numpy_dtype_promotion("standard"):  # optax counts steps in whole numbers
                params, state = step(params, state, inputs[rows], labels[rows].astype(np.int32))
    return eqx.combine(params, static)


def module_digest(model: Any) -> str:
    """A digest of the module's structure and weights; empty if it contains a lambda or a local function."""
    leaves, structure = jax.tree.flatten(model)
    arrays = [np.asarray(leaf) for leaf in leaves if eqx.is_array(leaf)]
    others = [leaf for leaf in leaves if not eqx.is_array(leaf)]
    words = re.sub(r" at 0x[0-9a-f]+", "", f"{type(model).__module__} {structure} {others!r}")
    if "<lambda>" in words or "<locals>" in words:
        return ""
    digest = hashlib.blake2b(words.encode(), digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


@eqx.filter_jit
def _apply(model: Any, x: jax.Array, mesh: Mesh) -> jax.Array:
    """Every device of the mesh runs the model on its own rows: on a CPU a core each."""

    def on_device(arrays: Any, rows: jax.Array) -> jax.Array:
        whole = eqx.combine(arrays, static)
        if type(model) in _OURS:
            return whole(rows)
        # an unknown module gets batches of one row, so it cannot mix rows
        return jax.vmap(lambda row: whole(row[None])[0])(rows)

    arrays, static = eqx.partition(model, eqx.is_array)
    parts = PartitionSpec(), PartitionSpec(_ROWS)
    return jax.shard_map(on_device, mesh=mesh, in_specs=parts, out_specs=parts[1])(arrays, x)


_OURS = (Logistic, CNN)  # these work row by row; a subclass, or an MLP's activation, may not
_ROWS = "rows"


def module_scores(model: Any, batch_size: int, inputs: np.ndarray) -> np.ndarray:
    """Scores of a batch, padded to `batch_size` so that only one shape is compiled."""
    cores = jax.local_devices() if jax.default_backend() == "cpu" else jax.local_devices()[:1]
    mesh = Mesh(np.array(cores), (_ROWS,))
    filled = np.zeros((-(-batch_size // mesh.size) * mesh.size, *inputs.shape[1:]), inputs.dtype)
    filled[: len(inputs)] = inputs
    arrays, static = eqx.partition(model, eqx.is_array)
    everywhere = eqx.combine(jax.device_put(arrays, NamedSharding(mesh, PartitionSpec())), static)
    return np.asarray(_apply(everywhere, jnp.asarray(filled), mesh))[: len(inputs)]
