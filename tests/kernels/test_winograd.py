"""Convolutions by tiles: what `lax.conv` gives, and its gradients, for whatever sizes tiles do and do not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.kernels import patches
from blindsight.kernels.winograd import KERNELS, winograd


def _drawn(kernel, height, width, channels=8, outputs=5, batch=2):
    random = np.random.default_rng(kernel * 1000 + height * 10 + width)
    x = jnp.asarray(random.normal(size=(batch, height, width, channels)), jnp.float32)
    weight = random.normal(size=(kernel**2 * channels, outputs)) / np.sqrt(kernel**2 * channels)
    return x, jnp.asarray(weight, jnp.float32)


def _expected(x, weight, kernel, padding="VALID"):
    shaped = weight.reshape(kernel, kernel, x.shape[-1], -1)
    return jax.lax.conv_general_dilated(x, shaped, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("height", "width"), [(6, 6), (5, 7), (13, 10), (30, 11)])
def test_it_is_the_convolution_and_has_its_gradients(kernel, height, width):
    x, weight = _drawn(kernel, height, width)
    towards = jnp.asarray(np.random.default_rng(0).normal(size=_expected(x, weight, kernel).shape), jnp.float32)

    def with_gradients(convolution):
        def value_and_pulled(x, weight):
            value, pull = jax.vjp(lambda x, weight: convolution(x, weight, kernel), x, weight)
            return value, pull(towards)

        return jax.jit(value_and_pulled)(x, weight)

    (expected, pulled), (found, pulled_found) = with_gradients(_expected), with_gradients(winograd)
    np.testing.assert_allclose(found, expected, atol=5e-5)
    for got, wanted in zip(pulled_found, pulled, strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-5 * float(jnp.abs(wanted).max()))


def test_gradients_of_gradients_are_right_as_a_critics_penalty_needs_them():
    x, weight = _drawn(3, 9, 8)

    def penalty(convolution):
        def slope(weight):
            found = jax.grad(lambda x: jnp.sum(jnp.tanh(convolution(x, weight))))(x)
            return jnp.sum(jnp.square(found))

        return jax.jit(jax.grad(slope))(weight)

    wanted = penalty(lambda x, weight: _expected(x, weight, 3))
    np.testing.assert_allclose(
        penalty(lambda x, w: winograd(x, w, 3)), wanted, atol=2e-4 * float(jnp.abs(wanted).max())
    )


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_layers_take_this_way_on_a_cpu_where_it_pays(padding, monkeypatch):
    if jax.default_backend() != "cpu":
        pytest.skip("accelerators multiply patches")
    ways = []
    monkeypatch.setattr(patches, "winograd", lambda *given: ways.append(given[2]) or winograd(*given))
    x, weight = _drawn(3, 9, 9)
    np.testing.assert_allclose(patches.convolve(x, weight, 3, 1, padding), _expected(x, weight, 3, padding), atol=5e-5)
    assert ways == [3]
    few, few_weight = _drawn(3, 9, 9, channels=2)
    patches.convolve(few, few_weight, 3, 1, padding)
    patches.convolve(x, weight, 3, 2, padding)
    patches.convolve(x.astype(jnp.bfloat16), weight.astype(jnp.bfloat16), 3, 1, padding)  # too coarse for the maps
    assert ways == [3]
