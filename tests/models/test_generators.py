"""Laws of generators: where they start, that arms share latents, and that rows drawn are what shares promise."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight import keys
from blindsight.backends import Batch
from blindsight.codings.features import images, rows
from blindsight.codings.images_and_rows import Category, Number
from blindsight.errors import InvalidInput
from blindsight.models.generators import ImageGenerator, RowGenerator, draw, generator_for

KEY = keys.reproducible(8)
SPECTRUM: Any = images((6, 5), frequencies=12).encoding
COLUMNS = [Number("age", 18, 67, whole=True), Category("sex", 2), Number("pay", -1.0, 3.0, can_miss=True)]


def moments(arms: int = 2, classes: int = 3, size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    mean = 0.05 * random.normal(size=(arms, classes, size))
    root = 0.03 * random.normal(size=(arms, classes, size, size))
    return mean, root @ np.swapaxes(root, -1, -2) + 1e-4 * np.eye(size)


@pytest.mark.slow
def test_images_start_with_the_moments_that_they_are_given():
    """Around mid-grey, where no pixel is cut off."""
    mean, covariance = moments()
    generator = ImageGenerator.start(SPECTRUM, mean, covariance, key=jax.random.key(0))
    assert (generator.groups, generator.latent) == ((2, 3), 12)
    made = np.asarray(generator(jax.random.normal(jax.random.key(1), (4000, 12))))
    assert made.shape == (2, 3, 4000, 6, 5)
    assert 0 <= made.min() < made.max() <= 1
    c = np.asarray(generator.encoded(jax.random.normal(jax.random.key(1), (4000, 12))), np.float64)
    np.testing.assert_allclose(c.mean(axis=2), mean, atol=0.02)
    for arm in range(2):
        found = np.cov(c[arm, 1].T)
        assert np.linalg.norm(found - covariance[arm, 1]) < 0.25 * np.linalg.norm(covariance[arm, 1])


def test_arms_with_the_same_moments_show_the_same_examples():
    mean, covariance = moments(arms=1)
    twice = np.repeat(mean, 2, axis=0), np.repeat(covariance, 2, axis=0)
    (one, other), labels = draw(ImageGenerator.start(SPECTRUM, *twice, key=jax.random.key(0)), 4, key=KEY)
    np.testing.assert_array_equal(one["image"], other["image"])
    assert (one["image"].shape, one["image"].dtype) == ((12, 6, 5), np.uint8)
    assert labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert len({image.tobytes() for image in one["image"]}) == 12


def test_the_same_key_draws_the_same_examples():
    generator = ImageGenerator.start(SPECTRUM, *moments(), key=jax.random.key(0))
    images_of = lambda key: draw(generator, 2, key=key)[0][0]["image"]  # noqa: E731
    np.testing.assert_array_equal(images_of(KEY), images_of(KEY))
    assert not np.array_equal(images_of(KEY), images_of(keys.reproducible(9)))


def shares(marginals) -> np.ndarray:
    random = np.random.default_rng(2)
    blocks = [random.dirichlet(np.ones(width), size=(2, 1)) for width in marginals.widths]
    return np.concatenate(blocks, axis=-1) / np.sqrt(len(marginals.columns))


def test_rows_start_with_the_shares_that_they_are_given():
    marginals: Any = rows(COLUMNS, bins=5).encoding
    mean = shares(marginals)
    generator = RowGenerator.start(marginals, mean, key=jax.random.key(0))
    made = np.asarray(generator.encoded(jax.random.normal(jax.random.key(1), (3, generator.latent))))
    np.testing.assert_allclose(made, np.broadcast_to(mean[:, :, None], made.shape), atol=2e-3)
    negative = RowGenerator.start(marginals, mean - 0.3, key=jax.random.key(0))  # noise takes shares below 0
    assert np.all(np.isfinite(negative.logits))


@pytest.mark.slow
def test_rows_that_are_drawn_have_the_features_that_shares_promise():
    features: Any = rows(COLUMNS, bins=5)
    generator = RowGenerator.start(features.encoding, shares(features.encoding), key=jax.random.key(0))
    last = 0.5 * jax.random.normal(jax.random.key(5), generator.bend.last.shape)
    bent = eqx.tree_at(lambda made: made.bend.last, generator, last)  # columns now depend on latents and each other
    count = 20_000
    (drawn, _), labels = draw(bent, count, key=KEY)
    assert labels.tolist() == [0] * count
    columns = {field: jnp.asarray(column) for field, column in drawn.items()}
    found = features.unpack(np.asarray(jnp.mean(features(Batch(columns, jnp.ones(count))), axis=0)))
    latents = jax.random.normal(jax.random.key(6), (count, bent.latent))
    expected = features.expected(bent.encoded(latents)[0, 0])
    np.testing.assert_allclose(found["mean"], expected["mean"], atol=0.015)
    np.testing.assert_allclose(found["second"], expected["second"], atol=0.012)
    assert set(np.unique(drawn["sex"])) <= {0, 1}
    assert drawn["age"].min() >= 18
    assert drawn["age"].max() <= 67
    assert np.all(drawn["age"] == np.round(drawn["age"]))
    assert 0 < np.mean(np.isnan(drawn["pay"])) < 1


def test_only_what_can_be_shown_has_a_generator():
    mean, covariance = moments()
    key = jax.random.key(0)
    assert isinstance(generator_for(images((6, 5), frequencies=12), mean, covariance, key=key), ImageGenerator)
    tables = rows(COLUMNS, bins=5)
    assert isinstance(generator_for(tables, shares(tables.encoding), None, key=key), RowGenerator)
    with pytest.raises(InvalidInput, match="no generator for these features"):
        generator_for(images((6, 5), frequencies=12), mean, None, key=key)
    with pytest.raises(InvalidInput, match="one example per class"):
        draw(ImageGenerator.start(SPECTRUM, mean, covariance, key=key), 0, key=KEY)
