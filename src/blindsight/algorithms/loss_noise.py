"""The private GAN of paper 003 as printed, which protects nobody: its Algorithm 1 clips and adds noise to a *loss*.

    D_real <- clip(D_real, C);  D_real <- (sum of D_real + N(0, C^2 sigma^2)) / B;  loss <- (D_real + D_syn) / 2

The noise does not depend on any parameter, so its gradient is zero, and the parameters after every step are the same,
bit for bit, for any sigma. (Clipping a loss does not bound its gradient either.) It is here to demonstrate this, in
`experiments/heterogeneous.py` and in an audit; its guarantee is epsilon = inf, despite Equation 18.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from blindsight.accounting.events import NonPrivate
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.models.layers import Dense

__all__ = ["GANPair", "guarantee", "pair", "real_loss", "train"]

_LEAK = 0.2  # the slope of a leaky ReLU below zero


class GANPair(NamedTuple):
    """A traditional GAN on flat inputs between -1 and 1."""

    discriminator: Any
    generator: Any


class _Layers(eqx.Module):
    """Dense layers with leaky ReLUs between them."""

    dense: list[Dense]

    def __init__(self, *sizes: int, key: jax.Array) -> None:
        keys = jax.random.split(key, len(sizes) - 1)
        self.dense = [Dense(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)]

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.dense[:-1]:
            x = jax.nn.leaky_relu(layer(x), _LEAK)
        return self.dense[-1](x)


def pair(size: int, *, hidden: int = 128, latents: int = 32, key: jax.Array) -> GANPair:
    """A new GAN for inputs of that dimension."""
    first, second = jax.random.split(key)
    return GANPair(_Layers(size, hidden, 1, key=first), _Layers(latents, hidden, size, key=second))


def real_loss(discriminator: Any, real: jax.Array, noise: jax.Array, *, clip: float, sigma: float) -> jax.Array:
    """Lines 8 to 10 of Algorithm 1: per-sample losses clipped to `clip`, summed, plus noise, divided by batch size."""
    losses = jax.nn.softplus(-discriminator(real)[:, 0])
    clipped = losses / jnp.maximum(1.0, jnp.abs(losses) / clip)
    return (jnp.sum(clipped) + clip * sigma * noise) / real.shape[0]


def train(
    start: GANPair,
    real: np.ndarray,
    *,
    sigma: float,
    clip: float = 1.0,
    steps: int = 1000,
    batch: int = 128,
    learning_rate: float = 1e-3,
    key: jax.Array,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> GANPair:
    """Algorithm 1 for a number of steps on flat inputs; the noise is drawn and added, and changes nothing.

    Args:
        start: Discriminator and generator to start from.
        real: Real examples, flat.
        sigma: Standard deviation of the noise, in units of the clip.
        clip: Bound on the loss of one example.
        steps: Number of steps.
        batch: Examples per step.
        learning_rate: Learning rate of both.
        key: Key of batches, latents and noise.
        progress: Called with the steps done and their total.
    """
    latents = start.generator.dense[0].weight.shape[0]
    optimizer = optax.adam(learning_rate, b1=0.5)
    data = jnp.asarray(real, jnp.float32)
    params, static = eqx.partition(start, eqx.is_inexact_array)

    def generated(generator: Any, key: jax.Array) -> jax.Array:
        return jnp.tanh(generator(jax.random.normal(key, (batch, latents))))

    def discriminator_loss(discriminator: Any, generator: Any, x: jax.Array, keys: jax.Array) -> jax.Array:
        noise = jax.random.normal(keys[0])
        fake = jnp.mean(jax.nn.softplus(discriminator(generated(generator, keys[1]))[:, 0]))
        return (real_loss(discriminator, x, noise, clip=clip, sigma=sigma) + fake) / 2

    def generator_loss(generator: Any, discriminator: Any, key: jax.Array) -> jax.Array:
        return jnp.mean(jax.nn.softplus(-discriminator(generated(generator, key))[:, 0]))

    def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
        params, states = carry
        keys = jax.random.split(key, 4)
        whole = eqx.combine(params, static)
        x = data[jax.random.randint(keys[0], (batch,), 0, len(data))]
        slope = eqx.filter_grad(discriminator_loss)(whole.discriminator, whole.generator, x, keys[1:3])
        change, first = optimizer.update(slope, states[0])
        discriminator = eqx.apply_updates(whole.discriminator, change)
        slope = eqx.filter_grad(generator_loss)(whole.generator, discriminator, keys[3])
        change, second = optimizer.update(slope, states[1])
        generator = eqx.apply_updates(whole.generator, change)
        return (eqx.filter(GANPair(discriminator, generator), eqx.is_inexact_array), (first, second)), None

    with jax.numpy_dtype_promotion("standard"):  # required by Optax
        carry = params, (optimizer.init(params.discriminator), optimizer.init(params.generator))
        advance = jax.jit(lambda carry, keys: jax.lax.scan(step, carry, keys)[0])
        for done in range(0, steps, 500):
            progress(done, steps)
            carry = advance(carry, jax.random.split(jax.random.fold_in(key, done), min(500, steps - done)))
    return eqx.combine(carry[0], static)


def guarantee(*, delta: float) -> Guarantee:
    """The guarantee of the algorithm: none.

    >>> print(guarantee(delta=1e-5))
    epsilon = inf: no privacy guarantee (noise on a loss, which reaches no parameter)
    """
    return certify(NonPrivate(), delta=delta, participation="noise on a loss, which reaches no parameter")
