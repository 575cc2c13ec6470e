"""The proof that noise on a loss is no privacy: the parameters do not know of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.algorithms import loss_noise


def leaves(pair: loss_noise.GANPair) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(pair)]


@pytest.fixture(scope="module")
def trained() -> dict[float, loss_noise.GANPair]:
    start = loss_noise.pair(6, hidden=8, latents=3, key=jax.random.key(0))
    real = np.random.default_rng(0).uniform(-1, 1, (50, 6))
    return {
        sigma: loss_noise.train(start, real, sigma=sigma, steps=30, batch=16, key=jax.random.key(1))
        for sigma in (0.0, 5.0, 1e6)
    }


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [5.0, 1e6])
def test_the_parameters_are_the_same_bit_for_bit_whatever_sigma_is(trained, sigma):
    for without, with_noise in zip(leaves(trained[0.0]), leaves(trained[sigma]), strict=True):
        assert without.tobytes() == with_noise.tobytes()


@pytest.mark.slow
def test_training_did_something(trained):
    start = loss_noise.pair(6, hidden=8, latents=3, key=jax.random.key(0))
    assert not any(np.array_equal(a, b) for a, b in zip(leaves(start), leaves(trained[5.0]), strict=True))


def test_the_noise_is_in_the_loss_as_the_paper_says():
    pair = loss_noise.pair(6, hidden=8, latents=3, key=jax.random.key(0))
    real, draws = jnp.ones((10, 6)), jax.random.normal(jax.random.key(2), (2000,))
    losses = np.asarray(
        jax.vmap(lambda noise: loss_noise.real_loss(pair.discriminator, real, noise, clip=0.5, sigma=3.0))(draws)
    )
    assert losses.std() == pytest.approx(0.5 * 3.0 / 10, rel=0.15)
    quiet = loss_noise.real_loss(pair.discriminator, real, jnp.zeros(()), clip=0.5, sigma=3.0)
    assert float(quiet) == pytest.approx(0.5, abs=1e-6)  # every loss is longer than the clip here


def test_there_is_no_guarantee():
    assert not loss_noise.guarantee(delta=1e-5).is_private
