"""The cross-entropy in blocks is that of all logits at once, and so is its gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.kernels.vocabulary import cross_entropy_in_blocks
from blindsight.models import layers
from blindsight.models.cifg_lstm import next_token_loss, word_model
from blindsight.models.layers import softmax_cross_entropy


def numbers(*shape: int, scale: float = 1.0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape) * scale, jnp.float32)


@pytest.mark.parametrize("block", [1, 7, 32, 50, 64])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_values_and_gradients_are_those_of_the_logits(block: int, scale: float):
    x, table = numbers(3, 4, 6), numbers(50, 6, scale=scale)
    labels = jnp.asarray(np.random.default_rng(0).integers(0, 50, (3, 4))).at[0, :2].set(jnp.array([0, 49]))
    weight = numbers(3, 4)

    def whole(x: jax.Array, table: jax.Array) -> jax.Array:
        return softmax_cross_entropy(x @ table.T, labels)

    def blocks(x: jax.Array, table: jax.Array) -> jax.Array:
        return cross_entropy_in_blocks(x, table, labels, block)

    np.testing.assert_allclose(blocks(x, table), whole(x, table), rtol=1e-5, atol=1e-5 * scale)
    slopes = [jax.grad(lambda *at, f=f: jnp.sum(f(*at) * weight), argnums=(0, 1))(x, table) for f in (whole, blocks)]
    for expected, found in zip(*slopes, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * scale)


def test_clients_with_tables_of_their_own_are_computed_together():
    x, tables = numbers(2, 5, 6), numbers(2, 20, 6)
    labels = jnp.arange(10).reshape(2, 5)
    slope = jax.grad(lambda x, table, y: jnp.sum(cross_entropy_in_blocks(x, table, y, 8)), argnums=1)
    found = jax.vmap(slope)(x, tables, labels)
    for client in range(2):
        np.testing.assert_allclose(
            found[client], slope(x[client], tables[client], labels[client]), rtol=1e-5, atol=1e-6
        )


def test_half_precision_sums_in_single_precision():
    x, table = numbers(8, 64), numbers(3000, 64, scale=0.1)
    labels = jnp.arange(8)
    x, table = x.astype(jnp.bfloat16), table.astype(jnp.bfloat16)
    exact = softmax_cross_entropy(x.astype(jnp.float32) @ table.astype(jnp.float32).T, labels)
    found: Any = cross_entropy_in_blocks(x, table, labels, 256)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, exact, rtol=1e-4)


@pytest.mark.slow  # what it computes is asked above
def test_a_language_model_writes_no_logits_and_has_the_same_loss(monkeypatch: pytest.MonkeyPatch):
    if jax.default_backend() != "cpu":
        pytest.skip("accelerators write them")
    model = word_model(3000, embedding=8, cells=16, key=jax.random.key(0))
    tokens = jnp.asarray(np.random.default_rng(0).integers(3, 3000, (5, 7)))

    class Rows:
        weight = jnp.ones(5)

        def __getitem__(self, field: str) -> jax.Array:
            return tokens

    def program() -> tuple[str, list[jax.Array]]:
        of = jax.value_and_grad(lambda table: loss_of(table))
        loss = next_token_loss()

        def loss_of(table: jax.Array) -> jax.Array:
            at = lambda tree: tree.embedding.table  # noqa: E731
            return loss(layers.eqx.tree_at(at, model, table), Rows(), jax.random.key(0))

        return str(jax.make_jaxpr(of)(model.embedding.table)), jax.tree.leaves(of(model.embedding.table))

    blocks, found = program()
    monkeypatch.setattr(layers, "_BLOCK", 10**6)
    whole, expected = program()
    assert "3000]" in whole.replace(" ", "")
    assert "5,6,3000]" in whole
    assert "5,6,3000]" not in blocks
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)
