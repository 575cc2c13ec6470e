"""Many configurations of Draw and Discard side by side, on the same clients in the same order; for experiments only.

The drawn instances of all configurations are stacked, so that one update of all of them is two matrix products. Noise
is drawn in float32, which a deployment must not do (`blindsight.algorithms.draw_and_discard` is for that).
"""

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration:
    """One curve: `k` instances, what an update overwrites, and the noise in every weight.

    `replace` is "random" (draw and discard) or "same"; `averaged` with what is overwritten; only one in `accept` is
    taken; `batch` gradients make one step of a server that waits for them. Gradients are clipped to `clip`, in each
    coordinate or in `norm`; `noise` is a Laplace scale, or with norm 2 a standard deviation. `start` is the spread
    that instances begin with.
    """

    name: str
    k: int = 1
    replace: str = "random"
    averaged: bool = False
    accept: int = 1
    batch: int = 1
    clip: float = 1.0
    norm: int | None = None
    noise: float = 0.0
    start: float = 0.0


Client = tuple[np.ndarray, np.ndarray]
"""Features (examples, d) and targets (outputs, examples), float32."""


def simulate(
    configurations: list[Configuration],
    clients: Callable[[int], Client],
    order: np.ndarray,
    *,
    outputs: int,
    learning_rate: float,
    seed: int,
    watch: Callable[[int, np.ndarray], None],
    every: int,
) -> list[np.ndarray]:
    """Send the clients of `order` to every configuration at once; `watch(updates, averages)` every so often.

    One output is logistic, several are multinomial; averages have shape (configurations, outputs, d). Gives the
    instances that each configuration ends with, (k, outputs, d).
    """
    random = np.random.default_rng(seed)
    count, d = len(configurations), clients(0)[0].shape[1]
    first = np.cumsum([0, *(c.k for c in configurations)])
    pool = np.zeros((first[-1] + 1, outputs, d), np.float32)  # the last is where updates go that are not taken
    for c, begin in zip(configurations, first[:-1], strict=True):
        pool[begin : begin + c.k] = c.start * random.standard_normal((c.k, outputs, d), np.float32)
    drawn, replaced = _indices(configurations, first, len(order), random)
    averaged = np.flatnonzero([c.averaged for c in configurations])
    batched = [n for n, c in enumerate(configurations) if c.batch > 1]
    gathered = {n: np.zeros((outputs, d), np.float32) for n in batched}
    noisy = [(n, c) for n, c in enumerate(configurations) if c.noise]
    normed = [(n, c) for n, c in enumerate(configurations) if c.norm]
    for step, client in enumerate(order):
        x, target = clients(int(client))
        weights = pool[drawn[step]]  # (configurations, outputs, d), a copy
        excess = _predicted(weights.reshape(-1, d) @ x.T, outputs) - target
        gradient = (excess.reshape(count * outputs, -1) @ x).reshape(weights.shape)
        gradient *= learning_rate / len(x)  # in each coordinate at most the learning rate: clipping to 1 is idle
        for n, c in normed:
            length = float(np.linalg.norm(gradient[n].ravel(), c.norm))
            gradient[n] *= min(1.0, learning_rate * c.clip / max(length, 1e-30))
        for n in batched:
            gathered[n] += gradient[n]
            gradient[n] = 0.0
            if (step + 1) % configurations[n].batch == 0:
                gradient[n], gathered[n][:] = gathered[n] / configurations[n].batch, 0.0
        weights -= gradient
        for n, c in noisy:
            weights[n] += c.noise * _noise(c, (outputs, d), random)
        target_rows = replaced[step]
        if averaged.size:
            weights[averaged] = (weights[averaged] + pool[target_rows[averaged]]) / 2
        pool[target_rows] = weights
        if (step + 1) % every == 0:
            watch(step + 1, np.stack([pool[a:b].mean(axis=0) for a, b in itertools.pairwise(first)]))
    return [pool[a:b] for a, b in itertools.pairwise(first)]


def _indices(
    configurations: list[Configuration], first: np.ndarray, updates: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Which instance every update starts from and which it overwrites, (updates, configurations)."""
    starts = list(zip(configurations, first[:-1], strict=True))
    drawn = np.stack([begin + random.integers(c.k, size=updates) for c, begin in starts])
    replaced = drawn.copy()
    for n, (c, begin) in enumerate(starts):
        if c.replace == "random":
            replaced[n] = begin + random.integers(c.k, size=updates)
        if c.accept > 1:
            replaced[n, random.integers(c.accept, size=updates) > 0] = first[-1]
    return drawn.T.copy(), replaced.T.copy()


def _predicted(scores: np.ndarray, outputs: int) -> np.ndarray:
    """Probabilities, (configurations, outputs, examples)."""
    scores = scores.reshape(-1, outputs, scores.shape[1])
    if outputs == 1:
        return 1 / (1 + np.exp(-scores))
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _noise(c: Configuration, shape: tuple[int, int], random: np.random.Generator) -> np.ndarray:
    if c.norm == 2:
        return random.standard_normal(shape, np.float32)
    exponentials = random.standard_exponential((2, *shape), np.float32)
    return exponentials[0] - exponentials[1]


def spread(k: int, noise: float) -> float:
    """The initial standard deviation over instances for a Laplace scale: variance k/2 times 2 noise^2."""
    return math.sqrt(k) * noise if k > 1 else 0.0
