"""Writes ONNX graphs: nodes, constants and inputs, as protocol buffers, without a library of forty megabytes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.protobuf import delimited, number
from blindsight.version import __version__

__all__ = ["AttributeValue", "Graph", "attribute", "model_file", "node", "tensor", "value"]

AttributeValue = int | float | str | bytes | list[int]
"""Possible values of a node's attribute; bytes are a graph."""

_KINDS = {"f": (1, "<f4"), "i": (7, "<i8"), "u": (2, "u1"), "U": (8, "")}
"""ONNX's codes for tensor types, and their bytes."""
_IR_VERSION, _OPSET = 8, 15  # from 2021: every runtime in use reads them
_FLOAT, _INT, _STRING, _GRAPH, _INTS = 1, 2, 3, 5, 7  # ONNX's codes for types of attributes


def tensor(name: str, values: np.ndarray) -> bytes:
    """A constant: float32, int64, bytes, or texts."""
    code, kind = _KINDS[values.dtype.kind]
    if code == 8:
        content = b"".join(delimited(6, text.encode()) for text in values.ravel().tolist())
    else:
        content = delimited(9, values.astype(kind).tobytes())
    return b"".join(
        [*(number(1, size) for size in values.shape), number(2, code), delimited(8, name.encode()), content]
    )


def attribute(name: str, value: AttributeValue) -> bytes:
    """An attribute: a whole number, a list of them, a float, a text, or a graph (bytes)."""
    if isinstance(value, int):
        content = number(3, value % 2**64) + number(20, _INT)
    elif isinstance(value, float):
        content = _fixed(2, value) + number(20, _FLOAT)
    elif isinstance(value, str):
        content = delimited(4, value.encode()) + number(20, _STRING)
    elif isinstance(value, bytes):
        content = delimited(6, value) + number(20, _GRAPH)
    else:
        content = b"".join(number(8, one % 2**64) for one in value) + number(20, _INTS)
    return delimited(1, name.encode()) + content


def _fixed(field: int, value: float) -> bytes:
    return bytes([field << 3 | 5]) + np.float32(value).tobytes()


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: AttributeValue) -> bytes:
    """A node that computes `outputs` from `inputs`."""
    return b"".join(
        [
            *(delimited(1, name.encode()) for name in inputs),
            *(delimited(2, name.encode()) for name in outputs),
            delimited(4, kind.encode()),
            *(delimited(5, attribute(name, value)) for name, value in attributes.items()),
        ]
    )


def value(name: str, shape: Sequence[str | int], kind: str = "f") -> bytes:
    """An input or output with its shape and its type (f, i or u); a named axis may have any length."""
    sizes = b"".join(
        delimited(1, number(1, size) if isinstance(size, int) else delimited(2, size.encode())) for size in shape
    )
    return delimited(1, name.encode()) + delimited(2, delimited(1, number(1, _KINDS[kind][0]) + delimited(2, sizes)))


class Graph:
    """A graph under construction: each method appends nodes and returns the name of their output."""

    def __init__(self, name: str, outer: "Graph | None" = None) -> None:
        self.name = name
        self._outer = outer  # the outer graph, which holds the constants of a loop's body
        self._nodes: list[bytes] = []
        self._tensors: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []

    def _fresh(self) -> str:
        return f"{self.name}_{len(self._nodes) + len(self._tensors)}"

    def input(self, name: str, shape: Sequence[str | int], kind: str = "f") -> str:
        """Declare an input."""
        self._inputs.append(value(name, shape, kind))
        return name

    def output(self, name: str, of: str, shape: Sequence[str | int], kind: str = "f") -> None:
        """Declare an output."""
        self._nodes.append(node("Identity", [of], [name]))
        self._outputs.append(value(name, shape, kind))

    def constant(self, values: Any, name: str = "") -> str:
        """A constant with these values, stored in the outermost graph."""
        if self._outer is not None:
            return self._outer.constant(values, name)
        name = name or self._fresh()
        self._tensors.append(tensor(name, np.asarray(values)))
        return name

    def add(self, kind: str, *inputs: str, **attributes: AttributeValue) -> str:
        """Append a node; returns its only output."""
        return self.add_many(kind, inputs, 1, **attributes)[0]

    def add_many(self, kind: str, inputs: Sequence[str], count: int, **attributes: AttributeValue) -> list[str]:
        """Append a node; returns its outputs."""
        first = self._fresh()
        outputs = [f"{first}_{place}" for place in range(count)]
        self._nodes.append(node(kind, inputs, outputs, **attributes))
        return outputs

    def encoded(self) -> bytes:
        """The graph as a protocol buffer."""
        parts = ((1, self._nodes), (5, self._tensors), (11, self._inputs), (12, self._outputs))
        return delimited(2, self.name.encode()) + b"".join(delimited(field, one) for field, all in parts for one in all)


def model_file(graph: bytes, metadata: Mapping[str, str]) -> bytes:
    """The file of a model."""
    return b"".join(
        [
            number(1, _IR_VERSION),
            delimited(2, b"blindsight"),
            delimited(3, __version__.encode()),
            delimited(7, graph),
            delimited(8, number(2, _OPSET)),
            *(
                delimited(14, delimited(1, key.encode()) + delimited(2, said.encode()))
                for key, said in metadata.items()
            ),
        ]
    )
