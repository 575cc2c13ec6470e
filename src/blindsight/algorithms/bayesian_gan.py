"""WGAN and WGAN-GP with clipped critic gradients: Triastcyn and Faltings 2022, *Generating Higher-Fidelity Synthetic
Datasets with Privacy Guarantees* (Algorithms 15:232).

The critic's loss has two parts. The part that depends on real examples (their scores and WGAN-GP's gradient penalty,
which is taken between a real example and a generated one) is computed on the clients: each gradient is clipped, and the
sum gets noise and is accounted for. The part that depends only on generated examples is computed on the server and
costs nothing, as the paper says: the generator is a function of earlier releases. It is clipped in the same way, so
that both parts have the same scale.

With `unit="example"` every client is one example and this is the paper's central setting; with `batch_size` examples
per client it protects whole clients. The paper's other half, Bayesian accounting, is in `backends.paired`: the
mechanism is the same, so the classical guarantee holds whatever that estimates.

The paper clips to 0.5 and adds noise of "standard deviation 0.01" (MNIST) or 0.02 (Fashion-MNIST), but does not say to
which quantity: `published_noise_multipliers` lists the possible readings.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from blindsight import trees
from blindsight.accounting.events import Event
from blindsight.algorithms.dp_fedavg import Algorithm, PureStep, State
from blindsight.algorithms.dp_fedavg_gan import chosen_first
from blindsight.algorithms.gan_server import GeneratorSteps, GeneratorTraining, Server
from blindsight.backends import Batch, Cohort, Examples
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms import gaussian, without_noise
from blindsight.mechanisms.noise import Sampler
from blindsight.models.gan import GAN, fake_loss, real_loss
from blindsight.privacy import Privacy
from blindsight.selection import Criterion
from blindsight.trees import Tree

__all__ = ["bayesian_gan", "published_noise_multipliers"]


def bayesian_gan(
    gan: GAN,
    privacy: Privacy,
    *,
    critic_optimizer: optax.GradientTransformation,
    generator: GeneratorSteps,
    batch_size: int = 1,
    fakes: int = 64,
    penalty: float = 0.0,
    weight_clip: float | None = None,
    criterion: Criterion | None = None,
    sampler: Sampler = "exact",
) -> Algorithm:
    """The pair `gan` trained under `privacy`; `Algorithm.model` returns it. WGAN-GP with a `penalty`, otherwise WGAN.

    A client contributes the gradient on a batch of its examples. The server adds that on batches of generated examples,
    takes a step of `critic_optimizer`, and then trains the generator.

    **Guarantee**: every step releases one Gaussian sum on its cohort, at `privacy.noise_multiplier`; everything that
    depends on real examples, including the penalty, is in that sum. The rest is computed only from releases.

    Args:
        gan: Generator and critic to start from.
        privacy: Privacy of the run, with its noise.
        critic_optimizer: The server's optimiser of the critic.
        generator: Training of the generator on the server; the paper takes 1 step of 64 examples.
        batch_size: Examples in a client's gradient.
        fakes: Number of generated batches, each of `batch_size` examples, on the server.
        penalty: Weight of the gradient penalty; 0 for WGAN.
        weight_clip: Bound on the critic's weights, as in WGAN; None for no bound.
        criterion: Examples that clients train on; all by default.
        sampler: Sampler of the noise, "exact", or "float" to simulate.
    """
    _check(batch_size, fakes, penalty, weight_clip)
    training = GeneratorTraining(gan, generator)
    noise = privacy.known_noise
    mechanism = gaussian(noise, sampler=sampler) if noise else without_noise()

    def client_update(broadcast: tuple[Tree, Tree], examples: Examples, key: jax.Array) -> Tree:
        start, sent = broadcast
        order_key, loss_key = jax.random.split(key)
        order, count = chosen_first(examples, criterion, batch_size, key=order_key)
        batch = examples.batch(order, 0, batch_size)
        is_there = (jnp.arange(batch_size, dtype=jnp.int32) < count).astype(jnp.float32)
        batch = Batch(batch.fields, batch.weight * is_there)

        def loss(critic: Tree) -> jax.Array:
            whole = training.pair(critic, sent if penalty else training.generator)
            return real_loss(whole, whole.critic, batch, loss_key, penalty)

        return jax.grad(loss)(start)  # 0 without examples

    @PureStep
    def step(state: State, cohort: Cohort, *, key: Key) -> tuple[State, Event]:
        server: Any = state.server
        broadcast = state.params, server.generator if penalty else ()  # with WGAN, clients do not need the generator
        begun = mechanism.begin(state.params, key=key.derive("update"))
        total = cohort.sum(client_update, broadcast, l2_bound=privacy.clip, grid=mechanism.grid(privacy.clip))
        release = mechanism.release(total, key=key.derive("update"), begun=begun)
        with jax.numpy_dtype_promotion("standard"):  # required by Optax
            critic, server = learn(state.params, server, release.value, key.derive("generator").jax())
        return State(critic, server, state.clip), release.event

    # everything below depends only on releases
    @functools.partial(jax.jit, donate_argnums=(1, 2))
    def learn(critic: Tree, server: Server, mean: Tree, key: jax.Array) -> tuple[Tree, Server]:
        fake_key, generator_key = jax.random.split(key)
        gradient = trees.add(mean, on_generated(critic, server.generator, fake_key))
        updates, critic_state = critic_optimizer.update(gradient, server.critic_optimizer, critic)
        critic = trees.add(critic, updates)
        if weight_clip is not None:
            critic = jax.tree.map(functools.partial(jnp.clip, min=-weight_clip, max=weight_clip), critic)
        server = server._replace(critic_optimizer=critic_state)
        return critic, training.after_round(critic, server, generator_key)

    def on_generated(critic: Tree, generator: Tree, key: jax.Array) -> Tree:
        """The mean gradient on generated examples, clipped as if `fakes` clients had them."""

        def on_client(key: jax.Array) -> Tree:
            def loss(critic: Tree) -> jax.Array:
                whole = training.pair(critic, generator)
                return fake_loss(whole, whole.critic, key, batch_size)

            return trees.scale(trees.clip(jax.grad(loss)(critic), privacy.clip), 1 / fakes)

        return _summed(on_client, jax.random.split(key, fakes), trees.zeros_like(critic))

    event = mechanism.planned_event
    return Algorithm(lambda: training.init(critic_optimizer, privacy), step, event, training.model)


def _summed(one: Callable[[jax.Array], Tree], keys: jax.Array, zero: Tree) -> Tree:
    """The sum over the keys: vectorised on an accelerator, one after the other on a CPU."""
    if jax.default_backend() != "cpu":
        return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), jax.vmap(one)(keys))
    add = lambda total, key: (trees.add(total, one(key)), None)  # noqa: E731
    return jax.lax.scan(add, zero, keys)[0]


def published_noise_multipliers(std: float, *, clip: float = 0.5, batch: int = 64) -> dict[str, float]:
    """The possible readings of the paper's "noise standard deviation", as noise multipliers of clipped sums.

    ``of the clip``  "variance C^2 sigma^2" (Section 2.3.1), added to a sum that one example moves by C
    ``on the sum``   N(0, sigma^2) (Definition 3), added to that sum
    ``on the mean``  N(0, sigma^2), added to the mean of a batch, which one clipped example moves by C / batch

    Only the third is compatible with the Bayesian epsilon of 1 that the paper reports. The authors' code adds noise to
    the mean, but clips that mean and not each example, so one example can move it by 2 C and the plain epsilon is that
    of the first.

    >>> published_noise_multipliers(0.01)
    {'of the clip': 0.01, 'on the sum': 0.02, 'on the mean': 1.28}
    """
    return {"of the clip": std, "on the sum": std / clip, "on the mean": std * batch / clip}


def _check(batch_size: int, fakes: int, penalty: float, weight_clip: float | None) -> None:
    if not (batch_size >= 1 and fakes >= 1):
        raise InvalidInput(f"batch_size and fakes must be at least 1, got {batch_size} and {fakes}")
    if not 0 <= penalty < float("inf"):
        raise InvalidInput(f"penalty must be 0 (WGAN) or positive (WGAN-GP), got {penalty}")
    if weight_clip is not None and not 0 < weight_clip < float("inf"):
        raise InvalidInput(f"weight_clip must be positive, or None, got {weight_clip}")
