"""Where pictures of serving are denser than pictures of training: a discriminator that never sees a client.

**How it is learnt, for free.** A generator is fitted to the released moments of one half of the clients, and another to
the moments of public pictures with noise of the same size, so that both have the same artefacts and what is left
between them is what differs. A small network learns to tell their samples apart by low frequencies alone, which is all
that generators know; its calibrated logit is the logarithm of the ratio of densities. The synthetic pictures with the
largest ratio are what serving has and training lacks, and fall into a few kinds.

**Why that is no finding yet.** A ratio between two generators is full of luck: of noise, of the clients that were
drawn, of what a generator cannot do. A p-value computed on samples would take all of it for data. So the network, the
threshold and the kinds are fixed, and the *other* half of the clients reports which share of its own real pictures is
of each kind. That is compared with public pictures which had no part in the learning. Whatever the network has learnt,
and be it nonsense, that comparison is of real pictures with real ones, under noise that is known.
"""

import dataclasses
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
from blindsight.backends import Batch, Simulation
from blindsight.codings.vectors import Spectrum
from blindsight.data.population import Population
from blindsight.keys import Key
from blindsight.models import generators
from blindsight.models.classifiers import MLP
from blindsight.models.primary import fit
from blindsight.participation import full

__all__ = ["KINDS", "Discriminator", "FirstArm", "learn", "like_released", "public_moments"]

KINDS = 4
"""Of what is denser in serving: how many are told apart."""

TOP = 0.1
"""The part of public pictures that are denser in serving than all others: where serving has more, it has more there."""

_SYNTHETIC, _MOST = 4000, 1200  # samples of either side, and of a class at most
_SPREAD = 0.75  # of latents on both sides: nearer to what is typical, where noise has made fewer pictures
_BATCH = 4096
_SHOWN = 12  # samples of each kind
_LEARNING: dict[str, Any] = {"epochs": 12, "batch_size": 250, "learning_rate": 3e-3}


@dataclasses.dataclass(frozen=True, eq=False)
class FirstArm:
    """Moments of the first arm alone: those who confirm add nothing to what is learnt."""

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
    """What was learnt: the logarithm of the ratio of densities, a threshold, and kinds beyond it.

    `samples` are synthetic pictures of serving with their `log_ratios`; `kind` is the kind of each, `KINDS` for those
    that are as in training. `codes` are their low frequencies and `labels` their classes.
    """

    network: Any
    spectrum: Spectrum
    heat: float  # calibrates the logits
    threshold: float
    centres: np.ndarray
    codes: np.ndarray
    samples: np.ndarray
    labels: np.ndarray
    log_ratios: np.ndarray
    kind: np.ndarray

    def score(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The kind of each picture, and its probability of being of serving, were both equally many."""
        logits, codes = _judged(self.network, self.spectrum, images)
        apart = np.square(codes[:, None] - self.centres[None]).sum(axis=2)
        kinds = np.where(logits > self.threshold, apart.argmin(axis=1), KINDS).astype(np.int32)
        return kinds, 1 / (1 + np.exp(-np.clip(self.heat * logits, -30, 30)))

    def shown(self, kind: int) -> np.ndarray:
        """The most typical samples of a kind, of these the ones with the largest ratio first.

        The largest ratios of all are where both generators know nothing, and show that.
        """
        own = np.flatnonzero(self.kind == kind)
        apart = np.square(self.codes[own] - self.centres[kind]).sum(axis=1)
        typical = own[np.argsort(apart, kind="stable")[:_SHOWN]]
        return self.samples[typical[np.argsort(-self.log_ratios[typical], kind="stable")]]

    def ratio(self, kind: int) -> float:
        """The median ratio of densities among samples of a kind; 1 if there are none."""
        chosen = self.log_ratios[self.kind == kind]
        return float(np.exp(np.median(chosen))) if len(chosen) else 1.0

    def describe(self, kind: int, classes: tuple[str, ...]) -> str:
        """What samples of a kind mostly are, where there are classes."""
        chosen = self.labels[self.kind == kind]
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
    """What tells serving, known by its `released` moments, from public pictures with the `usual` ones.

    The threshold is set on `confirming`, public pictures that nothing was learnt from. Post-processing: it reads no
    client.
    """
    spectrum: Any = part.features.encoding
    sides = [_drawn(one, steps, key.derive("side", number), progress) for number, one in enumerate((released, usual))]
    codes = [np.asarray(_encoded(spectrum, images)) for images, _ in sides]
    network, heat = _trained(codes[0], codes[1], key)
    public, _ = _judged(network, spectrum, confirming.columns[spectrum.field])
    threshold = float(np.quantile(public, 1 - TOP))
    (images, labels), logits = sides[0], _logits(network, codes[0])
    beyond = logits > threshold
    centres = _centres(codes[0][beyond])
    nearest = np.square(codes[0][:, None] - centres[None]).sum(axis=2).argmin(axis=1)
    kind = np.where(beyond, nearest, KINDS)
    return Discriminator(network, spectrum, heat, threshold, centres, codes[0], images, labels, heat * logits, kind)


def public_moments(part: MomentsPart, public: Population, released: Moments, key: Key) -> Moments:
    """Moments of public pictures as they would have been released."""

    def client_update(broadcast: Any, examples: Any, key: jax.Array) -> jax.Array:
        del broadcast
        batch = examples.whole()
        return part.client_part(batch, batch.weight[None], key)

    everyone = full(public.size)
    cohort = Simulation(public).cohort(everyone.draw(), n_expected=everyone.n_expected, key=key)
    sums = cohort.sum(client_update, (), l2_bound=part.bound).value
    return like_released(np.asarray(sums, np.float64), released, key)


def like_released(sums: np.ndarray, released: Moments, key: Key) -> Moments:
    """Sums over public clients, brought to the size of the released ones and given noise like theirs.

    The noise protects nobody: it makes both generators equally bad.
    """
    sums = sums.reshape(released.sums.shape)
    scale = max(released.sums[..., 0].sum(), released.noise_std) / max(sums[..., 0].sum(), 1e-9)
    noise = np.random.default_rng(np.frombuffer(key.secret, np.uint32)).normal(size=sums.shape)
    return dataclasses.replace(released, sums=scale * sums + released.noise_std * noise, guarantee=None)


def _drawn(known: Moments, steps: int, key: Key, progress: Callable[[int, int], None]) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic pictures and their classes, as many of each class as there are."""
    generator = moments.fit(known, key=key, steps=steps, progress=progress)
    share = np.where(known.is_seen[0], known.counts[0], 0.0)
    share = share / share.sum() if share.sum() > 0 else np.full(len(share), 1 / len(share))
    wanted = np.minimum(np.ceil(share * _SYNTHETIC).astype(int), _MOST)
    made, labels = generators.draw(generator, int(wanted.max()), key=key.derive("samples"), spread=_SPREAD)
    (images,) = made[0].values()
    chosen = np.tile(np.arange(wanted.max()), len(share)) < wanted[labels]
    return images[chosen], labels[chosen]


def _trained(serving: np.ndarray, training: np.ndarray, key: Key) -> tuple[Any, float]:
    """The network on three quarters of the samples, and the heat that calibrates it on the others."""
    codes = np.concatenate([serving, training])
    side = np.repeat([1, 0], [len(serving), len(training)]).astype(np.int32)
    held = np.arange(len(side)) % 4 == 0
    network = MLP((codes.shape[1],), 2, hidden=(64,), key=key.derive("network").jax())
    network = fit(network, _wide(codes[~held]), side[~held], key=key.derive("order").jax(), **_LEARNING)
    logits, truth = _logits(network, codes[held]), side[held]

    def loss(heat: float) -> float:
        return float(np.mean(np.logaddexp(0, heat * logits) - truth * heat * logits))

    found: Any = optimize.minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded")
    return network, float(found.x)


def _centres(codes: np.ndarray) -> np.ndarray:
    """The middles of kinds; with hardly any samples beyond the threshold, one kind that stands for all."""
    if len(codes) < 5 * KINDS:
        middle = codes.mean(axis=0) if len(codes) else np.zeros(codes.shape[1])
        return np.concatenate([middle[None], np.full((KINDS - 1, codes.shape[1]), 1e6)])
    grouping: Any = KMeans(KINDS, random_state=0)
    return grouping.fit(codes).cluster_centers_


def _logits(network: Any, codes: np.ndarray) -> np.ndarray:
    if not len(codes):  # nobody has a picture, which is no reason to fail and tell it
        return np.zeros(0)
    scores = np.asarray(_apply(network, jnp.asarray(_wide(codes))))
    return (scores[:, 1] - scores[:, 0]).astype(np.float64)


def _wide(codes: np.ndarray) -> np.ndarray:
    """Codes, whose length is about 1, with numbers of about 1."""
    return codes * np.float32(np.sqrt(codes.shape[1]))


def _judged(network: Any, spectrum: Spectrum, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    codes = np.asarray(_encoded(spectrum, images))
    return _logits(network, codes), codes


def _encoded(spectrum: Spectrum, images: np.ndarray) -> np.ndarray:
    """The low frequencies of pictures, batch by batch in one shape, which is compiled once."""
    found = np.empty((len(images), spectrum.size), np.float32)
    for start in range(0, len(images), _BATCH):
        some = images[start : start + _BATCH]
        filled = np.zeros((_BATCH, *images.shape[1:]), images.dtype)
        filled[: len(some)] = some
        found[start : start + len(some)] = np.asarray(_codes(spectrum, jnp.asarray(filled)))[: len(some)]
    return found


@eqx.filter_jit
def _codes(spectrum: Spectrum, images: jax.Array) -> jax.Array:
    return spectrum.of(images)


@eqx.filter_jit
def _apply(network: Any, codes: jax.Array) -> jax.Array:
    return network(codes)
