"""Planting canaries: synthetic clients added to the real ones, in the same rounds and the same bounded sums.

A planted client is processed like any other: its update is computed, clipped and added in the same compiled loop. Only
its participation differs. Real clients are drawn by the run's participation rule, which does not know the planted ones;
these toss their own coins, from their own key. So the real clients' guarantee is unchanged: a planted client's update
depends on the model and the auditor's random data, sums stay clipped, and their divisor stays the expected number of
real clients. Only the model is affected, as by any other data.

A `direction` is the strongest possible canary: a client that sends one fixed random vector, 1,000 times too long so
that it is always clipped, whatever it receives. It needs no training, and no data mask it.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blindsight import trees
from blindsight.backends import Backend, ClientUpdate, Cohort, Examples
from blindsight.data.population import Columns, Population
from blindsight.errors import InvalidInput, PrivacyError
from blindsight.keys import Key, digest_of
from blindsight.trees import Tree

__all__ = ["Planted", "direction", "direction_clients", "joined"]

_NUMBER = "planted direction"  # field holding the direction that a client sends, 0 for none
_TOO_LONG = 1000.0


class Planted:
    """A backend over `joined(real, planted)` in which planted clients take part at `rates`, each by its own coin.

    `first` is the number of real clients, `rates` the probability that each planted client takes part in a round: 0 for
    those excluded by the auditor's coins. `directions` is the key of the directions, if any are planted.

    **Guarantee**: for the real clients, that of the same run without planted ones; the tests check it on every sum.
    """

    def __init__(self, backend: Backend, first: int, rates: Any, *, directions: Key | None = None) -> None:
        self.backend, self.first, self.rates = backend, first, np.asarray(rates, np.float64)
        if not (np.all(self.rates >= 0) and np.all(self.rates <= 1)):
            raise InvalidInput("participation probabilities of planted clients must lie between 0 and 1")
        self._directions_key = directions and directions.derive("name").secret
        self._directions: Any = None if directions is None else directions.jax()
        self._sending: dict[Any, ClientUpdate] = {}

    @property
    def fingerprint(self) -> str:
        """Identifies everything that determines the clients' answers, including planted ones."""
        return digest_of([getattr(self.backend, "fingerprint", None), self.first, self.rates, self._directions_key])

    def cohort(self, clients: np.ndarray, *, n_expected: float, key: Key) -> Cohort:
        """The cohort of these real clients and the planted ones chosen by their coins."""
        if len(clients) and int(clients.max()) >= self.first:
            raise PrivacyError(
                f"client {clients.max()} was sampled, but only {self.first:,} clients are real: do "
                "not count canaries as part of the population, or the guarantee will be wrong"
            )
        present = np.zeros(len(self.rates), bool)
        for number, rate in enumerate(np.unique(self.rates).tolist()):
            alike = self.rates == rate
            present[alike] = key.derive("planted", number).stream().bernoulli(rate, int(np.sum(alike)))
        everyone = np.concatenate([clients, self.first + np.flatnonzero(present)]).astype(np.int64)
        cohort = self.backend.cohort(everyone, n_expected=n_expected, key=key)
        return cohort if self._directions is None else _WithDirections(cohort, self.sending)

    def sending(self, client_update: ClientUpdate, l2_bound: Any) -> ClientUpdate:
        """`client_update`, except on clients that send a direction; the same function each time, to compile once."""
        bounds = tuple(sorted(l2_bound.items())) if isinstance(l2_bound, Mapping) else l2_bound
        identity = (client_update, bounds)
        if identity not in self._sending:
            self._sending[identity] = functools.partial(_send, client_update, l2_bound, self._directions)
        return self._sending[identity]


@dataclasses.dataclass(frozen=True)
class _WithDirections:
    cohort: Cohort
    sending: Callable[[ClientUpdate, Any], ClientUpdate]

    @property
    def simulation_only(self) -> dict[str, Any]:
        return self.cohort.simulation_only

    def sum(self, client_update: ClientUpdate, broadcast: Tree, *, l2_bound: Any, grid: Any = None) -> Any:
        return self.cohort.sum(self.sending(client_update, l2_bound), broadcast, l2_bound=l2_bound, grid=grid)


def _send(
    client_update: ClientUpdate, l2_bound: Any, key: jax.Array, broadcast: Tree, examples: Examples, own: jax.Array
) -> Tree:
    numbers = examples.columns[_NUMBER]
    number = jnp.where(examples.count > 0, jnp.take(numbers, examples.start, mode="clip"), 0)
    others = {field: column for field, column in examples.columns.items() if field != _NUMBER}
    examples = dataclasses.replace(examples, columns=others)
    like = jax.eval_shape(client_update, broadcast, examples, own)

    def planted() -> Tree:
        if not isinstance(l2_bound, Mapping):
            return trees.scale(direction(like, number, key), _TOO_LONG * l2_bound)
        parts: dict[str, Tree] = dict(like)
        largest = max(parts, key=lambda name: trees.size(parts[name]))
        zeros = {
            name: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), part) for name, part in parts.items()
        }
        return zeros | {largest: trees.scale(direction(parts[largest], number, key), _TOO_LONG * l2_bound[largest])}

    return jax.lax.cond(number > 0, planted, lambda: client_update(broadcast, examples, own))


def direction(like: Tree, number: Any, key: jax.Array) -> Tree:
    """Direction `number` (from 1): a random vector of length 1 in the shape of `like`."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(jax.random.fold_in(key, number), len(leaves))
    drawn = [jax.random.normal(one, leaf.shape, jnp.float32) for one, leaf in zip(keys, leaves, strict=True)]
    vector = jax.tree.unflatten(structure, drawn)
    return trees.scale(vector, 1 / trees.norm(vector))


def direction_clients(fields: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], count: int) -> Population:
    """Clients with one empty example each, numbered from 1: they send directions and read nothing."""
    columns: Columns = {field: np.zeros((count, *shape), dtype) for field, (dtype, shape) in fields.items()}
    columns[_NUMBER] = np.arange(1, count + 1, dtype=np.int32)
    return Population(columns, sizes=np.ones(count, np.int64), name="canaries", synthetic=True)


def joined(real: Population, planted: Sequence[Population]) -> Population:
    """The real clients, then the planted ones, with the fields of the first planted ones."""
    fields = [field for field in planted[0].columns if field != _NUMBER]
    missing = [field for field in fields if field not in real.fields]
    if missing:
        raise InvalidInput(f"canaries have the field {missing[0]!r}, but {real.name} has {', '.join(real.fields)}")
    everyone = [real, *planted]
    columns: Columns = {field: np.concatenate([one.columns[field] for one in everyone]) for field in fields}
    if any(_NUMBER in one.columns for one in planted):
        numbers = [one.columns.get(_NUMBER, np.zeros(one.n_examples, np.int32)) for one in everyone]
        columns[_NUMBER] = np.concatenate(numbers)
    ids = [*real.ids.tolist(), *(f"planted {number}" for number in range(sum(one.size for one in planted)))]
    kept: Any = {"classes": {field: names for field, names in real.classes.items() if field in fields}}
    return Population(columns, sizes=np.concatenate([one.sizes for one in everyone]), ids=ids, name=real.name, **kept)
