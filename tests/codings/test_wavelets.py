"""Laws of strokes: bounded whatever the image, blind to the sign of a stroke, and told by public images alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.codings import wavelets
from blindsight.codings.features import strokes
from blindsight.codings.wavelets import OnStrokes, Wavelets
from blindsight.errors import InvalidInput
from blindsight.models.classifiers import Logistic

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (40, 12, 16)).astype(np.uint8)
WAVELETS = Wavelets.of_images(IMAGES, 6)


def stripes(angle: float, phase: float = 0.0) -> np.ndarray:
    """Light and dark waves along a direction, about as long as the first of the fixed ones."""
    down, across = np.mgrid[:16, :16]
    wave = np.cos(3 * np.pi / 4 * (across * np.cos(angle) + down * np.sin(angle)) + phase)
    return (0.5 + 0.5 * wave).astype(np.float32)


def answers(image: np.ndarray) -> np.ndarray:
    """(parts, directions) at the first scale."""
    filters = jnp.asarray(wavelets._waves(), jnp.float32)
    return np.asarray(wavelets._strengths(filters, jnp.asarray(image)[None])).reshape(16, -1)[:, :8]


def test_no_image_is_longer_than_the_radius():
    extremes = np.stack([np.zeros((12, 16)), np.ones((12, 16)), 1e6 * RANDOM.normal(size=(12, 16))]).astype(np.float32)
    for images in (IMAGES, extremes):
        lengths = np.linalg.norm(np.asarray(WAVELETS.of(jnp.asarray(images)), np.float64), axis=1)
        assert np.all(lengths <= WAVELETS.radius * (1 + 1e-5))
    features = strokes(IMAGES, size=6)
    phi = np.asarray(features({"image": jnp.asarray(extremes)}), np.float64)
    assert np.all(np.linalg.norm(phi, axis=1) <= features.bound)
    assert features.dimension == 6 + 21


@pytest.mark.slow
@pytest.mark.parametrize("direction", range(8))
def test_stripes_are_answered_by_the_wave_in_their_direction(direction):
    found = answers(stripes(np.pi * direction / 8)).mean(axis=0)
    assert found.argmax() == direction


def test_the_sign_and_the_phase_of_a_stroke_do_not_matter():
    inner = [5, 6, 9, 10]  # the parts that do not touch the edge
    first, moved = answers(stripes(0.0))[inner, 0], answers(stripes(0.0, np.pi))[inner, 0]
    np.testing.assert_allclose(first, moved, rtol=0.1)
    assert first.min() > 0.1


def test_bytes_and_numbers_are_one_and_the_typical_length_is_one():
    one, other = WAVELETS.of(jnp.asarray(IMAGES)), WAVELETS.of(jnp.asarray(IMAGES / 255, jnp.float32))
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert 0.8 < np.median(np.linalg.norm(np.asarray(one), axis=1)) < 1.2


@pytest.mark.slow
def test_directions_are_those_in_which_the_images_differ():
    """Most variance first; half-way to equal variance, the fourth root is taken out."""
    half = RANDOM.integers(0, 2, (60, 1, 1)) * np.pad(np.ones((12, 8)), ((0, 0), (0, 8)))
    wide = Wavelets.of_images((255 * half + RANDOM.integers(0, 9, (60, 12, 16))).clip(0, 255).astype(np.uint8), 3)
    found = np.asarray(wide.of(jnp.asarray((255 * half).astype(np.uint8))))
    assert found[:, 0].std() > 5 * found[:, 1].std()


@pytest.mark.slow
def test_colours_are_looked_at_one_by_one():
    colours = RANDOM.integers(0, 256, (30, 12, 12, 3)).astype(np.uint8)
    assert Wavelets.of_images(colours, 4).of(jnp.asarray(colours)).shape == (30, 4)


def test_a_classifier_on_strokes_leaves_the_strokes_alone():
    model = OnStrokes(WAVELETS, Logistic((6,), 2, key=jax.random.key(0)))
    gradient = jax.grad(lambda network: jnp.sum(jnp.square(network(jnp.asarray(IMAGES / 255, jnp.float32)))))(model)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient.strokes))
    assert np.any(gradient.network.output.weight)


@pytest.mark.parametrize(
    ("images", "size", "said"),
    [
        (np.zeros((5, 10, 12)), 2, "sides of 12, 16"),
        (np.zeros((5, 8, 8)), 2, "sides of 12, 16"),
        (np.zeros((5, 12)), 2, "sides of 12, 16"),
        (np.zeros((5, 12, 12)), 5, "more images"),
        (np.zeros((5, 12, 12)), 0, "more images"),
    ],
)
def test_images_that_have_no_strokes_are_refused(images, size, said):
    with pytest.raises(InvalidInput, match=said):
        strokes(images, size=size)
