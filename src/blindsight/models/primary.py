"""The primary model: the one in the field whose mistakes are to be understood.

It may be any Python function, a classifier of Blindsight's own, or an ONNX file, so it is never run inside a compiled
client update. What it says about a client's examples stays on that client, and must depend on these alone: a function
that standardises its batch would let one client move what others vote for. So a function or an ONNX file is called once
for each client, and only what reads row by row is run on batches across clients.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
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

__all__ = ["Learnt", "Primary", "fit", "gather", "primary"]

Scores = Callable[[np.ndarray], Any]
"""(examples, ...) to one score for each class: (examples, classes), the highest wins."""


@dataclasses.dataclass(frozen=True)
class Learnt:
    """What a model was trained on: clients under a `guarantee` (as plain values), or public data, which have none.

    `population` is the clients' name in the ledger; None if nobody knows it, so that they may be anyone.
    """

    population: str | None = None
    guarantee: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Primary:
    """A model to inspect: `scores(inputs)`, and what its inputs must look like, where that is known.

    `dtype` is the kind of number that it reads, `low` and `high` are where these lie; bytes are no matter to a model
    that `scales_bytes` itself. `digest` differs for models that differ; it is empty where that cannot be told, as of a
    Python function. `by_row` says that the score of a row depends on no other row of its batch: claim it if that is
    proved. `learnt` says what it was trained on, where that is known.
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

    def scores(self, inputs: np.ndarray) -> np.ndarray:
        """One score for each class of each example, shape (examples, classes), computed batch by batch.

        For examples that are one client's, or anybody's: see `scores_by_client`.
        """
        starts = range(0, max(len(inputs), 1), self.batch_size)
        found = [np.asarray(self.call(inputs[start : start + self.batch_size]), np.float32) for start in starts]
        return np.concatenate(found)

    def scores_by_client(self, inputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """The same for examples of many clients, the first `sizes[0]` of the first: no client's hang on another's.

        A client on whose examples the model fails has zeros for scores, which nobody notices.
        """
        if self.by_row:
            return self.scores(inputs)
        classes = self.scores(np.zeros((1, *inputs.shape[1:]), inputs.dtype)).shape[1]
        found = np.zeros((len(inputs), classes), np.float32)
        ends = np.cumsum(sizes)
        for begin, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True):
            with contextlib.suppress(Exception):  # ignored: what a model says of one client's data may not stop a run
                if end > begin:
                    found[begin:end] = np.nan_to_num(self.scores(inputs[begin:end]))
        return found

    def predict(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The most likely class of each example (int32), and how sure the model is: its softmax (float32)."""
        return _most_likely(self.scores(inputs))

    def predict_by_client(self, inputs: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same for examples of many clients: see `scores_by_client`."""
        return _most_likely(self.scores_by_client(inputs, sizes))

    def check(
        self,
        population: Described,
        field: str | Sequence[str] = "image",
        label: str | None = "label",
        *,
        public: np.ndarray | None = None,
    ) -> None:
        """Refuse a model that does not read `field` of `population`, before anything is spent.

        Shape, dtype and number of classes are known from the fields. Range is not: it is checked on `public` examples
        alone, for a refusal that depends on clients' values would tell about them.
        """
        fields = (field,) if isinstance(field, str) else tuple(field)
        for one in fields:
            if one not in population.fields:
                raise InvalidInput(f"the primary model reads {one!r}, but {population.name} has {_names(population)}")
            if population.fields[one][0].kind not in "biuf":
                raise InvalidInput(
                    f"the primary model reads numbers and {one!r} of {population.name} is text: encode it as numbers"
                )
        said = " and ".join(fields)
        one = {
            name: np.zeros((1, *shape), dtype) for name, (dtype, shape) in population.fields.items() if name in fields
        }
        some = gather(one, fields)
        self._check_input(some, said)
        if public is not None:
            self._check_range(public, said)
        elif some.dtype == np.uint8:
            self._check_range(some, said)
        try:
            scores, again = self.scores(some), self.scores(some)
        except BlindsightError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InvalidInput(
                f"{self.name} does not read {said}, which is {_spell(some)} ({reason:.200}): wrap it "
                "in a function that reshapes its input"
            ) from error
        if scores.ndim != 2 or len(scores) != len(some) or not np.isfinite(scores).all():
            raise InvalidInput(
                f"{self.name} must give a finite score for each class, (examples, classes), but for an example of "
                f"zeros it gave {_spell(scores)}"
            )
        if not np.allclose(scores, again, rtol=1e-3, atol=1e-4):
            raise InvalidInput(
                f"{self.name} gave two different answers for one example: use a model without state and without dropout"
            )
        names = population.classes.get(label or "")
        if names and scores.shape[1] != len(names):
            raise InvalidInput(
                f"{self.name} knows {scores.shape[1]} classes and {label!r} of {population.name} has {len(names)}: "
                f"use a model trained for these classes"
            )

    def _check_input(self, some: np.ndarray, said: str) -> None:
        if self.shape is not None and some.shape[1:] != self.shape:
            raise InvalidInput(
                f"{self.name} reads examples of shape {list(self.shape)} and {said} has {list(some.shape[1:])}: "
                f"resize the examples, or use another model"
            )
        if self.dtype is not None and some.dtype != self.dtype:
            raise InvalidInput(
                f"{self.name} reads {self.dtype} and {said} holds {some.dtype}: convert one to the "
                "other, and mind the range (bytes from 0 to 255, fractions from 0 to 1)"
            )

    def _check_range(self, some: np.ndarray, said: str) -> None:
        is_bytes, low, high = some.dtype == np.uint8, self.low, self.high
        if is_bytes and self.scales_bytes:
            return
        numbers = some.astype(np.float64)  # whole numbers have no infinity to begin with
        largest = 255.0 if is_bytes else float(np.max(numbers, initial=-math.inf))
        smallest = 0.0 if is_bytes else float(np.min(numbers, initial=math.inf))
        is_fraction = not is_bytes and smallest >= 0 and largest <= 1
        if smallest < low or largest > high or (is_fraction and 2 < high < math.inf):
            has = "bytes from 0 to 255" if is_bytes else "numbers of another range"
            raise InvalidInput(
                f"{self.name} reads numbers from {low:g} to {high:g} and {said} holds {has}: scale "
                "them in a wrapper around the model, or state the range it was trained with"
            )


def primary(
    model: Any,
    *,
    name: str | None = None,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    value_range: tuple[float, float] | None = None,
    batch_size: int = 1000,
    learnt: Learnt | None = None,
) -> Primary:
    """The primary model made of a function, an Equinox classifier, or the path of an ONNX file.

    What is said about its input (`shape` of one example, `dtype`, `value_range`) is checked against a population by
    `check`. An ONNX file says most of it itself: `metadata_props` may hold `layout` (NHW, NHWC, NCHW or NF), `range`
    ("0,1"), and `mean` and `std` with which inputs are normalised. An Equinox classifier is run on examples one by one,
    side by side.

    Args:
        model: A function, an Equinox classifier, or the path of an ONNX file.
        name: Name in reports.
        shape: Shape of one example.
        dtype: Type of the input's numbers.
        value_range: Least and largest value of the input.
        batch_size: Examples per call.
        learnt: What it was trained on, if that is known.

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
        return _from_onnx(Path(model), given, name)
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
    """The classifier, trained with Adam in one place on data that anyone may see. Nothing about it is private.

    Args:
        model: A fresh classifier.
        inputs: Public examples.
        labels: Their classes.
        epochs: Times through the examples.
        batch_size: Examples per step.
        learning_rate: Learning rate of Adam.
        key: Key of the order.
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
    """What a model reads: one field as it is, or several numbers side by side as float32."""
    if isinstance(fields, str) or len(fields) == 1:
        return columns[fields if isinstance(fields, str) else fields[0]]
    return np.stack([columns[field].astype(np.float32) for field in fields], axis=-1)


def _digest_of(model: Any) -> str:
    """A digest of the module's structure and weights; empty if part of it is a function without a name of its own."""
    leaves, structure = jax.tree.flatten(model)
    arrays = [np.asarray(leaf) for leaf in leaves if eqx.is_array(leaf)]
    others = [leaf for leaf in leaves if not eqx.is_array(leaf)]
    words = re.sub(r" at 0x[0-9a-f]+", "", f"{type(model).__module__} {structure} {others!r}")
    if "<lambda>" in words or "<locals>" in words:
        return ""
    found = hashlib.blake2b(words.encode(), digest_size=16)
    for array in arrays:
        found.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()


@eqx.filter_jit
def _apply(model: Any, x: jax.Array) -> jax.Array:
    if type(model) in _OURS:
        return model(x)
    return jax.vmap(lambda row: model(row[None])[0])(x)  # whatever a stranger's module does to a batch, it has one row


_OURS = (Logistic, CNN)  # which read row by row, as one sees; a subclass may not, and neither may an MLP's activation


def _run_module(model: Any, batch_size: int, inputs: np.ndarray) -> np.ndarray:
    """Filled up to a whole batch, so that one shape is compiled."""
    filled = np.zeros((batch_size, *inputs.shape[1:]), inputs.dtype)
    filled[: len(inputs)] = inputs
    return np.asarray(_apply(model, jnp.asarray(filled)))[: len(inputs)]


def _from_onnx(path: Path, given: dict[str, Any], name: str | None) -> Primary:
    if not path.is_file():
        raise InvalidInput(f"there is no model {path}: give the path of an ONNX file")
    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InvalidInput("reading ONNX files needs onnxruntime: pip install 'blindsight[onnx]'") from error
    try:
        session: Any = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InvalidInput(
            f"{path} is not an ONNX model that onnxruntime can run: {str(error).splitlines()[0]:.200}"
        ) from error
    if len(session.get_inputs()) != 1:
        raise InvalidInput(f"{path} has {len(session.get_inputs())} inputs: export it with one")
    (reads,), about = session.get_inputs(), session.get_modelmeta().custom_metadata_map
    layout, reads_bytes = about.get("layout", "").upper(), reads.type == "tensor(uint8)"
    if layout not in ("", "NF", "NHW", "NHWC", "NCHW"):
        raise InvalidInput(f"{path} has the layout {layout!r}: write NF, NHW, NHWC or NCHW")
    try:
        mean, std = (np.asarray(json.loads(f"[{about.get(word, one)}]"), np.float32) for word, one in _NORMAL.items())
        if "range" in about and given["low"] == -math.inf:
            given["low"], given["high"] = (float(end) for end in about["range"].split(","))
    except ValueError as error:
        raise InvalidInput(f"{path} has metadata that are not numbers ({error}): write range as 0,1") from error
    low, high = given["low"], given["high"]
    is_known = low > -math.inf
    if given["dtype"] is None and (reads_bytes or not is_known):  # whether 1 or 255 is white must not be guessed
        given["dtype"] = np.dtype(np.uint8 if reads_bytes else np.float32)

    def call(inputs: np.ndarray) -> np.ndarray:
        x = inputs if reads_bytes else (_to_range(inputs, low, high) - mean) / std
        if layout == "NCHW":
            x = x[:, None] if x.ndim == 3 else np.moveaxis(x, -1, 1)
        elif layout == "NHWC" and x.ndim == 3:
            x = x[..., None]
        elif layout == "NF":
            x = x.reshape(len(x), -1)
        return session.run(None, {reads.name: np.ascontiguousarray(x, np.uint8 if reads_bytes else np.float32)})[0]

    reading = f"{low!r} {high!r} {layout} {given['dtype']} ".encode()
    digest = hashlib.blake2b(reading + path.read_bytes(), digest_size=16).hexdigest()
    return Primary(call, name or path.name, scales_bytes=is_known and not reads_bytes, digest=digest, **given)


_NORMAL = {"mean": "0", "std": "1"}


def _to_range(inputs: np.ndarray, low: float, high: float) -> np.ndarray:
    """Bytes as the range that the file says it reads; other numbers as they are."""
    x = inputs.astype(np.float32)
    return low + x * np.float32((high - low) / 255) if inputs.dtype == np.uint8 else x


def _most_likely(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    odds = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-math.inf))
    sure = odds.max(axis=1, initial=0.0) / np.maximum(odds.sum(axis=1), np.float32(1e-30))
    return np.argmax(scores, axis=1).astype(np.int32), sure.astype(np.float32)


def _names(population: Described) -> str:
    return ", ".join(population.fields)


def _spell(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
