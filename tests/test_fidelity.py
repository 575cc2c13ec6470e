"""Laws of fidelity: closed forms, what copies and collapsed generators must look like, and the mark on all of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.errors import InvalidInput
from blindsight.fidelity import fidelity, frechet, hidden, nearest, precision_and_recall
from blindsight.models.classifiers import CNN, MLP

RANDOM = np.random.default_rng(0)


def cloud(count: int, size: int = 4, *, at: float = 0.0, spread: float = 1.0) -> np.ndarray:
    return at + spread * np.random.default_rng(count).normal(size=(count, size))


def test_the_frechet_distance_of_normal_distributions_is_known():
    """For covariances that commute it is |m1 - m2|^2 + sum (s1 - s2)^2."""
    one = cloud(500)
    assert frechet(one, one) == pytest.approx(0, abs=1e-9)
    assert frechet(one, one + 2.0) == pytest.approx(4 * 4, rel=1e-9)
    middle = one.mean(axis=0)
    wider = middle + 3 * (one - middle)
    variances = np.linalg.eigvalsh(np.cov(one, rowvar=False))
    assert frechet(one, wider) == pytest.approx(np.sum((3 - 1) ** 2 * variances), rel=1e-6)
    stretched = one * np.array([1.0, 2.0, 0.5, 1.0])
    assert frechet(one, stretched) == pytest.approx(frechet(stretched, one), rel=1e-9)


def test_copies_have_precision_and_recall_and_collapsed_samples_have_no_recall():
    real = cloud(300)
    assert precision_and_recall(real, real.copy()) == (1, 1)
    collapsed = real[:1] + 0.01 * cloud(200)
    precision, recall = precision_and_recall(real, collapsed)
    assert precision > 0.9
    assert recall < 0.05
    scattered = cloud(300, spread=30.0)
    precision, recall = precision_and_recall(real, scattered)
    assert precision < 0.1
    assert recall > 0.9
    assert precision_and_recall(real, cloud(250, at=100.0)) == (0, 0)


def test_reach_is_that_of_the_neighbour_asked_for():
    real = np.array([[0.0], [1.0], [3.0], [6.0]])
    made = np.array([[1.9], [100.0], [101.0], [102.0]])
    assert precision_and_recall(real, made, neighbours=1)[0] == 0.25  # 1.9 is within 2 of 3
    assert precision_and_recall(real, np.array([[9.1], [100.0], [101.0]]), neighbours=1)[0] == 0  # 3 from 6 is too far
    assert precision_and_recall(real, np.array([[9.1], [100.0], [101.0]]), neighbours=2)[0] > 0


def test_the_nearest_training_example_is_found():
    training = np.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(nearest(np.array([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]]), training), [0, 1, 5], atol=1e-6)


@pytest.mark.parametrize("make", [pytest.param(CNN, marks=pytest.mark.slow), MLP])
def test_what_a_classifier_sees_leads_to_its_answer(make):
    model = make((8, 8), 3, key=jax.random.key(0))
    images = RANDOM.integers(0, 256, (5, 8, 8)).astype(np.uint8)
    output = model.output if isinstance(model, CNN) else model.layers[-1]
    np.testing.assert_allclose(
        output(jnp.asarray(hidden(model, images), jnp.float32)), model(jnp.asarray(images)), rtol=1e-4, atol=1e-5
    )


def test_real_examples_are_as_good_as_real_ones_and_copies_are_caught():
    model = MLP((6, 6), 2, hidden=(8,), key=jax.random.key(1))
    images = RANDOM.integers(0, 256, (600, 6, 6)).astype(np.uint8)
    labels = np.asarray(model(jnp.asarray(images))).argmax(axis=1)
    made, real, training = (images[part] for part in (slice(0, 200), slice(200, 400), slice(400, 600)))
    good = fidelity((made, labels[:200]), (real, labels[200:400]), training, model)
    assert good.simulation_only
    assert good.to_dict()["simulation_only"]
    assert good.agreement == 1
    assert min(good.precision, good.recall) > 0.8
    assert 0.7 < good.nearest < 1.4
    copied = fidelity((training, 1 - labels[400:]), (real, labels[200:400]), training, model)
    assert copied.agreement == 0
    assert copied.nearest < 1e-3
    noise = fidelity((np.full_like(made, 255), labels[:200]), (real, labels[200:400]), training, model)
    assert noise.frechet > 10 * good.frechet
    assert noise.class_frechet > 2 * good.class_frechet
    assert noise.recall == 0


def test_too_few_vectors_are_refused():
    with pytest.raises(InvalidInput):
        frechet(cloud(1), cloud(5))
    with pytest.raises(InvalidInput, match="more than 3"):
        precision_and_recall(cloud(3), cloud(5))
