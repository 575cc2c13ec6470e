"""The common interface of generators: latents and a class in, examples out."""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp

__all__ = ["LatentModel"]


class _Decoder(Protocol):
    @property
    def latents(self) -> int: ...
    @property
    def classes(self) -> int: ...
    @property
    def label(self) -> str: ...
    def decode(self, latents: jax.Array, labels: jax.Array) -> jax.Array: ...


class LatentModel:
    """Methods of a model that turns standard normal latents into examples; `classes` is 0 if it is unconditional."""

    @eqx.filter_jit
    def sample(self: _Decoder, count: int, *, key: jax.Array, labels: jax.Array | None = None) -> jax.Array:
        """`count` generated examples, cycling through the classes; the latents depend only on the key."""
        if labels is None:
            labels = jnp.arange(count, dtype=jnp.int32) % max(self.classes, 1)
        return self.decode(jax.random.normal(key, (count, self.latents)), labels)

    def labels(self: _Decoder, batch: Any) -> jax.Array:
        """The classes in a batch; all 0 if the model is unconditional."""
        if not self.classes:
            return jnp.zeros(batch.weight.shape, jnp.int32)
        return batch[self.label].astype(jnp.int32)
