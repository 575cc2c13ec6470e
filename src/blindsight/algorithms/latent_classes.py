"""A latent class model fitted to noisy tables of pairs: synthetic rows whose fields depend on each other as clients'
do.

After Lazarsfeld and Henry 1968, *Latent Structure Analysis*. Given a hidden class, the fields of a row are independent,
so every table of two fields and the label is a sum over classes of products, and tables of all pairs are one matrix
product. The fit is least squares against released tables, each cell weighted by the inverse of its known noise
variance (as in Liu, Vietri and Wu 2021, *Iterative Methods for Private Synthetic Data*, arXiv:2106.07153, for another
generator).

A model of few classes cannot follow the noise of ten thousand cells, and what one fit gets wrong because of its random
start, others do not: all fits are pooled into one model with the classes of each. Everything here is post-processing.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

__all__ = ["LatentClasses", "Tables", "fit"]

_CLASSES, _FITS, _STEPS = 300, 10, 1000
_RATE, _SPREAD = 0.05, 0.5  # learning rate, and standard deviation of logits at the start


@dataclasses.dataclass(frozen=True, eq=False)
class Tables:
    """Noisy sums as shares of their total, and the variance of the noise in each; infinite where nothing is known.

    `single` (cells, labels) has the cells of all fields one after the other, `sizes` of them each; `pairs` (labels,
    cells, cells) has every pair of cells.
    """

    sizes: tuple[int, ...]
    single: np.ndarray
    single_variance: np.ndarray
    pairs: np.ndarray
    pairs_variance: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class LatentClasses:
    """Probabilities of the classes, of the labels in each class (classes, labels), and of each field's cells."""

    weights: np.ndarray
    labels: np.ndarray
    fields: tuple[np.ndarray, ...]

    def draw(self, count: int, dice: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
        """The labels of `count` rows, and the cell of every field."""
        classes = dice.choice(len(self.weights), size=count, p=self.weights)
        return _drawn(self.labels, classes, dice), [_drawn(field, classes, dice) for field in self.fields]


def fit(
    tables: Tables, dice: np.random.Generator, *, progress: Callable[[int, int], None] = lambda done, total: None
) -> LatentClasses:
    """The model of all fits together, each from another random start."""
    shares = np.maximum(tables.single.sum(axis=1), 1e-4)
    labels = np.maximum(tables.single[: tables.sizes[0]].sum(axis=0), 1e-4)
    targets = [jnp.asarray(one, jnp.float32) for one in (tables.single, tables.pairs)]
    inverse = [1 / np.maximum(one, 1e-12) for one in (tables.single_variance, tables.pairs_variance)]
    counted = max(sum(np.count_nonzero(one) for one in inverse), 1)
    precision = [jnp.asarray(one / counted, jnp.float32) for one in inverse]  # at the truth, the distance is about 1
    fits = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
    for number in range(_FITS):
        progress(number, _FITS)
        start = {
            "weights": np.zeros(_CLASSES),
            "labels": np.log(labels) + _SPREAD * dice.standard_normal((_CLASSES, len(labels))),
            "cells": np.log(shares) + _SPREAD * dice.standard_normal((_CLASSES, len(shares))),
        }
        begun = {name: jnp.asarray(values, jnp.float32) for name, values in start.items()}
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # required by Optax
            weights, per_label, cells = _fitted(begun, targets, precision, tables.sizes)
        fits.append((np.asarray(weights, np.float64), np.asarray(per_label), np.asarray(cells)))
    progress(_FITS, _FITS)
    weights, per_label, cells = (np.concatenate([one[place] for one in fits]) for place in range(3))
    ends = np.cumsum(tables.sizes)[:-1]
    return LatentClasses(weights / weights.sum(), per_label, tuple(np.split(cells, ends, axis=1)))


def _probabilities(logits: dict[str, jax.Array], sizes: Sequence[int]) -> tuple[jax.Array, jax.Array, jax.Array]:
    ends = [0, *itertools.accumulate(sizes)]
    fields = [jax.nn.softmax(logits["cells"][:, begin:end], axis=1) for begin, end in itertools.pairwise(ends)]
    return jax.nn.softmax(logits["weights"]), jax.nn.softmax(logits["labels"], axis=1), jnp.concatenate(fields, axis=1)


@functools.partial(jax.jit, static_argnames="sizes")
def _fitted(start: Any, targets: Any, precision: Any, sizes: tuple[int, ...]) -> tuple[jax.Array, jax.Array, jax.Array]:
    (single, pairs), (of_single, of_pairs) = targets, precision

    def distance(logits: Any) -> jax.Array:
        weights, labels, cells = _probabilities(logits, sizes)
        labelled = weights[:, None] * labels
        off_single = cells.T @ labelled - single
        off_pairs = jnp.einsum("ka,kl,kb->lab", cells, labelled, cells) - pairs
        return jnp.sum(of_single * jnp.square(off_single)) + jnp.sum(of_pairs * jnp.square(off_pairs))

    optimizer = optax.adam(optax.cosine_decay_schedule(_RATE, _STEPS))

    def step(state: Any, _: None) -> tuple[Any, None]:
        logits, moments = state
        updates, moments = optimizer.update(jax.grad(distance)(logits), moments)
        return (optax.apply_updates(logits, updates), moments), None

    (logits, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), None, length=_STEPS)
    return _probabilities(logits, sizes)


def _drawn(probabilities: np.ndarray, classes: np.ndarray, dice: np.random.Generator) -> np.ndarray:
    """One cell for each class in `classes`, by its probabilities."""
    edges = np.cumsum(probabilities.astype(np.float64), axis=1)
    chosen = dice.random(len(classes)) * edges[classes, -1]
    return np.minimum((chosen[:, None] >= edges[classes]).sum(axis=1), probabilities.shape[1] - 1)
