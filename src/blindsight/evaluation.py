"""Model metrics on data that may be looked at: `simulation_only`, never a release."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from blindsight.backends import Batch, placement
from blindsight.data.population import Population
from blindsight.errors import InvalidInput

__all__ = ["Interval", "by_client", "evaluator", "jackknife", "of_clients", "relative_change"]

ExampleTotals = tuple[jax.Array, jax.Array]

Metric = Callable[[Any, Any, jax.Array], Any]
"""(model, batch, key) to the mean over the batch's examples, or to each example's total and divisor."""


def evaluator(
    population: Population, metrics: Mapping[str, Metric], *, batch_size: int = 1000
) -> Callable[[Any], dict[str, float]]:
    """A function from a model to the mean of every metric over all examples of `population`.

    All examples have equal weight, whichever client they come from, and stay on the device between calls. Counting
    metrics (such as words, of which an example has several) are summed first and divided once.
    """
    _, fields, weights = _in_batches(population, batch_size)

    @eqx.filter_jit
    def measure(model: Any, fields: dict[str, jax.Array], weights: jax.Array) -> dict[str, ExampleTotals]:
        def on_batch(batch: Batch) -> dict[str, ExampleTotals]:
            key = jax.random.key(0)  # metrics must be deterministic
            values = {name: metric(model, batch, key) for name, metric in metrics.items()}
            return {name: _totals(value, batch.weight) for name, value in values.items()}

        return jax.tree.map(lambda parts: jnp.sum(parts), jax.lax.map(on_batch, Batch(fields, weights)))

    def evaluate(model: Any) -> dict[str, float]:
        totals = measure(model, fields, weights).items()
        return {name: float(total) / max(float(of), 1.0) for name, (total, of) in totals}

    return evaluate


def by_client(
    population: Population, metrics: Mapping[str, Metric], *, batch_size: int = 100
) -> Callable[[Any], dict[str, np.ndarray]]:
    """A function from a model to each client's total and divisor of every counting metric.

    Each is an array (clients, 2), from which `jackknife` computes intervals.
    """
    count, fields, weights = _in_batches(population, batch_size)

    @eqx.filter_jit
    def measure(model: Any, fields: dict[str, jax.Array], weights: jax.Array) -> dict[str, jax.Array]:
        def on_batch(batch: Batch) -> dict[str, jax.Array]:
            pairs = {name: metric(model, batch, jax.random.key(0)) for name, metric in metrics.items()}
            return {name: jnp.stack(pair, axis=-1) for name, pair in pairs.items()}

        return jax.lax.map(on_batch, Batch(fields, weights))

    def evaluate(model: Any) -> dict[str, np.ndarray]:
        measured = measure(model, fields, weights).items()
        return {name: of_clients(population, np.asarray(pairs).reshape(-1, 2)[:count]) for name, pairs in measured}

    return evaluate


def of_clients(population: Population, values: np.ndarray) -> np.ndarray:
    """Values per example, (examples, ...), summed per client."""
    before = np.concatenate([np.zeros_like(values[:1], np.float64), np.cumsum(values, axis=0, dtype=np.float64)])
    return np.diff(before[population.offsets], axis=0)


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval over clients."""

    value: float
    low: float
    high: float


def jackknife(
    clients: np.ndarray, statistic: Callable[[np.ndarray], float] = lambda sums: sums[0] / sums[1], *, buckets: int = 20
) -> Interval:
    """A statistic of sums over clients, (clients, numbers), with its interval from a jackknife over client buckets.

    Clients are assigned to buckets in turn, and the statistic is recomputed without each bucket (Tukey 1958, as in
    Ramaswamy et al. 2020). By default the statistic is the ratio of two sums.
    """
    if not 2 <= buckets <= len(clients):
        raise InvalidInput(f"the jackknife needs between 2 and {len(clients)} buckets of clients, got {buckets}")
    sums = np.stack([clients[start::buckets].sum(axis=0) for start in range(buckets)])
    whole = sums.sum(axis=0)
    without = np.array([statistic(whole - part) for part in sums])
    spread = math.sqrt((buckets - 1) / buckets * np.sum((without - without.mean()) ** 2))
    reach = float(stats.t.ppf(0.975, buckets - 1)) * spread
    value = float(statistic(whole))
    return Interval(value, value - reach, value + reach)


def relative_change(ours: np.ndarray, baseline: np.ndarray, *, buckets: int = 20) -> Interval:
    """The relative change of the ratio of `ours` (clients, 2) over the baseline's on the same clients."""
    both = np.concatenate([ours, baseline], axis=1)
    return jackknife(both, lambda sums: (sums[0] / sums[1]) / (sums[2] / sums[3]) - 1, buckets=buckets)


def _in_batches(population: Population, batch_size: int) -> tuple[int, dict[str, jax.Array], jax.Array]:
    """The number of examples, the examples in batches, and weights: padding of the last batch has weight 0."""
    numbers, count = placement.numbers(population.columns), population.n_examples
    if count == 0:
        raise InvalidInput(f"the held-out clients of {population.name} have no examples: hold out more, or none")
    size = min(batch_size, count)
    batches = -(-count // size)

    def in_batches(column: np.ndarray) -> jax.Array:
        fill = [(0, batches * size - count)] + [(0, 0)] * (column.ndim - 1)
        return jnp.asarray(np.pad(column, fill).reshape(batches, size, *column.shape[1:]))

    fields = {field: in_batches(column) for field, column in numbers.items()}
    return count, fields, in_batches(np.ones(count, np.float32))


def _totals(value: Any, weight: jax.Array) -> ExampleTotals:
    """A batch's part of a metric: total and divisor."""
    if isinstance(value, tuple):
        totals, counts = value
        return jnp.sum(totals * weight), jnp.sum(counts * weight)
    return value * jnp.sum(weight), jnp.sum(weight)
