"""Arms: named criteria in order, and the clients they select."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from blindsight.accounting.assumptions import ELIGIBLE
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.selection.criteria import Accuracy, Criterion, Everything, Of, correct, mistakes

__all__ = ["ASSUMED", "FORMINGS", "Arms", "Forming", "by_accuracy", "by_correctness"]

Forming = Literal["zero_fill", "eligible"]
FORMINGS: dict[Forming, str] = {
    "zero_fill": "clients in no arm add zeros, so that arm sizes stay private",
    "eligible": "only clients in an arm take part",
}
"""How an arm's clients are formed, as stated in a guarantee."""

ASSUMED = ELIGIBLE
"""The assumption of `eligible`, which the guarantee lists."""


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
            raise InvalidInput(f"arms need different names, and at least one arm, got {[name for name, _ in pairs]}")
        for place, (name, criterion) in enumerate(pairs):
            for earlier, taken in pairs[:place]:
                if isinstance(taken, Everything) or taken == criterion:
                    raise InvalidInput(
                        f"no client can be in the arm {name!r}, because {earlier!r} before it takes {taken.words}: "
                        "change their order, or remove one"
                    )

    def __getitem__(self, name: str) -> Criterion:
        return dict(self.criteria)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.criteria)

    def __len__(self) -> int:
        return len(self.criteria)

    @property
    def disjoint_by_client(self) -> bool:
        """Whether a client can be in only one arm."""
        return len(self) == 1 or all(criterion.by_client for criterion in self.values())

    @property
    def rule(self) -> str:
        """The rule that assigns an example to an arm, in words."""
        return "; ".join(f"{name}: {criterion.words}" for name, criterion in self.criteria)

    @property
    def exact(self) -> str:
        """The same for machines: every criterion with all digits of its thresholds."""
        return "; ".join(f"{name}: {criterion!r}" for name, criterion in self.criteria)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"arms": [{"name": name, "criterion": criterion.to_dict()} for name, criterion in self.criteria]}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Arms":
        """The arms that `to_dict` was called on."""
        return cls([(one["name"], Criterion.from_dict(one["criterion"])) for one in value["arms"]])

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the criteria read."""
        return tuple(dict.fromkeys(field for criterion in self.values() for field in criterion.fields))

    def alone(self, name: str) -> Criterion:
        """The criterion for being in this arm and in none before it."""
        criterion = self[name]
        for earlier, taken in self.criteria:
            if earlier == name:
                break
            criterion = criterion & ~taken
        return criterion

    def fit(self, population: Population) -> "Arms":
        """The arms with class names resolved to numbers; refuses criteria that `population` cannot evaluate."""
        return Arms([(name, criterion.fit(population)) for name, criterion in self.criteria])

    def masks(self, batch: Of) -> jax.Array:
        """0 or 1 for each arm and each example of one client, shape (arms, examples); columns add up to 0 or 1."""
        free, rows = batch.weight, list[jax.Array]()
        for criterion in self.values():
            rows.append(criterion.mask(batch) * free)
            free = free - rows[-1]
        return jnp.stack(rows)

    def members(self, population: Population) -> np.ndarray:
        """Whether each client is in each arm, shape (arms, clients): ground truth, `simulation_only`."""
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
        """The clients in some arm, for `eligible`, which treats membership as public."""
        is_in = self.members(population).any(axis=0)
        if not is_in.any():
            raise InvalidInput(f"no client of {population.name} is in any arm ({self.rule}): change the criteria")
        return population.select(is_in)


@dataclasses.dataclass(frozen=True)
class _Columns:
    """The minimal input of a criterion."""

    fields: Mapping[str, Any]
    weight: jax.Array

    def __getitem__(self, field: str) -> jax.Array:
        return self.fields[field]


def by_correctness(minimum: int = 5) -> Arms:
    """Two arms, `mistakes` and `correct`: a client may have examples in both."""
    return Arms({"mistakes": mistakes(minimum), "correct": correct(minimum)})


def by_accuracy(low: float, high: float) -> Arms:
    """Two arms of clients, `failing` with an accuracy below `low` and `healthy` with one of at least `high` (T4).

    The papers use quartiles: below the 25th and above the 75th percentile of clients' accuracies, 0.882 and 0.939 in
    their data. `inspection.measuring.thresholds` estimates such quantiles privately.
    """
    if not 0 < low <= 1:
        raise InvalidInput(f"no client can be in the arm 'failing': low lies above 0 and is at most 1, got {low}")
    if not 0 <= high <= 1:
        raise InvalidInput(f"no client can be in the arm 'healthy': high must lie between 0 and 1, got {high}")
    if low > high:
        raise InvalidInput(f"low must not exceed high, or clients would be in both arms, got {low} and {high}")
    return Arms({"failing": Accuracy(0.0, low), "healthy": Accuracy(high, 2.0)})
