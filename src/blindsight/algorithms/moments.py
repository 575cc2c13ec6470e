"""Measure once, generate forever: one noisy sum of features, and a generator fitted to it on the server.

After Harder et al. 2021, *DP-MERF: Differentially Private Mean Embeddings with Random Features* (arXiv:2002.11603), at
client level and with more informative features: means and covariances of every class in every arm. Each client averages
the features of its examples by class and arm, along with the share of its examples there, in one vector of bounded
norm. One Gaussian release of the sum over all clients is all that ever leaves them. The server divides features by
shares, denoises the result, and fits a conditional generator; that is post-processing, can be repeated at will, and
costs nothing.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from blindsight import trees
from blindsight.accounting.events import Event
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger, ledger_name
from blindsight.accounting.planning import solve_noise
from blindsight.algorithms.denoising import denoised
from blindsight.backends import Backend, Batch, Examples, Simulation
from blindsight.codings.features import Features
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms import gaussian, publish, without_noise
from blindsight.mechanisms.noise import Sampler
from blindsight.models.generators import ImageGenerator, RowGenerator, generator_for
from blindsight.participation import full
from blindsight.selection import Arms, everything

__all__ = ["STEP", "Moments", "MomentsPart", "fewest_seen", "fit", "frequencies_for", "measure", "moments_part"]
__all__ += ["release"]

STEP = 2.0**-12
"""Clients send their moments in multiples of this; the noise is thousands of times larger."""

_COUNT = 0.4  # weight of an example's share relative to its features, which have typical norm 1
_TYPICAL_EXAMPLES = 16  # clients with fewer have longer vectors and are clipped slightly


def moments_part(
    features: Features, batch: Any, masks: jax.Array, *, classes: int, label: str | None, arms_per_client: int
) -> jax.Array:
    """One client's contribution, clipped to norm 1: the share of its examples and their features, by arm and class.

    Shape (arms, classes, 1 + dimension). An arm's examples are averaged, so that every client
    has the same weight. If a client can be in several arms, each gets the same part of the norm.

    **Guarantee**: the exact L2 norm is at most 1 for any examples; those without weight or outside all arms have no
    effect.

    Args:
        features: Features to average.
        batch: The client's examples.
        masks: Which of them are in each arm.
        classes: Number of classes.
        label: Field holding the class; None if there is only one.
        arms_per_client: Maximum number of arms that a client can be in.
    """
    phi = features(batch)
    labels = jnp.zeros(phi.shape[0], jnp.int32) if label is None else batch[label].astype(jnp.int32)
    is_class = (labels[None] == jnp.arange(classes, dtype=jnp.int32)[:, None]).astype(jnp.float32)
    chosen = masks * batch.weight[None]  # (arms, examples)
    weight = chosen[:, None] * is_class[None]  # (arms, classes, examples)
    examples = jnp.maximum(jnp.sum(chosen, axis=1), 1.0)[:, None, None]
    vector = jnp.concatenate([_COUNT * jnp.sum(weight, axis=2, keepdims=True), weight @ phi], axis=2) / examples
    # scaled to norm 1 for equal class shares and a typical number of examples: public, not computed from data
    usual = math.sqrt((1 + _COUNT**2) * (1 / classes + (1 - 1 / classes) / _TYPICAL_EXAMPLES))
    steps = jnp.round(vector * jnp.float32(1 / (usual * STEP)))
    # in integers, so that the norm does not depend on the order of additions; it is slightly too large
    length = jnp.sqrt(jnp.sum(jnp.square(steps.astype(jnp.int32)), axis=(1, 2), keepdims=True).astype(jnp.float32))
    most = (1 - 2.0**-10) / (STEP * math.sqrt(arms_per_client))
    short = steps * jnp.minimum(1.0, most / jnp.maximum(length, 1.0)) * jnp.float32(STEP)
    # vectors this short pass both clips bit for bit; the guarantee rests on the clips
    clip = lambda arm: trees.clip(arm, 1 / math.sqrt(arms_per_client))  # noqa: E731
    return trees.clip(jax.vmap(clip)(short), 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class MomentsPart:
    """The moments as one part of a round that measures several things (see `inspection.measuring`).

    Parts are equal if they compute the same: a second question reuses what was compiled for the first.
    """

    features: Features
    arms: tuple[str, ...]
    classes: tuple[str, ...]
    label: str | None = "label"
    arms_per_client: int = 1
    name: str = "moments"
    bound: float = 1.0

    @classmethod
    def of(
        cls, features: Features, arms: Arms, population: Population, *, label: str | None = "label"
    ) -> "MomentsPart":
        """The part for these arms of `population`, with the public classes of `label`; without labels, one class."""
        if label is None or label not in population.fields:
            names: tuple[str, ...] = ("all",)
            label = None
        elif label not in population.classes:
            raise InvalidInput(
                f"the classes of {label!r} in {population.name} have no names: pass names, or label=None"
            )
        else:
            names = population.classes[label]
        return cls(features, tuple(arms), names, label, 1 if arms.disjoint_by_client else len(arms))

    @functools.cached_property
    def _computed(self) -> tuple[Any, ...]:
        """Everything that `client_part` depends on: the features' arrays and settings, and the other fields."""
        leaves, structure = jax.tree.flatten(self.features)
        arrays = tuple((one.shape, one.dtype.str, one.tobytes()) for one in map(np.asarray, leaves))
        rest = self.arms, self.classes, self.label, self.arms_per_client, self.name, self.bound
        return structure, arrays, rest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MomentsPart) and self._computed == other._computed

    def __hash__(self) -> int:
        return hash(self._computed[1:])

    @property
    def coordinates(self) -> int:
        """Number of coordinates of the part."""
        return len(self.arms) * len(self.classes) * (1 + self.features.dimension)

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """`moments_part` as one long vector."""
        del key
        part = moments_part(
            self.features,
            batch,
            masks,
            classes=len(self.classes),
            label=self.label,
            arms_per_client=self.arms_per_client,
        )
        return part.ravel()

    def read(self, sums: Any, noise_std: float, guarantee: Guarantee | None = None) -> "Moments":
        """Moments from the noisy sum over clients and the standard deviation of its noise."""
        shape = len(self.arms), len(self.classes), 1 + self.features.dimension
        values = np.asarray(sums, np.float64).reshape(shape)
        return Moments(self.features, values, float(noise_std), self.arms, self.classes, guarantee)


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """Noisy sums of shares and features, (arms, classes, 1 + dimension), and the noise of each number in them."""

    features: Features
    sums: np.ndarray
    noise_std: float
    arms: tuple[str, ...]
    classes: tuple[str, ...]
    guarantee: Guarantee | None = None

    @property
    def counts(self) -> np.ndarray:
        """The size of every arm and class, in clients up to a public factor; bounded below by its noise."""
        return np.maximum(self.sums[..., 0], max(2 * self.noise_std, 1e-6)) / _COUNT

    @property
    def is_seen(self) -> np.ndarray:
        """Whether the size of an arm and class is significantly above noise, (arms, classes)."""
        return self.sums[..., 0] > 3 * self.noise_std

    @property
    def means(self) -> np.ndarray:
        """The noisy mean features of every arm and class, (arms, classes, dimension)."""
        return self.sums[..., 1:] / self.counts[..., None]

    @property
    def of_means(self) -> np.ndarray:
        """The noisy sums of encodings alone, (arms, classes, size), from which class means are computed."""
        return self.sums[..., 1 : 1 + self.features.encoding.size]

    @property
    def noise(self) -> np.ndarray:
        """The standard deviation of the noise in every mean feature, (arms, classes)."""
        return self.noise_std / self.counts


def measure(
    population: Population,
    features: Features,
    arms: Arms | None = None,
    *,
    epsilon: float,
    delta: float,
    key: Key,
    ledger: Ledger,
    label: str | None = "label",
    backend: Backend | None = None,
    sampler: Sampler = "exact",
) -> Moments:
    """Moments of every arm and class from one release over all clients; an infinite epsilon means no noise.

    **Guarantee**: (epsilon, delta) for each client; the ledger has it before any noise is drawn.

    Args:
        population: Clients to measure.
        features: Features to release moments of.
        arms: Groups of examples; all in one by default.
        epsilon: Epsilon of the guarantee.
        delta: Delta of the guarantee.
        key: Key of the noise.
        ledger: Ledger that records the cost.
        label: Field holding the class; None for no classes.
        backend: Where the clients are; a simulation of them by default.
        sampler: Sampler of the noise, "exact", or "float" to simulate.
    """
    arms = Arms({"all": everything()}) if arms is None else arms.fit(population)
    part = MomentsPart.of(features, arms, population, label=label)
    if math.isinf(epsilon):
        mechanism = without_noise()
    else:
        event = lambda z: gaussian(z, sampler=sampler).planned_event  # noqa: E731
        mechanism = gaussian(solve_noise(event, epsilon=epsilon, delta=delta), sampler=sampler)
    moments, event = release(population, part, arms, mechanism, key=key, ledger=ledger, backend=backend)
    guarantee = certify(event, delta=delta, participation=f"full: all {population.size:,}")
    return dataclasses.replace(moments, guarantee=guarantee)


def release(
    population: Population,
    part: MomentsPart,
    arms: Arms,
    mechanism: Any,
    *,
    key: Key,
    ledger: Ledger,
    backend: Backend | None = None,
) -> tuple[Moments, Event]:
    """Moments released by this mechanism, and its event, for callers that account for several releases together.

    Args:
        population: Clients to measure.
        part: Each client's contribution.
        arms: Groups of examples.
        mechanism: Mechanism that adds the noise.
        key: Key of the noise, used for no other release.
        ledger: Ledger that records the event before any noise is drawn.
        backend: Where the clients are; a simulation of them by default.
    """

    def client_update(broadcast: Any, examples: Examples, key: jax.Array) -> jax.Array:
        del broadcast
        batch = examples.whole()
        return part.client_part(batch, arms.masks(batch), key)

    participation, everyone = full(population.size), np.arange(population.size)
    cohort = (backend or Simulation(population)).cohort(
        everyone, n_expected=participation.n_expected, key=key.derive("clients")
    )
    total = cohort.sum(client_update, (), l2_bound=part.bound, grid=mechanism.grid(part.bound))
    released = publish(
        mechanism,
        total,
        key=key.derive("noise").bound_to(lambda: [population.fingerprint, part, arms.exact, mechanism, total.value]),
        ledger=ledger,
        population=ledger_name(population),
        participation=participation,
        note=f"moments of {len(arms)} arms and {len(part.classes)} classes",
    )
    moments = part.read(np.asarray(released.value) * total.n_expected, released.noise_std * total.n_expected)
    return moments, released.event


def fewest_seen(noise_std: float) -> float:
    """The number of clients, all of one class, from which a class is significantly above noise (`is_seen`)."""
    return 3 * noise_std / _COUNT


def frequencies_for(
    noise_multiplier: float, *, clients: float, classes: int, arms: int = 1, channels: int = 1, most: int = 81
) -> int:
    """Number of image frequencies to measure, from public numbers alone: fewer with more noise.

    More frequencies are sharper, but their covariance has more noise; on MNIST and embedded handwriting this is about
    the smallest number with the best classification of digits, from epsilon 1 to 32 and for one and two arms.

    Args:
        noise_multiplier: Noise of the release.
        clients: Number of clients.
        classes: Number of classes.
        arms: Number of arms.
        channels: Channels of an image.
        most: Maximum number of frequencies to return.
    """
    usual = math.sqrt((1 + _COUNT**2) * (1 / classes + (1 - 1 / classes) / _TYPICAL_EXAMPLES))
    noise = noise_multiplier * usual * classes * arms / clients  # in a mean feature of one arm and class
    return max(min(int(3.5 / math.sqrt(max(noise, 1e-9))), most * channels) // channels, min(16, most))


def fit(
    moments: Moments,
    *,
    key: Key,
    steps: int = 600,
    batch: int = 32,
    learning_rate: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ImageGenerator | RowGenerator:
    """A generator of examples with these moments after denoising: post-processing, at no cost.

    It starts from the closed form (a normal distribution for images, independent columns for rows) and is trained for
    at most `steps` on `batch` pairs of latents for every arm and class, with averaged parameters. Rows are trained
    towards the released moments and stop when they are as near to them as the true moments would be: at the expected
    squared norm of the noise. Images are trained towards the denoised moments.

    Args:
        moments: Released moments.
        key: Key of the latents.
        steps: Maximum number of steps.
        batch: Pairs of latents per step for every arm and class.
        learning_rate: Learning rate; chosen by the type of the data by default.
        progress: Called with the steps done and their total.
    """
    features, root = moments.features, key.derive("fit")
    target, mean, covariance = denoised(features, moments.means, moments.noise, moments.counts)
    generator = generator_for(features, mean, covariance, key=root.derive("start").jax())
    released = {name: jnp.asarray(part, jnp.float32) for name, part in features.unpack(moments.means).items()}
    target = {name: jnp.asarray(part, jnp.float32) for name, part in target.items()}
    was_denoised = covariance is not None
    seen = moments.is_seen.astype(np.float32)  # absent groups must not affect the shared network
    trust = seen * np.square(moments.noise.min() / np.maximum(moments.noise, 1e-30))  # in the released moments
    floor = features.dimension * float(np.mean(trust * np.square(moments.noise)))
    params, static = eqx.partition(generator, eqx.is_inexact_array)
    rate = learning_rate or (2e-3 if was_denoised else 1e-2)  # logits need larger steps than pixels
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, max(steps, 1)))

    def distance(params: Any, towards: dict[str, jax.Array], weight: Any, key: jax.Array) -> jax.Array:
        """An unbiased estimate of the squared distance of the mean features: two independent halves are multiplied."""
        model = eqx.combine(params, static)
        halves = jax.random.normal(key, (2, batch, model.latent))
        one, other = (features.expected(model.encoded(latents)) for latents in halves)
        off = [
            features.scales[name] ** 2 * _inner(one[name] - towards[name], other[name] - towards[name])
            for name in towards
        ]
        return jnp.mean(jnp.asarray(weight, jnp.float32) * sum(off[1:], off[0]))

    @jax.jit
    def train(state: Any, keys: jax.Array) -> tuple[Any, jax.Array]:
        def step(state: Any, key: jax.Array) -> tuple[Any, None]:
            params, average, optimizer_state = state
            gradient = jax.grad(distance)(params, target, seen, key)
            updates, optimizer_state = optimizer.update(gradient, optimizer_state)
            params = optax.apply_updates(params, updates)
            return (params, optax.incremental_update(params, average, 0.02), optimizer_state), None

        state, _ = jax.lax.scan(step, state, keys)
        if was_denoised:
            return state, jnp.zeros(())
        fresh = jax.random.split(jax.random.fold_in(keys[0], 1), 32)
        return state, jnp.mean(jax.lax.map(lambda key: distance(state[1], released, trust, key), fresh))

    chunk, before = 50, math.inf
    with jax.numpy_dtype_promotion("standard"):  # required by Optax
        state = params, params, optimizer.init(params)
        for done in range(0, steps, chunk):
            progress(done, steps)
            keys = jax.random.split(root.derive("steps", done).jax(), min(chunk, steps - done))
            state, residual = train(state, keys)
            if not was_denoised and before + float(residual) <= 2 * floor:  # two in a row, because they are estimates
                break
            before = float(residual)
        progress(steps, steps)
    return eqx.combine(state[1], static)


def _inner(left: jax.Array, right: jax.Array) -> jax.Array:
    """The inner product for every arm and class."""
    return jnp.sum(left * right, axis=tuple(range(2, left.ndim)))
