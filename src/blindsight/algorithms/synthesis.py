"""Labelled images from two private sums: low frequencies of every class, then its strokes.

The first release has the moments of every class in low frequencies (`moments`) and gives a generator of blurred images,
because no normal distribution of pixels is sharp. The directions in which *those* images vary most decide which strokes
to measure, at no cost. The second release has the moments of every class in these strokes and directly gives a
classifier (`annotator`). Then images are drawn and refined until their strokes match a draw from the second release and
their frequencies are likely under the first. Everything but the two sums is post-processing.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from blindsight.accounting.events import Composed, Event
from blindsight.accounting.guarantee import Guarantee, certify
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.planning import solve_noise
from blindsight.algorithms.annotator import Annotator, annotator
from blindsight.algorithms.moments import MomentsPart, fit, release
from blindsight.backends import Backend
from blindsight.codings.features import Features, strokes
from blindsight.codings.vectors import Spectrum
from blindsight.codings.wavelets import check_strokes
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms import gaussian, without_noise
from blindsight.mechanisms.noise import Sampler
from blindsight.models.generators import ImageGenerator, draw
from blindsight.selection import Arms, everything

__all__ = ["Synthesis", "plan", "synthesise"]

_SHOWN = 200  # generated images per class that decide which strokes to measure
_RATE, _PIXELS = 0.3, 0.05  # of refining: learning rate, and weight of frequencies relative to strokes
_BATCH = 250


@dataclasses.dataclass(frozen=True, eq=False)
class Synthesis:
    """A generator and an annotator under one guarantee; drawing samples costs nothing more."""

    generator: ImageGenerator
    annotator: Annotator
    guarantee: Guarantee

    def blurred(self, per_class: int, *, key: Key, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """Images from the first release alone, and their classes; class by class."""
        (drawn,), labels = draw(self.generator, per_class, key=key, spread=spread)
        return drawn[self.generator.spectrum.field], labels

    def samples(
        self,
        per_class: int,
        *,
        key: Key,
        spread: float = 1.0,
        steps: int = 30,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Images, as bytes, refined for `steps` steps towards strokes of their class, and their classes.

        A `spread` above 1 draws rarer strokes than the distribution has.
        """
        if steps < 1:
            raise InvalidInput(f"steps must be at least 1, got {steps}: use `blurred` for images without refinement")
        images, labels = self.blurred(per_class, key=key.derive("blurred"))
        wanted = self.annotator.draw(labels, key=key.derive("strokes"), spread=spread)
        whiten = np.linalg.inv(np.asarray(self.generator.factor[0], np.float64)).astype(np.float32)
        refined: list[np.ndarray] = []
        for first in range(0, len(images), _BATCH):
            progress(first, len(images))
            part = slice(first, first + _BATCH)
            of_class = jnp.asarray(labels[part])
            likely = self.generator.mean[0][of_class], jnp.asarray(whiten)[of_class]
            towards = jnp.asarray(wanted[part])
            refined.append(np.asarray(_refined(self._encodings, jnp.asarray(images[part]), towards, likely, steps)))
        progress(len(images), len(images))
        return np.round(255 * np.concatenate(refined)).astype(np.uint8), labels

    @property
    def _encodings(self) -> tuple[Any, Any]:
        return self.annotator.encoding, self.generator.spectrum


def plan(
    first: int, second: int, *, epsilon: float, delta: float, share: float, sampler: Sampler = "exact"
) -> tuple[Any, Any]:
    """The two mechanisms for sums of these sizes, together (epsilon, delta), with `share` of it for the first.

    Gaussian releases compose by the sum of their squared inverse noise multipliers, of which each gets its share; an
    infinite epsilon means no noise.

    Args:
        first: Coordinates of the first sum.
        second: Coordinates of the second sum.
        epsilon: Epsilon of both together.
        delta: Delta of both together.
        share: Share of the first in the total precision.
        sampler: Sampler of the noise, "exact", or "float" to simulate.
    """
    if not 0 < share < 1:
        raise InvalidInput(f"share must lie between 0 and 1, got {share}: each release needs part of the budget")
    if math.isinf(epsilon):
        return without_noise(), without_noise()
    both = lambda z: [gaussian(z / math.sqrt(part), sampler=sampler) for part in (share, 1 - share)]  # noqa: E731

    def event(z: float) -> Event:
        return Composed(tuple(one.planned_event for one in both(z)))

    one, other = both(solve_noise(event, epsilon=epsilon, delta=delta))
    return one, other


def synthesise(
    population: Population,
    features: Features,
    *,
    epsilon: float,
    delta: float,
    key: Key,
    ledger: Ledger,
    size: int = 100,
    share: float = 0.4,
    label: str = "label",
    backend: Backend | None = None,
    sampler: Sampler = "exact",
) -> Synthesis:
    """A generator and an annotator of the images of `population`, with public classes, from two releases.

    With one image per client this is privacy for every image; with more, for all images of a client.

    **Guarantee**: (epsilon, delta) for each client, both releases together; each is in the ledger before its noise is
    drawn.

    Args:
        population: Clients and their images.
        features: Features of the first release (`codings.features.images`).
        epsilon: Epsilon of both releases together.
        delta: Delta of both releases together.
        key: Key of the noise.
        ledger: Ledger that records the cost.
        size: Number of strokes in the second release.
        share: Share of the first release in the total precision.
        label: Field holding the class.
        backend: Where the clients are; a simulation of them by default.
        sampler: Sampler of the noise, "exact", or "float" to simulate.
    """
    if not isinstance(features.encoding, Spectrum):
        raise InvalidInput("synthesis works on images only: use algorithms.moments for rows")
    arms = Arms({"all": everything()})
    looks = MomentsPart.of(features, arms, population, label=label)
    check_strokes(features.encoding.shape, size, _SHOWN * len(looks.classes))  # before anything is spent
    second = len(looks.classes) * (1 + size + size * (size + 1) // 2)
    mechanisms = plan(looks.coordinates, second, epsilon=epsilon, delta=delta, share=share, sampler=sampler)
    ask = functools.partial(release, population, arms=arms, ledger=ledger, backend=backend)
    moments, looked = ask(looks, mechanism=mechanisms[0], key=key.derive("looks"))
    generator: Any = fit(moments, key=key, steps=0)  # an ImageGenerator, as the features are of images
    (shown,), _ = draw(generator, _SHOWN, key=key.derive("shown"))
    seen = strokes(shown[generator.spectrum.field], size=size, field=generator.spectrum.field)
    parts = dataclasses.replace(looks, features=seen)
    moments, stroked = ask(parts, mechanism=mechanisms[1], key=key.derive("strokes"))
    together = certify(
        Composed((looked, stroked)), delta=delta, participation=f"full: all {population.size:,}, in both releases"
    )
    return Synthesis(generator, dataclasses.replace(annotator(moments), guarantee=together), together)


@functools.partial(jax.jit, static_argnames="steps")
def _refined(encodings: Any, images: jax.Array, towards: jax.Array, likely: Any, steps: int) -> jax.Array:
    """The images, from 0 to 1, after `steps` steps of Adam on the logits of their pixels."""
    look, spectrum = encodings
    mean, whiten = likely

    def distance(logits: jax.Array) -> jax.Array:
        pixels = jax.nn.sigmoid(logits)
        strokes_off = jnp.sum(jnp.square(look.of(pixels) - towards), axis=1)
        unlikely = jnp.mean(jnp.square(jnp.einsum("nij,nj->ni", whiten, spectrum.of(pixels) - mean)), axis=1)
        return jnp.sum(strokes_off + _PIXELS * unlikely)

    optimizer = optax.adam(optax.cosine_decay_schedule(_RATE, steps))

    def step(state: Any, _: None) -> tuple[Any, None]:
        logits, moments = state
        updates, moments = optimizer.update(jax.grad(distance)(logits), moments)
        return (optax.apply_updates(logits, updates), moments), None

    with jax.numpy_dtype_promotion("standard"):  # required by Optax
        grey = 0.02 + 0.9 * images.astype(jnp.float32) / 255  # the logits of black and white are infinite
        logits = jnp.log(grey / (1 - grey))
        (logits, _), _ = jax.lax.scan(step, (logits, optimizer.init(logits)), None, length=steps)
    return jax.nn.sigmoid(logits)
