"""Students: classifiers trained on generated examples only.

The examples have already been released with a guarantee. A student is post-processing: it inherits that guarantee and
costs nothing more, however often it is trained.

    model = MLP((28, 28), 10, hidden=(512,), key=jax.random.key(0))
    student = train_student(samples, labels, model=model, steps=2000, key=keys.root(), guarantee=guarantee)
    student.labels(unlabelled)      # the most likely class of each
    student.accuracy(real_test)     # simulation_only: needs true labels
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy import ndimage

from blindsight.accounting.guarantee import Guarantee
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.keys import Key

__all__ = ["Augmentation", "Student", "train_student"]

_CHUNK = 100  # steps per compiled call; progress is reported in between
_AVERAGE = 0.01  # weight of the newest parameters in the running average that becomes the student


@dataclasses.dataclass(frozen=True, eq=False)
class Student:
    """A trained classifier, with the guarantee of its training examples (None if unknown)."""

    model: Any
    guarantee: Guarantee | None = None

    def probabilities(self, examples: np.ndarray, *, batch: int = 1000) -> np.ndarray:
        """The probability of every class, (n, classes); images are bytes, or numbers scaled as in training."""
        if len(examples) == 0:
            raise InvalidInput("there is nothing to predict: give at least one example")
        parts = np.array_split(examples, -(-len(examples) // batch))
        return np.concatenate([np.asarray(_probabilities(self.model, part)) for part in parts])

    def labels(self, examples: np.ndarray) -> np.ndarray:
        """The most likely class of every example."""
        return self.probabilities(examples).argmax(axis=1)

    def accuracy(
        self, real: Population | tuple[np.ndarray, np.ndarray], *, field: str = "image", label: str = "label"
    ) -> float:
        """Accuracy on real examples: `simulation_only`, and free of cost only on public data."""
        examples, truth = (real.columns[field], real.columns[label]) if isinstance(real, Population) else real
        return float(np.mean(self.labels(np.asarray(examples)) == np.asarray(truth)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Augmentation of every training batch; none by default.

    =============  =====================================================================================
    `noise`        normal noise of this standard deviation on every number (pixels are from 0 to 1)
    `shift`        images are shifted by up to this many pixels
    `turn`         and rotated by up to this many radians
    `zoom`         and scaled and sheared by up to this fraction
    `smoothing`    label smoothing: this share of every label is spread over all classes
    =============  =====================================================================================
    """

    noise: float = 0.0
    shift: float = 0.0
    turn: float = 0.0
    zoom: float = 0.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not 0 <= value < float("inf"):
                raise InvalidInput(f"{name} must be 0 or more, got {value}")
        if self.smoothing > 1:
            raise InvalidInput(f"smoothing must be at most 1, got {self.smoothing}")

    @property
    def moves(self) -> tuple[float, float, float] | None:
        """Shift, turn and zoom of images; None if they are unchanged."""
        return (self.shift, self.turn, self.zoom) if max(self.shift, self.turn, self.zoom) > 0 else None


def train_student(
    examples: np.ndarray,
    labels: np.ndarray,
    *,
    model: Any,
    steps: int,
    key: Key,
    batch: int = 128,
    learning_rate: float = 1e-3,
    augmentation: Augmentation | None = None,
    guarantee: Guarantee | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Student:
    """A student trained on these examples for `steps` steps of Adam, with averaged parameters.

    Args:
        examples: Released examples, (n, ...).
        labels: Classes (n,), or class probabilities (n, classes) from an uncertain labeller.
        model: A fresh classifier, (batch, ...) to logits (`models.classifiers`, or any Equinox module).
        steps: Number of steps.
        key: Key of the batches and their augmentation.
        batch: Examples per step.
        learning_rate: Learning rate at the start; it decays to 0 along a cosine.
        augmentation: Augmentation of every batch; none by default.
        guarantee: Guarantee of the examples, which the student inherits.
        progress: Called with the steps done and their total.
    """
    x, y = _checked(examples, labels, steps)
    varied = augmentation or Augmentation()
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, x: jax.Array, y: jax.Array, key: jax.Array) -> jax.Array:
        which, how, what = jax.random.split(key, 3)
        chosen = jax.random.randint(which, (batch,), 0, len(y))
        inputs = _numbers(x[chosen])
        if varied.moves is not None:
            inputs = _moved(inputs, *varied.moves, key=how)
        if varied.noise > 0:
            inputs += varied.noise * jax.random.normal(what, inputs.shape)
        logits = eqx.combine(params, static)(inputs)
        target = y[chosen] if y.ndim == 2 else jax.nn.one_hot(y[chosen], logits.shape[-1])
        target = (1 - varied.smoothing) * target + varied.smoothing / logits.shape[-1]
        return -jnp.mean(jnp.sum(target * jax.nn.log_softmax(logits), axis=-1))

    @jax.jit
    def learn(state: Any, x: jax.Array, y: jax.Array, keys: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> tuple[Any, None]:
            params, average, moments = state
            updates, moments = optimizer.update(jax.grad(loss)(params, x, y, key), moments)
            params = optax.apply_updates(params, updates)
            return (params, optax.incremental_update(params, average, _AVERAGE), moments), None

        return jax.lax.scan(step, state, keys)[0]

    with jax.numpy_dtype_promotion("standard"):  # which Optax needs
        state = params, params, optimizer.init(params)
        for done in range(0, steps, _CHUNK):
            progress(done, steps)
            keys = jax.random.split(key.derive("student", done).jax(), min(_CHUNK, steps - done))
            state = learn(state, x, y, keys)
        progress(steps, steps)
    return Student(eqx.combine(state[1], static), guarantee)


def _checked(examples: np.ndarray, labels: np.ndarray, steps: int) -> tuple[jax.Array, jax.Array]:
    if not len(examples) == len(labels) >= 1:
        raise InvalidInput(f"a student needs a label for every example, got {len(examples)} and {len(labels)}")
    if steps < 1:
        raise InvalidInput(f"steps must be at least 1, got {steps}")
    labels = np.asarray(labels)
    if labels.ndim not in (1, 2) or (labels.ndim == 1 and labels.dtype.kind not in "iu"):
        raise InvalidInput("labels must be whole numbers (n,), or a probability for every class (n, classes)")
    return jnp.asarray(examples), jnp.asarray(labels, jnp.int32 if labels.ndim == 1 else jnp.float32)


def _numbers(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float32) * (jnp.float32(1 / 255) if x.dtype == jnp.uint8 else jnp.float32(1))


def _moved(images: jax.Array, shift: float, turn: float, zoom: float, *, key: jax.Array) -> jax.Array:
    """Each image with its own small random transformation; the edge is extended outwards."""
    if images.ndim not in (3, 4):
        raise InvalidInput("augmentation needs images: (n, height, width) or with channels last")
    count, height, width = images.shape[:3]
    first, second, third = jax.random.split(key, 3)
    offset = jax.random.uniform(first, (count, 2), minval=-shift, maxval=shift)
    angle = jax.random.uniform(second, (count,), minval=-turn, maxval=turn)
    lean = jax.random.uniform(third, (count, 2, 2), minval=-zoom, maxval=zoom)
    rotation = jnp.stack([jnp.cos(angle), -jnp.sin(angle), jnp.sin(angle), jnp.cos(angle)], -1).reshape(count, 2, 2)
    centre = jnp.array([(height - 1) / 2, (width - 1) / 2])
    grid = (
        jnp.stack(jnp.meshgrid(jnp.arange(float(height)), jnp.arange(float(width)), indexing="ij"), -1)
        - centre[None, None]
    )

    def move(image: jax.Array, matrix: jax.Array, offset: jax.Array) -> jax.Array:
        places = jnp.moveaxis(grid @ matrix + (centre + offset)[None, None], -1, 0)
        layer = lambda plane: ndimage.map_coordinates(plane, list(places), order=1, mode="nearest")  # noqa: E731
        return layer(image) if image.ndim == 2 else jax.vmap(layer, in_axes=-1, out_axes=-1)(image)

    return jax.vmap(move)(images, rotation + lean, offset)


@eqx.filter_jit
def _probabilities(model: Any, examples: Any) -> jax.Array:
    return jax.nn.softmax(model(jnp.asarray(examples)), axis=-1)
