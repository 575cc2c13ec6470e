"""Laws of features: no example is longer than the bound, means can be read back, and everything is said beforehand."""

import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.backends import Batch
from blindsight.codings.features import images, rows
from blindsight.codings.images_and_rows import Category, Number, Rows
from blindsight.codings.vectors import Spectrum
from blindsight.errors import InvalidInput

COLUMNS = [Number("age", 0, 99, whole=True), Category("sex", 2), Number("pay", -1.0, 1.0, can_miss=True)]


def batch(**fields) -> Batch:
    count = len(next(iter(fields.values())))
    return Batch({field: jnp.asarray(values) for field, values in fields.items()}, jnp.ones(count))


def pictures(count: int = 30, shape=(8, 6), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape)).astype(np.uint8)


def some_rows(count: int = 40) -> Batch:
    random = np.random.default_rng(1)
    pay = random.normal(size=count).astype(np.float32)
    pay[::7] = np.nan
    age = random.integers(-5, 120, count).astype(np.int32)
    return batch(age=age, sex=random.integers(0, 2, count).astype(np.int32), pay=pay)


KINDS = {
    "images": lambda: (images((8, 6), frequencies=20), batch(image=pictures())),
    "colours": lambda: (images((8, 6, 3), frequencies=5), batch(image=pictures(shape=(8, 6, 3)))),
    "of a reference": lambda: (
        images((8, 6), frequencies=9, reference=pictures(5, seed=4)),
        batch(image=(pictures() / 255).astype(np.float32)),
    ),
    "rows": lambda: (rows(COLUMNS, bins=4), some_rows()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_mean_features_are_read_back_as_the_moments_of_the_encoding(kind):
    features, examples = KINDS[kind]()
    phi = jax.jit(lambda fields: features(Batch(fields, jnp.ones(1))))(examples.fields)
    assert phi.shape[1] == features.dimension
    found = features.unpack(np.asarray(jnp.mean(phi, axis=0)))
    expected = features.expected(features.encoding(examples))
    assert set(found) == set(expected)
    for name, part in found.items():
        np.testing.assert_allclose(part, expected[name], atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_no_example_is_longer_than_the_bound(kind):
    features, examples = KINDS[kind]()
    extremes = {  # ten times white, black, negative, and what nobody has ever seen
        field: column if column.dtype.kind in "iu" else jnp.concatenate([column, 100 * column, -1e6 + column])
        for field, column in examples.fields.items()
    }
    if len({len(column) for column in extremes.values()}) > 1:
        extremes = examples.fields
    for fields in (examples.fields, extremes):
        lengths = np.linalg.norm(np.asarray(features(batch(**fields)), np.float64), axis=1)
        assert np.all(lengths <= features.bound)
    assert features.bound <= 2  # or the typical length of 1 would be no use


def test_black_white_and_checkers_stay_within_the_bound_too():
    features = images((8, 6), frequencies=48)
    checkers = (np.indices((8, 6)).sum(axis=0) % 2 * 255).astype(np.uint8)
    extreme = np.stack([np.zeros((8, 6), np.uint8), np.full((8, 6), 255, np.uint8), checkers, 255 - checkers])
    assert np.all(np.linalg.norm(features(batch(image=extreme)), axis=1) <= features.bound)


def test_an_image_and_its_negative_are_opposite():
    """Else one of two arms would lose more to clipping, if pixels are inverted on half of the clients."""
    encoding = images((8, 6), frequencies=20).encoding
    image = pictures(4)
    np.testing.assert_allclose(encoding(batch(image=image)), -encoding(batch(image=255 - image)), atol=1e-5)


@pytest.mark.parametrize("shape", [(8, 6), (7, 7, 3)])
def test_images_come_back_from_all_their_frequencies(shape):
    encoding: Any = images(shape, frequencies=shape[0] * shape[1], reference=pictures(200, shape)).encoding
    image = (0.5 + 0.1 * np.random.default_rng(3).normal(size=(2, 3, *shape))).astype(np.float32)
    np.testing.assert_allclose(encoding.image(encoding.of(jnp.asarray(image))), image, atol=1e-4)


def test_small_images_have_all_their_frequencies_and_no_more():
    assert images((4, 3), frequencies=100).dimension == 12 + 12 * 13 // 2
    assert images((4, 3, 2), frequencies=5).encoding.size == 10


def test_bytes_are_what_their_fractions_are():
    features, image = images((8, 6), frequencies=20), pictures(3)
    fractions = batch(image=(image / 255).astype(np.float32))
    np.testing.assert_allclose(features(batch(image=image)), features(fractions), atol=1e-5)


def test_rows_are_counted_alone_and_in_pairs():
    features = rows([Number("age", 0, 9, whole=True), Category("sex", 2)], bins=5)
    table = batch(age=np.array([0, 1, 4, 9, 42], np.int32), sex=np.array([0, 1, 1, 0, 0], np.int32))
    found = features.unpack(np.asarray(jnp.mean(features(table), axis=0)))
    np.testing.assert_allclose(found["mean"] * math.sqrt(2), [0.4, 0, 0.2, 0, 0.4, 0.6, 0.4], atol=2e-4)
    both = found["second"][:5, 5:] * 2  # share of the rows with that bin and that category
    np.testing.assert_allclose(both, [[0.2, 0.2], [0, 0], [0, 0.2], [0, 0], [0.4, 0]], atol=2e-4)
    assert not np.any(found["second"][:5, :5])


def test_a_missing_number_has_a_place_of_its_own_where_it_may_be_missing():
    encode = rows([Number("pay", 0, 1, can_miss=True)], bins=3).encoding
    assert np.argmax(encode(batch(pay=np.array([np.nan, 0.5], np.float32))), axis=1).tolist() == [3, 1]
    strict = rows([Number("pay", 0, 1)], bins=3).encoding
    assert np.argmax(strict(batch(pay=np.array([np.nan, 9.0], np.float32))), axis=1).tolist() == [1, 2]


def test_rows_may_be_given_as_a_coding():
    coding = Rows((Number("age", 0, 9),), (Category("sex", 2),))
    assert rows(coding, bins=5).dimension == 5 + 2 + 10


def test_settings_are_plain_and_the_same_settings_make_the_same_features():
    for kind in KINDS.values():
        (one, examples), (other, _) = kind(), kind()
        assert json.loads(json.dumps(one.settings)) == one.settings
        np.testing.assert_array_equal(one(examples), other(examples))


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: images((8, 6), frequencies=0),
        lambda: images((8,), frequencies=2),
        lambda: images((8, 6), frequencies=4, reference=np.zeros((5, 6, 8))),
        lambda: rows([]),
        lambda: rows(COLUMNS, bins=1),
    ],
)
def test_what_makes_no_sense_is_refused(mistake):
    with pytest.raises(InvalidInput):
        mistake()


def test_the_length_of_an_extreme_image_fits_the_whole_numbers_that_it_is_measured_in():
    """Every frequency of a wide colour image is as far off mid-grey as it may be: the squares add up to 2^35."""
    frequencies, shape = 800, (20, 20, 3)
    ones = jnp.ones(3 * frequencies)
    basis = jnp.ones((frequencies, 400)) / 20
    spectrum = Spectrum(basis, 0 * ones, 1e-3 * ones, shape, "image", "a test")
    code = spectrum(batch(image=np.full((1, *shape), 255, np.uint8)))
    assert 0.95 * spectrum.radius < float(jnp.linalg.norm(code[0])) <= spectrum.radius
