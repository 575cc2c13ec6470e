"""Laws of the adversarial pairs: their sizes, their loss in closed form, and that what only fills up has no part."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blindsight.backends import Batch
from blindsight.codings.images_and_rows import Category, Images, Number, Rows
from blindsight.errors import InvalidInput
from blindsight.models import layers
from blindsight.models.gan import GAN, compact_gan, critic_loss, generator_loss, paper_gan

KEY = jax.random.key(0)
ROWS = Rows((Number("age", 0, 1),), (Category("job", 3),))
PAIRS: dict[str, Any] = {
    "paper": lambda key: paper_gan(Images(8, 8), key=key),
    "compact": lambda key: compact_gan(Images(8, 8), channels=(4, 6), width=16, latents=5, key=key),
    "compact with classes": lambda key: compact_gan(Images(9, 7, 3), classes=4, channels=(4, 6), width=16, key=key),
    "rows": lambda key: compact_gan(ROWS, hidden=(7, 5), width=16, key=key),
    "rows with classes": lambda key: compact_gan(ROWS, classes=2, hidden=(7,), width=16, key=key),
}


def size(model) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(model))


def randomised(make) -> Any:
    """The pair with every weight random, so that no class looks like another; made without compiling anything."""
    leaves, structure = jax.tree.flatten(jax.eval_shape(make, KEY))
    generator = np.random.default_rng(3)
    values = [generator.normal(size=leaf.shape) / np.sqrt(max(leaf.shape[0], 1)) for leaf in leaves]
    return jax.tree.unflatten(structure, [jnp.asarray(value, jnp.float32) for value in values])


def batch(gan: GAN, count: int = 5, weight: Any = None, seed: int = 1) -> Batch:
    generator = np.random.default_rng(seed)
    if isinstance(gan.coding, Images):
        fields: Any = {"image": generator.integers(0, 256, (count, *gan.coding.shape)).astype(np.uint8)}
    else:
        fields = {"age": generator.uniform(size=count).astype(np.float32), "job": generator.integers(0, 3, count)}
    fields["label"] = generator.integers(0, max(gan.classes, 1), count)
    columns = {field: jnp.asarray(column) for field, column in fields.items()}
    return Batch(columns, jnp.ones(count) if weight is None else jnp.asarray(weight, jnp.float32))


def test_the_papers_pair_has_the_papers_size():
    """Its authors' code: two convolutions, 6272 x 1024 without a bias, a norm's shift, an output."""
    gan = jax.eval_shape(lambda: paper_gan(key=KEY))
    critic = (16 + 1) * 64 + (16 * 64 + 1) * 128 + 6272 * 1024 + 1024 + 1025
    generator = 128 * 1024 + 1024 + (1024 + 1) * 12544 + 16 * 256 * 64 + 64 + 16 * 64 * 32 + 32 + 16 * 32 + 1
    assert (size(gan.critic), size(gan.generator)) == (critic, generator) == (6_556_865, 13_285_217)
    assert gan.latents == 128


def test_the_compact_critic_is_small():
    digits = jax.eval_shape(lambda: compact_gan(Images(28, 28), classes=10, key=KEY))
    colours = jax.eval_shape(lambda: compact_gan(Images(32, 32, 3), classes=62, key=KEY))
    assert size(digits.critic) == 52_593
    assert max(size(digits.critic), size(colours.critic)) <= 200_000


@pytest.mark.parametrize("name", PAIRS)
def test_samples_are_written_as_examples_are_and_the_key_decides(name):
    gan = randomised(PAIRS[name])
    sample = eqx.filter_jit(lambda key: gan.sample(6, key=key))
    first, same, other = sample(KEY), sample(KEY), sample(jax.random.key(1))
    assert first.shape == (6, *gan.coding.shape) == gan.coding.encode(batch(gan, 6)).shape
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)
    assert float(jnp.abs(first).max()) <= 1


@pytest.mark.parametrize("coding", [Images(4, 4), ROWS], ids=["images", "rows"])
def test_a_sample_shows_the_class_that_is_asked_for_and_classes_take_turns(coding):
    gan = randomised(lambda key: compact_gan(coding, classes=3, latents=2, width=16, key=key))
    sample = eqx.filter_jit(lambda labels: gan.sample(4, key=KEY, labels=labels))
    turns, ones = sample(None), sample(jnp.ones(4, jnp.int32))
    np.testing.assert_allclose(turns[1], ones[1], rtol=1e-5, atol=1e-6)
    for other in (0, 2, 3):
        assert not np.allclose(turns[other], ones[other], rtol=1e-3, atol=1e-3)


class Slope(eqx.Module):
    """A critic whose slope is known."""

    weight: jax.Array

    def __call__(self, x, labels, weight):
        return x.reshape(x.shape[0], -1) @ self.weight


class Constant(eqx.Module):
    """A generator that always makes the same."""

    value: jax.Array

    def __call__(self, latents, labels):
        return jnp.broadcast_to(self.value, (latents.shape[0], *self.value.shape))


def test_the_losses_in_closed_form():
    """For f(x) = w x the slope is w everywhere: the loss is f(made) - f(real) + 10 (|w| - 1)^2."""
    weight, made = jnp.array([1.0, -2.0, 2.0, 0.0]), jnp.full((2, 2, 1), 0.25)
    gan = GAN(Constant(made), Slope(weight), Images(2, 2), 3, 0)
    some = batch(gan, 4, weight=[1, 1, 1, 0])
    real = np.asarray(gan.coding.encode(some)).reshape(4, 4)[:3] @ np.asarray(weight)
    expected = 0.25 - real.mean() + 10 * (3 - 1) ** 2
    losses = jax.jit(lambda penalty: critic_loss(gan, gan.critic, some, KEY, penalty))
    assert float(losses(10.0)) == pytest.approx(expected, rel=1e-5)
    assert float(losses(0.0)) == pytest.approx(expected - 40, rel=1e-4)
    assert float(jax.jit(lambda: generator_loss(gan, gan.generator, KEY, 5))()) == pytest.approx(-0.25)


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "compact"])
def test_examples_without_weight_have_no_part(name):
    """Neither in the critic's loss nor in its gradient, nor in what its norms see; whatever they show."""
    gan = randomised(PAIRS[name])
    some = batch(gan, 5, weight=[1, 1, 1, 0, 0])
    changed = {
        field: jnp.concatenate([column[:3], column[3:] if field == "label" else column[:2]])
        for field, column in some.fields.items()
    }
    measure = eqx.filter_jit(
        lambda batch: eqx.filter_value_and_grad(lambda c: critic_loss(gan, c, batch, KEY))(gan.critic)
    )
    (value, gradient), (same, same_gradient) = measure(some), measure(Batch(changed, some.weight))
    assert float(value) == pytest.approx(float(same), rel=1e-5)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(same_gradient), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    nothing = measure(Batch(some.fields, jnp.zeros(5)))[1]
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(nothing))


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "paper"])
def test_the_compact_critic_judges_every_example_on_its_own(name):
    gan = randomised(PAIRS[name])
    x, labels = gan.coding.encode(batch(gan, 6)), batch(gan, 6)["label"].astype(jnp.int32)
    together = eqx.filter_jit(gan.critic)(x, labels, jnp.ones(6))
    alone = eqx.filter_jit(gan.critic)(jnp.repeat(x[4:5], 6, axis=0), jnp.repeat(labels[4:5], 6), jnp.ones(6))
    np.testing.assert_allclose(alone, jnp.full(6, together[4]), rtol=1e-4, atol=1e-5)
    if gan.classes:
        others = eqx.filter_jit(gan.critic)(x, (labels + 1) % gan.classes, jnp.ones(6))
        assert not np.allclose(together, others, atol=1e-3)


def test_the_papers_critic_sees_the_batch_through_its_norm():
    gan = randomised(PAIRS["paper"])
    x, labels = gan.coding.encode(batch(gan, 4)), jnp.zeros(4, jnp.int32)

    @jax.jit
    def before_the_norm(x):
        for convolution in gan.critic.convolutions:
            x = jax.nn.leaky_relu(convolution(x))
        return x.reshape(4, -1) @ gan.critic.dense.weight

    hidden = np.asarray(before_the_norm(x), np.float64)
    normed = (hidden - hidden.mean(axis=0)) / np.sqrt(hidden.var(axis=0) + 1e-3) + np.asarray(gan.critic.dense.bias)
    expected = np.where(normed > 0, normed, 0.01 * normed) @ np.asarray(gan.critic.output.weight)
    found = eqx.filter_jit(gan.critic)(x, labels, jnp.ones(4))
    np.testing.assert_allclose(found, expected[:, 0] + np.asarray(gan.critic.output.bias), rtol=1e-2, atol=1e-2)


def test_the_penalty_is_differentiated_through_convolutions_of_large_batches_too():
    """On a CPU those go image by image with a gradient written by hand, which the penalty differentiates once more."""
    convolution = layers.Conv(1, 2, 3, key=KEY)
    x = jax.random.normal(KEY, (256, 16, 16, 1))

    @jax.jit
    def gradient(convolution, x):
        def penalty(convolution):
            slopes = jax.grad(lambda x: jnp.sum(jnp.tanh(convolution(x))))(x)
            return jnp.sum(jnp.square(jnp.sqrt(jnp.sum(jnp.square(slopes), axis=(1, 2, 3))) - 1))

        return jax.grad(penalty)(convolution)

    whole = gradient(convolution, x)
    parts = [gradient(convolution, part) for part in jnp.split(x, 8)]
    for name in ("weight", "bias"):
        expected = sum(np.asarray(getattr(part, name), np.float64) for part in parts)
        assert np.any(expected)
        np.testing.assert_allclose(getattr(whole, name), expected, rtol=1e-3, atol=1e-3)


def test_shapes_that_the_networks_cannot_have_are_refused():
    with pytest.raises(InvalidInput, match="compact_gan"):
        paper_gan(Images(28, 30), key=KEY)
    with pytest.raises(InvalidInput, match="width"):
        compact_gan(ROWS, width=6, key=KEY)
