"""Exported models compute in onnxruntime what they compute here, to 1e-4, whatever the size of the batch."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.codings.images_and_rows import Images, Number, Rows
from blindsight.errors import InvalidInput
from blindsight.models.cifg_lstm import char_model, word_model
from blindsight.models.classifiers import CNN, MLP, Logistic
from blindsight.models.gan import compact_gan, paper_gan
from blindsight.models.onnx_export import classifier_onnx, gan_onnx, language_onnx
from blindsight.models.primary import primary
from blindsight.models.recurrent import LSTM
from blindsight.models.scaling import Scaling
from blindsight.models.selu_gan import selu_gan

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

KEY = jax.random.key(0)
BATCHES = (1, 3)


def run(content: bytes, **inputs: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, inputs)
    return found


def jittered(model: Any) -> Any:
    """The model with random numbers added to all weights: initial biases are zero, and would hide a mistake."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    moved = [leaf + 0.1 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, moved), static)


CLASSIFIERS = {
    "logistic of rows": ((5,), lambda shape: Logistic(shape, 3, key=KEY)),
    "logistic of images": ((6, 4), lambda shape: Logistic(shape, 3, key=KEY)),
    "mlp": ((5,), lambda shape: MLP(shape, 4, hidden=(7, 6), key=KEY)),
    "mlp of colours": ((3, 4, 2), lambda shape: MLP(shape, 4, hidden=(7,), activation=jnp.tanh, key=KEY)),
    "cnn of grey images": ((9, 6), lambda shape: CNN(shape, 3, channels=(4, 5), hidden=6, key=KEY)),
    "cnn of colours": ((8, 7, 3), lambda shape: CNN(shape, 3, channels=(4,), kernel=4, activation=jnp.tanh, key=KEY)),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name):
    shape, make = CLASSIFIERS[name]
    model = jittered(make(shape))
    content = classifier_onnx(model, shape)
    x = np.random.default_rng(0).uniform(-1, 1, (3, *shape)).astype(np.float32)
    expected = np.asarray(eqx.filter_jit(model)(jnp.asarray(x)))
    for batch in BATCHES:
        np.testing.assert_allclose(run(content, input=x[:batch]), expected[:batch], atol=1e-4, rtol=1e-4)


def test_a_classifier_scales_its_rows_and_fills_gaps_itself():
    rows = np.random.default_rng(0).normal([40, 1000], [9, 300], (50, 2))
    scaling, model = Scaling.of(rows), jittered(MLP((2,), 3, key=KEY))
    content, rows[0, 1] = classifier_onnx(model, (2,), scaling=scaling), np.nan
    expected = model(jnp.asarray(scaling(rows)))
    np.testing.assert_allclose(run(content, input=rows.astype(np.float32)), expected, atol=1e-4, rtol=1e-4)


def test_an_exported_classifier_is_a_primary_model_that_knows_its_classes_and_bytes(tmp_path):
    model = jittered(CNN((8, 8), 2, key=KEY))
    path = tmp_path / "model.onnx"
    path.write_bytes(classifier_onnx(model, (8, 8), classes=("no", "yes"), of_bytes=True))
    read, images = primary(path), np.random.default_rng(0).integers(0, 256, (4, 8, 8)).astype(np.uint8)
    assert read.classes == ("no", "yes")
    np.testing.assert_allclose(read.scores(images), model(jnp.asarray(images)), atol=1e-4, rtol=1e-4)


LANGUAGE = {
    "words": lambda: word_model(20, embedding=6, cells=9, key=KEY),
    "letters": lambda: char_model(embedding=5, cells=8, layers=2, key=KEY),
    "lstm": lambda: eqx.tree_at(lambda m: m.layers, word_model(20, embedding=6, cells=9, key=KEY),
                                [LSTM(6, 9, 6, key=KEY)]),
}  # fmt: skip


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_models(name):
    model = jittered(LANGUAGE[name]())
    content = language_onnx(model)
    tokens = np.random.default_rng(0).integers(0, 20, (3, 7))
    expected = np.asarray(eqx.filter_jit(model)(jnp.asarray(tokens, jnp.int32)))
    for batch, time in ((1, 1), (3, 7)):
        found = run(content, tokens=tokens[:batch, :time])
        np.testing.assert_allclose(found, expected[:batch, :time], atol=1e-4, rtol=1e-4)


GANS = {
    "compact": lambda: compact_gan(Images(10, 7), latents=5, width=16, key=KEY),
    "compact by class": lambda: compact_gan(Images(8, 8, 3), classes=4, latents=5, width=16, key=KEY),
    "selu": lambda: selu_gan(Images(12, 9), latents=4, key=KEY),
    "selu by class": lambda: selu_gan(Images(28, 28), classes=3, latents=4, key=KEY),
}


@pytest.mark.parametrize(
    "name",
    [
        "compact",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("compact by class", "selu", "selu by class")),
    ],
)
def test_generators(name):
    gan = jittered(GANS[name]())
    content = gan_onnx(gan)
    latents = np.random.default_rng(0).normal(size=(3, gan.latents)).astype(np.float32)
    labels = np.arange(3) % max(gan.classes, 1)
    expected = np.asarray(eqx.filter_jit(gan.decode)(jnp.asarray(latents), jnp.asarray(labels, jnp.int32)))
    for batch in BATCHES:
        given = {"latents": latents[:batch]} | ({"labels": labels[:batch]} if gan.classes else {})
        np.testing.assert_allclose(run(content, **given), expected[:batch], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: gan_onnx(paper_gan(Images(8, 8), key=KEY)),  # its batch norms use the batch
        lambda: gan_onnx(compact_gan(Rows((Number("x", 0, 1),)), key=KEY)),
        lambda: classifier_onnx(eqx.nn.Linear(2, 2, key=KEY), (2,)),
        lambda: classifier_onnx(MLP((2,), 2, activation=jax.nn.gelu, key=KEY), (2,)),
    ],
)
def test_what_cannot_be_exported_is_refused(make):
    with pytest.raises(InvalidInput, match="cannot be exported"):
        make()
