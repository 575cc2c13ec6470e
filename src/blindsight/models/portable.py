"""A primary model as bytes, to send to sites: weights or an ONNX file, and how to read them. Never code.

`unpack` builds one of the classifiers of this package, so bytes from elsewhere can choose only weights and sizes. A
model that this package neither trained nor read, such as a Python function, cannot be sent.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from blindsight.errors import InvalidInput
from blindsight.models.classifiers import CNN, MLP, Logistic
from blindsight.models.primary import OnnxFile, Primary, Reordered, Scaled, primary, reordered
from blindsight.models.scaling import Scaling

__all__ = ["LARGEST_MODEL", "pack", "unpack"]

LARGEST_MODEL = 1 << 29
"""Bytes of a model that a site accepts."""

_ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jax.numpy.tanh}
_WIDEST, _LARGEST_BATCH = 1 << 20, 1 << 14
_DAMAGED = (
    SafetensorError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
)


def pack(model: Primary) -> bytes:
    """The model as bytes; `unpack` restores a model with the same scores."""
    arrays: dict[str, np.ndarray] = {}
    spec = {"name": model.name, "batch_size": _batch(model.batch_size), "made": _spec(model, arrays)}
    return save(arrays, {"model": json.dumps(spec, allow_nan=False)})


def unpack(data: bytes) -> Primary:
    """The model that `pack` was called on; anything else is refused."""
    if len(data) > LARGEST_MODEL:
        raise InvalidInput(f"a model has at most {LARGEST_MODEL:,} bytes, got {len(data):,}")
    try:
        length = int.from_bytes(data[:8], "little")
        spec = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["model"])
        model = _built(spec["made"], load(data), spec["name"], _batch(int(spec["batch_size"])))
    except _DAMAGED as error:
        raise InvalidInput(f"not a packed model, or a damaged one ({type(error).__name__}: {error})") from error
    return model


def _batch(size: int) -> int:
    if size > _LARGEST_BATCH:  # batches are padded to it
        raise InvalidInput(
            f"a model that is sent to sites has a batch_size of at most {_LARGEST_BATCH:,}, got {size:,}"
        )
    return size


def _spec(model: Primary, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """What `_built` makes the model from; its arrays go into `arrays`."""
    origin = model.origin
    if isinstance(origin, Reordered):
        return {"kind": "reordered", "classes": list(model.classes), "of": _spec(origin.of, arrays)}
    if isinstance(origin, Scaled):
        scaling = {"middle": list(origin.scaling.middle), "spread": list(origin.scaling.spread)}
        return {"kind": "scaled", "classes": list(model.classes), **scaling, "of": _spec(origin.of, arrays)}
    common = {"classes": list(model.classes), "shape": None if model.shape is None else list(model.shape)}
    if isinstance(origin, OnnxFile):
        arrays["onnx"] = np.frombuffer(origin.path.read_bytes(), np.uint8)
        return {"kind": "onnx", "range": origin.value_range, "layout": origin.layout, **common}
    if isinstance(origin, CNN | MLP | Logistic):
        leaves = jax.tree.leaves(eqx.filter(origin, eqx.is_array))
        arrays |= {f"{place}": np.asarray(leaf) for place, leaf in enumerate(leaves)}
        return {"kind": type(origin).__name__, "sizes": _sizes(origin), **common}
    raise InvalidInput(
        f"{model.name} cannot be sent to sites, because no code travels: export it to ONNX and name the file"
    )


def _sizes(network: Any) -> dict[str, Any]:
    if isinstance(network, Logistic):
        return {"inputs": network.output.weight.shape[0], "classes": network.output.weight.shape[1]}
    names = [name for name, function in _ACTIVATIONS.items() if function is network.activation]
    if not names:
        raise InvalidInput(f"only networks with {' or '.join(_ACTIVATIONS)} can be sent to sites: export it to ONNX")
    if isinstance(network, MLP):
        widths = [layer.weight.shape[1] for layer in network.layers]
        inputs = network.layers[0].weight.shape[0]
        return {"inputs": inputs, "classes": widths[-1], "hidden": widths[:-1], "activation": names[0]}
    return {
        "classes": network.output.weight.shape[1],
        "channels": [one.weight.shape[1] for one in network.convolutions],
        "kernel": network.convolutions[0].kernel,
        "hidden": network.dense.weight.shape[1],
        "activation": names[0],
    }


def _built(spec: Mapping[str, Any], arrays: Mapping[str, np.ndarray], name: str, batch_size: int) -> Primary:
    kind, classes = spec["kind"], tuple(map(str, spec["classes"]))
    if kind == "reordered":
        return reordered(_built(spec["of"], arrays, name, batch_size), classes)
    if kind == "scaled":
        scaling = Scaling(tuple(map(float, spec["middle"])), tuple(map(float, spec["spread"])))
        return scaling.scaled(_built(spec["of"], arrays, name, batch_size), name=name).with_classes(classes)
    shape = None if spec["shape"] is None else tuple(map(int, spec["shape"]))
    options: dict[str, Any] = {"name": name, "shape": shape, "batch_size": batch_size}
    if kind == "onnx":
        return _onnx(bytes(arrays["onnx"]), spec["range"], spec["layout"], **options).with_classes(classes)
    hidden, channels = np.ravel(spec["sizes"].get("hidden", 1)), spec["sizes"].get("channels", ())
    if len(hidden) + len(channels) > len(arrays):
        raise InvalidInput("a network of more layers than it has weights")
    # Allocates nothing beyond what was sent
    network = eqx.filter_eval_shape(lambda: _network(kind, spec["sizes"], hidden.tolist(), shape))
    return primary(_filled(network, arrays), **options).with_classes(classes)


def _network(kind: str, sizes: Mapping[str, Any], hidden: Sequence[Any], shape: tuple[int, ...] | None) -> Any:
    """A network of these sizes, with other weights."""
    numbers = [int(sizes[one]) for one in ("inputs", "classes", "kernel") if one in sizes]
    hidden = [int(one) for one in hidden]
    channels = [int(one) for one in sizes.get("channels", ())]
    widths = [*numbers, *hidden, *channels, *(shape or ())]
    if min(widths) < 1 or max(widths) > _WIDEST:
        raise InvalidInput("a network of impossible size")
    if kind == "Logistic":
        return Logistic((numbers[0],), numbers[1], key=jax.random.key(0))
    activation = _ACTIVATIONS[sizes["activation"]]
    if kind == "MLP":
        return MLP((numbers[0],), numbers[1], hidden=hidden, activation=activation, key=jax.random.key(0))
    if kind != "CNN" or shape is None:
        raise InvalidInput(f"a model of kind {kind!r} cannot be sent")
    options: dict[str, Any] = {"kernel": int(sizes["kernel"]), "hidden": hidden[0], "activation": activation}
    return CNN(shape, int(sizes["classes"]), channels=channels, **options, key=jax.random.key(0))


def _filled(network: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The network, of which only the shapes are there yet, with these weights."""
    given, static = eqx.partition(network, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    leaves, structure = jax.tree.flatten(given)
    new = [arrays[f"{place}"] for place in range(len(leaves))]
    if any(old.shape != leaf.shape or old.dtype != leaf.dtype for old, leaf in zip(leaves, new, strict=True)):
        raise InvalidInput("the weights do not fit the network that they are said to be of")
    return eqx.combine(jax.tree.unflatten(structure, [jax.numpy.asarray(leaf) for leaf in new]), static)


def _onnx(data: bytes, ends: Any, layout: str | None, **options: Any) -> Primary:
    """The model of an ONNX file's bytes."""
    ends = None if ends is None else (float(ends[0]), float(ends[1]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        return primary(path, value_range=ends, layout=layout, **options)
