"""Laws of the pair of Triastcyn and Faltings: its layers, its shapes, and the two halves of a critic's loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.backends import Batch
from blindsight.codings.images_and_rows import Images, Number, Rows
from blindsight.errors import InvalidInput
from blindsight.models.gan import compact_gan, critic_loss, fake_loss, real_loss
from blindsight.models.selu_gan import selu_gan

KEY = jax.random.key(0)


def size(model) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(model))


def test_the_layers_are_those_of_the_paper():
    gan = jax.eval_shape(lambda: selu_gan(classes=10, key=KEY))
    assert gan.generator.dense.weight.shape == (64 + 10, 4096)
    assert (len(gan.generator.grow), len(gan.critic.convolutions)) == (3, 3)
    critic = 26 * 16 - 16 + 16 + (25 * 16 + 1) * 32 + (25 * 32 + 1) * 64 + (4 * 4 * 64 + 1) * 64 + 65 + 10 * 64
    assert size(gan.critic) == critic == 130_817


@pytest.mark.parametrize("coding", [Images(28, 28), Images(32, 32, 3), Images(8, 11)])
@pytest.mark.parametrize("classes", [0, 4])
def test_made_images_have_the_shape_of_real_ones_and_each_gets_one_score(coding, classes):
    def made_and_scores():
        gan = selu_gan(coding, classes=classes, channels=(2, 3, 4), hidden=5, latents=3, key=KEY)
        made = gan.sample(6, key=KEY)
        return made, gan.critic(made, jnp.zeros(6, jnp.int32), jnp.ones(6))

    made, scores = jax.eval_shape(made_and_scores)
    assert (made.shape, scores.shape) == ((6, *coding.shape), (6,))


@pytest.mark.slow
def test_an_image_lies_in_the_middle_of_what_is_made():
    """A smaller coding shows the middle of the same 32 x 32 pixels, brightest of four each, between -1 and 1."""
    sizes = (32, 28)
    large, small = (np.asarray(selu_gan(Images(n, n), latents=2, key=KEY).sample(1, key=KEY))[0] for n in sizes)
    np.testing.assert_allclose(small, large[2:30, 2:30], rtol=1e-5)
    assert np.abs(large).max() <= 1


def test_images_that_are_too_large_are_refused():
    with pytest.raises(InvalidInput, match="at most 32 x 32"):
        selu_gan(Images(33, 28), key=KEY)


@pytest.mark.parametrize("penalty", [pytest.param(0.0, marks=pytest.mark.slow), 10.0])
def test_the_two_halves_of_a_critics_loss_are_the_whole(penalty):
    """With the same dice: the loss less its real half is the mean score of made examples, and the penalty is real."""
    rows = Rows((Number("x", -1, 1), Number("y", -1, 1)))
    gan = compact_gan(rows, latents=3, hidden=(5,), width=16, key=KEY)
    x, y = np.random.default_rng(0).uniform(-1, 1, (2, 4)).astype(np.float32)
    batch = Batch({"x": jnp.asarray(x), "y": jnp.asarray(y)}, jnp.ones(4))
    whole, real = (float(loss(gan, gan.critic, batch, KEY, penalty)) for loss in (critic_loss, real_loss))
    latents = jax.random.normal(jax.random.split(KEY)[0], (4, 3))
    labels = jnp.zeros(4, jnp.int32)
    made = float(jnp.mean(gan.critic(gan.generator(latents, labels), labels, jnp.ones(4))))
    assert whole - real == pytest.approx(made, abs=1e-5)
    assert float(fake_loss(gan, gan.critic, KEY, 4)) == pytest.approx(made, abs=1e-5)
