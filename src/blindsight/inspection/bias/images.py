"""Where images of serving are denser than images of training: a discriminator that never sees a client.

**Training it costs no privacy.** One generator is fitted to the released moments of half of the clients, another to the
moments of public images with noise of the same size. Both then have the same artefacts, and what still differs between
them differs in the data. A small network learns to tell their samples apart by low frequencies alone, because the
generators model nothing else. Its calibrated logit is the log density ratio. The synthetic images with the largest
ratio show what serving has and training lacks; k-means divides them into a few groups.

**That alone is not a finding.** A density ratio between two generators also reflects noise, the sampling of clients and
the limits of the generators. A p-value computed on samples would mistake all of this for data. So the network, the
threshold and the groups are fixed first, and then the *other* half of the clients reports what share of its own real
images falls into each group. That share is compared with public images that took no part in the training. Whatever the
network has learnt, real images are compared with real images, under known noise.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize
from sklearn.cluster import KMeans

from blindsight.algorithms import moments
from blindsight.algorithms.moments import Moments, MomentsPart
from blindsight.backends import Batch, ClientUpdate, Simulation
from blindsight.codings.vectors import Spectrum
from blindsight.data.population import Population
from blindsight.keys import Key
from blindsight.models import generators
from blindsight.models.classifiers import MLP
from blindsight.models.equinox_models import fit
from blindsight.participation import full

__all__ = ["GROUPS", "Discriminator", "FirstArm", "learn", "like_released", "public_moments"]

GROUPS = 4
"""Number of groups among the images that are denser in serving."""

TOP = 0.1
"""The share of public images beyond the threshold on the density ratio."""

_SYNTHETIC, _MOST = 4000, 1200  # samples of each side, and at most this many of a class
_SPREAD = 0.75  # of latents on both sides: closer to typical images, where noise distorts fewer samples
_BATCH = 4096
_SHOWN = 12  # samples of each group
_LEARNING: dict[str, Any] = {"epochs": 12, "batch_size": 250, "learning_rate": 3e-3}


@dataclasses.dataclass(frozen=True)
class FirstArm:
    """Moments of the first arm alone: the confirming half adds nothing to the training."""

    part: MomentsPart

    @property
    def name(self) -> str:
        """That of the part."""
        return self.part.name

    @property
    def coordinates(self) -> int:
        """Those of the part."""
        return self.part.coordinates

    @property
    def bound(self) -> float:
        """That of the part."""
        return self.part.bound

    def client_part(self, batch: Batch, masks: jax.Array, key: jax.Array) -> jax.Array:
        """Moments of the client's examples in the first arm; zeros for those in the other."""
        return self.part.client_part(batch, masks[:1], key)


@dataclasses.dataclass(frozen=True, eq=False)
class Discriminator:
    """A trained discriminator: log density ratio, a threshold on it, and the groups beyond the threshold.

    `samples` are synthetic images of serving with their `log_ratios`. `group` holds the group of each sample, `GROUPS`
    for samples below the threshold. `codes` are their low frequencies and `labels` their classes.
    """

    network: Any
    spectrum: Spectrum
    inverse_temperature: float  # multiplies logits to calibrate them
    threshold: float
    centres: np.ndarray
    codes: np.ndarray
    samples: np.ndarray
    labels: np.ndarray
    log_ratios: np.ndarray
    group: np.ndarray

    def score(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The group of each image, and its probability of coming from serving if both sides were equally frequent."""
        logits, codes = _scored(self.network, self.spectrum, images)
        apart = np.square(codes[:, None] - self.centres[None]).sum(axis=2)
        groups = np.where(logits > self.threshold, apart.argmin(axis=1), GROUPS).astype(np.int32)
        return groups, 1 / (1 + np.exp(-np.clip(self.inverse_temperature * logits, -30, 30)))

    def shown(self, group: int) -> np.ndarray:
        """The most typical samples of a group, largest density ratio first.

        The largest ratios overall occur where both generators have no support, and show only artefacts.
        """
        own = np.flatnonzero(self.group == group)
        apart = np.square(self.codes[own] - self.centres[group]).sum(axis=1)
        typical = own[np.argsort(apart, kind="stable")[:_SHOWN]]
        return self.samples[typical[np.argsort(-self.log_ratios[typical], kind="stable")]]

    def ratio(self, group: int) -> float:
        """The median density ratio of a group's samples; 1 if there are none."""
        chosen = self.log_ratios[self.group == group]
        return float(np.exp(np.median(chosen))) if len(chosen) else 1.0

    def describe(self, group: int, classes: tuple[str, ...]) -> str:
        """The majority class of a group's samples, if there are classes and one has a majority."""
        chosen = self.labels[self.group == group]
        if not len(chosen) or len(classes) < 2:
            return ""
        counts = np.bincount(chosen, minlength=len(classes))
        return f"mostly {classes[int(counts.argmax())]}" if counts.max() > len(chosen) / 2 else ""


def learn(
    released: Moments,
    part: MomentsPart,
    usual: Moments,
    confirming: Population,
    *,
    steps: int,
    key: Key,
    progress: Callable[[int, int], None],
) -> Discriminator:
    """A discriminator of serving, given its `released` moments, from public images, given the `usual` moments.

    This is post-processing: it reads no client data.

    Args:
        released: Released moments of the first half of the clients.
        part: The part that these moments were measured by.
        usual: Moments of public images, with noise of the same size.
        confirming: Public clients held out from training, on which the threshold is set.
        steps: Steps that refine each generator.
        key: Public randomness.
        progress: Called with the steps done and their total.
    """
    spectrum: Any = part.features.encoding
    sides = [_drawn(one, steps, key.derive("side", number), progress) for number, one in enumerate((released, usual))]
    codes = [np.asarray(_encoded(spectrum, images)) for images, _ in sides]
    network, scale = _trained(codes[0], codes[1], key)
    public, _ = _scored(network, spectrum, confirming.columns[spectrum.field])
    threshold = float(np.quantile(public, 1 - TOP))
    (images, labels), logits = sides[0], _logits(network, codes[0])
    beyond = logits > threshold
    centres = _centres(codes[0][beyond])
    nearest = np.square(codes[0][:, None] - centres[None]).sum(axis=2).argmin(axis=1)
    group = np.where(beyond, nearest, GROUPS)
    return Discriminator(network, spectrum, scale, threshold, centres, codes[0], images, labels, scale * logits, group)


def public_moments(part: MomentsPart, public: Population, released: Moments, key: Key) -> Moments:
    """Moments of public images as they would have been released."""
    everyone = full(public.size)
    cohort = Simulation(public).cohort(everyone.draw(), n_expected=everyone.n_expected, key=key)
    sums = cohort.sum(_in_one_arm(part), (), l2_bound=part.bound).value
    return like_released(np.asarray(sums, np.float64), released, key)


@functools.lru_cache(maxsize=8)
def _in_one_arm(part: MomentsPart) -> ClientUpdate:
    """A client's moments with all its examples in one arm."""

    def client_update(broadcast: Any, examples: Any, key: jax.Array) -> jax.Array:
        del broadcast
        batch = examples.whole()
        return part.client_part(batch, batch.weight[None], key)

    return client_update


def like_released(sums: np.ndarray, released: Moments, key: Key) -> Moments:
    """Sums over public clients, scaled to the released ones, with noise of the same size.

    The noise protects nobody here: it gives both generators the same quality.
    """
    sums = sums.reshape(released.sums.shape)
    scale = max(released.sums[..., 0].sum(), released.noise_std) / max(sums[..., 0].sum(), 1e-9)
    noise = np.random.default_rng(np.frombuffer(key.secret, np.uint32)).normal(size=sums.shape)
    return dataclasses.replace(released, sums=scale * sums + released.noise_std * noise, guarantee=None)


def _drawn(side: Moments, steps: int, key: Key, progress: Callable[[int, int], None]) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic images and their classes, in the class proportions of this side."""
    generator = moments.fit(side, key=key, steps=steps, progress=progress)
    share = np.where(side.is_seen[0], side.counts[0], 0.0)
    share = share / share.sum() if share.sum() > 0 else np.full(len(share), 1 / len(share))
    wanted = np.minimum(np.ceil(share * _SYNTHETIC).astype(int), _MOST)
    samples, labels = generators.draw(generator, int(wanted.max()), key=key.derive("samples"), spread=_SPREAD)
    (images,) = samples[0].values()
    chosen = np.tile(np.arange(wanted.max()), len(share)) < wanted[labels]
    return images[chosen], labels[chosen]


def _trained(serving: np.ndarray, training: np.ndarray, key: Key) -> tuple[Any, float]:
    """The network, trained on three quarters of the samples, and the inverse temperature calibrated on the rest."""
    codes = np.concatenate([serving, training])
    side = np.repeat([1, 0], [len(serving), len(training)]).astype(np.int32)
    held_out = np.arange(len(side)) % 4 == 0
    network = MLP((codes.shape[1],), 2, hidden=(64,), key=key.derive("network").jax())
    network = fit(network, _wide(codes[~held_out]), side[~held_out], key=key.derive("order").jax(), **_LEARNING)
    logits, truth = _logits(network, codes[held_out]), side[held_out]

    def loss(inverse_temperature: float) -> float:
        return float(np.mean(np.logaddexp(0, inverse_temperature * logits) - truth * inverse_temperature * logits))

    calibration: Any = optimize.minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded")
    return network, float(calibration.x)


def _centres(codes: np.ndarray) -> np.ndarray:
    """The cluster centres of the groups; a single group if hardly any samples lie beyond the threshold."""
    if len(codes) < 5 * GROUPS:
        middle = codes.mean(axis=0) if len(codes) else np.zeros(codes.shape[1])
        return np.concatenate([middle[None], np.full((GROUPS - 1, codes.shape[1]), 1e6)])
    grouping: Any = KMeans(GROUPS, random_state=0)
    return grouping.fit(codes).cluster_centers_


def _logits(network: Any, codes: np.ndarray) -> np.ndarray:
    scores = _in_batches(lambda batch: _apply(network, batch), _wide(codes), 2)
    return (scores[:, 1] - scores[:, 0]).astype(np.float64)


def _wide(codes: np.ndarray) -> np.ndarray:
    """Codes of length around 1, scaled so that each coordinate is around 1."""
    return codes * np.float32(np.sqrt(codes.shape[1]))


def _scored(network: Any, spectrum: Spectrum, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    codes = np.asarray(_encoded(spectrum, images))
    return _logits(network, codes), codes


def _encoded(spectrum: Spectrum, images: np.ndarray) -> np.ndarray:
    """The low frequencies of images, the same for an image whatever stands beside it."""
    return _in_batches(lambda batch: _codes(spectrum, batch), images, spectrum.size)


def _in_batches(function: Callable[[jax.Array], jax.Array], rows: np.ndarray, width: int) -> np.ndarray:
    """`function` of all rows in batches of one shape: one program, the same for a client alone and among others."""
    values = np.empty((len(rows), width), np.float32)
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        padded = np.zeros((_BATCH, *rows.shape[1:]), rows.dtype)
        padded[: len(batch)] = batch
        values[start : start + len(batch)] = np.asarray(function(jnp.asarray(padded)))[: len(batch)]
    return values


@eqx.filter_jit
def _codes(spectrum: Spectrum, images: jax.Array) -> jax.Array:
    return spectrum({spectrum.field: images})


@eqx.filter_jit
def _apply(network: Any, codes: jax.Array) -> jax.Array:
    return network(codes)
