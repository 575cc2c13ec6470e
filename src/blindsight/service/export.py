"""The average of the instances as a file: JSON, safetensors, or ONNX for any runtime.

An ONNX model reads encoded features (`codings.specs.FeatureSpec.encode`, intercept column included) and has the task
in its metadata. The format is protobuf; only a dozen fields are needed, so they are written directly instead of with a
library of forty megabytes.
"""

import json
from collections.abc import Iterable, Sequence

import numpy as np
from safetensors.numpy import save

from blindsight.algorithms.draw_and_discard import Task
from blindsight.service.protocol import OCTETS, Refusal, encode
from blindsight.version import __version__

__all__ = ["FORMATS", "export", "onnx_model"]

FORMATS = {"json": "application/json", "safetensors": OCTETS, "onnx": OCTETS}

_FLOAT, _INT64 = 1, 7  # ONNX's codes for tensor types
_IR_VERSION, _OPSET = 8, 15  # from 2021: every runtime in use reads them


def export(task: Task, average: np.ndarray, form: str) -> bytes:
    """The averaged model in one of `FORMATS`."""
    described = json.dumps(task.to_dict(), allow_nan=False)
    if form == "safetensors":
        return save({"weights": average}, {"task": described})
    if form == "onnx":
        return onnx_model(task, average)
    weights = [float(weight) for weight in average]
    return json.dumps(
        {"model": task.model, "version": task.version, "task": task.to_dict(), "weights": weights}
    ).encode()


def onnx_model(task: Task, average: np.ndarray) -> bytes:
    """A model with input `features` (rows, width) and output `prediction`, as `models.glm.predict` computes it.

    The prediction is (rows,), or (rows, classes) for multinomial and ordinal models.
    """
    if task.features is None or task.response is None:
        raise Refusal(422, "a custom model cannot be exported to ONNX: use JSON or safetensors")
    width, classes = task.features.width, task.response.classes
    wide = task.family in ("multinomial", "ordinal")
    if task.family == "multinomial":
        tensors = [_tensor("weights", average.reshape(classes, width).T)]
        nodes = [
            _node("MatMul", ["features", "weights"], ["scores"]),
            _node("Softmax", ["scores"], ["prediction"], [_whole("axis", 1)]),
        ]
    elif task.family == "ordinal":  # probabilities of exceeding each threshold, in order; then their differences
        steps = classes - 1
        tensors = [
            _tensor("weights", average[steps:].reshape(width, 1)),
            _tensor("thresholds", average[None, :steps]),
            _tensor("steps", np.array([steps], np.int64)),
            _tensor("before", np.array([0, 1, 0, 0], np.int64)),
            _tensor("after", np.array([0, 0, 0, 1], np.int64)),
            _tensor("certain", np.array(1, np.float32)),
            _tensor("impossible", np.array(0, np.float32)),
        ]
        nodes = [
            _node("MatMul", ["features", "weights"], ["score"]),
            _node("Add", ["score", "thresholds"], ["scores"]),
            _node("Sigmoid", ["scores"], ["chances"]),
            _node("TopK", ["chances", "steps"], ["more", "order"], [_whole("axis", 1)]),
            _node("Pad", ["more", "before", "certain"], ["from"]),
            _node("Pad", ["more", "after", "impossible"], ["to"]),
            _node("Sub", ["from", "to"], ["prediction"]),
        ]
    else:
        last = {"linear": "Identity", "logistic": "Sigmoid", "poisson": "Exp"}[task.family]
        tensors = [_tensor("weights", average)]
        nodes = [_node("MatMul", ["features", "weights"], ["scores"]), _node(last, ["scores"], ["prediction"])]
    graph = b"".join(
        [
            *(_field(1, node) for node in nodes),
            _field(2, task.model.encode()),
            *(_field(5, tensor) for tensor in tensors),
            _field(11, _value("features", ["rows", width])),
            _field(12, _value("prediction", ["rows", classes] if wide else ["rows"])),
        ]
    )
    metadata = {"task": json.dumps(task.to_dict(), allow_nan=False), "version": task.version}
    return b"".join(
        [
            _number(1, _IR_VERSION),
            _field(2, b"blindsight"),
            _field(3, __version__.encode()),
            _field(7, graph),
            _field(8, _number(2, _OPSET)),
            *(_field(14, _field(1, key.encode()) + _field(2, value.encode())) for key, value in metadata.items()),
        ]
    )


# --- protobuf: numbers as varints, everything else as bytes with a length


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _tensor(name: str, values: np.ndarray) -> bytes:
    kind = _INT64 if values.dtype == np.int64 else _FLOAT
    raw = values.astype("<i8").tobytes() if kind == _INT64 else encode(values)
    return b"".join(
        [*(_number(1, size) for size in values.shape), _number(2, kind), _field(8, name.encode()), _field(9, raw)]
    )


def _node(kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Iterable[bytes] = ()) -> bytes:
    return b"".join(
        [
            *(_field(1, name.encode()) for name in inputs),
            *(_field(2, name.encode()) for name in outputs),
            _field(4, kind.encode()),
            *(_field(5, attribute) for attribute in attributes),
        ]
    )


def _whole(name: str, value: int) -> bytes:
    return _field(1, name.encode()) + _number(3, value) + _number(20, 2)


def _value(name: str, shape: Sequence[str | int]) -> bytes:
    sizes = b"".join(
        _field(1, _number(1, size) if isinstance(size, int) else _field(2, size.encode())) for size in shape
    )
    return _field(1, name.encode()) + _field(2, _field(1, _number(1, _FLOAT) + _field(2, sizes)))
