"""Private generators of examples that may leave a party: one noisy sum, or private training.

Start with `OneShot`: one release, and everything else is post-processing. `TrainedPrivately` takes any generative model
that trains in rounds (a GAN, a DCGAN, an autoencoder), with each example as its own client.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from blindsight import trees
from blindsight.accounting.events import Event
from blindsight.algorithms import moments
from blindsight.algorithms.dp_fedavg import Algorithm
from blindsight.algorithms.parties.party import Shard, SyntheticExamples
from blindsight.backends import Simulation
from blindsight.codings.features import Features
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.keys import Key
from blindsight.mechanisms import gaussian
from blindsight.mechanisms.noise import Sampler
from blindsight.mechanisms.release import marked
from blindsight.models import generators
from blindsight.privacy import Privacy
from blindsight.trees import BoundedSum

__all__ = ["GivenGenerator", "OneShot", "TrainedPrivately", "class_sums", "images_as_columns", "train_privately"]


_COUNT = 0.4  # weight of an example relative to its features, as `moments.Moments` reads it
_LENGTH = (1 + _COUNT**2) ** 0.5  # norm of an example with features of typical norm 1
_CHUNK = 500  # examples with features in memory at a time


def images_as_columns(inputs: np.ndarray) -> Mapping[str, np.ndarray]:
    """Images as the only column."""
    return {"image": inputs}


def _images_of(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    return columns["image"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OneShot:
    """Class means and covariances of `features` in one Gaussian release, and a generator fitted to them.

    `columns_of` converts inputs to the columns that the features read, `inputs_of` converts generated columns back.
    """

    features: Features
    noise_multiplier: float
    columns_of: Callable[[np.ndarray], Mapping[str, np.ndarray]] = images_as_columns
    inputs_of: Callable[[Mapping[str, np.ndarray]], np.ndarray] = _images_of
    steps: int = 100
    sampler: Sampler = "exact"

    def __call__(self, shard: Shard, count: int, *, key: Key) -> SyntheticExamples:
        """`count` examples, equally many of every class: voters do not need the classes' shares."""
        mechanism = gaussian(self.noise_multiplier, sampler=self.sampler)
        total = class_sums(
            self.features, self.columns_of(shard.inputs), shard.labels, shard.classes, grid=mechanism.grid(1.0)
        )
        release = shard.publish(mechanism, total, key=key.derive("noise"), note="class means and covariances")
        names = tuple(map(str, range(shard.classes)))
        released = moments.Moments(self.features, np.asarray(release.value), release.noise_std, ("all",), names)
        generator = moments.fit(released, key=key, steps=self.steps)
        per_class = -(-count // shard.classes)
        (columns,), labels = generators.draw(generator, per_class, key=key)
        chosen = np.sort(np.arange(len(labels)).reshape(shard.classes, -1).T.ravel()[:count])  # classes take turns
        return SyntheticExamples(
            self.inputs_of({name: column[chosen] for name, column in columns.items()}), labels[chosen]
        )


def class_sums(
    features: Features, columns: Mapping[str, np.ndarray], labels: np.ndarray, classes: int, *, grid: float | None
) -> BoundedSum:
    """For every class, the weight of its examples and the sum of their features, (1, classes, 1 + dimension).

    **Guarantee**: an example adds a vector of norm at most 1 to its class, and nothing to any other.
    """
    total = np.zeros((1, classes, 1 + features.dimension), np.float64 if grid is None else np.int64)
    for start in range(0, len(labels), _CHUNK):
        rows = slice(start, start + _CHUNK)
        chunk = {name: jnp.asarray(_filled(column[rows])) for name, column in columns.items()}
        parts = np.asarray(_parts(features, chunk, grid))[: len(labels[rows])]
        for one in range(classes):
            total[0, one] += parts[labels[rows] == one].sum(axis=0, dtype=total.dtype)
    value = total.astype(np.float32) if grid is None else total
    return BoundedSum(value, l2_bound=1.0, n_expected=1.0, grid=grid)


def _filled(some: np.ndarray) -> np.ndarray:
    """The chunk padded to a fixed shape: in another shape, an example's features may round differently."""
    return np.concatenate([some, np.zeros((_CHUNK - len(some), *some.shape[1:]), some.dtype)])


@eqx.filter_jit
def _parts(features: Features, columns: dict[str, jax.Array], grid: float | None) -> jax.Array:
    """(examples, 1 + dimension): each example's contribution, clipped, and on the grid if there is one."""
    values = features(columns)
    parts = jnp.concatenate([jnp.full((values.shape[0], 1), _COUNT), values], axis=1) / _LENGTH
    if grid is None:
        return jax.vmap(lambda part: trees.clip(part, 1.0))(parts)
    return jax.vmap(lambda part: trees.to_grid(part, 1.0, grid))(parts)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainedPrivately:
    """A generative model trained in rounds with examples as clients, then sampled by `draw`.

    `make` returns the algorithm for the party's `privacy` (`dp_fedavg_gan` of a GAN, `dp_fedavg` of an autoencoder);
    `draw(model, count, key)` returns inputs and classes from the trained model.
    """

    make: Callable[[Privacy], Algorithm]
    draw: Callable[[Any, int, Key], tuple[np.ndarray, np.ndarray]]
    privacy: Privacy
    field: str = "image"

    def __call__(self, shard: Shard, count: int, *, key: Key) -> SyntheticExamples:
        """`count` examples of the trained model."""
        model = train_privately(shard, self.make(self.privacy), self.privacy, key=key, field=self.field)
        inputs, labels = self.draw(model, count, key.derive("draw"))
        return SyntheticExamples(np.asarray(inputs), np.asarray(labels))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GivenGenerator:
    """A generator trained elsewhere on the party's examples, at the cost of `event`.

    `draw(count, key)` returns inputs and classes.
    """

    draw: Callable[[int, Key], tuple[np.ndarray, np.ndarray]]
    event: Event

    def __call__(self, shard: Shard, count: int, *, key: Key) -> SyntheticExamples:
        """`count` examples of it; its cost is in the party's ledger first."""
        shard.record(self.event, key=key, note="a generator that was trained elsewhere")
        inputs, labels = self.draw(count, key.derive("draw"))
        return SyntheticExamples(np.asarray(inputs), np.asarray(labels))


def train_privately(shard: Shard, algorithm: Algorithm, privacy: Privacy, *, key: Key, field: str = "image") -> Any:
    """The model that the algorithm trains on the shard's examples, each as its own client.

    **Guarantee**: all rounds are in the party's ledger before the first.
    """
    if privacy.population != shard.expected or privacy.participation == "unproven":
        raise InvalidInput(
            f"party {shard.name} declares {shard.expected:,} examples, and they must be sampled "
            f"by a provable rule: got population={privacy.population:,} and participation={privacy.participation!r}"
        )
    sampling: Any = privacy.sampling
    population, event = shard.population(field), marked(algorithm.event, key)
    shard.record(
        sampling.event(event, privacy.rounds), key=key, relation=privacy.relation, note=f"{privacy.rounds} rounds"
    )
    backend, state = Simulation(population), algorithm.init()
    for number in range(privacy.rounds):
        examples = sampling.draw(key=key.derive("cohort", number))
        cohort = backend.cohort(examples, n_expected=sampling.n_expected, key=key.derive("clients", number))
        state, released = algorithm.step(state, cohort, key=key.derive("noise", number))
        if released != algorithm.event:
            raise PrivacyError(
                f"round {number} of party {shard.name} released something that was not paid for: {released}"
            )
    return algorithm.model(state)
