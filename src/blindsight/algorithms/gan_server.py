"""The server's half of training a GAN on clients: computed only from releases, so it costs nothing.

`dp_fedavg_gan` and `bayesian_gan` differ in what clients send and in how the critic is updated. They share this module:
a pair split into parts that can be sent, the generator's steps against the critic, and their state.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from blindsight import trees
from blindsight.algorithms.dp_fedavg import State
from blindsight.errors import InvalidInput
from blindsight.models.gan import GAN, generator_loss
from blindsight.privacy import Privacy
from blindsight.trees import Tree

__all__ = ["GeneratorSteps", "GeneratorTraining", "Server"]


class Server(NamedTuple):
    """The server's state besides the critic (`State.params`), all of it public."""

    critic_optimizer: Any
    generator: Tree
    generator_optimizer: Any
    average: Tree  # moving average of the generator's parameters
    rounds: jax.Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class GeneratorSteps:
    """Training of the generator on the server: `steps` steps of `optimizer` after every `critic_rounds` rounds.

    The returned generator is a moving average with a memory of 1 / (1 - `average`) steps, or the last one if `average`
    is 0. None of it costs privacy.
    """

    optimizer: optax.GradientTransformation
    batch_size: int
    steps: int
    critic_rounds: int = 1
    average: float = 0.0

    def __post_init__(self) -> None:
        for name in ("batch_size", "steps", "critic_rounds"):
            if not getattr(self, name) >= 1:
                raise InvalidInput(f"{name} of the generator must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.average < 1:
            raise InvalidInput(f"average must lie between 0 (the last generator) and 1, got {self.average}")


class GeneratorTraining:
    """The pair `gan` in parts, and its generator's steps."""

    def __init__(self, gan: GAN, how: GeneratorSteps) -> None:
        self.critic, self._fixed_critic = eqx.partition(gan.critic, eqx.is_inexact_array)
        self.generator, self._fixed_generator = eqx.partition(gan.generator, eqx.is_inexact_array)
        self._gan, self._how = gan, how

    def pair(self, critic: Tree, generator: Tree) -> GAN:
        """The GAN with these parameters."""
        whole = eqx.combine(generator, self._fixed_generator), eqx.combine(critic, self._fixed_critic)
        return dataclasses.replace(self._gan, generator=whole[0], critic=whole[1])

    def init(self, critic_optimizer: optax.GradientTransformation, privacy: Privacy) -> State:
        """The state before the first round."""
        states = critic_optimizer.init(self.critic), self._how.optimizer.init(self.generator)
        server = Server(states[0], self.generator, states[1], self.generator, jnp.zeros((), jnp.int32))
        state = State(self.critic, server, jnp.float32(privacy.clip))
        # copied, because a step donates the state; and placed as after a step, or the second step would compile again
        return jax.device_put(state, jax.local_devices()[0], may_alias=False)

    def model(self, state: State) -> GAN:
        """The trained GAN."""
        server: Any = state.server
        return self.pair(state.params, server.average)

    def after_round(self, critic: Tree, server: Server, key: jax.Array) -> Server:
        """The server's state after one more round of the critic, with the generator trained if due."""
        server = server._replace(rounds=server.rounds + 1)
        if self._how.critic_rounds == 1:
            return self._trained(critic, server, key)
        is_due = server.rounds % self._how.critic_rounds == 0
        return jax.lax.cond(is_due, lambda: self._trained(critic, server, key), lambda: server)

    def _trained(self, critic: Tree, server: Server, key: jax.Array) -> Server:
        how = self._how

        def loss(generator: Tree, key: jax.Array) -> jax.Array:
            whole = self.pair(critic, generator)
            return generator_loss(whole, whole.generator, key, how.batch_size)

        def on_step(number: Any, carry: tuple[Tree, Any, Tree]) -> tuple[Tree, Any, Tree]:
            generator, state, before = carry
            gradient = jax.grad(loss)(generator, jax.random.fold_in(key, number))
            updates, state = how.optimizer.update(gradient, state, generator)
            generator = trees.add(generator, updates)
            kept = trees.add(trees.scale(before, how.average), trees.scale(generator, 1 - how.average))
            return generator, state, kept

        carry = server.generator, server.generator_optimizer, server.average
        generator, state, kept = jax.lax.fori_loop(0, how.steps, on_step, carry)
        return server._replace(generator=generator, generator_optimizer=state, average=kept)
