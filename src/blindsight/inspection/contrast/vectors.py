"""What each client of a population would send, client by client: for public data and simulations only."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from blindsight.backends import Batch
from blindsight.data.population import TEXT, Population
from blindsight.inspection.measuring import Part
from blindsight.selection import Arms

__all__ = ["client_vectors"]

_CHUNK = 500  # clients per batch


def client_vectors(population: Population, arms: Arms, parts: Sequence[Part]) -> dict[str, np.ndarray]:
    """What every client would send for each part, shape (clients, coordinates): `simulation_only`."""
    fitted, longest = arms.fit(population), max(int(population.sizes.max()), 1)
    read = [name for name, (dtype, shape) in population.fields.items() if dtype != TEXT and len(shape) < 2]
    on_clients = _compiled(fitted, tuple(parts))
    chunks: list[dict[str, Any]] = []
    for start in range(0, population.size, _CHUNK):
        sizes = population.sizes[start : start + _CHUNK, None]
        places = np.arange(longest)[None, :]
        rows = population.offsets[:-1][start : start + _CHUNK, None] + np.minimum(places, np.maximum(sizes - 1, 0))
        rows = np.minimum(rows, population.n_examples - 1)
        fields = {field: population.columns[field][rows] for field in read}
        chunks.append(jax.tree.map(np.asarray, on_clients(fields, (places < sizes).astype(np.float32))))
    return {part.name: np.concatenate([chunk[part.name] for chunk in chunks]) for part in parts}


@functools.lru_cache(maxsize=32)
def _compiled(arms: Arms, parts: tuple[Part, ...]) -> Callable[..., dict[str, jax.Array]]:
    """The client half for many clients at once, compiled once for all populations with these arms and parts."""
    key = jax.random.key(0)

    @jax.jit
    @jax.vmap
    def on_clients(fields: dict[str, jax.Array], weight: jax.Array) -> dict[str, jax.Array]:
        batch = Batch(fields, weight)
        masks = arms.masks(batch)
        return {part.name: part.client_part(batch, masks, key) for part in parts}

    return on_clients
