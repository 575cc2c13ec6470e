"""The cross-entropy by attention is that of the logits, and so is its gradient; here attention is computed plainly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.kernels.vocabulary_by_attention import cross_entropy_by_attention
from blindsight.models.layers import softmax_cross_entropy

CLIENTS, ROWS, WORDS, SIZE = 2, 30, 130, 12


def of_logits(x: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
    return softmax_cross_entropy(x @ table.T, labels)


def values_and_gradients(function, x: jax.Array, table: jax.Array) -> list[np.ndarray]:
    """Of weighted losses, for clients that share a table or have one each."""
    random = np.random.default_rng(1)
    labels, weight = random.integers(0, WORDS, (CLIENTS, ROWS)), random.normal(size=(CLIENTS, ROWS)).astype(np.float32)
    loss = lambda *at: jnp.sum(function(*at[:3]) * at[3])  # noqa: E731
    each = jax.vmap(jax.value_and_grad(loss, argnums=(0, 1)), in_axes=(0, None if table.ndim == 2 else 0, 0, 0))
    return [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(jax.jit(each)(x, table, labels, weight))]


def made(shape: tuple[int, ...], scale: float, dtype: str) -> tuple[jax.Array, jax.Array]:
    random = np.random.default_rng(0)
    x, table = random.normal(size=(CLIENTS, ROWS, SIZE)), random.normal(size=(*shape, WORDS, SIZE)) * scale
    return jnp.asarray(x, dtype), jnp.asarray(table, dtype)


def error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("shape", [(), (CLIENTS,)], ids=["one table", "a table each"])
def test_values_and_gradients_are_those_of_the_logits(shape: tuple[int, ...], scale: float):
    x, table = made(shape, scale, "float32")
    found = values_and_gradients(cross_entropy_by_attention, x, table)
    for one, other in zip(found, values_and_gradients(of_logits, x, table), strict=True):
        assert error(one, other) < 1e-5


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_half_precision_loses_no_more_than_logits_in_half_precision(scale: float):
    x, table = made((CLIENTS,), scale, "bfloat16")
    expected = values_and_gradients(of_logits, x.astype(jnp.float32), table.astype(jnp.float32))
    attended = values_and_gradients(cross_entropy_by_attention, x, table)
    for found, exact in zip(attended, expected, strict=True):
        assert error(found, exact) < 6e-3


@pytest.mark.parametrize("scale", [100.0, 1e4])
def test_a_model_that_has_run_away_has_finite_gradients(scale: float):
    x, table = made((CLIENTS,), scale, "bfloat16")
    for found in values_and_gradients(cross_entropy_by_attention, x, table):
        assert np.isfinite(found).all()


def test_a_multiple_of_the_rows_that_accelerators_take_at_once_is_no_exception():
    x, table = made((CLIENTS,), 1.0, "float32")
    whole = jnp.concatenate([table, table[:, :62]], axis=1)
    assert whole.shape[1] % 64 == 0
    found, expected = (values_and_gradients(way, x, whole) for way in (cross_entropy_by_attention, of_logits))
    for one, other in zip(found, expected, strict=True):
        assert error(one, other) < 1e-5
