"""The adversarial pair of Triastcyn and Faltings 2022, *Generating Higher-Fidelity Synthetic Datasets with Privacy
Guarantees* (Algorithms 15:232, Section 2.5).

The critic has three convolutions, a dense layer and a linear one, with SELU in between; the generator has a dense layer
to 4,096 features, three deconvolutions, max pooling and tanh. The paper gives no other sizes, so these are small ones
that fit: 8 x 8 with 64 channels, which three deconvolutions of stride 2 turn into 64 x 64 and pooling into 32 x 32; the
image is its centre. Noise grows with the critic's size, not with the generator's. Both can be conditioned on the class.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp

from blindsight.codings.images_and_rows import Images
from blindsight.errors import InvalidInput
from blindsight.models.gan import GAN, class_score, with_class
from blindsight.models.layers import Conv, ConvTranspose, Dense, max_pool

__all__ = ["SeluGenerator", "selu_gan"]

_LARGEST_IMAGE = 32  # after pooling


def selu_gan(
    coding: Images | None = None,
    *,
    classes: int = 0,
    label: str = "label",
    latents: int = 64,
    channels: tuple[int, int, int] = (16, 32, 64),
    hidden: int = 64,
    key: jax.Array,
) -> GAN:
    """The pair of Triastcyn and Faltings, for images of at most 32 x 32.

    Args:
        coding: Encoding of the images; 28 x 28 grey by default.
        classes: Number of classes to condition on; 0 for none.
        label: Field holding the class.
        latents: Dimension of the latents.
        channels: Channels of the critic's three convolutions.
        hidden: Hidden units of the critic.
        key: Key of the initial weights.
    """
    coding = coding or Images(28, 28)
    if max(coding.height, coding.width) > _LARGEST_IMAGE or len(channels) != 3:
        raise InvalidInput(
            f"selu_gan has three convolutions and generates images of at most 32 x 32, not {len(channels)} and "
            f"{coding.height} x {coding.width}: use compact_gan"
        )
    generator_key, critic_key = jax.random.split(key)
    critic = _SeluCritic(coding, classes, channels, hidden, key=critic_key)
    return GAN(SeluGenerator(coding, classes, latents, key=generator_key), critic, coding, latents, classes, label)


class SeluGenerator(eqx.Module):
    """Latents and class to 8 x 8 x 64, to 64 x 64, pooled to 32 x 32 and cropped to its centre.

    The third deconvolution has no SELU before pooling and tanh: it would prevent pure black.
    """

    dense: Dense
    grow: list[ConvTranspose]
    coding: Images = eqx.field(static=True)
    classes: int = eqx.field(static=True)

    def __init__(self, coding: Images, classes: int, latents: int, *, key: jax.Array) -> None:
        keys = jax.random.split(key, 4)
        self.dense = Dense(latents + classes, 4096, key=keys[0])
        sizes = itertools.pairwise((64, 32, 16, coding.channels))
        self.grow = [ConvTranspose(a, b, 4, key=k) for (a, b), k in zip(sizes, keys[1:], strict=True)]
        self.coding, self.classes = coding, classes

    def __call__(self, latents: jax.Array, labels: jax.Array) -> jax.Array:
        x = jax.nn.selu(self.dense(with_class(latents, labels, self.classes))).reshape(-1, 8, 8, 64)
        for layer in self.grow[:-1]:
            x = jax.nn.selu(layer(x))
        x = max_pool(self.grow[-1](x))
        top, left = (_LARGEST_IMAGE - self.coding.height) // 2, (_LARGEST_IMAGE - self.coding.width) // 2
        return self.coding.activate(x[:, top : top + self.coding.height, left : left + self.coding.width])


class _SeluCritic(eqx.Module):
    convolutions: list[Conv]
    dense: Dense
    output: Dense
    by_class: jax.Array  # (classes, hidden)

    def __init__(
        self, coding: Images, classes: int, channels: tuple[int, int, int], hidden: int, *, key: jax.Array
    ) -> None:
        keys = jax.random.split(key, 5)
        sizes = itertools.pairwise((coding.channels, *channels))
        self.convolutions = [Conv(a, b, 5, stride=2, key=k) for (a, b), k in zip(sizes, keys[2:], strict=True)]
        left = -(-coding.height // 8) * -(-coding.width // 8)
        self.dense, self.output = Dense(left * channels[-1], hidden, key=keys[0]), Dense(hidden, 1, key=keys[1])
        self.by_class = jnp.zeros((classes, hidden))

    def __call__(self, x: jax.Array, labels: jax.Array, weight: jax.Array) -> jax.Array:
        for convolution in self.convolutions:
            x = jax.nn.selu(convolution(x))
        return class_score(self, jax.nn.selu(self.dense(x.reshape(x.shape[0], -1))), labels)
