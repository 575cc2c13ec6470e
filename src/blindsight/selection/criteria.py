"""Criteria: predicates that a client evaluates on each of its examples, combined with `&` and `~`."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from blindsight.data.population import TEXT, Population
from blindsight.errors import InvalidInput

__all__ = ["Accuracy", "Classified", "Criterion", "Everything", "Of", "correct", "everything", "mistakes", "where"]


class Of(Protocol):
    """One client's examples as a batch; `weight` is 0 for padding."""

    @property
    def weight(self) -> jax.Array:
        """1 for an example, 0 for padding."""
        ...

    def __getitem__(self, field: str) -> jax.Array: ...


@dataclasses.dataclass(frozen=True)
class Criterion(abc.ABC):
    """A predicate that a client evaluates on each of its examples; combine with `&` and `~`."""

    @property
    @abc.abstractmethod
    def words(self) -> str:
        """What it selects, in words."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields it reads."""
        return ("is_correct",)

    @property
    def by_client(self) -> bool:
        """Whether it selects all of a client's examples or none; return True only if that always holds.

        Arms of such criteria share no client and are paid for in parallel. Any other answer is safe.
        """
        return False

    @abc.abstractmethod
    def meets(self, batch: Of) -> jax.Array:
        """Whether each of one client's examples is selected; padding is ignored."""

    def mask(self, batch: Of) -> jax.Array:
        """1 for every selected example of one client, 0 otherwise; all 0 if the client is not eligible."""
        return self.meets(batch).astype(jnp.float32) * batch.weight

    def fit(self, population: Population) -> "Criterion":
        """The criterion resolved for the fields of `population`; refused if a field is missing."""
        for field in self.fields:
            _check_field(population, field, self.words)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; only the description of a criterion that is custom code."""
        kinds = {kind: name for name, kind in _KINDS.items()}
        if type(self) not in kinds:
            return {"kind": "custom", "description": repr(self)}
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {name: item.to_dict() if isinstance(item, Criterion) else item for name, item in values.items()}
        return {"kind": kinds[type(self)], **plain}

    @staticmethod
    def from_dict(value: Mapping[str, Any]) -> "Criterion":
        """The criterion that `to_dict` was called on."""
        kind = _KINDS.get(str(value.get("kind")))
        if kind is None:
            raise InvalidInput(
                f"a criterion is one of {', '.join(_KINDS)}, got {value.get('kind')!r}: code cannot be sent"
            )
        given = {name: item for name, item in value.items() if name != "kind"}
        nested = {name: Criterion.from_dict(item) if isinstance(item, dict) else item for name, item in given.items()}
        return kind(**nested)

    def __and__(self, other: "Criterion") -> "Criterion":
        return _Both(self, other)

    def __invert__(self) -> "Criterion":
        return _Not(self)


@dataclasses.dataclass(frozen=True)
class Everything(Criterion):
    """All examples."""

    @property
    def words(self) -> str:
        return "all examples"

    @property
    def by_client(self) -> bool:
        return True

    @property
    def fields(self) -> tuple[str, ...]:
        return ()

    def meets(self, batch: Of) -> jax.Array:
        return batch.weight > 0


@dataclasses.dataclass(frozen=True)
class Classified(Criterion):
    """Examples that the primary model got wrong (or right), of clients with `minimum` of them or more."""

    correctly: bool
    minimum: int

    def __post_init__(self) -> None:
        if not self.minimum >= 1:
            raise InvalidInput(f"minimum must be at least 1 example, got {self.minimum}")

    @property
    def words(self) -> str:
        how = "correctly classified" if self.correctly else "misclassified"
        return f"{how} examples of clients with at least {self.minimum}"

    def meets(self, batch: Of) -> jax.Array:
        chosen = (batch["is_correct"].astype(bool) == self.correctly) & (batch.weight > 0)
        return chosen & (jnp.sum(chosen) >= self.minimum)


@dataclasses.dataclass(frozen=True)
class Accuracy(Criterion):
    """All examples of clients on which the primary model's accuracy is at least `least` and below `below`."""

    least: float
    below: float

    @property
    def words(self) -> str:
        if self.least <= 0:
            return f"clients with an accuracy below {self.below:.4g}"
        return f"clients with an accuracy of at least {self.least:.4g}"

    @property
    def by_client(self) -> bool:
        return True

    def meets(self, batch: Of) -> jax.Array:
        examples = jnp.sum(batch.weight)
        right = jnp.sum(batch["is_correct"].astype(jnp.float32) * batch.weight)
        # products, not ratios: 7 of 10 is exactly an accuracy of 0.7, however a division rounds
        is_in = (right >= self.least * examples - 1e-4) & (right < self.below * examples - 1e-4)
        return jnp.broadcast_to(is_in & (examples > 0), batch.weight.shape)


@dataclasses.dataclass(frozen=True)
class _Where(Criterion):
    """Examples with this value in a field (or clients that have it in all examples)."""

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
                listed = ", ".join(names) or "no named classes: give the value as a number"
                raise InvalidInput(f"no client can match {self.words}: {self.field} has {listed}")
            return _Where(self.field, names.index(self.value), self.whole_clients)
        if names and self.value not in range(len(names)):
            raise InvalidInput(f"no client can match {self.words}: {self.field} goes from 0 to {len(names) - 1}")
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


_KINDS: dict[str, type[Criterion]] = {
    "everything": Everything,
    "classified": Classified,
    "accuracy": Accuracy,
    "where": _Where,
    "both": _Both,
    "not": _Not,
}


def everything() -> Criterion:
    """All examples of all clients (T1)."""
    return Everything()


def mistakes(minimum: int = 5) -> Criterion:
    """Misclassified examples of clients with at least `minimum` of them (T2)."""
    return Classified(False, minimum)


def correct(minimum: int = 5) -> Criterion:
    """Correctly classified examples of clients with at least `minimum` of them (T2)."""
    return Classified(True, minimum)


def where(field: str, value: str | float, *, by_client: bool = False) -> Criterion:
    """Examples with a value (or named class) in a field; with `by_client`, clients that have it in all examples."""
    return _Where(field, value, by_client)


def _check_field(population: Population, field: str, words: str) -> None:
    if field not in population.fields:
        if field == "is_correct":
            raise InvalidInput(
                f"{words} needs labels and a primary model, and {population.name} was not observed "
                "with both: pass its label field to selection.observe, or select everything"
            )
        raise InvalidInput(f"{words}: {population.name} has no {field!r}, it has {', '.join(population.fields)}")
    if population.fields[field][0] == TEXT:
        raise InvalidInput(f"{words}: {field!r} of {population.name} is text: number it with selection.coded")
