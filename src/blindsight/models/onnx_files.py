"""ONNX files as functions from examples to scores, with what the file says about its inputs and classes.

If a file has one output, the scores are that output. scikit-learn's converters write two: the label, and the
probabilities as a tensor or as a list of maps (ZipMap). Then the scores are the logarithms of the probabilities. The
names of the classes, in the order of their scores, come from the maps, or from the attributes of the graph.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput
from blindsight.protobuf import DELIMITED, fields, parts, varints

__all__ = ["LAYOUTS", "OnnxModel", "class_names", "laid_out", "read_onnx", "to_range"]

LAYOUTS = ("NF", "NHW", "NHWC", "NCHW")
"""Examples as rows of numbers, as images, as images with channels last, and with channels first."""

_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""Fields of ONNX's messages that hold nested messages, down to tensors."""
_EXTERNAL, _LOCATION = 13, 14  # fields of a tensor that locate its numbers
_MOST_FIELDS, _DEEPEST = 1 << 29, 100

_NORMAL = {"mean": "0", "std": "1"}
_LEAST = np.float32(1e-12)  # a probability of 0 has a finite score


@dataclasses.dataclass(frozen=True)
class OnnxModel:
    """A file's scores, the range and type of its inputs if known, and the names of its classes in order."""

    call: Callable[[np.ndarray], np.ndarray]
    low: float
    high: float
    dtype: np.dtype[Any] | None
    digest: str
    classes: tuple[str, ...]
    reads_bytes: bool

    @property
    def scales_bytes(self) -> bool:
        """Whether bytes are scaled to the range of the model."""
        return self.low > -math.inf and not self.reads_bytes


def read_onnx(
    path: Path, *, value_range: tuple[float, float] | None = None, layout: str | None = None, dtype: Any = None
) -> OnnxModel:
    """The model in an ONNX file; a given range or layout takes precedence over the file's metadata.

    `metadata_props` may hold `layout` (NHW, NHWC, NCHW or NF), `range` ("0,1"), and the `mean` and `std` that normalise
    inputs.
    """
    file = _read(path)
    session = _session(path, file)
    if len(session.get_inputs()) != 1:
        raise InvalidInput(f"{path} has {len(session.get_inputs())} inputs: export it with one")
    (reads,) = session.get_inputs()
    metadata = session.get_modelmeta().custom_metadata_map
    shape, reads_bytes = (layout or metadata.get("layout", "")).upper(), reads.type == "tensor(uint8)"
    if shape not in ("", *LAYOUTS):
        raise InvalidInput(f"{path} has the layout {shape!r}: write {', '.join(LAYOUTS[:-1])} or {LAYOUTS[-1]}")
    low, high, mean, std = _numbers(path, metadata, value_range)
    if dtype is None and (reads_bytes or low == -math.inf):  # never guess whether white is 1 or 255
        dtype = np.dtype(np.uint8 if reads_bytes else np.float32)
    scores = _scores_of(path, session)

    def call(inputs: np.ndarray) -> np.ndarray:
        x = inputs if reads_bytes else (to_range(inputs, low, high) - mean) / std
        x = np.ascontiguousarray(laid_out(x, shape), np.uint8 if reads_bytes else np.float32)
        return scores({reads.name: x})

    reading = f"{low!r} {high!r} {shape} {None if dtype is None else np.dtype(dtype)} ".encode()
    digest = hashlib.blake2b(reading + file, digest_size=16).hexdigest()
    kind = None if dtype is None else np.dtype(dtype)
    return OnnxModel(call, low, high, kind, digest, class_names(file), reads_bytes)


def _read(path: Path) -> bytes:
    """The file, which has all of its weights: others that it names could be clients' data, read as weights."""
    if not path.is_file():
        raise InvalidInput(f"there is no model {path}: give the path of an ONNX file")
    file = path.read_bytes()
    try:
        is_whole = not _names_files(file)
    except ValueError as error:
        raise InvalidInput(f"{path} is not an ONNX model ({error}): export it again") from error
    if not is_whole:
        raise InvalidInput(
            f"{path} keeps weights in other files, which are not read: save it as one file, in PyTorch with "
            "torch.onnx.export(..., external_data=False), else with onnx.save(onnx.load(path), path)"
        )
    return file


def _session(path: Path, file: bytes) -> Any:
    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InvalidInput("reading ONNX files needs onnxruntime: pip install 'blindsight[onnx]'") from error
    options: Any = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # warnings about the file's optional parts would reach the terminal
    try:
        return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InvalidInput(
            f"{path} is not an ONNX model that onnxruntime can run: {str(error).splitlines()[0]:.200}"
        ) from error


def _numbers(
    path: Path, metadata: dict[str, str], value_range: tuple[float, float] | None
) -> tuple[float, float, np.ndarray, np.ndarray]:
    low, high = value_range or (-math.inf, math.inf)
    try:
        mean, std = (
            np.asarray(json.loads(f"[{metadata.get(word, one)}]"), np.float32) for word, one in _NORMAL.items()
        )
        if "range" in metadata and value_range is None:
            low, high = (float(end) for end in metadata["range"].split(","))
    except ValueError as error:
        raise InvalidInput(f"{path} has metadata that are not numbers ({error}): write range as 0,1") from error
    return low, high, mean, std


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    """Images with the axes that `layout` names."""
    if layout == "NCHW":
        return x[:, None] if x.ndim == 3 else np.moveaxis(x, -1, 1)
    if layout == "NHWC" and x.ndim == 3:
        return x[..., None]
    return x.reshape(len(x), -1) if layout == "NF" else x


def to_range(inputs: np.ndarray, low: float, high: float) -> np.ndarray:
    """Bytes scaled to the model's range; other numbers unchanged."""
    x = inputs.astype(np.float32)
    return low + x * np.float32((high - low) / 255) if inputs.dtype == np.uint8 else x


# --- outputs


def _scores_of(path: Path, session: Any) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """The scores of a batch: the only output, or the probabilities beside a label."""
    outputs = session.get_outputs()
    if len(outputs) == 1:
        return lambda feed: np.asarray(session.run(None, feed)[0])
    if len(outputs) != 2 or outputs[0].type not in ("tensor(int64)", "tensor(string)"):
        names = ", ".join(f"{output.name} ({output.type})" for output in outputs)
        raise InvalidInput(f"{path} has the outputs {names}: export one score per class, or a label and probabilities")
    name = outputs[1].name
    if outputs[1].type.startswith("seq(map("):
        return lambda feed: _logarithms(_unzipped(session.run([name], feed)[0]))
    return lambda feed: _logarithms(np.asarray(session.run([name], feed)[0]))


def _unzipped(rows: list[dict[Any, float]]) -> np.ndarray:
    """Maps from class to probability as rows of scores, in the order of the classes."""
    return np.array([list(row.values()) for row in rows], np.float32)


def _logarithms(scores: np.ndarray) -> np.ndarray:
    """Rows of probabilities as their logarithms, so that a softmax restores them; other rows of scores unchanged."""
    if scores.ndim != 2:
        return scores
    is_probability = (scores >= 0).all(axis=1) & (np.abs(scores.sum(axis=1) - 1) < 1e-3)
    return np.where(is_probability[:, None], np.log(np.maximum(scores, _LEAST)), scores)


# --- weights in other files


def _names_files(file: bytes) -> bool:
    """Whether any tensor of the model, wherever it is, has its numbers in another file."""
    left = [("model", file, 0)]
    while left:
        kind, message, depth = left.pop()
        for field, wire, content in fields(message):
            if field >= _MOST_FIELDS or depth > _DEEPEST:  # which onnxruntime reads as another field, or not at all
                raise ValueError("it has impossible fields")
            if kind == "tensor" and (field == _EXTERNAL or (field == _LOCATION and content.strip(b"\x80\0"))):
                return True
            if wire == DELIMITED and field in _INSIDE.get(kind, ()):
                left.append((_INSIDE[kind][field], content, depth + 1))
    return False


# --- the names of classes, read off the graph: onnxruntime does not show them


def class_names(file: bytes) -> tuple[str, ...]:
    """The names of a classifier's classes in the order of its scores; empty if the graph does not list them.

    Converters write them as the attribute `classlabels_strings` or `classlabels_int64s` of a node, or as a tensor
    named `classes`.
    """
    try:
        for graph in parts(file, 7):
            for node in parts(graph, 1):
                for attribute in parts(node, 5):
                    name = b"".join(parts(attribute, 1)).decode()
                    if name == "classlabels_strings" and (names := parts(attribute, 9)):
                        return tuple(one.decode() for one in names)
                    if name in ("classlabels_int64s", "classlabels_ints") and (codes := _whole(attribute, 8)):
                        return tuple(map(str, codes))
            for tensor in parts(graph, 5):
                if b"".join(parts(tensor, 8)).startswith(b"classes") and (names := _listed(tensor)):
                    return names
    except ValueError:  # not the expected protocol buffers
        return ()
    return ()


def _listed(tensor: bytes) -> tuple[str, ...]:
    """The values of a tensor of strings or whole numbers."""
    if texts := parts(tensor, 6):
        return tuple(text.decode() for text in texts)
    widths = {6: np.int32, 7: np.int64}
    (kind,) = _whole(tensor, 2) or [0]
    raw = b"".join(parts(tensor, 9))
    if raw and kind in widths:
        return tuple(map(str, np.frombuffer(raw, widths[kind]).tolist()))
    return tuple(map(str, _whole(tensor, 7 if kind == 7 else 5))) if kind in widths else ()


def _whole(message: bytes, wanted: int) -> list[int]:
    """The whole numbers in the fields with the number `wanted`, packed or not."""
    packed = b"".join(content for field, _, content in fields(message) if field == wanted)
    return varints(np.frombuffer(packed, np.uint8)).tolist()
