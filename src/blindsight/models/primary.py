"""The primary model: the deployed model under inspection.

It may be any Python function, a Blindsight classifier or an ONNX file, so it is never run inside a compiled client
update. Its predictions on a client's examples stay on that client and must depend only on these examples: a function
that standardises its batch would let one client change the votes of others. So a function or an ONNX file is called
once per client, and only models that work row by row run on batches across clients.
"""

import contextlib
import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from blindsight.codings.images_and_rows import Described
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.models.classifiers import CNN, Logistic
from blindsight.models.layers import softmax_cross_entropy
from blindsight.models.onnx_files import read_onnx

__all__ = ["Learnt", "Primary", "fit", "gather", "primary"]

Scores = Callable[[np.ndarray], Any]
"""(examples, ...) to one score per class: (examples, classes), the highest wins."""


@dataclasses.dataclass(frozen=True)
class Learnt:
    """A model's training data: clients under a `guarantee` (as plain values), or public data, without one.

    `population` is the clients' name in the ledger; None if unknown, which means that they may be any clients.
    """

    population: str | None = None
    guarantee: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Primary:
    """A model to inspect: `scores(inputs)`, and what is known of the format of its inputs.

    `dtype` is the type of its inputs, `low` and `high` their range; a model that `scales_bytes` also accepts bytes.
    `digest` differs between different models; it is empty where they cannot be compared, as for a Python function.
    `by_row` states that the score of a row depends on no other row of its batch: set it only if that is proved.
    `learnt` is its training data, if known. `classes` are the names of its classes in the order of scores, if it says.
    """

    call: Scores
    name: str
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None
    low: float = -math.inf
    high: float = math.inf
    scales_bytes: bool = False
    batch_size: int = 1000
    digest: str = ""
    by_row: bool = False
    learnt: Learnt | None = None
    classes: tuple[str, ...] = ()

    def scores(self, inputs: np.ndarray) -> np.ndarray:
        """One score per class for each example, shape (examples, classes), computed batch by batch.

        All examples must be one client's, or public; otherwise use `scores_by_client`.
        """
        starts = range(0, max(len(inputs), 1), self.batch_size)
        scores = [np.asarray(self.call(inputs[start : start + self.batch_size]), np.float32) for start in starts]
        return np.concatenate(scores)

    def scores_by_client(self, inputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """The same for examples of many clients, `sizes` of each in order: no client's scores depend on another's.

        If the model fails on a client's examples, their scores are silently zero.
        """
        if self.by_row:
            return self.scores(inputs)
        classes = self.scores(np.zeros((1, *inputs.shape[1:]), inputs.dtype)).shape[1]
        scores = np.zeros((len(inputs), classes), np.float32)
        ends = np.cumsum(sizes)
        for begin, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True):
            with contextlib.suppress(Exception):  # ignored: a failure on one client's data must not stop a run
                if end > begin:
                    scores[begin:end] = np.nan_to_num(self.scores(inputs[begin:end]))
        return scores

    def predict(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The most likely class of each example (int32), and its softmax probability (float32)."""
        return _most_likely(self.scores(inputs))

    def predict_by_client(self, inputs: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same for examples of many clients: see `scores_by_client`."""
        return _most_likely(self.scores_by_client(inputs, sizes))

    def filling(self, fills: Sequence[float], is_code: Sequence[bool]) -> "Primary":
        """The model for single numbers and codes of which some may be missing: NaN, or a code below 0.

        A model that gives finite scores for an example of nothing but NaN reads NaN. For any other, missing values are
        replaced by `fills`, one for each field, which must be public.
        """
        instead, codes = np.asarray(fills, np.float32), np.asarray(is_code)
        if self._reads_nan(len(fills)):
            instead = np.full(len(fills), np.nan, np.float32)

        def call(inputs: np.ndarray) -> Any:
            rows = inputs if inputs.ndim > 1 else inputs[:, None]
            gaps = np.isnan(rows) | (codes & (rows < 0)) if rows.dtype.kind == "f" else codes & (rows < 0)
            if not gaps.any():
                return self.call(inputs)
            given = np.where(np.isnan(instead), np.float32(0), instead) if rows.dtype.kind != "f" else instead
            return self.call(np.where(gaps, given, rows).astype(inputs.dtype).reshape(inputs.shape))

        return dataclasses.replace(self, call=call)

    def _reads_nan(self, width: int) -> bool:
        probe = np.full((1, width) if width > 1 else (1,), np.nan, np.float32)
        with contextlib.suppress(Exception), np.errstate(all="ignore"):
            return bool(np.isfinite(self.scores(probe)).all())
        return False

    def check(
        self,
        population: Described,
        field: str | Sequence[str] = "image",
        label: str | None = "label",
        *,
        public: np.ndarray | None = None,
    ) -> None:
        """Refuse a model that cannot read `field` of `population`, before anything is spent.

        Shape, dtype and number of classes are checked on the fields. The range is checked only on `public` examples:
        an error that depends on clients' values would reveal them.
        """
        fields = (field,) if isinstance(field, str) else tuple(field)
        for one in fields:
            if one not in population.fields:
                raise InvalidInput(f"the primary model reads {one!r}, but {population.name} has {_names(population)}")
            if population.fields[one][0].kind not in "biuf":
                raise InvalidInput(
                    f"the primary model reads numbers and {one!r} of {population.name} is text: encode it as numbers"
                )
        inputs = " and ".join(fields)
        one = {
            name: np.zeros((1, *shape), dtype) for name, (dtype, shape) in population.fields.items() if name in fields
        }
        some = gather(one, fields)
        self._check_input(some, inputs)
        if public is not None:
            self._check_range(public, inputs)
        elif some.dtype == np.uint8:
            self._check_range(some, inputs)
        try:
            scores, again = self.scores(some), self.scores(some)
        except BlindsightError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidInput(
                f"{self.name} cannot read {inputs}, which is {_spell(some)} ({reason:.200}): give the layout of an "
                "ONNX model's input, --model-layout NCHW, NHWC, NHW or NF, or wrap it in a function that reshapes it"
            ) from error
        if scores.ndim != 2 or len(scores) != len(some) or not np.isfinite(scores).all():
            raise InvalidInput(
                f"{self.name} must return a finite score per class, (examples, classes), but for an example of "
                f"zeros it returned {_spell(scores)}"
            )
        if not np.allclose(scores, again, rtol=1e-3, atol=1e-4):
            raise InvalidInput(
                f"{self.name} returned different scores for the same example: use a model without state and dropout"
            )
        names = population.classes.get(label or "")
        if names and scores.shape[1] != len(names):
            raise InvalidInput(
                f"{self.name} has {scores.shape[1]} classes and {label!r} of {population.name} has {len(names)}: "
                f"use a model trained for these classes"
            )

    def _check_input(self, some: np.ndarray, inputs: str) -> None:
        if self.shape is not None and some.shape[1:] != self.shape:
            raise InvalidInput(
                f"{self.name} reads examples of shape {list(self.shape)} and {inputs} has {list(some.shape[1:])}: "
                f"resize the examples, or use another model"
            )
        if self.dtype is not None and some.dtype != self.dtype:
            raise InvalidInput(
                f"{self.name} reads {self.dtype} and {inputs} holds {some.dtype}: convert one to the other, or say "
                "which range an ONNX model was trained with: --model-range 0:1, 0:255 or -1:1"
            )

    def _check_range(self, some: np.ndarray, inputs: str) -> None:
        is_bytes, low, high = some.dtype == np.uint8, self.low, self.high
        if is_bytes and self.scales_bytes:
            return
        numbers = some.astype(np.float64)  # integers have no infinity
        largest = 255.0 if is_bytes else float(np.nanmax(numbers, initial=-math.inf))
        smallest = 0.0 if is_bytes else float(np.nanmin(numbers, initial=math.inf))
        is_fraction = not is_bytes and smallest >= 0 and largest <= 1
        if smallest < low or largest > high or (is_fraction and 2 < high < math.inf):
            has = "bytes from 0 to 255" if is_bytes else "numbers of another range"
            raise InvalidInput(
                f"{self.name} reads numbers from {low:g} to {high:g} and {inputs} holds {has}: scale them in a "
                "wrapper around the model, or state the range it was trained with (--model-range 0:1)"
            )


def primary(
    model: Any,
    *,
    name: str | None = None,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    value_range: tuple[float, float] | None = None,
    layout: str | None = None,
    batch_size: int = 1000,
    learnt: Learnt | None = None,
) -> Primary:
    """The primary model of a function, an Equinox classifier, or an ONNX file.

    `check` compares the stated input format (`shape` of one example, `dtype`, `value_range`) with a population. An ONNX
    file may state most of it itself: see `onnx_files`. An Equinox classifier is vectorised over single examples.

    Args:
        model: A function, an Equinox classifier, or the path of an ONNX file.
        name: Name in reports.
        shape: Shape of one example.
        dtype: Type of the input's numbers.
        value_range: Minimum and maximum of the input.
        layout: Axes of the input of an ONNX file: NF, NHW, NHWC or NCHW.
        batch_size: Examples per call.
        learnt: Its training data, if known.

    >>> primary(lambda images: np.zeros((len(images), 10)), name="no idea").scores(np.zeros((2, 28, 28))).shape
    (2, 10)
    """
    if batch_size < 1:
        raise InvalidInput(f"batch_size must be at least 1, got {batch_size}")
    low, high = value_range or (-math.inf, math.inf)
    given: dict[str, Any] = {"low": low, "high": high, "batch_size": batch_size, "learnt": learnt}
    given |= {"shape": None if shape is None else tuple(shape), "dtype": None if dtype is None else np.dtype(dtype)}
    if isinstance(model, Primary):
        return model
    if isinstance(model, str | Path):
        read = read_onnx(Path(model), value_range=value_range, layout=layout, dtype=dtype)
        given |= {"low": read.low, "high": read.high, "dtype": read.dtype, "scales_bytes": read.scales_bytes}
        return Primary(read.call, name or Path(model).name, digest=read.digest, classes=read.classes, **given)
    if isinstance(model, eqx.Module) and callable(model):
        call = functools.partial(_run_module, model, batch_size)
        digest = _digest_of(model)
        return Primary(call, name or type(model).__name__, scales_bytes=True, digest=digest, by_row=True, **given)
    if not callable(model):
        raise InvalidInput(
            f"a primary model is a function of a batch, an Equinox classifier or the path of an ONNX file, "
            f"got {type(model).__name__}"
        )
    return Primary(model, name or getattr(model, "__name__", "the primary model"), **given)


def fit(
    model: Any,
    inputs: np.ndarray,
    labels: np.ndarray,
    *,
    epochs: int = 3,
    batch_size: int = 100,
    learning_rate: float = 1e-3,
    key: jax.Array,
) -> Any:
    """The classifier trained centrally with Adam on public data. No privacy.

    Args:
        model: A fresh classifier.
        inputs: Public examples.
        labels: Their classes.
        epochs: Passes over the examples.
        batch_size: Examples per step.
        learning_rate: Learning rate of Adam.
        key: Key of the example order.
    """
    optimizer = optax.adam(learning_rate)
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean(softmax_cross_entropy(eqx.combine(params, static)(x), y))

    @jax.jit
    def step(params: Any, state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, Any]:
        updates, state = optimizer.update(jax.grad(loss)(params, x, y), state)
        return jax.tree.map(lambda a, b: a + b, params, updates), state

    state, size = optimizer.init(params), min(batch_size, len(inputs))
    for number in range(epochs):
        order = np.asarray(jax.random.permutation(jax.random.fold_in(key, number), len(inputs)))
        for start in range(0, len(inputs) - size + 1, size):
            rows = order[start : start + size]
            with jax.numpy_dtype_promotion("standard"):  # optax counts steps in whole numbers
                params, state = step(params, state, inputs[rows], labels[rows].astype(np.int32))
    return eqx.combine(params, static)


def gather(columns: Mapping[str, np.ndarray], fields: str | Sequence[str]) -> np.ndarray:
    """The model's input: one field as it is, or several scalar fields stacked as float32."""
    if isinstance(fields, str) or len(fields) == 1:
        return columns[fields if isinstance(fields, str) else fields[0]]
    return np.stack([columns[field].astype(np.float32) for field in fields], axis=-1)


def _digest_of(model: Any) -> str:
    """A digest of the module's structure and weights; empty if it contains a lambda or a local function."""
    leaves, structure = jax.tree.flatten(model)
    arrays = [np.asarray(leaf) for leaf in leaves if eqx.is_array(leaf)]
    others = [leaf for leaf in leaves if not eqx.is_array(leaf)]
    words = re.sub(r" at 0x[0-9a-f]+", "", f"{type(model).__module__} {structure} {others!r}")
    if "<lambda>" in words or "<locals>" in words:
        return ""
    digest = hashlib.blake2b(words.encode(), digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


@eqx.filter_jit
def _apply(model: Any, x: jax.Array) -> jax.Array:
    if type(model) in _OURS:
        return model(x)
    return jax.vmap(lambda row: model(row[None])[0])(
        x
    )  # an unknown module gets batches of one row, so it cannot mix rows


_OURS = (Logistic, CNN)  # these work row by row; a subclass, or an MLP's activation, may not


def _run_module(model: Any, batch_size: int, inputs: np.ndarray) -> np.ndarray:
    """Padded to a whole batch, so that only one shape is compiled."""
    filled = np.zeros((batch_size, *inputs.shape[1:]), inputs.dtype)
    filled[: len(inputs)] = inputs
    return np.asarray(_apply(model, jnp.asarray(filled)))[: len(inputs)]


def _most_likely(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    odds = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-math.inf))
    sure = odds.max(axis=1, initial=0.0) / np.maximum(odds.sum(axis=1), np.float32(1e-30))
    return np.argmax(scores, axis=1).astype(np.int32), sure.astype(np.float32)


def _names(population: Described) -> str:
    return ", ".join(population.fields)


def _spell(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
