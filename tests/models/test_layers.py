"""Laws of the layers: what they equal in `lax` or step by step in numpy, and that clients and examples stay apart."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from blindsight.errors import InvalidInput
from blindsight.kernels import patches as patches_module
from blindsight.models import recurrent
from blindsight.models.layers import (
    Conv,
    ConvTranspose,
    Dense,
    Embedding,
    LayerNorm,
    max_pool,
    softmax_cross_entropy,
)
from blindsight.models.recurrent import CIFG, LSTM

LAYOUT = ("NHWC", "HWIO", "NHWC")
KEY = jax.random.key(0)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def randomised(make, seed: int = 9):
    """A layer with every weight random, so that no bias or scale hides at 0 or 1; nothing is compiled for it."""
    leaves, structure = jax.tree.flatten(jax.eval_shape(make))
    return jax.tree.unflatten(
        structure, [jnp.asarray(normal(*leaf.shape, seed=seed + n)) for n, leaf in enumerate(leaves)]
    )


def assert_close(found, expected, tolerance: float = 1e-4) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def values(layer, x, *functions):
    """What each function makes of (layer, x)."""
    return jax.jit(lambda layer, x: [function(layer, x) for function in functions])(layer, x)


def values_and_gradients(layer, x, *functions):
    """What each function makes of (layer, x), and the gradients of a number that depends on all of it."""

    def probe(layer, x, function):
        out = function(layer, x)
        weights = jnp.cos(jnp.arange(out.size, dtype=jnp.float32)).reshape(out.shape)
        return jnp.sum(out * weights), out

    both = lambda layer, x: [jax.grad(probe, (0, 1), has_aux=True)(layer, x, function) for function in functions]  # noqa: E731
    return jax.jit(both)(layer, x)


def called(layer, x):
    return layer(x)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "height", "width"),
    [
        (1, 2, "VALID", 5, 4),
        (2, 3, "SAME", 7, 5),
        (3, 1, "VALID", 8, 9),
        (3, 2, "SAME", 8, 9),
        (4, 1, "SAME", 6, 11),
        (4, 3, "VALID", 6, 11),
        (5, 1, "VALID", 5, 7),
        (5, 2, "SAME", 7, 6),
    ],
)
def test_conv_is_lax_conv(kernel, stride, padding, height, width):
    layer = randomised(lambda: Conv(3, 4, kernel, stride=stride, padding=padding, key=KEY))

    def plain(layer, x):
        weight = layer.weight.reshape(kernel, kernel, 3, 4)
        found = lax.conv_general_dilated(x, weight, (stride, stride), padding, dimension_numbers=LAYOUT)
        return found + jnp.broadcast_to(layer.bias, found.shape)

    look = values_and_gradients if (kernel, stride) in [(5, 2), (4, 3), (3, 1)] else values
    found, expected = look(layer, normal(2, height, width, 3), called, plain)
    assert_close(found, expected, 1e-3)


@pytest.mark.parametrize(("stride", "padding"), [(1, "VALID"), (2, "SAME")])
def test_image_by_image_is_the_same_convolution(stride, padding, monkeypatch):
    layer = Conv(2, 3, 3, stride=stride, padding=padding, key=KEY)
    gradient = jax.value_and_grad(lambda layer: jnp.sum(jnp.sin(layer(normal(2, 6, 5, 2)))))
    together = gradient(layer)
    monkeypatch.setattr(patches_module, "_CACHED", 0)
    for left, right in zip(jax.tree.leaves(together), jax.tree.leaves(gradient(layer)), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, "VALID"), (5, 2, "SAME"), (2, 3, "VALID")])
def test_patches_of_accelerators_are_those_of_cpus(kernel, stride, padding, dtype, monkeypatch):
    """Values, gradients and gradients of gradients, as a critic's penalty needs them, for every client's own images."""
    x = jnp.asarray(normal(2, 2, 7, 6, 4), dtype)
    weight = jnp.asarray(normal(kernel**2 * 4, 3, seed=1), dtype)

    def penalty(x, weight):
        def total(x):
            return jnp.sum(jnp.sin(patches_module.patches(x, kernel, stride, padding) @ weight).astype(jnp.float32))

        return total(x) + jnp.sum(jnp.square(jax.grad(total)(x).astype(jnp.float32)))

    def everything():
        return jax.jit(jax.vmap(jax.value_and_grad(penalty, argnums=(0, 1)), in_axes=(0, None)))(x, weight)

    sliced = everything()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    jax.clear_caches()  # or what was traced for the CPU would be used again
    for one, other in zip(jax.tree.leaves(everything()), jax.tree.leaves(sliced), strict=True):
        error = np.abs(np.asarray(one, np.float32) - np.asarray(other, np.float32)).max()
        assert error <= (0.03 if dtype == "bfloat16" else 1e-5) * np.abs(np.asarray(other, np.float32)).max()


@pytest.mark.parametrize("kernel", [1, 3, 4])
def test_products_first_are_the_same_convolution(kernel):
    x, weight = jnp.asarray(normal(2, 7, 6, 4)), jnp.asarray(normal(kernel**2 * 4, 2, seed=1))
    found, expected = values_and_gradients(
        weight,
        x,
        lambda weight, x: patches_module._products_first(x, weight, kernel),
        lambda weight, x: patches_module._slices(x, kernel, 1) @ weight,
    )
    assert_close(found, expected, 1e-3)


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (5, 2), (3, 1), (1, 2), (2, 3)])
def test_conv_transpose_on_an_accelerator_is_that_on_a_cpu(kernel, stride):
    layer, x = randomised(lambda: ConvTranspose(2, 3, kernel, stride=stride, key=KEY)), normal(2, 5, 3, 2)

    def at_once(layer, x):
        found = layer._together(x @ layer.weight)
        return found + jnp.broadcast_to(layer.bias, found.shape)

    found, expected = values_and_gradients(layer, x, at_once, called)
    assert_close(found, expected, 1e-3)


def test_gradient_of_a_pool_goes_to_the_largest_and_of_equals_to_the_first():
    x = jnp.asarray([[1.0, 2.0, 5.0], [3.0, 3.0, 5.0], [9.0, 9.0, 9.0]])[None, :, :, None]
    gradient = jax.grad(lambda x: jnp.sum(7 * max_pool(x)))(x)[0, :, :, 0]
    assert gradient.tolist() == [[0, 0, 0], [7, 0, 0], [0, 0, 0]]
    ragged = normal(2, 5, 7, 3)
    found = jax.grad(lambda x: jnp.sum(jnp.sin(max_pool(x))))(ragged)
    plain = lambda x: jnp.max(x[:, :4, :6].reshape(2, 2, 2, 3, 2, 3), axis=(2, 4))  # noqa: E731
    assert_close(found, jax.grad(lambda x: jnp.sum(jnp.sin(plain(x))))(ragged))


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (4, 1), (4, 2), (5, 1), (5, 2), (2, 2), (1, 2), (2, 3)])
def test_conv_transpose_is_the_transpose_of_conv(kernel, stride):
    """<conv(x), y> = <x, transposed(y)> for every x and y: as lax's, and as the gradient of `Conv`."""
    up = randomised(lambda: ConvTranspose(2, 3, kernel, stride=stride, key=KEY))
    down = jax.eval_shape(lambda: Conv(3, 2, kernel, stride=stride, key=KEY))
    y = normal(2, 5, 3, 2)

    def of_lax(up, y):
        weight = jnp.transpose(up.weight.reshape(2, kernel, kernel, 3), (1, 2, 3, 0))
        found = lax.conv_transpose(y, weight, (stride, stride), "SAME", dimension_numbers=LAYOUT, transpose_kernel=True)
        return found + jnp.broadcast_to(up.bias, found.shape)

    def of_conv(up, y):
        weight = jnp.transpose(up.weight.reshape(2, kernel * kernel, 3), (1, 2, 0)).reshape(-1, 2)
        conv = eqx.tree_at(lambda layer: (layer.weight, layer.bias), down, (weight, jnp.zeros(2)))
        _, transpose = jax.vjp(conv, jnp.zeros((2, 5 * stride, 3 * stride, 3)))
        (found,) = transpose(y)
        return found + jnp.broadcast_to(up.bias, found.shape)

    found, *expected = values(up, y, called, of_lax, of_conv)
    assert found.shape == (2, 5 * stride, 3 * stride, 3)
    assert_close(found, expected[0])
    assert_close(found, expected[1])
    if (kernel, stride) == (5, 2):
        found, expected = values_and_gradients(up, y, called, of_lax)
        assert_close(found, expected, 1e-3)


@pytest.mark.parametrize(("height", "width", "size"), [(4, 6, 2), (7, 5, 2), (8, 9, 3), (3, 2, 1), (1, 5, 2)])
def test_max_pool_is_the_largest_of_each_block(height, width, size):
    x = normal(2, height, width, 3)
    rows, columns = height // size, width // size
    found = jax.jit(max_pool, static_argnums=1)(x, size)
    assert found.shape == (2, rows, columns, 3)
    for row in range(rows):
        for column in range(columns):
            block = x[:, row * size : (row + 1) * size, column * size : (column + 1) * size]
            np.testing.assert_array_equal(found[:, row, column], block.max(axis=(1, 2)))


def test_a_layer_norm_gives_mean_0_and_variance_1_then_scale_and_shift():
    plain, moved = LayerNorm(6), randomised(lambda: LayerNorm(6))
    x = 7 * normal(4, 5, 3, 6) - 20
    out, after = (np.asarray(jax.jit(called)(norm, x), np.float64) for norm in (plain, moved))
    np.testing.assert_allclose(out.mean(axis=-1), 0, atol=1e-4)
    np.testing.assert_allclose(out.var(axis=-1), 1, atol=1e-3)
    np.testing.assert_allclose(after, out * np.asarray(moved.scale) + np.asarray(moved.shift), rtol=1e-4, atol=1e-4)


def test_an_examples_norm_depends_on_no_other_example():
    layer, x = LayerNorm(6), normal(5, 4, 4, 6)
    norm = lambda x: np.asarray(jax.jit(called)(layer, x))  # noqa: E731
    changed = 100 * normal(5, 4, 4, 6, seed=1)
    changed[0] = x[0]
    np.testing.assert_array_equal(norm(x)[0], norm(changed)[0])
    np.testing.assert_allclose(norm(x)[0], norm(x[:1])[0], rtol=1e-5, atol=1e-6)


def test_a_constant_image_has_no_infinite_norm():
    assert not np.any(jax.jit(called)(LayerNorm(6), np.full((1, 2, 2, 6), 3.0, np.float32)))


def test_an_embedding_reads_rows_and_its_logits_are_inner_products_with_them():
    layer = randomised(lambda: Embedding(7, 4, key=KEY))
    table, tokens, x = np.asarray(layer.table), np.array([[0, 6, 3], [3, 3, 1]], np.int32), normal(2, 3, 4)
    np.testing.assert_array_equal(jax.jit(called)(layer, tokens), table[tokens])
    one_by_one = [[[np.dot(x[i, j], table[v]) for v in range(7)] for j in range(3)] for i in range(2)]
    np.testing.assert_allclose(layer.logits(x), one_by_one, rtol=1e-4, atol=1e-5)
    # one table: a gradient through the logits alone reaches what is looked up
    gradient = jax.jit(jax.grad(lambda layer: jnp.sum(layer.logits(x))))(layer)
    np.testing.assert_allclose(gradient.table, np.tile(x.sum((0, 1)), (7, 1)), rtol=1e-4, atol=1e-5)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def step_by_step(layer, x: np.ndarray) -> np.ndarray:
    """A recurrent layer in double precision, one example and one moment at a time, gates by their names."""
    weight, bias, projection = (np.asarray(a, np.float64) for a in (layer.weight, layer.bias, layer.projection))
    cells = projection.shape[0]
    names = ["forget", "output", "candidate"] if isinstance(layer, CIFG) else ["input", "forget", "candidate", "output"]
    outputs = np.zeros((*x.shape[:2], projection.shape[1]))
    for example in range(x.shape[0]):
        cell, said = np.zeros(cells), np.zeros(projection.shape[1])
        for moment in range(x.shape[1]):
            gates = np.concatenate([np.asarray(x[example, moment], np.float64), said]) @ weight + bias
            gate = {name: gates[n * cells : (n + 1) * cells] for n, name in enumerate(names)}
            forget = sigmoid(gate["forget"])
            enter = sigmoid(gate["input"]) if "input" in gate else 1 - forget
            cell = forget * cell + enter * np.tanh(gate["candidate"])
            said = (sigmoid(gate["output"]) * np.tanh(cell)) @ projection
            outputs[example, moment] = said
    return outputs


@pytest.mark.parametrize("kind", [LSTM, CIFG])
def test_recurrent_layers_are_their_equations_step_by_step(kind):
    layer, x = randomised(lambda: kind(3, 5, 4, key=KEY)), normal(2, 6, 3)
    found = jax.jit(called)(layer, x)
    np.testing.assert_allclose(found, step_by_step(layer, x), rtol=1e-4, atol=1e-4)
    x[:, 4:] += 10  # what comes later changes nothing that was said before
    np.testing.assert_array_equal(found[:, :4], jax.jit(called)(layer, x)[:, :4])


@pytest.mark.parametrize(("kind", "together"), [(LSTM, 1), (CIFG, 1), (LSTM, 3), (CIFG, 4)])
def test_recurrent_gradients_are_those_of_the_steps_written_out(kind, together, monkeypatch):
    """The gradient is written by hand; differentiating the steps one after the other gives the same.

    Accelerators compute several steps in one iteration.
    """
    monkeypatch.setattr(recurrent, "_unrolled", lambda steps: together)
    layer, x = randomised(lambda: kind(3, 5, 4, key=KEY)), normal(2, 4, 3)

    def unrolled(layer, x):
        cell, said, all_said = jnp.zeros((2, 5)), jnp.zeros((2, 4)), []
        for moment in range(x.shape[1]):
            gates = jnp.concatenate([x[:, moment], said], axis=-1) @ layer.weight
            parts = jnp.split(gates + jnp.broadcast_to(layer.bias, gates.shape), gates.shape[-1] // 5, axis=-1)
            bounded = [jnp.tanh if number == 2 else jax.nn.sigmoid for number in range(4)]  # the candidate is third
            cell, shown = layer.mix(cell, *(bound(part) for bound, part in zip(bounded, parts, strict=False)))
            said = shown @ layer.projection
            all_said.append(said)
        return jnp.stack(all_said, axis=1)

    found, expected = values_and_gradients(layer, x, lambda layer, x: layer(x), unrolled)
    assert_close(found, expected, 1e-3)


@pytest.mark.parametrize("shape", [(5,), (2, 3)], ids=str)
def test_cross_entropy_is_that_of_the_softmax_in_value_and_gradient(shape):
    """Also where exp would overflow, and for the last class."""
    logits = 30 * normal(*shape, 7)
    logits.reshape(-1, 7)[0] = [500, -500, 0, 0, 0, 0, 500]
    labels = np.random.default_rng(3).integers(0, 7, shape).astype(np.int32)
    labels.flat[:2] = 6, 0
    logits64 = logits.astype(np.float64)
    highest = logits64.max(axis=-1, keepdims=True)
    total = highest[..., 0] + np.log(np.exp(logits64 - highest).sum(axis=-1))
    expected = total - np.take_along_axis(logits64, labels[..., None], axis=-1)[..., 0]
    weights = normal(*shape, seed=5)
    softmax = np.exp(logits64 - total[..., None])
    gradient = (softmax - np.eye(7)[labels]) * weights[..., None]
    weighted = lambda logits: jnp.sum(softmax_cross_entropy(logits, labels) * weights)  # noqa: E731
    found, slope = jax.jit(lambda logits: (softmax_cross_entropy(logits, labels), jax.grad(weighted)(logits)))(logits)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(slope, gradient, rtol=1e-4, atol=1e-4)


def test_a_cifg_has_three_quarters_of_an_lstms_recurrent_weights_and_remembers_to_begin_with():
    cifg = CIFG(8, 16, 8, key=KEY)
    lstm = jax.eval_shape(lambda: LSTM(8, 16, 8, key=KEY))
    assert 4 * cifg.weight.size == 3 * lstm.weight.size
    assert cifg.bias.tolist() == [1.0] * 16 + [0.0] * 32


LAYERS = {
    "dense": (lambda: Dense(4, 3, key=KEY), (2, 4)),
    "conv": (lambda: Conv(2, 3, 3, stride=2, key=KEY), (2, 5, 5, 2)),
    "conv_transpose": (lambda: ConvTranspose(2, 3, 4, key=KEY), (2, 3, 3, 2)),
    "layer_norm": (lambda: LayerNorm(4), (2, 4)),
    "cifg": (lambda: CIFG(3, 4, 2, key=KEY), (2, 5, 3)),
    "lstm": (lambda: LSTM(3, 4, 2, key=KEY), (2, 5, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_clients_with_weights_of_their_own_side_by_side_are_a_loop_over_clients(name):
    make, shape = LAYERS[name]
    clients = [randomised(make, seed=10 * client) for client in range(3)]
    inputs = normal(3, *shape)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *clients)
    together, alone = jax.jit(jax.vmap(called))(stacked, inputs), jax.jit(called)
    for client, layer in enumerate(clients):
        np.testing.assert_allclose(together[client], alone(layer, inputs[client]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_half_precision_is_the_same_up_to_its_rounding(name):
    """A layer whose weights are bfloat16 reads inputs of any precision and answers in bfloat16."""
    make, shape = LAYERS[name]
    layer, x = randomised(make), normal(*shape)
    if "norm" in name:
        x = x.astype(jnp.bfloat16)
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), layer)
    found, expected = jax.jit(called)(half, x), jax.jit(called)(layer, x.astype(np.float32))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(np.float32), expected, rtol=0.05, atol=0.15)


def test_initial_weights_have_the_variance_of_glorot_and_differ_by_key():
    weights = [Dense(300, 200, key=jax.random.key(seed)).weight for seed in (0, 0, 1)]
    assert abs(float(np.var(weights[0])) * (300 + 200) / 2 - 1) < 0.02  # 60,000 draws: 0.4 % a standard deviation
    assert np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


@pytest.mark.parametrize("padding", ["same", "FULL", ""])
def test_another_padding_is_refused(padding):
    with pytest.raises(InvalidInput, match="SAME or VALID"):
        Conv(1, 1, 3, padding=padding, key=KEY)
