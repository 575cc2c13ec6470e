"""What the primary model says about one client's examples depends on no other client's, whatever the model does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.inspection.contrast import votes as diagnosis
from blindsight.models.classifiers import CNN, MLP, Logistic
from blindsight.models.onnx_graph import model_file, node, value
from blindsight.models.primary import Primary, primary
from blindsight.protobuf import delimited, number
from blindsight.selection import observe

SIZES = np.array([5, 0, 3, 7])
A = slice(0, 5)  # the first client's examples


def clients(strange: float) -> Population:
    """Four clients, of which the last has pictures of any brightness."""
    dice = np.random.default_rng(0)
    image = dice.uniform(0, 1, (15, 8, 8)).astype(np.float32)
    image[8:] *= strange
    columns = {"image": image, "label": dice.integers(0, 3, 15).astype(np.int32)}
    return Population(columns, sizes=SIZES, name="four", classes={"label": ("a", "b", "c")})


def weights() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(64, 3)).astype(np.float32)


def standardised(image: np.ndarray) -> np.ndarray:
    """As much code that is written for test sets does."""
    flat = np.asarray(image, np.float32).reshape(len(image), -1)
    return (flat - flat.mean(0)) / (flat.std(0) + 1e-3) @ weights()


class Standardised(eqx.Module):
    """The same as an Equinox module, which is filled up to whole batches."""

    weights: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        flat = x.reshape(x.shape[0], -1)
        mean, spread = (of(flat, 0, keepdims=True) for of in (jnp.mean, jnp.std))
        return ((flat - mean) / (spread + 1e-3) + flat) @ self.weights


class Sly(Logistic):
    """A subclass of a model that reads row by row, which does not."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return super().__call__(x - jnp.mean(x, 0, keepdims=True))


def mixing(x: jax.Array) -> jax.Array:
    return jax.nn.relu(x - jnp.mean(x, 0, keepdims=True))


def made(name: str) -> Primary:
    key = jax.random.key(0)
    models: dict[str, Callable[[], Any]] = {
        "function": lambda: standardised,
        "module": lambda: Standardised(jnp.asarray(weights())),
        "subclass": lambda: Sly((8, 8), 3, key=key),  # pyright: ignore[reportCallIssue]
        "activation": lambda: MLP((8, 8), 3, activation=mixing, key=key),
        "cnn": lambda: CNN((8, 8), 3, key=key),
        "logistic": lambda: Logistic((8, 8), 3, key=key),
    }
    return primary(models[name](), batch_size=20)


@pytest.mark.parametrize("name", ["function", "module", "subclass", "activation", "cnn", "logistic"])
def test_one_clients_data_move_nothing_of_another(name):
    """Predictions, confidence, correctness, and which fault a client would vote for."""
    model, seen = made(name), list[Population]()
    for strange in (1.0, 1000.0):
        found = observe(clients(strange), model)
        seen.append(diagnosis.observe(found, model, ["invert", "flip"]))
    for field in ("predicted", "confidence", "is_correct", "repaired", "tried"):
        one, other = (found.columns[field][A] for found in seen)
        np.testing.assert_array_equal(one, other)


def test_a_function_is_asked_about_one_client_at_a_time():
    people, asked = clients(1.0), list[bytes]()

    def model(image: np.ndarray) -> np.ndarray:
        asked.append(image.tobytes())
        return image.reshape(len(image), -1) @ weights()

    observe(people, primary(model, batch_size=100))
    own = {people[client]["image"].tobytes() for client in range(4) if SIZES[client]}
    assert {batch for batch in asked if any(batch)} == own


def test_a_model_that_fails_on_one_clients_data_stops_nothing():
    def model(image: np.ndarray) -> np.ndarray:
        if image.max() > 5:
            raise ValueError(f"{image.max()} is too bright")
        return image.reshape(len(image), -1) @ weights()

    calm, strange = (observe(clients(factor), primary(model)) for factor in (1.0, 1000.0))
    np.testing.assert_array_equal(calm.columns["predicted"][:8], strange.columns["predicted"][:8])


def test_the_range_of_clients_values_is_no_reason_to_refuse(tmp_path: Path):
    """Public examples are looked at before a model is used, clients' are not."""
    model = primary(lambda image: image.reshape(len(image), -1) @ weights(), value_range=(0, 1))
    for strange in (1.0, 1000.0):
        assert observe(clients(strange), model).n_examples == 15
    with pytest.raises(InvalidInput, match="reads numbers from 0 to 1"):
        observe(clients(1000.0), model, is_public=True)


def test_a_model_that_remembers_what_it_was_asked_is_refused():
    calls = [0]

    def model(image: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return np.full((len(image), 3), calls[0], np.float32) * np.arange(3, dtype=np.float32)

    with pytest.raises(InvalidInput, match="different scores for the same example"):
        observe(clients(1.0), primary(model))


# --- a model that reads files


def elsewhere(tag: bytes) -> bytes:
    """A tensor whose two numbers are the first bytes of the clients' table; `tag` is how its field is spelled."""
    entries = [("location", "people.csv"), ("offset", "0"), ("length", "8")]
    named = [delimited(1, key.encode()) + delimited(2, said.encode()) for key, said in entries]
    where = b"".join(tag + bytes([len(one)]) + one for one in named)
    return b"".join([number(1, 1), number(1, 2), number(2, 1), delimited(8, b"w"), where, number(14, 1)])


def of_initializer(tensor: bytes) -> bytes:
    return delimited(1, node("MatMul", ["x", "w"], ["y"])) + delimited(5, tensor)


def of_constant(tensor: bytes) -> bytes:
    held = delimited(1, b"value") + delimited(5, tensor) + number(20, 4)
    made = delimited(2, b"w") + delimited(4, b"Constant") + delimited(5, held)
    return delimited(1, made) + delimited(1, node("MatMul", ["x", "w"], ["y"]))


@pytest.mark.parametrize("tag", [b"\x6a", b"\xea\x80\x00", b"\xea\x80\x80\x80\x10"], ids=["short", "long", "beyond"])
@pytest.mark.parametrize("graph", [of_initializer, of_constant])
def test_no_model_has_weights_in_a_file_that_may_be_the_clients_table(tmp_path: Path, monkeypatch, graph, tag: bytes):
    """All clients would vote by one client's values, which no noise for one client hides."""
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_bytes(np.array([3.5, 7.25], np.float32).tobytes() + b"and so on")
    ends = delimited(11, value("x", ["n", 1])) + delimited(12, value("y", ["n", 2]))
    file = model_file(graph(elsewhere(tag)) + delimited(2, b"g") + ends, {})
    (tmp_path / "model.onnx").write_bytes(file)
    with pytest.raises(InvalidInput, match=r"keeps weights in other files|not an ONNX model \("):
        primary(tmp_path / "model.onnx")
