"""Laws of the classifiers: shapes of logits, the loss in closed form, and that they learn what can be learned."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from blindsight import trees
from blindsight.backends import Batch
from blindsight.models.classifiers import CNN, MLP, Logistic, accuracy, cross_entropy

KEY = jax.random.key(0)
MODELS: dict[str, Any] = {
    "logistic": Logistic,
    "mlp": MLP,
    "deep mlp": lambda shape, classes, key: MLP(shape, classes, hidden=(7, 5), activation=jnp.tanh, key=key),
    "cnn": lambda shape, classes, key: CNN(shape, classes, channels=(4, 6), kernel=3, hidden=8, key=key),
}


def randomised(make, seed: int = 3):
    """The model with random weights, made without compiling anything."""
    leaves, structure = jax.tree.flatten(jax.eval_shape(make))
    generator = np.random.default_rng(seed)
    values = [generator.normal(size=leaf.shape) / math.sqrt(leaf.shape[0]) for leaf in leaves]
    return jax.tree.unflatten(structure, [jnp.asarray(value, jnp.float32) for value in values])


def called(model, x):
    return model(x)


def image_batch(count: int, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, *shape)).astype(dtype)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("logistic", (9, 7)), ("deep mlp", (6, 5, 3)), ("cnn", (9, 7)), ("cnn", (8, 9, 1)), ("cnn", (6, 5, 3))],
)
def test_logits_have_a_row_for_each_example_and_bytes_are_what_their_fractions_are(name, shape):
    model = randomised(lambda: MODELS[name](shape, 5, key=KEY))
    images = image_batch(3, shape, np.uint8)
    logits = jax.jit(called)(model, images)
    assert (logits.shape, logits.dtype) == ((3, 5), jnp.float32)
    np.testing.assert_allclose(logits, jax.jit(called)(model, (images / 255).astype(np.float32)), rtol=1e-4, atol=1e-5)
    alone = np.repeat(images[2:], 3, axis=0)  # no example's logits depend on the others
    np.testing.assert_allclose(logits[2], jax.jit(called)(model, alone)[0], rtol=1e-4, atol=1e-5)


def test_whole_numbers_that_are_no_bytes_stay_as_they_are():
    model, ages = randomised(lambda: Logistic((2,), 3, key=KEY)), np.array([[30, 2], [61, 7]])
    np.testing.assert_array_equal(model(ages.astype(np.int32)), model(ages.astype(np.float32)))


def test_models_have_the_number_of_weights_that_one_counts():
    size = lambda make: sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(make)))  # noqa: E731
    assert size(lambda: Logistic((28, 28), 10, key=KEY)) == 784 * 10 + 10
    assert size(lambda: MLP((8, 8), 10, hidden=(32,), key=KEY)) == 64 * 32 + 32 + 32 * 10 + 10
    convolutions = 25 * 1 * 16 + 16 + 25 * 16 * 32 + 32
    assert size(lambda: CNN((28, 28), 10, key=KEY)) == convolutions + 7 * 7 * 32 * 32 + 32 + 32 * 10 + 10


def fixed_logits(logits):
    """A model that always answers the same."""
    return lambda x: jnp.asarray(logits, jnp.float32)


def labelled(labels, weights, **fields) -> Batch:
    count = len(labels)
    inputs = fields or {"image": np.zeros((count, 2), np.float32)}
    return Batch({**inputs, "label": jnp.asarray(labels)}, jnp.asarray(weights, jnp.float32))


def test_cross_entropy_is_minus_the_logarithm_of_the_true_classs_share():
    batch = labelled([0, 1, 2], [1, 1, 1])
    assert math.isclose(cross_entropy()(fixed_logits(np.zeros((3, 4))), batch, KEY), math.log(4), rel_tol=1e-6)
    logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
    expected = -(math.log(0.5) + math.log(0.8) + math.log(0.4)) / 3
    assert math.isclose(cross_entropy()(fixed_logits(logits), batch, KEY), expected, rel_tol=1e-5)


def test_accuracy_is_the_share_of_right_answers():
    logits = [[2, 1, 0], [0, 1, 2], [0, 3, 1], [5, 0, 0]]
    assert float(accuracy()(fixed_logits(logits), labelled([0, 2, 2, 1], [1, 1, 1, 1]), KEY)) == 0.5
    assert float(accuracy()(fixed_logits(logits), labelled([0, 2, 1, 0], [1, 1, 1, 1]), KEY)) == 1


@pytest.mark.parametrize("metric", [cross_entropy, accuracy])
def test_weightless_examples_do_not_count(metric):
    """Neither in the value nor in the gradient, whatever they hold."""
    model = randomised(lambda: Logistic((4,), 3, key=KEY))
    images = jnp.asarray(np.random.default_rng(1).normal(size=(5, 4)), jnp.float32)
    labels = jnp.array([0, 1, 2, 0, 1])
    few = Batch({"image": images[:3], "label": labels[:3]}, jnp.ones(3))
    filled = Batch({"image": images.at[3:].set(1e3), "label": labels}, jnp.array([1.0, 1, 1, 0, 0]))
    measure = jax.jit(jax.value_and_grad(metric()))
    (value, gradient), (same, same_gradient) = (measure(model, batch, KEY) for batch in (few, filled))
    assert float(value) == pytest.approx(float(same), rel=1e-6)
    np.testing.assert_allclose(gradient.output.weight, same_gradient.output.weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("metric", [cross_entropy, accuracy])
def test_a_batch_of_nothing_measures_0_and_has_no_gradient(metric):
    model, batch = randomised(lambda: Logistic((2,), 3, key=KEY)), labelled([0, 0], [0, 0])
    value, gradient = jax.jit(jax.value_and_grad(metric()))(model, batch, KEY)
    assert float(value) == 0
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.bool_])
def test_labels_may_be_any_whole_numbers(dtype):
    batch = labelled(np.array([0, 1, 1], dtype), [1, 1, 1])
    assert float(accuracy()(fixed_logits([[1, 0], [0, 1], [1, 0]]), batch, KEY)) == pytest.approx(2 / 3)
    assert np.isfinite(float(cross_entropy()(fixed_logits(np.zeros((3, 2))), batch, KEY)))


def test_several_inputs_stand_side_by_side_under_their_own_names():
    age, owns = jnp.array([30, 60], jnp.int32), jnp.array([True, False])
    batch = Batch({"age": age, "owns": owns, "class": jnp.array([0, 1])}, jnp.ones(2))
    seen = []
    model = lambda x: (seen.append(x), jnp.zeros((2, 2)))[1]  # noqa: E731
    assert float(cross_entropy(("age", "owns"), "class")(model, batch, KEY)) == pytest.approx(math.log(2))
    assert seen[0].tolist() == [[30, 1], [60, 0]]
    accuracy(["age"], "class")(model, batch, KEY)
    assert seen[1].tolist() == [30, 60]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models_learn_two_classes_that_can_be_told_apart(name):
    """Bright on the left against bright on the right, with noise: a few steps of gradient descent find it."""
    generator = np.random.default_rng(2)
    labels = generator.integers(0, 2, 60)
    images = generator.uniform(0, 0.3, (60, 8, 8)).astype(np.float32)
    images[labels == 0, :, :4] += 0.7
    images[labels == 1, :, 4:] += 0.7
    batch = labelled(labels.astype(np.int32), np.ones(60), image=images)
    loss, optimizer = cross_entropy(), optax.sgd(0.1, momentum=0.9)

    @jax.jit
    def learn(key):
        model = MODELS[name]((8, 8), 2, key=key)

        def step(carry, _):
            model, state = carry
            value, gradient = jax.value_and_grad(loss)(model, batch, key)
            updates, state = optimizer.update(gradient, state)
            return (trees.add(model, updates), state), value

        (model, _), losses = jax.lax.scan(step, (model, optimizer.init(model)), None, length=60)
        return losses, accuracy()(model, batch, key)

    losses, right = learn(KEY)
    assert losses[-1] < 0.3 * losses[0]
    assert float(right) == 1
