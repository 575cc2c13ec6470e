"""The models that Blindsight trains as ONNX files: classifiers, language models and generators of images.

A file computes the same outputs as the model from the same inputs, up to single-precision rounding. Its metadata say
how to read it: the layout and range of images, the names of classes or the words of a vocabulary, and the guarantee
that the model was trained under.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from blindsight.errors import InvalidInput
from blindsight.models.cifg_lstm import LanguageModel
from blindsight.models.classifiers import CNN, MLP, Logistic
from blindsight.models.gan import GAN, CompactImageGenerator
from blindsight.models.layers import Conv, ConvTranspose, Dense, LayerNorm
from blindsight.models.onnx_graph import Graph, model_file
from blindsight.models.recurrent import CIFG
from blindsight.models.scaling import Scaling
from blindsight.models.selu_gan import SeluGenerator

__all__ = ["classifier_onnx", "gan_onnx", "language_onnx"]

_NHWC_TO_NCHW, _NCHW_TO_NHWC = [0, 3, 1, 2], [0, 2, 3, 1]


# --- classifiers


def classifier_onnx(
    model: Any,
    shape: Sequence[int],
    *,
    classes: Sequence[str] = (),
    scaling: Scaling | None = None,
    of_bytes: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """A classifier with the input `input` and the output `scores`, (batch, classes).

    Rows are (batch, width); missing numbers are NaN if the model was trained with a `scaling`. Images are (batch,
    height, width) or with channels last, from 0 to 1 where they were bytes.

    Args:
        model: A `Logistic`, `MLP` or `CNN`.
        shape: Shape of one example.
        classes: Names of the classes.
        scaling: Standardisation applied to the rows first.
        of_bytes: Whether examples are bytes, which a reader scales to 0..1.
        metadata: Further metadata.
    """
    graph, is_image = Graph("classifier"), len(shape) >= 2
    sizes = [*shape] if is_image else [math.prod(shape)]
    x = graph.input("input", ["batch", *sizes])
    if scaling is not None:
        x = _scaled(graph, x, scaling)
    if isinstance(model, CNN):
        x, size = _convolved(graph, model, x, shape)
        x = _activated(graph, model.activation, _dense(graph, model.dense, _flat(graph, x, size)))
        scores = _dense(graph, model.output, x)
    else:
        scores = _layers(graph, model, _flat(graph, x, math.prod(shape)))
    graph.output("scores", scores, ["batch", _outputs(model)])
    if classes:
        graph.constant(np.array(list(classes)), "classes")
    layout = {"layout": {2: "NHW", 3: "NHWC"}.get(len(shape), "NF")} | ({"range": "0,1"} if of_bytes else {})
    return model_file(graph.encoded(), {**layout, **(metadata or {})})


def _outputs(model: Any) -> int:
    last = model.layers[-1] if isinstance(model, MLP) else model.output
    return int(last.weight.shape[1])


def _layers(graph: Graph, model: Any, x: str) -> str:
    if isinstance(model, Logistic):
        return _dense(graph, model.output, x)
    if not isinstance(model, MLP):
        raise InvalidInput(f"a {type(model).__name__} cannot be exported: Blindsight's own classifiers can")
    for layer in model.layers[:-1]:
        x = _activated(graph, model.activation, _dense(graph, layer, x))
    return _dense(graph, model.layers[-1], x)


def _convolved(graph: Graph, model: CNN, x: str, shape: Sequence[int]) -> tuple[str, int]:
    """The features after all convolutions, and how many there are."""
    height, width, *colours = shape
    if not colours:
        x = graph.add("Reshape", x, graph.constant([-1, height, width, 1]))
    for layer in model.convolutions:
        x = _activated(graph, model.activation, _conv(graph, layer, x, (height, width)))
        height, width = -(-height // layer.stride), -(-width // layer.stride)
    return x, height * width * int(model.convolutions[-1].bias.shape[0])


def _scaled(graph: Graph, x: str, scaling: Scaling) -> str:
    """Rows standardised; a missing number becomes 0, the mean."""
    middle, spread = (np.array(numbers, np.float32) for numbers in (scaling.middle, scaling.spread))
    x = graph.add("Div", graph.add("Sub", x, graph.constant(middle)), graph.constant(spread))
    return graph.add("Where", graph.add("IsNaN", x), graph.constant(np.float32(0)), x)


# --- language models


def language_onnx(model: LanguageModel, *, metadata: Mapping[str, str] | None = None) -> bytes:
    """A language model with the input `tokens`, int64 of (batch, time), and the output `logits` of the next token.

    `logits` are (batch, time, vocabulary); tokens begin with the start token.
    """
    graph = Graph("language")
    tokens = graph.input("tokens", ["batch", "time"], "i")
    table = graph.constant(np.asarray(model.embedding.table, np.float32))
    batch = graph.add("Slice", graph.add("Shape", tokens), graph.constant([0]), graph.constant([1]))
    x = graph.add("Gather", table, tokens)
    for place, layer in enumerate(model.layers):
        x = _recurrent(graph, layer, x, batch, f"layer{place}")
    logits = graph.add("MatMul", x, graph.add("Transpose", table, perm=[1, 0]))
    graph.output("logits", logits, ["batch", "time", model.vocabulary])
    marks = {"start": model.start, "end": model.end, "pad": model.pad, "first_word": model.first_word}
    return model_file(graph.encoded(), {**{name: str(mark) for name, mark in marks.items()}, **(metadata or {})})


def _recurrent(graph: Graph, layer: Any, x: str, batch: str, name: str) -> str:
    """A recurrent layer over the second axis, from a state of zeros."""
    cells, outputs = (int(size) for size in layer.projection.shape)
    begin = [
        graph.add("ConstantOfShape", graph.add("Concat", batch, graph.constant([size]), axis=0))
        for size in (cells, outputs)
    ]
    step = Graph(name, outer=graph)
    cell, output, now = (
        step.input(f"{name}_{what}", ["batch", size])
        for what, size in (("cell", cells), ("output", outputs), ("now", layer.weight.shape[0] - outputs))
    )
    entering = _dense(step, layer, step.add("Concat", now, output, axis=1))
    gates = step.add_many("Split", [entering], len(layer.scales), axis=1)
    named = [
        step.add("Tanh" if scale == 1 else "Sigmoid", gate) for scale, gate in zip(layer.scales, gates, strict=True)
    ]
    if isinstance(layer, CIFG):
        forget, shows, candidate = named
        enter = step.add("Sub", step.constant(np.float32(1)), forget)
    else:
        enter, forget, candidate, shows = named
    cell = step.add("Add", step.add("Mul", forget, cell), step.add("Mul", enter, candidate))
    shown = step.add("Mul", shows, step.add("Tanh", cell))
    output = step.add("MatMul", shown, step.constant(np.asarray(layer.projection, np.float32)))
    for what, one, size in (("cell", cell, cells), ("output", output, outputs), ("seen", output, outputs)):
        step.output(f"{name}_{what}_after", one, ["batch", size])
    return graph.add_many(
        "Scan",
        [*begin, x],
        3,
        body=step.encoded(),
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
    )[2]


# --- generators of images


def gan_onnx(gan: GAN, *, metadata: Mapping[str, str] | None = None) -> bytes:
    """A generator with the input `latents`, (batch, latents), and the output `images` of numbers from -1 to 1.

    Images have channels last, and latents are standard normal. If the generator is conditioned on the class, it has a
    second input, `labels`, int64 of (batch,).
    """
    graph, generator = Graph("generator"), gan.generator
    x = graph.input("latents", ["batch", gan.latents])
    if gan.classes:
        labels = graph.input("labels", ["batch"], "i")
        values = graph.constant(np.array([0, 1], np.float32))
        x = graph.add("Concat", x, graph.add("OneHot", labels, graph.constant(gan.classes), values), axis=1)
    if isinstance(generator, CompactImageGenerator):
        x = _compact(graph, generator, x)
    elif isinstance(generator, SeluGenerator):
        x = _selu(graph, generator, x)
    else:
        raise InvalidInput(
            f"a {type(generator).__name__} cannot be exported: compact and selu generators of images can"
        )
    graph.output("images", graph.add("Tanh", x), ["batch", *gan.coding.shape])
    layout = {"classes": str(gan.classes), "range": "-1,1", "layout": "NHWC"}
    return model_file(graph.encoded(), {**layout, **(metadata or {})})


def _compact(graph: Graph, model: CompactImageGenerator, x: str) -> str:
    x = graph.add("Relu", _normed(graph, model.norms[0], _dense(graph, model.dense[0], x)))
    x = graph.add("Reshape", _dense(graph, model.dense[1], x), graph.constant([-1, *model.coarse]))
    x = graph.add("Relu", _normed(graph, model.norms[1], x))
    for layer, norm in zip(model.grow, model.norms[2:], strict=True):
        x = graph.add("Relu", _normed(graph, norm, _grown(graph, layer, x)))
    x = _conv(graph, model.output, x, (4 * model.coarse[0], 4 * model.coarse[1]))
    return _cropped(graph, x, (0, 0), (model.coding.height, model.coding.width))


def _selu(graph: Graph, model: SeluGenerator, x: str) -> str:
    x = graph.add("Selu", _dense(graph, model.dense, x))
    x = graph.add("Reshape", x, graph.constant([-1, 8, 8, 64]))
    for layer in model.grow[:-1]:
        x = graph.add("Selu", _grown(graph, layer, x))
    x = graph.add("Transpose", _grown(graph, model.grow[-1], x), perm=_NHWC_TO_NCHW)
    x = graph.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    height, width = model.coding.height, model.coding.width
    corner = (32 - height) // 2, (32 - width) // 2
    return _cropped(graph, graph.add("Transpose", x, perm=_NCHW_TO_NHWC), corner, (height, width))


def _cropped(graph: Graph, x: str, corner: tuple[int, int], size: tuple[int, int]) -> str:
    ends = [start + length for start, length in zip(corner, size, strict=True)]
    return graph.add("Slice", x, *(graph.constant(values) for values in ([*corner], ends, [1, 2])))


# --- layers


def _flat(graph: Graph, x: str, width: int) -> str:
    return graph.add("Reshape", x, graph.constant([-1, width]))


def _dense(graph: Graph, layer: Dense | Any, x: str) -> str:
    weight, bias = (graph.constant(np.asarray(part, np.float32)) for part in (layer.weight, layer.bias))
    return graph.add("Add", graph.add("MatMul", x, weight), bias)


def _activated(graph: Graph, activation: Any, x: str) -> str:
    names = {jax.nn.relu: "Relu", jax.numpy.tanh: "Tanh", jax.nn.selu: "Selu", jax.nn.sigmoid: "Sigmoid"}
    if activation not in names:
        raise InvalidInput("this model's activation cannot be exported: use relu, tanh, selu or sigmoid")
    return graph.add(names[activation], x)


def _conv(graph: Graph, layer: Conv, x: str, size: tuple[int, int]) -> str:
    """A convolution with channels last, of images of this size."""
    kernel, inputs = layer.kernel, layer.weight.shape[0] // layer.kernel**2
    weight = np.asarray(layer.weight, np.float32).reshape(kernel, kernel, inputs, -1).transpose(3, 2, 0, 1)
    missing = [max(0, (-(-one // layer.stride) - 1) * layer.stride + kernel - one) for one in size]
    missing = missing if layer.padding == "SAME" else [0, 0]
    x = graph.add(
        "Conv",
        graph.add("Transpose", x, perm=_NHWC_TO_NCHW),
        graph.constant(weight),
        graph.constant(np.asarray(layer.bias, np.float32)),
        strides=[layer.stride] * 2,
        pads=[*(one // 2 for one in missing), *(one - one // 2 for one in missing)],
    )
    return graph.add("Transpose", x, perm=_NCHW_TO_NHWC)


def _grown(graph: Graph, layer: ConvTranspose, x: str) -> str:
    """A transposed convolution with channels last."""
    kernel, stride, inputs = layer.kernel, layer.stride, layer.weight.shape[0]
    weight = np.asarray(layer.weight, np.float32).reshape(inputs, kernel, kernel, -1).transpose(0, 3, 1, 2)
    excess = max(0, kernel - stride)
    x = graph.add(
        "ConvTranspose",
        graph.add("Transpose", x, perm=_NHWC_TO_NCHW),
        graph.constant(weight),
        graph.constant(np.asarray(layer.bias, np.float32)),
        strides=[stride] * 2,
        pads=[excess // 2] * 2 + [excess - excess // 2] * 2,
        output_padding=[max(0, stride - kernel)] * 2,
    )
    return graph.add("Transpose", x, perm=_NCHW_TO_NHWC)


def _normed(graph: Graph, layer: LayerNorm, x: str) -> str:
    """Mean 0 and variance 1 over the last axis, then a scale and a shift."""
    x = graph.add("Sub", x, graph.add("ReduceMean", x, axes=[-1]))
    variance = graph.add("ReduceMean", graph.add("Mul", x, x), axes=[-1])
    spread = graph.add("Sqrt", graph.add("Add", variance, graph.constant(np.float32(1e-5))))
    scale, shift = (graph.constant(np.asarray(part, np.float32)) for part in (layer.scale, layer.shift))
    return graph.add("Add", graph.add("Mul", graph.add("Div", x, spread), scale), shift)
