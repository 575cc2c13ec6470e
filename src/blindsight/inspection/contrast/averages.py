"""Average images and histograms: what released moments say of all classes together, as evidence for a fault.

Moments are released to draw samples: for every arm and class the mean of the examples' encodings (low frequencies of
images, categories and bins of tables) and of their products. A fault moves all classes alike, and most products drown
in noise, so the means summed over classes are what tells faults apart.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from blindsight.algorithms.moments import MomentsPart
from blindsight.backends import Batch
from blindsight.codings.features import Features
from blindsight.codings.vectors import Encoding
from blindsight.data.population import Population
from blindsight.inspection.measuring import Measured

__all__ = ["Averages", "encoded", "part_of_evidence", "release_as_evidence"]

ENCODED = "encoded"
_AT_ONCE = 5000  # examples


def encoded(population: Population, features: Features) -> Population:
    """The population with its examples encoded, so that images need not be kept."""
    vectors = [np.zeros((0, features.encoding.size), np.float32)]
    for start in range(0, population.n_examples, _AT_ONCE):
        columns = {name: column[start : start + _AT_ONCE] for name, column in population.columns.items()}
        numbers = {name: column for name, column in columns.items() if column.dtype.kind in "biuf"}
        vectors.append(np.asarray(_encode(features.encoding, numbers)))
    seen = population.replace({**population.columns, ENCODED: np.concatenate(vectors)})
    seen.classes.update(population.classes)
    return seen


@eqx.filter_jit
def _encode(encoding: Encoding, numbers: Mapping[str, np.ndarray]) -> jax.Array:
    return encoding(numbers)


class _Encoded(eqx.Module):
    """An encoding of examples that have been encoded before."""

    original: Encoding

    @property
    def size(self) -> int:
        return self.original.size

    @property
    def radius(self) -> float:
        return self.original.radius

    @property
    def pairs(self) -> np.ndarray | None:
        return self.original.pairs

    @property
    def settings(self) -> dict[str, Any]:
        return self.original.settings

    def __call__(self, batch: Any) -> jax.Array:
        return batch[ENCODED]


@dataclasses.dataclass(frozen=True)
class Averages:
    """What a client adds to the means of its moments, over all classes; for examples that are `encoded`."""

    moments: MomentsPart
    name: str = "moments"

    @property
    def coordinates(self) -> int:
        """One vector for each arm."""
        return len(self.moments.arms) * self.moments.features.encoding.size

    @property
    def bound(self) -> float:
        """A sum over classes is at most so much longer."""
        return self.moments.bound * math.sqrt(len(self.moments.classes))

    @functools.cached_property
    def _part(self) -> MomentsPart:
        features = self.moments.features
        return dataclasses.replace(self.moments, features=Features(_Encoded(features.encoding), features.weights))

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """One vector for each arm, as clipped as the client's moments are."""
        return self._over_classes(self._part.client_part(batch, masks, key))

    def of_release(self, released: Measured) -> Measured:
        """The released means, over all classes."""
        noise = released.noise_std * math.sqrt(len(self.moments.classes))
        return Measured(self._over_classes(released.sums), noise, released.epsilon)

    def _over_classes(self, values: Any) -> Any:
        part, size = self.moments, self.moments.features.encoding.size
        return values.reshape(len(part.arms), len(part.classes), -1)[:, :, 1 : 1 + size].sum(axis=1).ravel()


def part_of_evidence(part: Any) -> Any:
    """What of this part is evidence for a fault: of moments their means."""
    return Averages(part) if isinstance(part, MomentsPart) else part


def release_as_evidence(part: Any, released: Measured) -> Measured:
    """The same, of a release of this part."""
    return Averages(part).of_release(released) if isinstance(part, MomentsPart) else released
