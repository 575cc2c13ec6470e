"""DP-FedAvg-GAN: Augenstein et al. 2020, *Generative Models for Effective ML on Private, Decentralized Datasets*
(arXiv:1911.06679), Algorithm 1.

Each client of the cohort trains the critic on its own examples against generated ones and sends the difference, clipped
as a whole. The server adds noise to the sum, updates the critic by its mean, and then trains the generator against that
critic. Clients' data reach the generator only through the noisy critic, so the critic's guarantee covers it: that is
post-processing, and neither the number of its steps nor its size costs anything.

With a `criterion` (an arm, see `selection`) a client trains on the examples that meet it. A client without any
contributes zero, so the number of clients with such examples stays hidden.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from blindsight import trees
from blindsight.accounting.events import Event
from blindsight.algorithms.dp_fedavg import Algorithm, PureStep, State
from blindsight.algorithms.gan_server import GeneratorSteps, GeneratorTraining, Server
from blindsight.backends import Batch, Cohort, Examples
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms import gaussian, without_noise
from blindsight.mechanisms.noise import Sampler
from blindsight.models.gan import GAN, critic_loss
from blindsight.privacy import Privacy
from blindsight.selection import Criterion
from blindsight.trees import Tree

__all__ = ["chosen_first", "dp_fedavg_gan"]


def dp_fedavg_gan(
    gan: GAN,
    privacy: Privacy,
    *,
    critic_rate: float,
    critic_optimizer: optax.GradientTransformation,
    generator: GeneratorSteps,
    batch_size: int = 32,
    critic_steps: int = 6,
    penalty: float = 10.0,
    criterion: Criterion | None = None,
    sampler: Sampler = "exact",
) -> Algorithm:
    """DP-FedAvg-GAN of `gan` under `privacy`; `Algorithm.model` returns it trained.

    A client takes steps of plain SGD, with one pass over its examples. The server uses the noisy mean as a gradient of
    the critic, and then trains the generator.

    **Guarantee**: every step releases one Gaussian sum on its cohort, at `privacy.noise_multiplier`; nothing else
    leaves the clients, and the generator is computed only from these releases.

    Args:
        gan: Generator and critic to start from.
        privacy: Privacy of the run, with its noise.
        critic_rate: Learning rate of the critic on clients.
        critic_optimizer: The server's optimiser of the critic; the paper's is `optax.sgd(1.0)`.
        generator: Training of the generator on the server; the paper takes 6 steps of 32 examples.
        batch_size: Examples per step on a client.
        critic_steps: Maximum number of steps of a client.
        penalty: Weight of the gradient penalty.
        criterion: Examples that clients train on; all by default.
        sampler: Sampler of the noise, "exact", or "float" to simulate.
    """
    noise = privacy.known_noise
    _check(batch_size=batch_size, critic_steps=critic_steps)
    training = GeneratorTraining(gan, generator)
    mechanism = gaussian(noise, sampler=sampler) if noise else without_noise()

    def client_update(broadcast: tuple[Tree, Tree], examples: Examples, key: jax.Array) -> Tree:  # UserDiscUpdate
        start, sent = broadcast
        order_key, loss_key = jax.random.split(key)
        order, count = chosen_first(examples, criterion, batch_size, key=order_key)

        def loss(critic: Tree, batch: Batch, key: jax.Array) -> jax.Array:
            whole = training.pair(critic, sent)
            return critic_loss(whole, whole.critic, batch, key, penalty)

        def on_batch(number: Any, critic: Tree) -> Tree:
            batch = examples.batch(order, number, batch_size)
            places = number * batch_size + jnp.arange(batch_size, dtype=jnp.int32)
            batch = Batch(batch.fields, batch.weight * (places < count).astype(jnp.float32))
            gradient = jax.grad(loss)(critic, batch, jax.random.fold_in(loss_key, number))
            return trees.sub(critic, trees.scale(gradient, critic_rate))  # 0 without examples: the critic stays

        # an accelerator vectorises over clients, and a loop of fixed length does not wait for the host
        most = min(critic_steps, -(-max(examples.capacity, 1) // batch_size))
        steps = jnp.minimum(most, -(-count // batch_size)) if jax.default_backend() == "cpu" else most
        return trees.sub(jax.lax.fori_loop(0, steps, on_batch, start), start)

    @PureStep
    def step(state: State, cohort: Cohort, *, key: Key) -> tuple[State, Event]:
        server: Any = state.server
        broadcast = state.params, server.generator
        begun = mechanism.begin(state.params, key=key.derive("update"))
        total = cohort.sum(client_update, broadcast, l2_bound=privacy.clip, grid=mechanism.grid(privacy.clip))
        release = mechanism.release(total, key=key.derive("update"), begun=begun)
        with jax.numpy_dtype_promotion("standard"):  # required by Optax
            critic, server = learn(state.params, server, release.value, key.derive("generator").jax())
        return State(critic, server, state.clip), release.event

    # everything below depends only on releases
    @functools.partial(jax.jit, donate_argnums=(1, 2))
    def learn(critic: Tree, server: Server, mean: Tree, key: jax.Array) -> tuple[Tree, Server]:
        updates, critic_state = critic_optimizer.update(trees.scale(mean, -1.0), server.critic_optimizer, critic)
        critic = trees.add(critic, updates)
        server = server._replace(critic_optimizer=critic_state)
        return critic, training.after_round(critic, server, key)

    event = mechanism.planned_event
    return Algorithm(lambda: training.init(critic_optimizer, privacy), step, event, training.model)


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if not count >= 1:
            raise InvalidInput(f"{name} must be at least 1, got {count}")


def chosen_first(
    examples: Examples, criterion: Criterion | None, batch_size: int, *, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The client's examples in random order, those that meet the criterion first, and their number."""
    if criterion is None:
        return examples.order(batch_size, key=key), examples.count
    everything, capacity = examples.whole(), max(examples.capacity, 1)
    chosen = (criterion.mask(everything) * everything.weight) > 0
    bits = jnp.where(chosen, jax.random.bits(key, (capacity,), jnp.uint32) >> 1, jnp.uint32(1 << 31))
    filled = -(-capacity // batch_size) * batch_size  # the last batch is padded with examples that do not count
    order = jnp.pad(jnp.argsort(bits).astype(jnp.int32), (0, filled - capacity))
    return order, jnp.sum(chosen, dtype=jnp.int32)
