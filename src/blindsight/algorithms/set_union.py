"""Words that many clients use, from no list at all: the weighted Gaussian mechanism for set union.

Gopi et al. 2020, *Differentially Private Set Union* (arXiv:2002.09745), Section 5. A client gives each of its n words,
at most `most`, the weight 1 / sqrt(n): its vector has length 1. The weights of all clients are added up word by word,
every sum gets Gaussian noise, and words above a threshold are released with their noisy weights.

**Why it is private.** On words that other clients have too, this is the Gaussian mechanism and a post-processing of it.
A word that only one client has would reveal that client merely by being listed. The threshold is so high that the noise
lifts any of a client's own words, 1 to `most` of them, above it with a probability of at most `chance` / 3; the event
`Thresholded(chance, Gaussian)` accounts for that, and has the proof.

**Trust.** The server sees words before it adds noise; the guarantee lists that. The letter-by-letter way of
`algorithms.vocabulary` needs no such trust, and finds fewer words.

The sum has as many places as clients could have words, and noise is drawn for all of them: how many distinct words
there are stays private.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from blindsight import trees
from blindsight.accounting.events import Event, Thresholded
from blindsight.accounting.ledger import Ledger, Payers
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms import GaussianMechanism, Release, publish
from blindsight.trees import BoundedSum

__all__ = ["CHANCE", "MOST_PLACES", "SetUnion", "WeighedWords", "join_words", "places_of", "threshold_of", "weigh"]

CHANCE = 1e-3
"""The share of delta for words that one client alone has: a budget's filter sets aside a hundred times as much."""

MOST_PLACES = 2**24
"""The most sums that are noised at once."""


@dataclasses.dataclass(frozen=True)
class WeighedWords:
    """Words and their noisy weights, largest first; each client adds at most 1 to a weight."""

    words: tuple[str, ...]
    weights: np.ndarray
    noise_std: float
    threshold: float
    event: Event


@dataclasses.dataclass(frozen=True)
class SetUnion:
    """The mechanism: Gaussian noise; only values above the threshold may be read."""

    noise: GaussianMechanism
    chance: float

    def event(self, total: BoundedSum) -> Thresholded:
        """What releasing `total` costs."""
        return Thresholded(self.chance, self.noise.event(total))

    def release(self, total: BoundedSum, *, key: Key) -> Release[np.ndarray]:
        """The noised mean of all places; the caller keeps what is above the threshold and nothing else."""
        noised = self.noise.release(total, key=key)
        return Release(np.asarray(noised.value, np.float64), self.event(total), noised.noise_std)


def places_of(clients: int, most: int) -> int:
    """The number of noised sums: the most distinct words that this many clients can have."""
    if not clients * most <= MOST_PLACES:
        raise InvalidInput(
            f"{clients:,} clients with {most:,} words each are too many to add up here: count fewer words of each, at "
            f"most {MOST_PLACES // clients:,}"
        )
    return clients * most


def threshold_of(mechanism: GaussianMechanism, most: int, chance: float) -> float:
    """The weight above which words are released.

    A client's t own words weigh 1 / sqrt(t) each. Noise lifts none of them above 1 / sqrt(t) + x with a probability of
    Phi(x / std)^t, and x is such that this is 1 - `chance` / 3. Two steps of the grid are added, because weights are
    rounded to it and so is the noise, and a relative 2^-20, because noised weights are rounded to float32.
    """
    words = np.arange(1, most + 1)
    above = -np.expm1(np.log1p(-chance / 3) / words)
    lifted = 1 / np.sqrt(words) - mechanism.noise_multiplier * special.ndtri(above)
    return (float(np.max(lifted)) + 2 * (mechanism.grid(1.0) or 0.0)) * (1 + 2.0**-20)


def weigh(sizes: np.ndarray, most: int, step: float | None) -> np.ndarray:
    """The client half: (clients, most) weights of words, each client's vector clipped to length 1, on the grid."""
    counts = np.minimum(sizes, most)[:, None]
    weights = np.where(np.arange(most) < counts, 1 / np.sqrt(np.maximum(counts, 1)), 0.0).astype(np.float32)
    return np.asarray(_clipped(jnp.asarray(weights), step))


@functools.partial(jax.jit, static_argnums=1)
def _clipped(weights: jax.Array, step: float | None) -> jax.Array:
    if step is None:
        return jax.vmap(lambda own: trees.clip(own, 1.0))(weights)
    return jax.vmap(lambda own: trees.to_grid(own, 1.0, step))(weights)


def join_words(
    words: Population,
    mechanism: GaussianMechanism,
    *,
    most: int,
    chance: float,
    key: Key,
    ledger: Ledger,
    population: Payers,
    run: str = "",
) -> WeighedWords:
    """Words that many clients use, with noisy weights, largest first.

    **Guarantee**: the ledger has `WeighedWords.event` before any noise is drawn, and nothing but that is released.

    Args:
        words: Words of each client, as `vocabulary.own_words` returns them; the first `most` distinct ones count.
        mechanism: Noise of the weights.
        most: Number of words of a client that count.
        chance: Delta of releasing a word that only one client has.
        key: Key of the noise.
        ledger: Ledger that records the cost.
        population: Name of the clients in the ledger.
        run: Run that the ledger entry names.
    """
    size = places_of(words.size, most)
    step = mechanism.grid(1.0)
    texts = words.columns["word"].tolist()
    # a word that a client has twice would weigh twice, and the client more than the bound
    own = [[*dict.fromkeys(texts[begin:end])][:most] for begin, end in itertools.pairwise(words.offsets.tolist())]
    sizes = np.array([len(one) for one in own], np.int64)
    places = dict[str, int]()
    place = np.array([places.setdefault(word, len(places)) for one in own for word in one], int)
    weights = weigh(sizes, most, step)[np.arange(most) < sizes[:, None]]
    value = np.zeros(size, np.float32 if step is None else np.int64)
    np.add.at(value, place, weights)
    total = BoundedSum(value, l2_bound=1.0, n_expected=words.size, grid=step)
    release = publish(
        SetUnion(mechanism, chance),
        total,
        key=key.bound_to(lambda: ["set union", words.fingerprint, mechanism, most, chance]),
        ledger=ledger,
        population=population,
        run=run,
        note="words that many clients use",
    )
    threshold = threshold_of(mechanism, most, chance)
    weights = release.value[: len(places)] * words.size
    listed = list(places)
    # words of equal weight in the order of their letters: the order in which clients have them is private
    order = sorted(np.flatnonzero(weights >= threshold).tolist(), key=lambda i: (-weights[i], listed[i]))
    return WeighedWords(
        tuple(listed[i] for i in order),
        weights[order],
        release.noise_std * words.size,
        threshold,
        release.event,
    )
