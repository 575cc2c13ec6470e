"""How good a model is on data that one may look at: `simulation_only`, never a release."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from blindsight.backends import Batch, placement
from blindsight.data.population import Population
from blindsight.errors import InvalidInput

__all__ = ["evaluator"]

Totals = tuple[jax.Array, jax.Array]

Metric = Callable[[Any, Any, jax.Array], Any]
"""(model, batch, key) to the mean over the batch's examples, or to each example's total and what that is divided by."""


def evaluator(
    population: Population, metrics: Mapping[str, Metric], *, batch_size: int = 1000
) -> Callable[[Any], dict[str, float]]:
    """A function from a model to the mean of every metric over all examples of `population`.

    Examples weigh the same, whichever client they come from; they stay where the model is, between calls. Metrics that
    count (words, say, of which an example has several) are divided once they are added up.
    """
    numbers = placement.numbers(population.columns)
    count = population.n_examples
    if count == 0:
        raise InvalidInput(f"the clients of {population.name} to evaluate on have no examples: hold out more, or none")
    size = min(batch_size, count)
    batches = -(-count // size)

    def in_batches(column: np.ndarray) -> jax.Array:
        fill = [(0, batches * size - count)] + [(0, 0)] * (column.ndim - 1)
        return jnp.asarray(np.pad(column, fill).reshape(batches, size, *column.shape[1:]))

    fields = {field: in_batches(column) for field, column in numbers.items()}
    weights = in_batches(np.ones(count, np.float32))

    @eqx.filter_jit
    def measure(model: Any, fields: dict[str, jax.Array], weights: jax.Array) -> dict[str, Totals]:
        def on_batch(batch: Batch) -> dict[str, Totals]:
            key = jax.random.key(0)  # nothing that is measured may depend on chance
            found = {name: metric(model, batch, key) for name, metric in metrics.items()}
            return {name: _totals(value, batch.weight) for name, value in found.items()}

        return jax.tree.map(lambda parts: jnp.sum(parts), jax.lax.map(on_batch, Batch(fields, weights)))

    def evaluate(model: Any) -> dict[str, float]:
        found = measure(model, fields, weights).items()
        return {name: float(total) / max(float(of), 1.0) for name, (total, of) in found}

    return evaluate


def _totals(found: Any, weight: jax.Array) -> Totals:
    """A batch's part of a metric: a total, and what it is divided by."""
    if isinstance(found, tuple):
        totals, counts = found
        return jnp.sum(totals * weight), jnp.sum(counts * weight)
    return found * jnp.sum(weight), jnp.sum(weight)
