"""Laws of coding: what is written can be read back, and stays in its range whatever it was."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.backends import Batch
from blindsight.codings.images_and_rows import Category, Images, Number, Rows, coding_of
from blindsight.data import embedded
from blindsight.data.population import Population
from blindsight.errors import InvalidInput

ROWS = Rows((Number("age", 0, 100, whole=True), Number("height", 1.0, 2.0, can_miss=True)), (Category("job", 3),))
RANGES = {"age": (0, 100), "height": (1.0, 2.0)}


def batch(**fields) -> Batch:
    size = len(next(iter(fields.values())))
    return Batch({field: jnp.asarray(column) for field, column in fields.items()}, jnp.ones(size))


def people() -> Batch:
    height = np.array([1.5, np.nan, 1.9], np.float32)
    return batch(age=np.array([30, 140, -5]), height=height, job=np.array([0, 2, 1], np.int8))


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3)])
def test_images_come_back_byte_for_byte(shape):
    images = np.random.default_rng(0).integers(0, 256, (6, *shape)).astype(np.uint8)
    coding = Images(*shape)
    written = coding.encode(batch(image=images))
    assert written.shape == (6, 5, 4, 3 if len(shape) == 3 else 1)
    assert (float(written.min()), float(written.max())) >= (-1.0, -1.0)
    assert float(jnp.abs(written).max()) <= 1.0
    np.testing.assert_array_equal(coding.decode(written)["image"], images)
    fractions = coding.encode(batch(image=(images / 255).astype(np.float32)))
    np.testing.assert_allclose(written, fractions, atol=1e-6)


def test_the_misfit_of_an_image_is_least_where_it_is_right():
    coding, right = Images(2, 2), jnp.full((1, 2, 2, 1), 0.4)
    slope = jax.grad(lambda raw: coding.misfit(raw, right)[0])(jnp.arctanh(right))
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)


def test_rows_come_back_less_what_lies_outside_their_range():
    written = ROWS.encode(people())
    assert written.shape == (3, *ROWS.shape) == (3, 2 + 1 + 3)
    found = ROWS.decode(written)
    assert found["age"].tolist() == [30, 100, 0]
    np.testing.assert_allclose(found["height"], [1.5, np.nan, 1.9], rtol=1e-6)
    assert found["job"].tolist() == [0, 2, 1]


def test_what_is_missing_shows_in_its_flag_alone():
    values, flag = ROWS.encode(people())[:, 1], ROWS.encode(people())[:, 2]
    assert flag.tolist() == [0, 1, 0]
    assert values[1] == 0
    unflagged = Rows((Number("height", 1.0, 2.0),))
    assert jnp.all(jnp.isfinite(unflagged.encode(people())))


def test_activated_rows_have_ranges_and_shares():
    raw = 5 * jax.random.normal(jax.random.key(0), (50, *ROWS.shape))
    made = ROWS.activate(raw)
    assert jnp.all(jnp.abs(made[:, :2]) <= 1)
    assert jnp.all((made[:, 2:] >= 0) & (made[:, 2:] <= 1))
    np.testing.assert_allclose(jnp.sum(made[:, 3:], axis=1), 1.0, rtol=1e-5)


def test_the_misfit_of_rows_in_closed_form():
    x = ROWS.encode(people())
    shares = math.log(math.e + 2)  # of a softmax over (1, 0, 0)
    raw = jnp.array([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]] * 3)
    numbers = np.square(np.asarray(x[:, :2]) / 0.1).sum(axis=1) / 2
    expected = numbers + math.log(2) + np.array([shares - 1, shares, shares])
    np.testing.assert_allclose(ROWS.misfit(raw, x), expected, rtol=1e-5)


def test_rows_of_one_kind_only():
    numbers, categories = Rows((Number("age", 0, 100),)), Rows(categories=(Category("job", 3), Category("sex", 2)))
    both = batch(age=np.array([10.0, 20.0], np.float32), job=np.array([1, 2]), sex=np.array([0, 1]))
    assert numbers.decode(numbers.activate(numbers.encode(both))).keys() == {"age"}
    written = categories.encode(both)
    assert {field: column.tolist() for field, column in categories.decode(written).items()} == {
        "job": [1, 2],
        "sex": [0, 1],
    }
    assert jnp.all(jnp.isfinite(categories.misfit(written, written)))


def test_populations_say_how_they_are_written():
    assert coding_of(embedded("handwriting", clients=2)) == Images(28, 28)
    assert coding_of(Population({"photo": np.zeros((2, 4, 6, 3), np.uint8)}, sizes=[2], name="x")) == Images(
        4, 6, 3, field="photo"
    )
    table = Population(
        {"age": np.array([3, 4]), "job": np.array([0, 1]), "label": np.array([0, 1]), "note": np.array(["a", "b"])},
        sizes=[1, 1],
        name="table",
        classes={"job": ("a", "b"), "label": ("no", "yes")},
    )
    expected = Rows((Number("age", 0, 100, whole=True),), (Category("job", 2),))
    assert coding_of(table, ranges=RANGES) == expected
    assert coding_of(table, label=None, ranges=RANGES).shape == (5,)


def test_a_range_that_nobody_gave_is_asked_for_and_not_read_off_the_data():
    table = Population({"age": np.array([3, 4])}, sizes=[1, 1], name="table")
    with pytest.raises(InvalidInput, match="ranges="):
        coding_of(table)


@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (0, math.inf), (math.nan, 1)])
def test_ranges_that_are_none_are_refused(bounds):
    with pytest.raises(InvalidInput, match="range of age"):
        Number("age", *bounds)


def test_rows_without_columns_and_columns_of_vectors_are_refused():
    with pytest.raises(InvalidInput, match="one column"):
        Rows()
    with pytest.raises(InvalidInput, match="neither"):
        coding_of(Population({"v": np.zeros((2, 4), np.float32)}, sizes=[2], name="vectors"))
