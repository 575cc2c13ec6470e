"""DP-FedAvg: McMahan et al. 2018, *Learning Differentially Private Recurrent Language Models* (arXiv:1710.06963).

Each client of the cohort runs SGD from the server's parameters and sends the difference, clipped as a whole. The server
adds noise to the sum, divides by the expected cohort size and uses the mean as a gradient. Adaptive clipping follows
Andrew et al. 2021 (arXiv:1905.03871): the clip moves towards a quantile of the updates' norms, estimated from a noisy
count. With one example per client this is example-level DP-SGD.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from blindsight import trees
from blindsight.accounting.events import Event
from blindsight.accounting.planning import split_noise
from blindsight.backends import Cohort, Examples
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms import gaussian, without_noise
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.mechanisms.noise import Sampler
from blindsight.models.classifiers import Loss
from blindsight.privacy import Privacy
from blindsight.trees import Tree

__all__ = ["AdaptiveClip", "Algorithm", "PureStep", "State", "dp_fedavg", "local_sgd"]


class State(NamedTuple):
    """The server's state between rounds, all of it public."""

    params: Tree
    server: optax.OptState
    clip: jax.Array


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An initial state, the step of a round, and the event of every round."""

    init: Callable[[], State]
    step: Callable[..., tuple[State, Event]]  # (state, cohort, *, key); donates the state
    event: Event
    model: Callable[[State], Any]


@dataclasses.dataclass(frozen=True)
class PureStep:
    """A step that does nothing but compute what it returns, so that JAX can trace it and rounds be compiled together.

    Its `cohort` and `key` may then be stand-ins, and what it computes from them must not depend on Python's branches.
    """

    compute: Callable[..., tuple[State, Event]]

    def __call__(self, state: State, cohort: Cohort, *, key: Key) -> tuple[State, Event]:
        """The next state and the event of the release."""
        return self.compute(state, cohort, key=key)


@dataclasses.dataclass(frozen=True)
class AdaptiveClip:
    """Moves the clip by a factor of at most e^learning_rate per round towards `quantile` of the updates' norms."""

    quantile: float = 0.5
    learning_rate: float = 0.2
    count_std: float | None = (
        None  # of the noise on the count of updates within the clip; a twentieth of the cohort if None
    )

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise InvalidInput(f"quantile must lie between 0 and 1, got {self.quantile}")
        if not 0 < self.learning_rate <= 10:
            raise InvalidInput(f"the clip's learning_rate must lie between 0 and 10, got {self.learning_rate}")


def dp_fedavg(
    model: Any,
    loss: Loss,
    privacy: Privacy,
    *,
    client_optimizer: optax.GradientTransformation,
    server_optimizer: optax.GradientTransformation,
    batch_size: int,
    epochs: int = 1,
    adaptive_clip: AdaptiveClip | None = None,
    sampler: Sampler = "exact",
    shuffle: bool = True,
    compute_dtype: Any = jnp.float32,
) -> Algorithm:
    """DP-FedAvg of `model` under `privacy`.

    **Guarantee**: every step releases one Gaussian sum on its cohort, at a total noise multiplier of
    `privacy.noise_multiplier`; nothing else leaves the clients.

    Args:
        model: An Equinox module.
        loss: Loss of a model on a batch, with a key.
        privacy: Privacy of the run, with its noise.
        client_optimizer: Optimiser of a client's steps.
        server_optimizer: Optimiser of the server, which uses the noisy mean as a gradient.
        batch_size: Examples per step on a client.
        epochs: Passes of a client over its examples.
        adaptive_clip: Adapts the clip to a private quantile of the norms; fixed by default.
        sampler: Sampler of the noise, "exact", or "float" to simulate.
        shuffle: Whether clients shuffle their examples.
        compute_dtype: Precision of losses and gradients; `jnp.bfloat16` is twice as fast on an accelerator, and
            parameters, updates, clipping and sums stay in float32.
    """
    if not (batch_size >= 1 and epochs >= 1):
        raise InvalidInput(f"batch_size and epochs must be at least 1, got {batch_size} and {epochs}")
    params, static = eqx.partition(model, eqx.is_inexact_array)
    noise, adapting = privacy.known_noise, adaptive_clip or AdaptiveClip()
    if adaptive_clip is not None and noise:
        noise, count_std = split_noise(noise, privacy.cohort, count_std=adaptive_clip.count_std)
        counting = gaussian(2 * count_std, sampler=sampler)  # a client changes the centred count by 1/2
    else:
        counting = without_noise()
    mechanism = gaussian(noise, sampler=sampler) if noise else without_noise()
    bounds = {"update": privacy.clip if adaptive_clip is None else 1.0, "is_short": 0.5}
    grid = {"update": mechanism.grid(bounds["update"]), "is_short": counting.grid(0.5)}
    event = joint(mechanism.planned_event, *([counting.planned_event] if adaptive_clip else []))

    def client_update(broadcast: tuple[Tree, jax.Array], examples: Examples, key: jax.Array) -> Tree:
        start, clip = broadcast

        def loss_of(local: Tree, batch: Any, key: jax.Array) -> jax.Array:
            return loss(eqx.combine(local, static), batch, key).astype(jnp.float32)

        update = local_sgd(loss_of, client_optimizer, start, examples, key, batch_size, epochs, shuffle, compute_dtype)
        if adaptive_clip is None:
            return update
        is_short = (trees.norm(update) <= clip).astype(jnp.float32)
        return {"update": trees.scale(update, 1 / clip), "is_short": is_short - 0.5}

    @PureStep
    def step(state: State, cohort: Cohort, *, key: Key) -> tuple[State, Event]:
        broadcast = state.params, state.clip
        begun = mechanism.begin(state.params, key=key.derive("update"))
        if adaptive_clip is None:
            total = cohort.sum(client_update, broadcast, l2_bound=bounds["update"], grid=grid["update"])
            release = mechanism.release(total, key=key.derive("update"), begun=begun)
            params, server = apply(state.params, state.server, release.value)
            return State(params, server, state.clip), release.event
        sums = cohort.sum(client_update, broadcast, l2_bound=bounds, grid=grid)
        release = mechanism.release(sums["update"], key=key.derive("update"), begun=begun)
        count = counting.release(sums["is_short"], key=key.derive("is_short"))
        after = adapt(state.params, state.server, release.value, state.clip, count.value)
        return State(*after), joint(release.event, count.event)

    @functools.partial(jax.jit, donate_argnums=(1, 2))  # the old optimiser state and the mean are not reused
    def apply(params: Tree, server: optax.OptState, mean: Tree) -> tuple[Tree, optax.OptState]:
        updates, server = server_optimizer.update(trees.scale(mean, -1.0), server, params)
        return trees.add(params, updates), server

    @functools.partial(jax.jit, donate_argnums=(1, 2))
    def adapt(params: Tree, server: Any, mean: Tree, clip: jax.Array, is_short: Any) -> tuple[Tree, Any, jax.Array]:
        params, server = apply(params, server, trees.scale(mean, clip))
        too_many = is_short + 0.5 - adapting.quantile
        return params, server, jnp.clip(clip * jnp.exp(-adapting.learning_rate * too_many), 1e-6, 1e6)

    def init() -> State:
        return State(params, server_optimizer.init(params), jnp.float32(privacy.clip))

    return Algorithm(init, step, event, lambda state: eqx.combine(state.params, static))


def local_sgd(
    loss: Callable[[Tree, Any, jax.Array], jax.Array],
    optimizer: optax.GradientTransformation,
    params: Tree,
    examples: Examples,
    key: jax.Array,
    batch_size: int,
    epochs: int = 1,
    shuffle: bool = True,
    compute_dtype: Any = jnp.float32,
) -> Tree:
    """The change of `params` over `epochs` of SGD on the client's examples, reshuffled each epoch.

    In half precision the change itself accumulates in float32, which loses less than adding it to the parameters. A
    half-precision copy of the parameters is updated with it, so it costs no extra pass over memory.

    Args:
        loss: Loss of parameters on a batch, with a key.
        optimizer: Optimiser of the steps.
        params: Parameters to start from.
        examples: The client's examples.
        key: Key of the order and of the loss.
        batch_size: Examples per step.
        epochs: Passes over the examples.
        shuffle: Whether to shuffle them.
        compute_dtype: Precision of losses and gradients.
    """
    batches = examples.batches(batch_size)
    is_narrow = jnp.dtype(compute_dtype) != jnp.float32

    def narrow(change: Tree) -> Tree:
        return jax.tree.map(lambda start, by: (start + by).astype(compute_dtype), params, change)

    def epoch(number: Any, carry: Tree) -> Tree:
        order_key, loss_key = jax.random.split(jax.random.fold_in(key, number))
        order = examples.order(batch_size, key=order_key if shuffle else None)

        def on_batch(number: Any, carry: Tree) -> Tree:
            wide, copy, state = carry
            batch = examples.batch(order, number, batch_size)
            gradient = jax.grad(loss)(copy if is_narrow else wide, batch, jax.random.fold_in(loss_key, number))
            gradient = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), gradient)
            updates, state = optimizer.update(gradient, state, trees.add(params, wide) if is_narrow else wide)
            wide = trees.add(wide, updates)
            return wide, narrow(wide) if is_narrow else None, state

        return jax.lax.fori_loop(0, batches, on_batch, carry)

    start = trees.zeros_like(params) if is_narrow else params
    carry = start, narrow(start) if is_narrow else None, optimizer.init(params)
    wide = (epoch(0, carry) if epochs == 1 else jax.lax.fori_loop(0, epochs, epoch, carry))[0]
    return wide if is_narrow else trees.sub(wide, params)
