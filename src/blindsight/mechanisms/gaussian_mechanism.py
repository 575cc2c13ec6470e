"""The Gaussian mechanism on bounded sums, with two samplers.

`exact` is the default and for deployments. Every client clips its update and rounds it to a grid of step `z S / 2^24`
(`trees.to_grid`), so sums are integers; the server adds Gaussian noise of scale 2^24 steps that is rounded to whole
steps, from a cryptographic stream, and only the result becomes floating point. A float sampler leaks through its
low-order bits (for one scalar, delta >= 0.16: some outputs are possible from one input and impossible from its
neighbour); integers have no such bits.

**Guarantee.** Let g be the continuous N(0, s^2). For whole x, x + round(g) = round(x + g): the release is
post-processing of the continuous mechanism, and every bound for that one (privacy-loss distributions, Poisson
amplification, composition) applies unchanged. `rounded_gaussian` draws round(g) exactly and proves it. Releases of
earlier versions added discrete Gaussian noise, whose small distance from round(g) their events carry as `kl_slack`
(`accounting.slack`).

`float` draws in float32 on the accelerator; the guarantee then lists ideal arithmetic as an assumption. Its tail is not
cut off: uniform numbers of 64 bits reach 9.4 standard deviations, where JAX's own normal stops at 5.4.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from blindsight import trees
from blindsight.accounting import events
from blindsight.errors import PrivacyError, RelationMismatch
from blindsight.keys import Key
from blindsight.mechanisms.ahead import PlannedKey
from blindsight.mechanisms.noise import AdditiveNoise, DrawnElsewhere, Sampler
from blindsight.mechanisms.release import Release
from blindsight.mechanisms.rounded_gaussian import BegunNoise, begin
from blindsight.trees import BoundedSum, Tree

__all__ = ["GaussianMechanism", "gaussian", "joint"]

_PURPOSE = "rounded gaussian"


@dataclasses.dataclass(frozen=True)
class GaussianMechanism(AdditiveNoise):
    """Adds N(0, (noise_multiplier * l2_bound)^2) to every coordinate of a bounded sum and divides by n_expected."""

    def event(self, total: BoundedSum) -> events.Gaussian:
        """The event of releasing `total`; refuses a sum that does not fit the sampler."""
        self.check_grid(total, total.l2_bound)
        return self.planned_event

    @property
    def planned_event(self) -> events.Gaussian:
        """The event of any release by this mechanism, for planning: it does not depend on the size of the sum."""
        return events.Gaussian(self.noise_multiplier, rounded=self.sampler == "exact")

    def begin(self, like: Tree, *, key: Key | PlannedKey) -> BegunNoise | None:
        """Start to draw the noise of a sum shaped `like` this, before it is there; pass it to `release` with `key`."""
        if self.sampler == "float":
            return None
        return _begun(like, self.bits, key=key, on_device=jax.default_backend() != "cpu")

    def release(self, total: BoundedSum, *, key: Key | PlannedKey, begun: BegunNoise | None = None) -> Release[Any]:
        """The noised mean, its event, and the standard deviation of the noise in it."""
        event = self.event(total)
        noise_std = self.noise_multiplier * total.l2_bound / total.n_expected
        if self.sampler == "float":
            value = _add_float_noise(total.value, self.noise_multiplier * total.l2_bound, total.n_expected, key.jax())
        else:
            on_device = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(total.value))
            begun = begun or _begun(total.value, self.bits, key=key, on_device=on_device)
            if (begun.bits, begun.source) != (self.bits, _source(key)):
                raise PrivacyError("the noise was begun for another key or scale: begin it with the release's own")
            value = begun.added_to(total.value, self.step(total.l2_bound) / total.n_expected)
        return Release(value, event, noise_std)


def gaussian(noise_multiplier: float, *, sampler: Sampler = "exact") -> GaussianMechanism:
    """The Gaussian mechanism; `sampler="float"` claims ideal arithmetic, and its guarantee says so."""
    if isinstance(sampler, DrawnElsewhere):
        return sampler.mechanism(noise_multiplier)
    return GaussianMechanism(noise_multiplier, sampler)


def joint(*releases: events.Event) -> events.Gaussian:
    """The event of several Gaussian releases about one cohort: together they are one release of a longer vector.

    Dividing every part by its own bound and noise scale gives a vector with noise of scale 1 that one client moves by
    at most sqrt(sum of noise_multiplier^-2). So they can be amplified by sampling as one; as separate events they
    could not, because they share their cohort. Any assumption about one part's noise applies to the whole.

    >>> joint(events.Gaussian(3.0), events.Gaussian(4.0)).noise_multiplier
    2.4
    """
    parts = [release for release in releases if isinstance(release, events.Gaussian)]
    if not parts or len(parts) < len(releases):
        raise RelationMismatch("only Gaussian releases on the same cohort can be combined into one")
    if len(parts) == 1:
        return parts[0]
    if len({(part.sites, part.fewest, part.colluding) for part in parts}) > 1:
        raise RelationMismatch("releases whose noise comes from different sites have no common event: record each")
    precision = math.fsum(math.inf if not part.noise_multiplier else part.noise_multiplier**-2 for part in parts)
    return events.Gaussian(
        precision**-0.5,
        kl_slack=math.fsum(part.kl_slack for part in parts),
        reproducible=any(part.reproducible for part in parts),
        partly_float=any(part.is_ideal for part in parts) and any(part.rounded or part.kl_slack for part in parts),
        rounded=any(part.rounded for part in parts),
        sites=parts[0].sites,
        fewest=parts[0].fewest,
        colluding=parts[0].colluding,
    )


def _begun(like: Tree, bits: int, *, key: Key | PlannedKey, on_device: bool) -> BegunNoise:
    if isinstance(key, PlannedKey):
        return key.derive(_PURPOSE).noise(trees.size(like), bits)
    return begin(trees.size(like), bits, _source(key), on_device=on_device)


def _source(key: Key | PlannedKey) -> Any:
    key = key.derive(_PURPOSE)
    return key.path if isinstance(key, PlannedKey) else key.secret


@jax.jit
def _add_float_noise(tree: Any, std: float, n_expected: float, key: jax.Array) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves)) if leaves else []
    noised = [(leaf + std * _normal(jnp.shape(leaf), k)) / n_expected for leaf, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noised)


def _normal(shape: tuple[int, ...], key: jax.Array) -> jax.Array:
    """Standard normal float32 by Box and Muller, with the radius from 64 random bits for a full tail."""
    size = math.prod(shape)
    bits = jax.random.bits(key, (3, size), jnp.uint32).astype(jnp.float32)
    uniform = (bits[0] + (bits[1] + 0.5) * jnp.float32(2.0**-32)) * jnp.float32(2.0**-32)
    radius = jnp.sqrt(-2.0 * jnp.log(jnp.minimum(uniform, jnp.float32(1.0))))
    return (radius * jnp.cos(bits[2] * jnp.float32(2.0**-32 * 2 * math.pi))).reshape(shape)
