"""Draw and Discard, Pihur et al. 2018 (arXiv:1807.04369): local privacy without a round, a lock or a batch.

A server keeps `instances` copies of a linear model. A client draws one, takes one gradient step on its own data, adds
noise, and sends the new weights back; the server overwrites a copy chosen at random and never learns which copy the
client had drawn. Predictions use the average of the copies.

**Client half** (Algorithm 1), the same in Python and in the browser: the mean gradient of the client's examples is
clipped (`unit="feature"`: every coordinate; `unit="model"`: the whole of it, in L1 or L2), multiplied by the learning
rate, and truncated to whole steps of a grid; integer noise from a cryptographic stream is added; only then is the
result converted to floating point. A float sampler would leak through its last bits.

**Why the bound holds.** The noise has a scale of 2^24 steps, so with Laplace noise a difference of n steps costs an
epsilon of n / 2^24. A client's change is bounded by `Task.bound` = floor(epsilon 2^23) steps: replacing all its data
changes it by at most twice that, and 2 bound / 2^24 <= epsilon. Products with powers of two and floor are exact in
floating point. Truncation towards zero makes no coordinate longer. A norm summed in float64 over at most 2^22 weights
errs by less than one part in 2^31, and the change is clipped to (1 - 2^-30) of the bound. With Gaussian noise the bound
is 2^24 / z steps for the noise multiplier z that the accountant requires. Values that are not finite count as zero.

**Server half** (Algorithm 2): `initial_instances`, `draw`, `discard`, `average`, all pure. See `service` for HTTP.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from blindsight.accounting import events
from blindsight.algorithms.client_budget import Budget
from blindsight.algorithms.draw_and_discard_task import BITS, Task, TaskUnit, check_one_of, check_whole
from blindsight.errors import InvalidInput
from blindsight.keys import Key
from blindsight.mechanisms.discrete import discrete_laplace
from blindsight.models import glm

if TYPE_CHECKING:  # accountants take a second to load, and a client or server of plain updates needs none
    from blindsight.accounting.guarantee import Guarantee
    from blindsight.accounting.informal import Informal

__all__ = ["Budget", "Task", "average", "client_update", "client_update_of", "discard", "draw", "guarantee"]
__all__ += ["informal", "initial_instances", "whole_change"]

_INSIDE = 1 - 2.0**-30  # room for the rounding of a norm


# --- the client's half


def client_update(task: Task, weights: np.ndarray, x: np.ndarray, y: np.ndarray, *, key: Key) -> np.ndarray:
    """The weights that a client sends back, float32: those it drew, plus one bounded step on its examples, plus noise.

    **Guarantee**: that of `guarantee(task, 1)`, for any weights, examples and number of examples (including none, which
    looks like any other). `key` must never be used for anything else.
    """
    drawn, examples = _check_weights(task, weights), np.asarray(x, np.float64)
    width = task.features.width if task.features else 0
    if task.family == "custom" or examples.ndim != 2 or examples.shape != (len(y), width):
        raise InvalidInput(
            f"{task.model} needs features of shape (examples, {width}) and one response for each example"
        )
    if task.family in ("multinomial", "ordinal") and task.response:
        places = np.asarray(y)
        if not np.all((places >= 0) & (places < task.response.classes)):
            raise InvalidInput(
                f"the responses of {task.model} must be class indices from 0 to {task.response.classes - 1}"
            )
    with np.errstate(all="ignore"):  # overflows count as zero
        gradient = glm.gradient(task.family, drawn, examples, y)
    return _noised(task, drawn, gradient, key)


def client_update_of(
    loss: Callable[[Any, Any], Any], task: Task, weights: np.ndarray, examples: Any, *, key: Key
) -> np.ndarray:
    """The same for any `loss(weights, examples)` that JAX can differentiate, with a task of the custom family.

    `weights` is one vector: a loss over a tree of arrays unravels it (`jax.flatten_util.ravel_pytree`).
    """
    import jax

    drawn = _check_weights(task, weights)
    gradient = np.asarray(jax.grad(loss)(jax.numpy.asarray(drawn, np.float32), examples), np.float64)
    return _noised(task, drawn, gradient, key)


def whole_change(task: Task, gradient: np.ndarray) -> np.ndarray:
    """The change of the weights in whole steps of the grid, int64, before noise; it never exceeds `task.bound`.

    Coordinates that are not finite count as zero.
    """
    if task.grid is None or task.bound is None:
        raise InvalidInput("a task without noise has no grid")
    with np.errstate(over="ignore"):
        steps = _clipped(task, -(task.learning_rate / task.grid) * gradient, task.bound * _INSIDE)
    return np.trunc(steps).astype(np.int64)


def _noised(task: Task, drawn: np.ndarray, gradient: np.ndarray, key: Key) -> np.ndarray:
    if task.grid is None:
        return (drawn - task.learning_rate * clipped(task, gradient)).astype(np.float32)
    noisy = whole_change(task, gradient) + _whole_noise(task, key)
    return (drawn + task.grid * noisy).astype(np.float32)  # after the noise, arithmetic is post-processing


def clipped(task: Task, gradient: np.ndarray) -> np.ndarray:
    """The gradient with every coordinate, or its norm, at most `task.clip`; what is not finite counts as zero."""
    return _clipped(task, gradient, task.clip)


def _whole_noise(task: Task, key: Key) -> np.ndarray:
    if task.noise == "laplace":
        return discrete_laplace(BITS, task.weights, key.stream())
    from blindsight.mechanisms.rounded_gaussian import rounded_gaussian  # imports JAX, which a server does without

    return rounded_gaussian(BITS, task.weights, key.derive("rounded gaussian").secret)


def _clipped(task: Task, vector: np.ndarray, limit: float) -> np.ndarray:
    """`vector` with every coordinate, or its norm, at most `limit`."""
    finite = np.where(np.isfinite(vector), vector, 0.0)
    if task.norm is None:
        return np.clip(finite, -limit, limit)
    largest = float(np.max(np.abs(finite), initial=0.0))
    if largest == 0.0:
        return finite
    direction = finite / largest  # first, so that neither squares nor sums can overflow
    return direction * min(largest, limit / float(np.linalg.norm(direction, task.norm)))


# --- the server's half


def initial_instances(task: Task, *, key: Key, start: np.ndarray | None = None) -> np.ndarray:
    """The initial copies, float32 (instances, weights): around `start` (zeros), with the stationary spread.

    Draw and discard keeps the expected variance over k copies at k/2 times that of the noise (Theorem 1). Without
    noise the spread is that of epsilon = 1, as in the paper; a single copy starts at `start`.
    """
    centre = np.zeros(task.weights) if start is None else _check_weights(task, start)
    variance = task.variance or 2 * (2 * task.learning_rate * task.clip) ** 2
    random = np.random.default_rng(np.frombuffer(key.derive("instances").secret, np.uint32))
    spread = math.sqrt(task.instances / 2 * variance) if task.instances > 1 else 0.0
    return (centre + spread * random.standard_normal((task.instances, task.weights))).astype(np.float32)


def draw(instances: np.ndarray, *, key: Key) -> np.ndarray:
    """A copy chosen at random, for a client."""
    return instances[_random_index(instances, key)].copy()


def discard(instances: np.ndarray, update: np.ndarray, *, key: Key) -> np.ndarray:
    """The instances with one of them, chosen at random, overwritten by a client's update."""
    replaced = instances.copy()
    replaced[_random_index(instances, key)] = update
    return replaced


def average(instances: np.ndarray) -> np.ndarray:
    """The model to predict with, float32."""
    return np.asarray(np.mean(instances, axis=0, dtype=np.float64), np.float32)


def _random_index(instances: np.ndarray, key: Key) -> int:
    return int(key.stream().below(len(instances), 1)[0])


# --- guarantees, and informal bounds


def guarantee(
    task: Task, participations: int | None = None, *, unit: TaskUnit | None = None, delta: float | None = None
) -> "Guarantee":
    """The guarantee for a client that sends `participations` updates, against an observer who sees all of them.

    Local privacy: neither the server nor the channel is trusted. `unit="model"` hides all of the client's data in all
    weights together. `unit="feature"`, the paper's unit, covers any single weight by itself: an update's p weights
    together cost up to p times as much, which is what `unit="model"` reports for a task with noise per feature. A
    `delta` > 0 may give a smaller epsilon for many updates.
    """
    from blindsight.accounting.assumptions import LOCAL_NOISE, ONE_WEIGHT, TAKES_PART
    from blindsight.accounting.guarantee import Guarantee, certify

    count = task.participations if participations is None else participations
    check_whole("participations", count, 0, 2**31)
    stated = unit or task.unit
    check_one_of("unit", stated, get_args(TaskUnit))
    coordinates = task.weights if (stated, task.unit) == ("model", "feature") else 1
    allowed = task.delta if delta is None else delta
    words = f"local, {count:,} update{'' if count == 1 else 's'} of {task.weights:,} weights by one client"
    named = events.Unit.CLIENT if stated == "model" else events.Unit.FEATURE
    assumptions = [TAKES_PART, LOCAL_NOISE]
    if stated == "feature":
        assumptions.append(ONE_WEIGHT.format(weights=f"{task.weights:,}"))
    if not allowed and task.noise == "gaussian":
        raise InvalidInput("Gaussian noise has no pure epsilon: give a delta > 0")
    if not allowed and task.noise == "laplace":
        return Guarantee(
            epsilon=task.epsilon * coordinates * count,
            delta=0.0,
            accountant="sum of pure losses",
            participation=words,
            releases=count,
            unit=named,
            relation=events.Relation.REPLACE,
            assumptions=tuple(assumptions),
        )
    event = events.Repeated(task.event, coordinates * count)
    certified = certify(
        event,
        delta=allowed or 0.5,  # without noise, epsilon = inf at any delta
        unit=named,
        relation=events.Relation.REPLACE,
        participation=words,
        assumptions=tuple(assumptions),
    )
    return dataclasses.replace(certified, releases=count, delta=allowed)


def informal(task: Task, *, updates: int = 100, delta: float = 1e-8) -> "Informal":
    """What weaker observers than the guarantee assumes could learn from one update; never a guarantee.

    Adversary II sees all instances once, right after the update; adversary III sees one instance that `updates` updates
    have changed since it was drawn, including the client's own.
    """
    from blindsight.accounting.informal import against_snapshots

    if task.noise == "none":
        raise InvalidInput("a task without noise has no bound against weaker observers")
    return against_snapshots(
        task.event,
        epsilon=task.epsilon,
        weights=task.weights,
        whole_update=task.unit == "model",
        instances=task.instances,
        updates=updates,
        delta=delta,
    )


def _check_weights(task: Task, weights: np.ndarray) -> np.ndarray:
    drawn = np.asarray(weights, np.float64)
    if drawn.shape != (task.weights,) or not np.all(np.isfinite(drawn)):
        raise InvalidInput(f"{task.model} has {task.weights} finite weights, got an array of shape {drawn.shape}")
    return drawn
