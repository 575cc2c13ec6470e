"""The Gaussian mechanism on bounded sums, with two samplers.

`exact` is what deployments use. Every client clips its update and rounds it to a grid of step `z S / 2^24`
(`trees.to_grid`), so that sums are whole numbers; the server adds discrete Gaussian noise of scale 2^24 steps from a
cryptographic stream, and only the result is turned into floating point. A float sampler leaks through its last bits
(for one scalar, delta >= 0.16: some outputs are possible from one input and impossible from its neighbour); whole
numbers have no such bits.

**How the discrete noise is accounted.** Let g be the continuous N(0, s^2), s = 2^24, and round(g) its rounding to whole
numbers. For whole x, x + round(g) = round(x + g): releasing with round(g) is post-processing of the continuous
mechanism, and every bound for that one (privacy-loss distributions, Poisson amplification, composition) holds as it
stands. The discrete Gaussian p drawn here is not round(g), with probabilities r, but so close that the difference can
be paid for. With t uniform on [-1/2, 1/2], r(x)/p(x) = E_t[cosh(xt/s^2) exp(-t^2/(2s^2))] up to the error of the
normalising sum. By Jensen's inequality and log cosh(a) >= a^2/2 - a^4/12,

    KL(p || r) <= E[t^2]/(2s^2) - E_p[x^2] E[t^2]/(2s^4) + E_p[x^4] E[t^4]/(12 s^8)
                = 1/(24s^2) - 1/(24s^2) + 3s^4 / (80 * 12 * s^8)  =  1/(320 s^4),

where the sums for the normalisation and the moments of p differ from the integrals by less than exp(-18 s^2), by
Poisson summation: nothing, at s >= 2^12.

Divergences add over coordinates and adaptive releases, so the accountant is told d / (320 s^4) as `kl_slack`. Not only
the divergence is small but every ratio of probabilities: `accounting.slack` has the proof that at any epsilon the
difference adds about d / (8 s^2) to epsilon, 1.5e-6 for 2,000 rounds of a model of 1.3 million parameters.

`float` draws in float32 on the accelerator for simulation; the guarantee then lists ideal arithmetic as an assumption.
Its tail is not cut: uniform numbers of 64 bits reach 9.4 standard deviations, where JAX's own normal stops at 5.4.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blindsight import trees
from blindsight.accounting import events
from blindsight.errors import RelationMismatch
from blindsight.keys import Key, Stream
from blindsight.mechanisms.discrete import discrete_gaussian
from blindsight.mechanisms.noise import AdditiveNoise, Sampler
from blindsight.mechanisms.release import Release
from blindsight.trees import BoundedSum

__all__ = ["GaussianMechanism", "gaussian", "joint"]


@dataclasses.dataclass(frozen=True)
class GaussianMechanism(AdditiveNoise):
    """Adds N(0, (noise_multiplier * l2_bound)^2) to every coordinate of a bounded sum and divides by n_expected."""

    def event(self, total: BoundedSum) -> events.Gaussian:
        """What releasing `total` costs; a sum that does not fit the sampler is refused."""
        self.check_grid(total, total.l2_bound)
        return self.event_for(trees.size(total.value))

    def event_for(self, coordinates: int) -> events.Gaussian:
        """What releasing any sum of that many coordinates costs: for planning ahead."""
        if self.sampler == "float":
            return events.Gaussian(self.noise_multiplier)
        return events.Gaussian(self.noise_multiplier, kl_slack=coordinates / (320 * 2.0 ** (4 * self.bits)))

    def release(self, total: BoundedSum, *, key: Key) -> Release[Any]:
        """The noised mean, its event, and the standard deviation of the noise in it."""
        event = self.event(total)
        noise_std = self.noise_multiplier * total.l2_bound / total.n_expected
        if self.sampler == "float":
            value = _add_float_noise(total.value, self.noise_multiplier * total.l2_bound, total.n_expected, key.jax())
        else:
            stream, factor = key.stream(), self.step(total.l2_bound) / total.n_expected
            value = jax.tree.map(lambda leaf: _add_exact_noise(leaf, self.bits, factor, stream), total.value)
        return Release(value, event, noise_std)


def gaussian(noise_multiplier: float, *, sampler: Sampler = "exact") -> GaussianMechanism:
    """The Gaussian mechanism; `sampler="float"` is faster, for simulation, and its guarantee says so."""
    return GaussianMechanism(noise_multiplier, sampler)


def joint(*releases: events.Event) -> events.Gaussian:
    """What several Gaussian releases about one cohort cost together: they are one release of a longer vector.

    Dividing every part by its own bound and noise scale gives a vector with noise of scale 1 that one client moves by
    at most sqrt(sum of noise_multiplier^-2). So they can be amplified by sampling as one; as separate events they
    could not, because they share their cohort. What is assumed about one part's noise is assumed about the whole.

    >>> joint(events.Gaussian(3.0), events.Gaussian(4.0)).noise_multiplier
    2.4
    """
    parts = [release for release in releases if isinstance(release, events.Gaussian)]
    if not parts or len(parts) < len(releases):
        raise RelationMismatch("only Gaussian releases on the same cohort can be combined into one")
    if len(parts) == 1:
        return parts[0]
    precision = math.fsum(math.inf if not part.noise_multiplier else part.noise_multiplier**-2 for part in parts)
    slack = math.fsum(part.kl_slack for part in parts)
    is_reproducible = any(part.reproducible for part in parts)
    partly_float = slack > 0 and any(part.is_ideal for part in parts)
    return events.Gaussian(precision**-0.5, slack, is_reproducible, partly_float)


def _add_exact_noise(leaf: Any, bits: int, factor: float, stream: Stream) -> np.ndarray:
    whole = np.asarray(leaf).astype(np.int64)
    noisy = whole + discrete_gaussian(bits, whole.size, stream).reshape(whole.shape)
    return (noisy * factor).astype(np.float32)  # after the noise, arithmetic is post-processing


@jax.jit
def _add_float_noise(tree: Any, std: float, n_expected: float, key: jax.Array) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves)) if leaves else []
    noised = [(leaf + std * _normal(jnp.shape(leaf), k)) / n_expected for leaf, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, noised)


def _normal(shape: tuple[int, ...], key: jax.Array) -> jax.Array:
    """Standard normal float32 by Box and Muller, the radius from 64 random bits so that the tail is there."""
    size = math.prod(shape)
    bits = jax.random.bits(key, (3, size), jnp.uint32).astype(jnp.float32)
    uniform = (bits[0] + (bits[1] + 0.5) * jnp.float32(2.0**-32)) * jnp.float32(2.0**-32)
    radius = jnp.sqrt(-2.0 * jnp.log(jnp.minimum(uniform, jnp.float32(1.0))))
    return (radius * jnp.cos(bits[2] * jnp.float32(2.0**-32 * 2 * math.pi))).reshape(shape)
