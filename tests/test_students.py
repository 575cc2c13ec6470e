"""Laws of students: they learn what samples show, from sure and unsure labels, and keep the samples' guarantee."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight import keys, students
from blindsight.accounting.guarantee import Guarantee
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.models.classifiers import CNN, MLP, Logistic
from blindsight.students import Augmentation, Student, train_student

KEY = keys.reproducible(3)
SHAPE = (6, 6)


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Everything here is compiled in many shapes and run once in each."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def bars(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images with a bright upper or a bright left half, and which."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count).astype(np.int32)
    images = random.integers(0, 120, (count, *SHAPE))
    images[labels == 0, :3] += 120
    images[labels == 1, :, :3] += 120
    return images.astype(np.uint8), labels


def fresh(kind: str = "mlp") -> CNN | MLP:
    if kind == "cnn":
        return CNN(SHAPE, 2, channels=(4,), kernel=3, hidden=8, key=jax.random.key(0))
    return MLP(SHAPE, 2, hidden=(16,), key=jax.random.key(0))


@pytest.mark.parametrize("kind", ["mlp", pytest.param("cnn", marks=pytest.mark.slow)])
def test_a_student_names_what_it_has_not_seen(kind):
    student = train_student(*bars(400, 0), model=fresh(kind), steps=150, key=KEY, learning_rate=1e-2)
    test = bars(200, 1)
    assert student.accuracy(test) > 0.95
    columns = {"image": test[0], "label": test[1]}
    assert student.accuracy(Population(columns, sizes=[1] * 200, name="bars")) == student.accuracy(test)
    assert np.mean(student.labels(test[0]) == test[1]) == student.accuracy(test)


def test_without_labels_that_mean_something_there_is_nothing_to_learn():
    images, labels = bars(400, 0)
    shuffled = np.random.default_rng(5).permutation(labels)
    student = train_student(images, shuffled, model=fresh(), steps=60, key=KEY)
    assert student.accuracy(bars(200, 1)) < 0.8


@pytest.mark.slow
def test_unsure_labels_are_believed_as_far_as_they_go():
    """A softmax fitted to labels that are 70 % sure is 70 % sure; smoothing makes sure labels unsure."""
    images, labels = bars(400, 0)
    unsure = np.where(np.eye(2)[labels] == 1, 0.7, 0.3)
    asked: Any = {"model": fresh(), "steps": 300, "key": KEY, "learning_rate": 1e-2}
    for student in (
        train_student(images, unsure, **asked),
        train_student(images, labels, augmentation=Augmentation(smoothing=0.6), **asked),
    ):
        sure = student.probabilities(images).max(axis=1)
        assert abs(np.median(sure) - 0.7) < 0.06
    assert np.median(train_student(images, labels, **asked).probabilities(images).max(axis=1)) > 0.9


def test_a_student_has_the_guarantee_of_its_samples():
    promise = Guarantee(epsilon=1.0, delta=1e-5, accountant="PLD", participation="full", releases=1)
    student = train_student(*bars(20, 0), model=fresh(), steps=1, key=KEY, guarantee=promise)
    assert student.guarantee is promise
    assert train_student(*bars(20, 0), model=fresh(), steps=1, key=KEY).guarantee is None


def test_the_same_key_makes_the_same_student_and_progress_is_told():
    told = list[tuple[int, int]]()
    first, second = (
        train_student(
            *bars(50, 0),
            model=fresh(),
            steps=120,
            key=KEY,
            augmentation=Augmentation(noise=0.1),
            progress=lambda *at: told.append(at),
        )
        for _ in range(2)
    )
    images = bars(30, 2)[0]
    np.testing.assert_array_equal(first.probabilities(images), second.probabilities(images))
    assert told[:3] == [(0, 120), (100, 120), (120, 120)]


def test_images_move_as_far_as_asked_and_no_further():
    image = jnp.zeros((40, 9, 9)).at[:, 4, 4].set(1.0)
    still = students._moved(image, 0.0, 0.0, 0.0, key=jax.random.key(0))
    np.testing.assert_allclose(still, image, atol=1e-6)
    moved = np.asarray(students._moved(image, 2.0, 0.0, 0.0, key=jax.random.key(0)))
    rows = np.einsum("nij,i->n", moved, np.arange(9.0)) / moved.sum(axis=(1, 2))
    assert 1.0 < np.max(np.abs(rows - 4)) <= 2.0 + 1e-5
    corner = jnp.zeros((40, 9, 9)).at[:, 4, 7].set(1.0)  # a turn moves what is off the centre, the centre stays
    turned = np.asarray(students._moved(corner, 0.0, 0.5, 0.0, key=jax.random.key(1)))
    assert np.max(np.abs(turned - np.asarray(corner))) > 0.3
    np.testing.assert_allclose(students._moved(image, 0.0, 0.5, 0.0, key=jax.random.key(1))[:, 4, 4], 1.0, atol=1e-5)
    colours = jnp.stack([corner] * 3, axis=-1)
    np.testing.assert_allclose(
        students._moved(colours, 1.0, 0.2, 0.1, key=jax.random.key(2))[..., 1],
        students._moved(corner, 1.0, 0.2, 0.1, key=jax.random.key(2)),
        atol=1e-6,
    )


def test_rows_of_numbers_can_be_learnt_from_but_not_moved():
    random = np.random.default_rng(0)
    rows = random.normal(size=(300, 5)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(np.int32)
    model = Logistic((5,), 2, key=jax.random.key(0))
    assert (
        train_student(rows, labels, model=model, steps=200, key=KEY, learning_rate=0.05).accuracy((rows, labels)) > 0.9
    )
    with pytest.raises(InvalidInput, match="augmentation needs images"):
        train_student(rows, labels, model=model, steps=1, key=KEY, augmentation=Augmentation(shift=1.0))


@pytest.mark.parametrize(
    ("examples", "labels", "steps", "said"),
    [
        (np.zeros((3, 6, 6)), np.zeros(2, int), 1, "a label for every example"),
        (np.zeros((0, 6, 6)), np.zeros(0, int), 1, "a label for every example"),
        (np.zeros((2, 6, 6)), np.zeros(2, int), 0, "steps must be at least 1"),
        (np.zeros((2, 6, 6)), np.zeros(2), 1, "whole numbers"),
        (np.zeros((2, 6, 6)), np.zeros((2, 2, 2)), 1, "whole numbers"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(examples, labels, steps, said):
    with pytest.raises(InvalidInput, match=said):
        train_student(examples, labels, model=fresh(), steps=steps, key=KEY)


def test_nothing_to_ask_about_is_refused():
    with pytest.raises(InvalidInput, match="at least one example"):
        Student(fresh()).labels(np.zeros((0, *SHAPE), np.uint8))


@pytest.mark.parametrize("wrong", [{"noise": -0.1}, {"turn": float("nan")}, {"zoom": float("inf")}, {"smoothing": 1.5}])
def test_an_augmentation_that_makes_no_sense_does_not_exist(wrong: dict[str, float]):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Augmentation(**wrong)
