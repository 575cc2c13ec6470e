"""What clients send so that they can be compared with public data; every part has a bound.

`Shares`: the shares of a client's examples in named categories (classes, slices, groups), and the squares of these
shares, so that the variance between clients is estimated from the release. A division p has |p| <= 1 and |p^2| <= 1.
The squares and the client count are sent at half their size, because they need less precision.

`Styles`: whether a client's mean in a cue lies beyond nearly all public clients, below or above. Handwriting with more
slant than 95 % of public writers is an example: even if it is rare, it shows here, while the mean over all clients
hardly moves. Every client's mean is over the same number of examples, because a mean over few examples varies more. A
client beyond more than four limits counts for less in each.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.backends import Batch
from blindsight.data.population import Population
from blindsight.inspection.measuring import Measured
from blindsight.keys import lots

__all__ = ["ARMS", "HALF", "STYLE_FIELD", "Division", "Limits", "ReadShares", "Shares", "Styles", "client_means"]
__all__ += ["client_shares", "coins", "halves", "mark_style_examples", "same_clients", "with_halves"]

HALF, STYLE_FIELD, STYLE_EXAMPLES = "half", "looked", 10
"""Field with a client's half, field that marks the examples used for styles, and how many examples these are."""

ARMS = ("learning", "confirming")
"""The halves: what is learnt from the first is confirmed on the second, which is held out."""

_HALF = 0.5  # scale of coordinates that need less precision
_MOST = 4  # styles that a client counts in full for
_TAIL = 0.05  # share of public clients beyond each limit of a style
_SLACK = 1.64  # standard deviations added to a noisy variance, which is then too small in 5 % of cases
_ROUNDING = 1e-5  # rounding error of a mean in 32 bits, which must not put a client beyond a limit


@dataclasses.dataclass(frozen=True)
class Division:
    """Examples divided into named categories by a field of category numbers; other numbers count nowhere.

    `subject` says what the categories are. `is_learnt` says that a model trained on public data assigns the category:
    clients are then compared with public clients held out from that training.
    """

    field: str
    names: tuple[str, ...]
    subject: str
    is_learnt: bool = False


@dataclasses.dataclass(frozen=True)
class ReadShares:
    """The mean share over clients and the standard deviation between clients; without noise for public clients.

    `most` is an upper estimate of a noisy standard deviation, for tests.
    """

    mean: np.ndarray
    spread: np.ndarray
    counted: float
    noise_std: float = 0.0
    most: np.ndarray | None = None

    @property
    def upper(self) -> np.ndarray:
        """The standard deviation that tests use."""
        return self.spread if self.most is None else self.most

    @property
    def is_measurable(self) -> bool:
        """Whether there are enough clients, relative to the noise, for ratios to be meaningful."""
        return self.counted >= max(5 * self.noise_std / _HALF, 2)

    @property
    def noise_error(self) -> np.ndarray:
        """The standard deviation of each mean due to noise, in the sum and in the count it is divided by."""
        return self.noise_std * np.sqrt(1 + (self.mean / _HALF) ** 2) / max(self.counted, 1.0)


@dataclasses.dataclass(frozen=True)
class Shares:
    """The part that holds shares; only clients in these `arms`, given by number, contribute."""

    divisions: tuple[Division, ...]
    arms: tuple[int, ...] = (0, 1)
    name: str = "shares"

    @property
    def coordinates(self) -> int:
        """A share and its square for every category, and the client count."""
        return 2 * sum(len(one.names) for one in self.divisions) + 1

    @property
    def bound(self) -> float:
        """The L2 norm that no client's vector exceeds."""
        return math.sqrt(len(self.divisions) * (1 + _HALF**2) + _HALF**2)

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """The client's shares; zeros if it has no examples in these arms."""
        del key
        weight = jnp.sum(masks[jnp.asarray(self.arms)], axis=0)
        count = jnp.sum(weight)
        shares = jnp.concatenate([_counts(batch, one, weight) for one in self.divisions]) / jnp.maximum(count, 1.0)
        vector = jnp.concatenate([shares, _HALF * shares**2, jnp.full(1, _HALF, jnp.float32)])
        return jnp.where(count > 0, vector, jnp.zeros_like(vector))

    def read(self, measured: Measured) -> list[ReadShares]:
        """The estimates of every division from the noisy sums."""
        sums = np.asarray(measured.sums, np.float64)
        counted, noise = float(sums[-1]) / _HALF, measured.noise_std
        count = max(counted, 1.0)
        means, squares = np.split(sums[:-1] / count, 2)
        squares = squares / _HALF
        slack = _SLACK * noise * np.sqrt(_HALF**-2 + 4 * np.clip(means, 0, 1) ** 2) / count
        most = np.clip(means + _SLACK * noise / count, 0.0, 0.5)  # shares around m vary by m (1 - m) at most
        variance = squares - np.clip(means, 0, 1) ** 2
        spread, upper = (np.sqrt(np.clip(variance + more, 0.0, most * (1 - most))) for more in (0.0, slack))
        ends = np.cumsum([len(one.names) for one in self.divisions])[:-1]
        parts = zip(*(np.split(values, ends) for values in (means, spread, upper)), strict=True)
        return [ReadShares(mean, usual, counted, noise, wide) for mean, usual, wide in parts]


def _counts(batch: Batch, division: Division, weight: jax.Array) -> jax.Array:
    names = jnp.arange(len(division.names), dtype=jnp.int32)
    return weight @ (batch[division.field].astype(jnp.int32)[:, None] == names[None]).astype(jnp.float32)


def client_shares(population: Population, divisions: Sequence[Division]) -> list[ReadShares]:
    """The shares of public clients, without noise."""
    owner = np.repeat(np.arange(population.size), population.sizes)
    there = population.sizes > 0
    estimates = list[ReadShares]()
    for one in divisions:
        codes, count = population.columns[one.field].astype(np.int64), len(one.names)
        is_in = (codes >= 0) & (codes < count)
        cells = np.bincount(owner[is_in] * count + codes[is_in], minlength=population.size * count)
        shares = cells.reshape(-1, count)[there] / population.sizes[there, None]
        estimates.append(ReadShares(shares.mean(axis=0), shares.std(axis=0, ddof=1), float(len(shares))))
    return estimates


def mark_style_examples(population: Population) -> Population:
    """The population with the field `looked`: 1 for ten evenly spaced examples of each client that has ten."""
    enough = population.sizes >= STYLE_EXAMPLES
    steps = np.arange(STYLE_EXAMPLES)[None] * population.sizes[enough, None] // STYLE_EXAMPLES
    looked = np.zeros(population.n_examples, np.uint8)
    looked[(population.offsets[:-1][enough, None] + steps).ravel()] = 1
    return population.replace({**population.columns, STYLE_FIELD: looked})


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of public means in a cue: all but `beyond` of `clients` lie above `low`, and as many below `high`.

    `past` is how many lie strictly below and above: `beyond` - 1, fewer where means are tied.
    """

    name: str
    low: float
    high: float
    beyond: int
    clients: int
    past: tuple[int, int] | None = None

    @property
    def ranks(self) -> tuple[int, int]:
        """The ranks of both limits among public means, counted from the outside: one more than lie past them."""
        below, above = (self.beyond - 1,) * 2 if self.past is None else self.past
        return below + 1, above + 1

    @classmethod
    def of(cls, name: str, means: np.ndarray) -> "Limits":
        """The limits of these public means, one mean per client."""
        beyond = max(1, int(_TAIL * len(means)))
        ordered = np.sort(means.astype(np.float64))
        low, high = float(ordered[beyond - 1]) - _ROUNDING, float(ordered[-beyond]) + _ROUNDING
        past = int((ordered < low).sum()), int((ordered > high).sum())
        return cls(name, low, high, beyond, len(means), past)


@dataclasses.dataclass(frozen=True)
class Styles:
    """The part that holds styles: the cues in `field` against `limits`, one per column."""

    field: str
    limits: tuple[Limits, ...]
    arms: tuple[int, ...] = (0, 1)
    name: str = "styles"

    @property
    def coordinates(self) -> int:
        """Below and above in every cue, and the client count."""
        return 2 * len(self.limits) + 1

    @property
    def bound(self) -> float:
        """The L2 norm that no client's vector exceeds: four styles, and never both below and above."""
        return math.sqrt(min(len(self.limits), _MOST) + _HALF**2)

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """The limits that the client's means lie beyond; zeros if it has too few examples in these arms."""
        del key
        weight = jnp.sum(masks[jnp.asarray(self.arms)], axis=0) * batch[STYLE_FIELD].astype(jnp.float32)
        count = jnp.sum(weight)
        means = weight @ jnp.nan_to_num(batch[self.field].astype(jnp.float32)) / jnp.maximum(count, 1.0)
        low, high = (jnp.asarray([getattr(one, end) for one in self.limits], jnp.float32) for end in ("low", "high"))
        is_below, is_above = means < low, means > high
        tails = jnp.concatenate([is_below, is_above & ~is_below]).astype(jnp.float32)
        tails = tails * jnp.sqrt(jnp.minimum(1.0, _MOST / jnp.maximum(jnp.sum(tails), 1.0)))
        vector = jnp.concatenate([tails, jnp.full(1, _HALF, jnp.float32)])
        return jnp.where(count > 0, vector, jnp.zeros_like(vector))

    def read(self, measured: Measured) -> tuple[float, np.ndarray]:
        """The noisy number of clients with enough examples, and of clients below and above in each cue, (2, cues)."""
        sums = np.asarray(measured.sums, np.float64)
        return float(sums[-1]) / _HALF, sums[:-1].reshape(2, -1)


def client_means(population: Population, field: str) -> np.ndarray:
    """The means of clients with enough examples in each column of a field, (clients, cues). Public data only."""
    looked = population.columns[STYLE_FIELD].astype(bool)
    values = population.columns[field][looked].astype(np.float64)
    return np.nan_to_num(values).reshape(-1, STYLE_EXAMPLES, values.shape[1]).mean(axis=1)


def halves(ids: np.ndarray, seed: bytes) -> np.ndarray:
    """0 or 1 for each client, equally many of each, drawn at random from the seed alone and not from the data."""
    random = np.random.default_rng(np.frombuffer(seed[:32].ljust(32, b"\0"), np.uint32))
    return (random.permutation(len(ids)) < len(ids) // 2).astype(np.uint8)


def coins(ids: np.ndarray, seed: bytes) -> np.ndarray:
    """0 or 1 for each client by its own coin, which depends only on its id, not on order or on other clients.

    The seed is public, so adding or removing a client must not change anybody else's coin.
    """
    return (lots(ids.tolist(), seed) < 0.5).astype(np.uint8)


def with_halves(
    population: Population, seed: bytes, draw: Callable[[np.ndarray, bytes], np.ndarray] = halves
) -> Population:
    """The population with the field `half`; draw it by `coins` for protected clients."""
    return population.replace({**population.columns, HALF: np.repeat(draw(population.ids, seed), population.sizes)})


def same_clients(population: Population, is_in: np.ndarray) -> Population:
    """The same clients with these examples only; a client with none of them stays and adds nothing."""
    owner = np.repeat(np.arange(population.size), population.sizes)
    sizes = np.bincount(owner[is_in], minlength=population.size)
    columns = {field: column[is_in] for field, column in population.columns.items()}
    return Population(
        columns,
        sizes=sizes,
        ids=population.ids,
        name=population.name,
        classes={field: names for field, names in population.classes.items() if field in columns},
        synthetic=population.synthetic,
    )
