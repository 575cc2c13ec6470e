"""The primary model: the deployed model under inspection.

It may be any Python function, a Blindsight classifier or an ONNX file, so it is never run inside a compiled client
update. Its predictions on a client's examples stay on that client and must depend only on these examples: a function
that standardises its batch would let one client change the votes of others. So a function or an ONNX file is called
once per client, and only models that work row by row run on batches across clients.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from blindsight.codings.images_and_rows import Described
from blindsight.errors import BlindsightError, InvalidInput
from blindsight.models.equinox_models import module_digest, module_scores
from blindsight.models.onnx_files import LAYOUTS, laid_out, read_onnx, to_range
from blindsight.models.python_models import (
    class_names_of,
    estimator_scores,
    is_estimator,
    is_torch_module,
    torch_scores,
)

__all__ = ["Learnt", "OnnxFile", "Primary", "Reordered", "Scaled", "gather", "in_order", "primary", "reordered"]

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
class OnnxFile:
    """The ONNX file that a model was read from, and how."""

    path: Path
    value_range: tuple[float, float] | None
    layout: str | None


@dataclasses.dataclass(frozen=True)
class Reordered:
    """A model with its scores in another order."""

    of: "Primary"


@dataclasses.dataclass(frozen=True)
class Scaled:
    """A model that reads rows scaled by `scaling`."""

    of: "Primary"
    scaling: Any


@dataclasses.dataclass(frozen=True)
class Primary:
    """A model to inspect: `scores(inputs)`, and the format of its inputs, as far as it is declared.

    `dtype` is the type of its inputs, `low` and `high` their range; a model that `scales_bytes` also accepts bytes.
    `digest` differs between different models; it is empty where they cannot be compared, as for a Python function.
    `by_row` states that the score of a row depends on no other row of its batch: set it only if that is proved.
    `learnt` is its training data, if known. `classes` are the names of its classes in the order of scores, if declared.
    `origin` is its source, so that it can be sent to sites (`models.portable`); None for a function.
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
    origin: Any = dataclasses.field(default=None, repr=False, compare=False)

    def with_classes(self, classes: Sequence[str]) -> "Primary":
        """The model with the names of its classes, in the order of its scores."""
        return dataclasses.replace(self, classes=tuple(classes))

    def scores(self, inputs: np.ndarray) -> np.ndarray:
        """One score per class for each example, shape (examples, classes), computed batch by batch.

        All examples must be one client's, or public; otherwise use `scores_by_client`.
        """
        if not len(inputs):  # many models refuse an empty batch
            return self.scores(np.zeros((1, *inputs.shape[1:]), inputs.dtype))[:0]
        starts = range(0, len(inputs), self.batch_size)
        scores = [np.asarray(self.call(inputs[start : start + self.batch_size]), np.float32) for start in starts]
        return np.concatenate(scores)

    def scores_by_client(self, inputs: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Scores for many clients with `sizes` examples each, in order: no client's scores depend on another's.

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
        """As `predict`, for the examples of many clients: see `scores_by_client`."""
        return _most_likely(self.scores_by_client(inputs, sizes))

    def filling(self, fills: Sequence[float], is_code: Sequence[bool]) -> "Primary":
        """The model for numbers and codes that may be missing: NaN, or a code below 0.

        A model with finite scores for an example of only NaN receives NaN. For any other model, missing values are
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
    """A primary model from a function, an Equinox, scikit-learn or PyTorch classifier, or an ONNX file.

    `check` compares the stated input format (`shape` of one example, `dtype`, `value_range`) with a population. An ONNX
    file may state most of it itself: see `onnx_files`. An Equinox classifier is vectorised over single examples.

    Args:
        model: A function, an Equinox classifier, a fitted scikit-learn classifier or pipeline, a PyTorch module, or the
            path of an ONNX file.
        name: Name in reports.
        shape: Shape of one example.
        dtype: Type of the input's numbers.
        value_range: Minimum and maximum of the input.
        layout: Axes of the input of an ONNX file or a PyTorch module: NF, NHW, NHWC or NCHW.
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
        origin = OnnxFile(Path(model), value_range, layout)
        given |= {"digest": read.digest, "classes": read.classes, "origin": origin}
        return Primary(read.call, name or Path(model).name, **given)
    if isinstance(model, eqx.Module) and callable(model):
        call = functools.partial(module_scores, model, batch_size)
        digest = module_digest(model)
        given |= {"digest": digest, "by_row": True, "origin": model}
        return Primary(call, name or type(model).__name__, scales_bytes=True, **given)
    if is_estimator(model):
        call = estimator_scores(model)
        return Primary(call, name or type(model).__name__, classes=class_names_of(model), **given)
    if is_torch_module(model):
        return _torch(model, name, layout, value_range, given)
    if not callable(model):
        raise InvalidInput(
            f"a primary model is a function of a batch, a classifier of Equinox, scikit-learn or PyTorch, or the path "
            f"of an ONNX file, got {type(model).__name__}"
        )
    return Primary(model, name or getattr(model, "__name__", "the primary model"), **given)


def in_order(model: Primary, classes: Sequence[str]) -> Primary:
    """The model with its scores in the order of `classes`, if it names its own; unchanged if there are none."""
    if not model.classes or tuple(classes) in ((), model.classes):
        return model
    if strange := [name for name in classes if name not in model.classes]:
        raise InvalidInput(
            f"{model.name} knows the classes {', '.join(model.classes)}, and the data have {strange[0]!r}: "
            f"use a model that was trained for these classes"
        )
    return reordered(model, tuple(classes))


def _torch(
    model: Any, name: str | None, layout: str | None, value_range: tuple[float, float] | None, given: dict[str, Any]
) -> Primary:
    """A PyTorch module; bytes are scaled to the range that it reads, and refused without one."""
    scores, axes = torch_scores(model), (layout or "").upper()
    if axes not in ("", *LAYOUTS):
        raise InvalidInput(
            f"the layout of a PyTorch module is {', '.join(LAYOUTS[:-1])} or {LAYOUTS[-1]}, got {layout!r}"
        )
    low, high = value_range or (0.0, 1.0)
    if given["dtype"] is None and value_range is None:  # never guess whether white is 1 or 255
        given["dtype"] = np.dtype(np.float32)
    given |= {"scales_bytes": value_range is not None, "classes": class_names_of(model)}
    return Primary(lambda x: scores(laid_out(to_range(x, low, high), axes)), name or type(model).__name__, **given)


def reordered(model: Primary, classes: tuple[str, ...]) -> Primary:
    """The model with its scores in the order of `classes`, which are among its own."""
    order = [model.classes.index(name) for name in classes]
    digest = model.digest and f"{model.digest} in the order {order}"
    return dataclasses.replace(
        model,
        call=lambda x: np.asarray(model.call(x))[:, order],
        digest=digest,
        classes=classes,
        origin=Reordered(model),
    )


def gather(columns: Mapping[str, np.ndarray], fields: str | Sequence[str]) -> np.ndarray:
    """The model's input: one field as it is, or several scalar fields stacked as float32."""
    if isinstance(fields, str) or len(fields) == 1:
        return columns[fields if isinstance(fields, str) else fields[0]]
    return np.stack([columns[field].astype(np.float32) for field in fields], axis=-1)


def _most_likely(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    odds = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-math.inf))
    sure = odds.max(axis=1, initial=0.0) / np.maximum(odds.sum(axis=1), np.float32(1e-30))
    return np.argmax(scores, axis=1).astype(np.int32), sure.astype(np.float32)


def _names(population: Described) -> str:
    return ", ".join(population.fields)


def _spell(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
