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

Metric = Callable[[Any, Any, jax.Array], jax.Array]


def evaluator(
    population: Population, metrics: Mapping[str, Metric], *, batch_size: int = 1000
) -> Callable[[Any], dict[str, float]]:
    """A function from a model to the mean of every metric over all examples of `population`.

    Examples weigh the same, whichever client they come from; they stay where the model is, between calls.
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
    def measure(model: Any, fields: dict[str, jax.Array], weights: jax.Array) -> dict[str, jax.Array]:
        def on_batch(batch: Batch) -> dict[str, jax.Array]:
            key = jax.random.key(0)  # nothing that is measured may depend on chance
            total = jnp.sum(batch.weight)
            return {name: metric(model, batch, key) * total / count for name, metric in metrics.items()}

        return jax.tree.map(lambda parts: jnp.sum(parts), jax.lax.map(on_batch, Batch(fields, weights)))

    def evaluate(model: Any) -> dict[str, float]:
        return {name: float(value) for name, value in measure(model, fields, weights).items()}

    return evaluate
