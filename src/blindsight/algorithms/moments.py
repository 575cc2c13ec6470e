"""Measure once, generate forever: one noisy sum of features, and a generator fitted to it without clients.

After Harder et al. 2021, *DP-MERF: Differentially Private Mean Embeddings with Random Features* (arXiv:2002.11603), at
client level and with features that carry more: means and covariances of every class in every arm. Each client averages
the features of its examples by class and arm, beside the share of its examples there, all in one vector of bounded
length. One Gaussian release of the sum over all clients is everything that ever leaves them. The server divides
features by shares, takes out what is known to be noise, and fits a conditional generator; that is post-processing, may
be done again at will, and costs nothing.
"""

import dataclasses
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
from blindsight.accounting.ledger import Ledger, known_as
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

__all__ = ["STEP", "Moments", "MomentsPart", "fit", "frequencies_for", "measure", "moments_part", "release"]

STEP = 2.0**-13
"""Clients send their moments in multiples of this; the noise is thousands of times wider."""

_COUNT = 0.4  # the weight of an example's share beside its features, whose typical length is 1
_TYPICAL_EXAMPLES = 16  # clients with fewer have longer vectors and are clipped a little


def moments_part(
    features: Features, batch: Any, masks: jax.Array, *, classes: int, label: str | None, arms_per_client: int
) -> jax.Array:
    """What one client adds: for every arm and class the share of its examples and their features, clipped to length 1.

    Shape (arms, classes, 1 + dimension). An arm's examples count as one whole, however many they are, so that every
    client has the same say. Where a client can be in several arms, each has the same part of its length.

    **Guarantee**: the exact L2 norm is at most 1, whatever the examples are; those without weight or outside all arms
    do not matter.

    Args:
        features: Features to average.
        batch: The client's examples.
        masks: Which of them are in each arm.
        classes: Number of classes.
        label: Field holding the class; None if there is only one.
        arms_per_client: Most arms that a client can be in.
    """
    phi = features(batch)
    labels = jnp.zeros(phi.shape[0], jnp.int32) if label is None else batch[label].astype(jnp.int32)
    is_class = (labels[None] == jnp.arange(classes, dtype=jnp.int32)[:, None]).astype(jnp.float32)
    chosen = masks * batch.weight[None]  # (arms, examples)
    weight = chosen[:, None] * is_class[None]  # (arms, classes, examples)
    examples = jnp.maximum(jnp.sum(chosen, axis=1), 1.0)[:, None, None]
    vector = jnp.concatenate([_COUNT * jnp.sum(weight, axis=2, keepdims=True), weight @ phi], axis=2) / examples
    # so many classes in equal shares, and that many examples, make a vector of length 1: public, not read off data
    usual = math.sqrt((1 + _COUNT**2) * (1 / classes + (1 - 1 / classes) / _TYPICAL_EXAMPLES))
    steps = jnp.round(vector * jnp.float32(1 / (usual * STEP)))
    # in whole numbers, so that the length is the same in whatever order it is added up; a little too long
    length = jnp.sqrt(jnp.sum(jnp.square(steps.astype(jnp.int32)), axis=(1, 2), keepdims=True).astype(jnp.float32))
    most = (1 - 2.0**-10) / (STEP * math.sqrt(arms_per_client))
    short = steps * jnp.minimum(1.0, most / jnp.maximum(length, 1.0)) * jnp.float32(STEP)
    # what is that short comes out of both clips bit for bit; they are what the guarantee rests on
    clip = lambda arm: trees.clip(arm, 1 / math.sqrt(arms_per_client))  # noqa: E731
    return trees.clip(jax.vmap(clip)(short), 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class MomentsPart:
    """The moments as one part of a round that measures several things at once (see `inspection.measuring`)."""

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
        """The part for these arms of `population`, whose classes of `label` are public; without labels, one class."""
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

    @property
    def coordinates(self) -> int:
        """The length of the part."""
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
        """The noisy sum over clients, and the standard deviation of its noise, as moments."""
        shape = len(self.arms), len(self.classes), 1 + self.features.dimension
        values = np.asarray(sums, np.float64).reshape(shape)
        return Moments(self.features, values, float(noise_std), self.arms, self.classes, guarantee)


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """Noisy sums of shares and features, (arms, classes, 1 + dimension), with the noise of every number in them."""

    features: Features
    sums: np.ndarray
    noise_std: float
    arms: tuple[str, ...]
    classes: tuple[str, ...]
    guarantee: Guarantee | None = None

    @property
    def counts(self) -> np.ndarray:
        """How much there is of every arm and class, in clients up to one public factor; at least the noise in it."""
        return np.maximum(self.sums[..., 0], max(2 * self.noise_std, 1e-6)) / _COUNT

    @property
    def is_seen(self) -> np.ndarray:
        """Whether there is more of an arm and class than noise would show of none, (arms, classes)."""
        return self.sums[..., 0] > 3 * self.noise_std

    @property
    def means(self) -> np.ndarray:
        """The mean features of every arm and class, (arms, classes, dimension), noisy."""
        return self.sums[..., 1:] / self.counts[..., None]

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
    """Moments of every arm and class from one release about all clients; an infinite epsilon is a run without noise.

    **Guarantee**: (epsilon, delta) for each client; the ledger has it before any noise is drawn.

    Args:
        population: Clients to measure.
        features: Features whose moments are released.
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
        event = lambda z: gaussian(z, sampler=sampler).event_for(part.coordinates)  # noqa: E731
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
    """Moments through this mechanism, and the event of it, for callers that account for several releases together.

    Args:
        population: Clients to measure.
        part: What each client adds.
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
    found = publish(
        mechanism,
        total,
        key=key.derive("noise").bound_to(lambda: [population.fingerprint, part, arms.exact, mechanism, total.value]),
        ledger=ledger,
        population=known_as(population),
        participation=participation,
        note=f"moments of {len(arms)} arms and {len(part.classes)} classes",
    )
    moments = part.read(np.asarray(found.value) * total.n_expected, found.noise_std * total.n_expected)
    return moments, found.event


def frequencies_for(
    noise_multiplier: float, *, clients: float, classes: int, arms: int = 1, channels: int = 1, most: int = 81
) -> int:
    """How many frequencies of images to measure, from public numbers alone: fewer where there is more noise.

    More frequencies are sharper, and their covariance has more noise; on MNIST and embedded handwriting this many are
    about the fewest that name digits best, from epsilon 1 to 32 and from one arm to two.

    Args:
        noise_multiplier: Noise of the release.
        clients: Number of clients.
        classes: Number of classes.
        arms: Number of arms.
        channels: Colours of an image.
        most: Most frequencies to return.
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
    """A generator whose examples have these moments, less what is known to be noise: post-processing, free of cost.

    It starts from the closed form (a normal distribution for images, independent columns for rows) and is trained for
    at most `steps` on `batch` pairs of latents for every arm and class; parameters are averaged on the way. Rows, whose
    moments are as they were released, stop when they are as near to them as the truth would be: at the expected squared
    length of the noise. Images are trained towards moments from which the noise has been taken already.

    Args:
        moments: Released moments.
        key: Key of the latents.
        steps: Most steps.
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
    seen = moments.is_seen.astype(np.float32)  # who is not there must not bend what everyone shares
    trust = seen * np.square(moments.noise.min() / np.maximum(moments.noise, 1e-30))  # in what was released
    floor = features.dimension * float(np.mean(trust * np.square(moments.noise)))
    params, static = eqx.partition(generator, eqx.is_inexact_array)
    rate = learning_rate or (2e-3 if was_denoised else 1e-2)  # logits have further to go than pixels
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, max(steps, 1)))

    def distance(params: Any, towards: dict[str, jax.Array], weight: Any, key: jax.Array) -> jax.Array:
        """The squared distance of the mean features, without bias: two independent halves are multiplied."""
        made = eqx.combine(params, static)
        halves = jax.random.normal(key, (2, batch, made.latent))
        one, other = (features.expected(made.encoded(latents)) for latents in halves)
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
    with jax.numpy_dtype_promotion("standard"):  # which Optax needs
        state = params, params, optimizer.init(params)
        for done in range(0, steps, chunk):
            progress(done, steps)
            keys = jax.random.split(root.derive("steps", done).jax(), min(chunk, steps - done))
            state, residual = train(state, keys)
            if not was_denoised and before + float(residual) <= 2 * floor:  # two in a row: they are estimates
                break
            before = float(residual)
        progress(steps, steps)
    return eqx.combine(state[1], static)


def _inner(left: jax.Array, right: jax.Array) -> jax.Array:
    """The inner product for every arm and class."""
    return jnp.sum(left * right, axis=tuple(range(2, left.ndim)))
