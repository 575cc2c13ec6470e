"""Models as bytes: what was packed scores the same elsewhere, and bytes of a stranger choose weights and no more."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load, save

from blindsight.errors import InvalidInput
from blindsight.models.classifiers import CNN, MLP, Logistic
from blindsight.models.portable import pack, unpack
from blindsight.models.primary import Primary, primary, reordered

KEY = jax.random.key(3)
SHAPE = (6, 6)
NETWORKS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: Logistic(SHAPE, 3, key=KEY),
    "mlp": lambda: MLP(SHAPE, 3, hidden=(5, 4), activation=jax.nn.relu, key=KEY),
    "cnn": lambda: CNN(SHAPE, 3, channels=(2, 3), kernel=3, hidden=4, key=KEY),
}


def made(name: str) -> Primary:
    return primary(NETWORKS[name](), name=name, shape=SHAPE)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_unpacked_scores_as_what_was_packed(name: str):
    model = reordered(made(name).with_classes(("a", "b", "c")), ("c", "a", "b"))
    images = np.random.default_rng(0).random((7, *SHAPE), np.float32)
    again = unpack(pack(model))
    assert again.classes == model.classes
    assert np.array_equal(again.scores(images), model.scores(images))
    assert pack(again) == pack(model)


# --- bytes of a stranger


def altered(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """The packed model with another description of the same weights."""
    length = int.from_bytes(data[:8], "little")
    spec = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["model"])
    change(spec)
    return save(load(data), {"model": json.dumps(spec)})


def nested(spec: dict[str, Any]) -> None:
    for _ in range(300):
        spec["made"] = {"kind": "reordered", "classes": ["a", "b", "c"], "of": spec["made"]}


SPECS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another kind": lambda spec: spec["made"].update(kind="pickle"),
    "a wide layer": lambda spec: spec["made"]["sizes"].update(inputs=1 << 16, hidden=[1 << 16]),
    "a square of wide layers": lambda spec: spec["made"]["sizes"].update(hidden=[1 << 19, 1 << 19]),
    "a million layers": lambda spec: spec["made"]["sizes"].update(hidden=[5] * 1_000_000),
    "no size": lambda spec: spec["made"].update(sizes={}),
    "a negative size": lambda spec: spec["made"]["sizes"].update(classes=-3),
    "an endless size": lambda spec: spec["made"]["sizes"].update(classes=1e400),
    "a size in words": lambda spec: spec["made"]["sizes"].update(hidden="5"),
    "a shape of nothing": lambda spec: spec["made"].update(kind="CNN", shape=[]),
    "another activation": lambda spec: spec["made"]["sizes"].update(activation="__import__"),
    "classes in classes": nested,
    "no classes": lambda spec: spec["made"].update(classes=3),
    "a batch of everything": lambda spec: spec.update(batch_size=1 << 60),
    "no batch": lambda spec: spec.update(batch_size=None),
}


@pytest.mark.parametrize("what", SPECS)
def test_weights_with_a_description_that_does_not_fit_are_refused_and_cost_no_memory(what: str):
    data = altered(pack(made("mlp")), SPECS[what])
    tracemalloc.start()
    with pytest.raises(InvalidInput):
        unpack(data)
    assert tracemalloc.get_traced_memory()[1] < 200e6
    tracemalloc.stop()


def test_shortened_and_changed_bytes_are_refused_or_are_a_model():
    data, dice = pack(made("mlp")), np.random.default_rng(5)
    for _ in range(200):
        wrong = bytearray(data[: dice.integers(0, len(data) + 1)])
        for place in dice.integers(0, max(1, len(wrong)), 3):
            if wrong:
                wrong[place] = dice.integers(0, 256)
        try:
            assert isinstance(unpack(bytes(wrong)), Primary)
        except InvalidInput:
            continue
