"""The average of the instances as a file: JSON, safetensors, or ONNX for any runtime.

An ONNX model reads encoded features (`codings.specs.FeatureSpec.encode`, intercept column included) and has the task
in its metadata.
"""

import json

import numpy as np
from safetensors.numpy import save

from blindsight.algorithms.draw_and_discard import Task
from blindsight.models.onnx_graph import model_file, node, tensor, value
from blindsight.protobuf import delimited
from blindsight.service.protocol import OCTETS, Refusal

__all__ = ["FORMATS", "export", "onnx_model"]

FORMATS = {"json": "application/json", "safetensors": OCTETS, "onnx": OCTETS}


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
        tensors = [tensor("weights", average.reshape(classes, width).T)]
        nodes = [
            node("MatMul", ["features", "weights"], ["scores"]),
            node("Softmax", ["scores"], ["prediction"], axis=1),
        ]
    elif task.family == "ordinal":  # probabilities of exceeding each threshold, in order; then their differences
        steps = classes - 1
        tensors = [
            tensor("weights", average[steps:].reshape(width, 1)),
            tensor("thresholds", average[None, :steps]),
            tensor("steps", np.array([steps], np.int64)),
            tensor("before", np.array([0, 1, 0, 0], np.int64)),
            tensor("after", np.array([0, 0, 0, 1], np.int64)),
            tensor("certain", np.array(1, np.float32)),
            tensor("impossible", np.array(0, np.float32)),
        ]
        nodes = [
            node("MatMul", ["features", "weights"], ["score"]),
            node("Add", ["score", "thresholds"], ["scores"]),
            node("Sigmoid", ["scores"], ["chances"]),
            node("TopK", ["chances", "steps"], ["more", "order"], axis=1),
            node("Pad", ["more", "before", "certain"], ["from"]),
            node("Pad", ["more", "after", "impossible"], ["to"]),
            node("Sub", ["from", "to"], ["prediction"]),
        ]
    else:
        last = {"linear": "Identity", "logistic": "Sigmoid", "poisson": "Exp"}[task.family]
        tensors = [tensor("weights", average)]
        nodes = [node("MatMul", ["features", "weights"], ["scores"]), node(last, ["scores"], ["prediction"])]
    graph = b"".join(
        [
            *(delimited(1, node) for node in nodes),
            delimited(2, task.model.encode()),
            *(delimited(5, tensor) for tensor in tensors),
            delimited(11, value("features", ["rows", width])),
            delimited(12, value("prediction", ["rows", classes] if wide else ["rows"])),
        ]
    )
    metadata = {"task": json.dumps(task.to_dict(), allow_nan=False), "version": task.version}
    return model_file(graph, metadata)
