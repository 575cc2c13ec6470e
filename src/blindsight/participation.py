"""Who takes part in a round, and the accounting event of that choice: one object, so that they cannot disagree.

======================  =====================  ==============================================================
participation           relation               assumption about the deployment
======================  =====================  ==============================================================
`poisson` (default)     add or remove one      each client tosses its own secret coin every round
`fixed_size`            replace one            cohorts are drawn uniformly, in secret
`full`                  add or remove one      nothing: every client takes part every round
`unproven`              add or remove one      no client takes part more than `max_participations` times, and
                                               other clients' participation is independent of it
======================  =====================  ==============================================================

The number of clients is public under every rule: a removed client leaves an empty place.
A cohort is drawn from a secret key (`keys.root()`). Its members must stay secret, or amplification is void.
"""

import dataclasses
import math
from typing import Protocol

import numpy as np
from scipy import stats

from blindsight.accounting.events import Event, FixedSize, Gaussian, Relation, Repeated, TruncatedPoisson
from blindsight.errors import InvalidInput, RelationMismatch
from blindsight.keys import Key

__all__ = ["FixedSizeRounds", "Full", "Participation", "TruncatedPoissonRounds", "Unproven"]
__all__ += ["fixed_size", "full", "poisson", "unproven"]

_OVERFLOW = 1e-16  # chance per round that a Poisson cohort outgrows its limit


class Participation(Protocol):
    """A rule that draws cohorts, together with the event that accounts for it."""

    @property
    def relation(self) -> Relation:
        """The neighbouring relation under which `event` is accounted."""
        ...

    @property
    def n_expected(self) -> float:
        """The divisor of every sum: the expected cohort size, never the realised one."""
        ...

    @property
    def limit(self) -> int:
        """The largest cohort that can be drawn; shapes are compiled for it."""
        ...

    def event(self, release: Event, rounds: int = 1) -> Event:
        """The event of making `release` on a fresh cohort in each of `rounds` rounds."""
        ...


@dataclasses.dataclass(frozen=True)
class TruncatedPoissonRounds:
    """Each client takes part with probability `cohort / population`; above `limit`, a random `limit` of them do."""

    population: int
    cohort: float
    limit: int
    relation: Relation = dataclasses.field(default=Relation.ADD_OR_REMOVE, init=False)

    def __post_init__(self) -> None:
        _check(self.population, self.cohort)
        _make_whole(self, "population", "limit")
        if not 1 <= self.limit <= self.population:
            raise InvalidInput(f"limit must lie between 1 and the population {self.population}, got {self.limit}")

    @property
    def rate(self) -> float:
        """The probability with which one client takes part in one round."""
        return self.cohort / self.population

    @property
    def n_expected(self) -> float:
        """The expected cohort before truncation."""
        return float(self.cohort)

    def event(self, release: Event, rounds: int = 1) -> Event:
        """Truncated Poisson rounds of `release`; known for Gaussian noise only."""
        _needs_gaussian(release, "truncated Poisson")
        return Repeated(TruncatedPoisson(self.population, self.rate, self.limit, release), rounds)

    def draw(self, *, key: Key) -> np.ndarray:
        """Indices of this round's cohort in increasing order, empty or up to `limit` of them."""
        stream = key.stream()
        chosen = np.flatnonzero(stream.bernoulli(self.rate, self.population))
        if len(chosen) > self.limit:
            chosen = np.sort(chosen[stream.subset(len(chosen), self.limit)])
        return chosen


@dataclasses.dataclass(frozen=True)
class FixedSizeRounds:
    """Exactly `cohort` of `population` clients, drawn uniformly without replacement, as in the papers."""

    population: int
    cohort: int
    relation: Relation = dataclasses.field(default=Relation.REPLACE, init=False)

    def __post_init__(self) -> None:
        _check(self.population, self.cohort)
        _make_whole(self, "population", "cohort")

    @property
    def n_expected(self) -> float:
        """The cohort size."""
        return float(self.cohort)

    @property
    def limit(self) -> int:
        """The cohort size."""
        return self.cohort

    def event(self, release: Event, rounds: int = 1) -> Event:
        """Fixed-size rounds of `release`; known for Gaussian noise only."""
        _needs_gaussian(release, "fixed-size")
        return Repeated(FixedSize(self.population, self.cohort, release), rounds)

    def draw(self, *, key: Key) -> np.ndarray:
        """Indices of this round's cohort in increasing order, always `cohort` of them."""
        return np.sort(key.stream().subset(self.population, self.cohort))


@dataclasses.dataclass(frozen=True)
class Full:
    """Every client in every round: no amplification, and nothing to keep secret."""

    population: int
    relation: Relation = dataclasses.field(default=Relation.ADD_OR_REMOVE, init=False)

    def __post_init__(self) -> None:
        _check(self.population, self.population)
        _make_whole(self, "population")

    @property
    def n_expected(self) -> float:
        """The population."""
        return float(self.population)

    @property
    def limit(self) -> int:
        """The population."""
        return self.population

    def event(self, release: Event, rounds: int = 1) -> Event:
        """`release`, once per round."""
        return Repeated(release, rounds)

    def draw(self, *, key: Key | None = None) -> np.ndarray:
        """All indices; the key is not used."""
        return np.arange(self.population)


@dataclasses.dataclass(frozen=True)
class Unproven:
    """Available clients that win their own coin toss, each at most `max_participations` times.

    For a server that cannot prove how its clients were selected (charging, idle, on wi-fi: Ramaswamy et al. 2020,
    Section V-A). No amplification is claimed.

    **Why a round costs one bound S.** Whether a client is kept depends only on its own coin and its own history. There
    is no cap on the count: with a cap, a client that stays away would make room for another one, in this round and,
    through the limit per client, in later ones, and such a pair of sums is 2S apart. Without it, adding or removing one
    client changes no other client's rounds, and sums differ only by that client's contribution to its own rounds, of
    which there are at most `max_participations`.
    """

    population: int
    cohort: float
    max_participations: int
    relation: Relation = dataclasses.field(default=Relation.ADD_OR_REMOVE, init=False)

    def __post_init__(self) -> None:
        _check(self.population, self.cohort)
        _make_whole(self, "population", "max_participations")
        if not self.max_participations >= 1:
            raise InvalidInput(f"max_participations must be at least 1, got {self.max_participations}")

    @property
    def rate(self) -> float:
        """The probability that an eligible client is kept; it does not depend on their number."""
        return self.cohort / self.population

    @property
    def n_expected(self) -> float:
        """The expected cohort size if all clients are eligible; a smaller turnout does not change the divisor."""
        return float(self.cohort)

    @property
    def limit(self) -> int:
        """The population: the count has no cap."""
        return self.population

    def event(self, release: Event, rounds: int = 1) -> Event:
        """`release`, repeated as often as one client can take part."""
        return Repeated(release, min(rounds, self.max_participations))

    def draw(self, *, key: Key, available: np.ndarray, participated: np.ndarray) -> np.ndarray:
        """The `available` indices that win their coin toss, without clients that have used up their participations.

        `participated[i]` counts the rounds of client `i`; the caller keeps it, including in checkpoints.
        """
        if participated.shape != (self.population,):
            raise InvalidInput(
                f"participated must have a count for each of {self.population} clients, got shape {participated.shape}"
            )
        who = np.unique(available)
        if who.size and not (who.dtype.kind in "iu" and who[0] >= 0 and who[-1] < self.population):
            raise InvalidInput(f"available must list client indices from 0 to {self.population - 1}")
        who = who.astype(np.int64)
        coins = key.stream().bernoulli(self.rate, self.population)  # for all clients, so that client i has coin i
        return who[coins[who] & (participated[who] < self.max_participations)]


def poisson(population: int, cohort: float, *, limit: int | None = None) -> TruncatedPoissonRounds:
    """Truncated Poisson participation; the default limit is exceeded once in 10^16 rounds.

    >>> poisson(250_000, 1000).limit
    1271
    """
    _check(population, cohort)
    if limit is None:
        limit = min(population, int(stats.binom.isf(_OVERFLOW, population, cohort / population)) + 1)
    return TruncatedPoissonRounds(population, cohort, limit)


def fixed_size(population: int, cohort: int) -> FixedSizeRounds:
    """Fixed-size participation without replacement."""
    return FixedSizeRounds(population, cohort)


def full(population: int) -> Full:
    """Every client, every round."""
    return Full(population)


def unproven(population: int, cohort: float, *, max_participations: int) -> Unproven:
    """Participation for which the server can prove only an upper limit per client."""
    return Unproven(population, cohort, max_participations)


def _check(population: int, cohort: float) -> None:
    if not 1 <= population < math.inf or population != int(population):
        raise InvalidInput(f"the population must be a whole number of clients, at least one, got {population}")
    if not 0 < cohort <= population:
        raise InvalidInput(f"the cohort must be positive and at most the population of {population:,}, got {cohort}")


def _make_whole(rule: Participation, *fields: str) -> None:
    """Converts whole floats such as 1e6 to integers; refuses other values."""
    for field in fields:
        value = getattr(rule, field)
        if not math.isfinite(value) or value != int(value):
            raise InvalidInput(f"{field} must be a whole number, got {value}")
        object.__setattr__(rule, field, int(value))


def _needs_gaussian(release: Event, sampling: str) -> None:
    if not isinstance(release, Gaussian):
        raise RelationMismatch(
            f"{sampling} participation is accounted for Gaussian noise only, not for {release.name}; "
            f"use full participation, or the Gaussian mechanism"
        )
