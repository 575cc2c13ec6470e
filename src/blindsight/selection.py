"""Who and what an inspection looks at: criteria that every client evaluates on its own data, and arms made of them.

An example belongs to the first arm whose criterion it meets, so no example is in two. A client that is not eligible
(too few mistakes, another accuracy) has a mask of zeros and adds exactly nothing.

How the clients of an arm come together is part of the guarantee:

=============  ==============================================================================================
`zero_fill`    (default) everyone takes part, clients in no arm add zeros: how large an arm is stays private
`eligible`     the papers': only clients in an arm take part, and who and how many they are is taken as public
=============  ==============================================================================================
"""

import abc
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput
from blindsight.models.primary import Primary, gather

__all__ = ["Arms", "Criterion", "Forming", "Of", "by_accuracy", "by_correctness", "correct", "everything"]
__all__ += ["ASSUMED", "FORMINGS", "accuracies", "mistakes", "observe", "where"]

Forming = Literal["zero_fill", "eligible"]
FORMINGS: dict[Forming, str] = {
    "zero_fill": "clients in no arm add zeros, so that arm sizes stay private",
    "eligible": "only clients in an arm take part",
}
"""How an arm's clients come together, in the words of a guarantee."""

ASSUMED = "which clients are eligible for an arm, and how many they are, is public"
"""What `eligible` assumes: the guarantee says so."""


class Of(Protocol):
    """One client's examples side by side; `weight` is 0 for those that only fill the batch up."""

    @property
    def weight(self) -> jax.Array: ...

    def __getitem__(self, field: str) -> jax.Array: ...


def observe(
    population: Population, primary: Primary, *, inputs: str | Sequence[str] = "image", label: str = "label"
) -> Population:
    """The population with what each client finds out by running the primary model on its own examples.

    Fields `predicted`, `confidence` and, where there are labels, `is_correct`. They are the clients' own: nothing of
    them leaves but through a release. The model is checked against the population first.
    """
    primary.check(population, inputs, label)
    columns = population.columns
    predicted, confidence = primary.predict(gather(columns, inputs))
    derived = {"predicted": predicted, "confidence": confidence}
    if label in columns:
        derived["is_correct"] = predicted == columns[label]
    return population.replace({**columns, **derived})


def accuracies(population: Population) -> np.ndarray:
    """Each client's own accuracy, 1 if it has no examples: the truth, `simulation_only`."""
    if "is_correct" not in population.fields:
        raise InvalidInput(f"accuracies need labels and a primary model: observe {population.name} with both first")
    owner = np.repeat(np.arange(population.size), population.sizes)
    right = np.bincount(owner, population.columns["is_correct"], population.size)
    return np.where(population.sizes > 0, right / np.maximum(population.sizes, 1), 1.0)


@dataclasses.dataclass(frozen=True)
class Criterion(abc.ABC):
    """A question that a client answers about each of its examples; `&` and `~` make others of it."""

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """What it selects."""

    @property
    def fields(self) -> tuple[str, ...]:
        """What it reads."""
        return ("is_correct",)

    @property
    def by_client(self) -> bool:
        """Whether it takes all of a client's examples or none."""
        return True

    @abc.abstractmethod
    def meets(self, batch: Of) -> jax.Array:
        """Whether each of one client's examples is selected; those that only fill up do not matter."""

    def mask(self, batch: Of) -> jax.Array:
        """1 for every example of one client that is selected, else 0; all 0 if the client is not eligible."""
        return self.meets(batch).astype(jnp.float32) * batch.weight

    def fit(self, population: Population) -> "Criterion":
        """The same for the fields of `population`; refused if it has not what is asked about."""
        for field in self.fields:
            _check_field(population, field, self.words)
        return self

    def __and__(self, other: "Criterion") -> "Criterion":
        return _Both(self, other)

    def __invert__(self) -> "Criterion":
        return _Not(self)


@dataclasses.dataclass(frozen=True)
class _Everything(Criterion):
    @property
    def words(self) -> str:
        return "all examples"

    @property
    def fields(self) -> tuple[str, ...]:
        return ()

    def meets(self, batch: Of) -> jax.Array:
        return batch.weight > 0


@dataclasses.dataclass(frozen=True)
class _Classified(Criterion):
    """Examples that the primary model got wrong (or right), of clients with `minimum` of them or more."""

    correctly: bool
    minimum: int

    def __post_init__(self) -> None:
        if not self.minimum >= 1:
            raise InvalidInput(f"minimum is a number of examples, at least 1, got {self.minimum}")

    @property
    def words(self) -> str:
        how = "correctly classified" if self.correctly else "misclassified"
        return f"{how} examples of clients with at least {self.minimum}"

    @property
    def by_client(self) -> bool:
        return False

    def meets(self, batch: Of) -> jax.Array:
        chosen = (batch["is_correct"].astype(bool) == self.correctly) & (batch.weight > 0)
        return chosen & (jnp.sum(chosen) >= self.minimum)


@dataclasses.dataclass(frozen=True)
class _Accuracy(Criterion):
    """All examples of clients on which the primary model's accuracy is at least `least` and below `below`."""

    least: float
    below: float

    @property
    def words(self) -> str:
        if self.least <= 0:
            return f"clients with an accuracy below {self.below:.4g}"
        return f"clients with an accuracy of at least {self.least:.4g}"

    def meets(self, batch: Of) -> jax.Array:
        examples = jnp.sum(batch.weight)
        right = jnp.sum(batch["is_correct"].astype(jnp.float32) * batch.weight)
        # in products, not in ratios: 7 of 10 is an accuracy of 0.7 whatever a division makes of it
        is_in = (right >= self.least * examples - 1e-4) & (right < self.below * examples - 1e-4)
        return jnp.broadcast_to(is_in & (examples > 0), batch.weight.shape)


@dataclasses.dataclass(frozen=True)
class _Where(Criterion):
    """Examples (or clients all of whose examples) with that value in a field."""

    field: str
    value: str | float
    whole_clients: bool = False

    @property
    def words(self) -> str:
        return f"{'clients' if self.whole_clients else 'examples'} with {self.field} {self.value}"

    @property
    def by_client(self) -> bool:
        return self.whole_clients

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    def fit(self, population: Population) -> Criterion:
        _check_field(population, self.field, self.words)
        names = population.classes.get(self.field, ())
        if isinstance(self.value, str):
            if self.value not in names:
                known = ", ".join(names) or "no named classes: give the value as a number"
                raise InvalidInput(f"nobody can be {self.words}: {self.field} has {known}")
            return _Where(self.field, names.index(self.value), self.whole_clients)
        if names and self.value not in range(len(names)):
            raise InvalidInput(f"nobody can be {self.words}: {self.field} goes from 0 to {len(names) - 1}")
        return self

    def meets(self, batch: Of) -> jax.Array:
        if isinstance(self.value, str):
            raise InvalidInput(f"{self.words} is not yet fitted to a population: call Arms.fit first")
        equal = (batch[self.field] == jnp.asarray(self.value, batch[self.field].dtype)) & (batch.weight > 0)
        return equal if not self.whole_clients else jnp.broadcast_to(jnp.all(equal | (batch.weight == 0)), equal.shape)


@dataclasses.dataclass(frozen=True)
class _Both(Criterion):
    first: Criterion
    second: Criterion

    @property
    def words(self) -> str:
        return f"{self.first.words} and {self.second.words}"

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.first.fields, *self.second.fields)))

    @property
    def by_client(self) -> bool:
        return self.first.by_client and self.second.by_client

    def fit(self, population: Population) -> Criterion:
        return _Both(self.first.fit(population), self.second.fit(population))

    def meets(self, batch: Of) -> jax.Array:
        return self.first.meets(batch) & self.second.meets(batch)


@dataclasses.dataclass(frozen=True)
class _Not(Criterion):
    criterion: Criterion

    @property
    def words(self) -> str:
        return f"not ({self.criterion.words})"

    @property
    def fields(self) -> tuple[str, ...]:
        return self.criterion.fields

    @property
    def by_client(self) -> bool:
        return self.criterion.by_client

    def fit(self, population: Population) -> Criterion:
        return _Not(self.criterion.fit(population))

    def meets(self, batch: Of) -> jax.Array:
        return ~self.criterion.meets(batch)


@dataclasses.dataclass(frozen=True)
class Arms(Mapping[str, Criterion]):
    """Named criteria in order; an example is in the first arm whose criterion it meets, or in none.

    >>> list(by_correctness()), by_correctness().disjoint_by_client, by_accuracy(0.882, 0.939).disjoint_by_client
    (['mistakes', 'correct'], False, True)
    """

    criteria: tuple[tuple[str, Criterion], ...]

    def __init__(self, criteria: Mapping[str, Criterion] | Sequence[tuple[str, Criterion]]) -> None:
        pairs = tuple(criteria.items() if isinstance(criteria, Mapping) else criteria)
        object.__setattr__(self, "criteria", pairs)
        if not pairs or len({name for name, _ in pairs}) < len(pairs) or not all(name.strip() for name, _ in pairs):
            raise InvalidInput(f"arms need different names, one arm at least, got {[name for name, _ in pairs]}")
        for place, (name, criterion) in enumerate(pairs):
            for earlier, taken in pairs[:place]:
                if isinstance(taken, _Everything) or taken == criterion:
                    raise InvalidInput(
                        f"nobody can be in the arm {name!r}, because {earlier!r} before it takes {taken.words}: "
                        f"change their order, or leave one out"
                    )

    def __getitem__(self, name: str) -> Criterion:
        return dict(self.criteria)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.criteria)

    def __len__(self) -> int:
        return len(self.criteria)

    @property
    def disjoint_by_client(self) -> bool:
        """Whether a client can be in one arm only."""
        return len(self) == 1 or all(criterion.by_client for criterion in self.values())

    @property
    def rule(self) -> str:
        """How an example finds its arm, in words."""
        return "; ".join(f"{name}: {criterion.words}" for name, criterion in self.criteria)

    @property
    def fields(self) -> tuple[str, ...]:
        """What the criteria read."""
        return tuple(dict.fromkeys(field for criterion in self.values() for field in criterion.fields))

    def alone(self, name: str) -> Criterion:
        """What puts an example into that arm and into none before it."""
        criterion = self[name]
        for earlier, taken in self.criteria:
            if earlier == name:
                break
            criterion = criterion & ~taken
        return criterion

    def fit(self, population: Population) -> "Arms":
        """The arms with names of classes turned into their numbers; what `population` cannot answer is refused."""
        return Arms([(name, criterion.fit(population)) for name, criterion in self.criteria])

    def masks(self, batch: Of) -> jax.Array:
        """0 or 1 for each arm and each example of one client, shape (arms, examples); columns add up to 0 or 1."""
        free, rows = batch.weight, list[jax.Array]()
        for criterion in self.values():
            rows.append(criterion.mask(batch) * free)
            free = free - rows[-1]
        return jnp.stack(rows)

    def members(self, population: Population) -> np.ndarray:
        """Whether each client is in each arm, shape (arms, clients): the truth, `simulation_only`."""
        fitted, sizes = self.fit(population), population.sizes
        longest = max(int(sizes.max()), 1)
        places = np.minimum(np.arange(longest), np.maximum(sizes[:, None] - 1, 0)) + population.offsets[:-1, None]
        weight = (np.arange(longest) < sizes[:, None]).astype(np.float32)
        places = np.minimum(places, max(population.n_examples - 1, 0))
        columns = {field: population.columns[field] for field in fitted.fields}
        fields = {field: column[places] for field, column in columns.items()}

        def on_client(fields: dict[str, jax.Array], weight: jax.Array) -> jax.Array:
            return jnp.any(fitted.masks(_Columns(fields, weight)) > 0, axis=1)

        return np.asarray(jax.jit(jax.vmap(on_client))(fields, weight)).T

    def eligible(self, population: Population) -> Population:
        """The clients that are in some arm: for `eligible`, which takes who they are for public."""
        is_in = self.members(population).any(axis=0)
        if not is_in.any():
            raise InvalidInput(f"no client of {population.name} is in any arm ({self.rule}): change the criteria")
        return population.select(is_in)


@dataclasses.dataclass(frozen=True)
class _Columns:
    """The least that a criterion reads."""

    fields: Mapping[str, Any]
    weight: jax.Array

    def __getitem__(self, field: str) -> jax.Array:
        return self.fields[field]


def everything() -> Criterion:
    """All examples of all clients (T1)."""
    return _Everything()


def mistakes(minimum: int = 5) -> Criterion:
    """What the primary model got wrong, of clients with at least `minimum` mistakes (T2)."""
    return _Classified(False, minimum)


def correct(minimum: int = 5) -> Criterion:
    """What the primary model got right, of clients with at least `minimum` such examples (T2)."""
    return _Classified(True, minimum)


def by_correctness(minimum: int = 5) -> Arms:
    """Two arms, `mistakes` and `correct`: a client may have examples in both."""
    return Arms({"mistakes": mistakes(minimum), "correct": correct(minimum)})


def by_accuracy(low: float, high: float) -> Arms:
    """Two arms of clients, `failing` with an accuracy below `low` and `healthy` with one of at least `high` (T4).

    The papers take the quarters: below the 25th and above the 75th percentile of clients' accuracies, 0.882 and 0.939
    in theirs. `inspection.measuring.thresholds` finds such quantiles with privacy.
    """
    if not 0 < low <= 1:
        raise InvalidInput(f"nobody can be in the arm 'failing': low lies above 0 and is at most 1, got {low}")
    if not 0 <= high <= 1:
        raise InvalidInput(f"nobody can be in the arm 'healthy': high lies between 0 and 1, got {high}")
    if low > high:
        raise InvalidInput(f"low must not be above high, or clients would be in both arms, got {low} and {high}")
    return Arms({"failing": _Accuracy(0.0, low), "healthy": _Accuracy(high, 2.0)})


def where(field: str, value: str | float, *, by_client: bool = False) -> Criterion:
    """Examples with that value (or named class) in a field; by client, clients all of whose examples have it."""
    return _Where(field, value, by_client)


def _check_field(population: Population, field: str, words: str) -> None:
    if field not in population.fields:
        if field == "is_correct":
            raise InvalidInput(
                f"{words}: that needs labels and a primary model, and {population.name} was not observed with both: "
                f"name its label field in selection.observe, or look at everything instead"
            )
        raise InvalidInput(f"{words}: {population.name} has no {field!r}, it has {', '.join(population.fields)}")
    if population.fields[field][0] == TEXT:
        raise InvalidInput(f"{words}: {field!r} of {population.name} is text: number its values and name the classes")
