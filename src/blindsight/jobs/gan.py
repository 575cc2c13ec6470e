"""What training a GAN needs beyond a classifier's run: the pair of networks, the algorithm, and samples at the end."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax

from blindsight import trees
from blindsight.algorithms import Algorithm
from blindsight.algorithms.bayesian_gan import bayesian_gan
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.codings.images_and_rows import Images
from blindsight.config import Config
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.jobs.classes import class_names, need_field
from blindsight.jobs.optimizer import make_server_optimizer
from blindsight.mechanisms.noise import Sampler
from blindsight.models.gan import GAN, compact_gan
from blindsight.models.selu_gan import selu_gan
from blindsight.privacy import Privacy
from blindsight.samples import gallery
from blindsight.samples.clarity import training_signal
from blindsight.samples.export import save_set
from blindsight.samples.synthetic_set import LABELS
from blindsight.samples.views import ArmView
from blindsight.training import Trained

__all__ = ["gan_algorithm", "gan_metrics", "make_gan", "save_samples"]


def make_gan(config: Config, population: Population) -> GAN:
    """The pair that [gan] describes, for the images of `population`."""
    settings, (field, *others), label = config.gan, config.model.inputs, config.model.label
    for name in (field, *([label] if settings.classes else [])):
        need_field(population, name)
    shape = population.fields[field][1]
    if others or len(shape) not in (2, 3):
        raise InvalidInput(
            f"[model] a gan makes images, and {field} has shape {list(shape)}: set inputs to one image field"
        )
    classes = len(class_names(config.model, population)) if settings.classes else 0
    if settings.classes and not classes:
        raise InvalidInput(
            f"[gan] classes = true needs named classes, and {label!r} of {population.name} has none: list them as "
            f"[model] classes, or set it to false"
        )
    coding = Images(*shape, field=field) if len(shape) == 3 else Images(shape[0], shape[1], field=field)
    key, latents = jax.random.key(config.model.seed), settings.latents
    if settings.network == "compact":
        return compact_gan(coding, classes=classes, label=label, latents=latents, channels=settings.channels, key=key)
    channels: Any = settings.channels  # of which it takes three, and refuses others
    hidden = settings.hidden
    return selu_gan(coding, classes=classes, label=label, latents=latents, channels=channels, hidden=hidden, key=key)


def gan_algorithm(config: Config, gan: GAN, privacy: Privacy, *, sampler: Sampler) -> Algorithm:
    """The Bayesian GAN as configured: [server] trains the critic, Adam the generator."""
    settings = config.gan
    return bayesian_gan(
        gan,
        privacy,
        critic_optimizer=make_server_optimizer(config.server, adam_eps=1e-8),  # as in the paper
        generator=GeneratorSteps(
            optimizer=optax.adam(settings.generator_learning_rate),
            batch_size=settings.generator_batch_size,
            steps=settings.generator_steps,
            critic_rounds=settings.critic_rounds,
            average=settings.average,
        ),
        batch_size=1 if config.privacy.unit == "example" else config.client.batch_size,
        fakes=settings.fakes,
        penalty=settings.penalty,
        weight_clip=settings.weight_clip,
        sampler=sampler,
    )


def gan_metrics() -> dict[str, Any]:
    """How much higher the critic scores held-out examples than synthetic ones: 0 if it cannot tell them apart."""

    def margin(gan: GAN, batch: Any, key: jax.Array) -> jax.Array:
        labels, weight = gan.labels(batch), batch.weight
        synthetic = gan.sample(len(labels), key=key, labels=labels)
        scores = gan.critic(gan.coding.encode(batch), labels, weight) - gan.critic(synthetic, labels, weight)
        return batch.mean(scores)

    return {"margin": margin}


def save_samples(config: Config, trained: Trained, classes: Sequence[str], *, noise_multiplier: float = 0.0) -> None:
    """Save samples of the generator in the run's folder, under the run's guarantee: `samples/` and `samples.png`.

    Samples that people have labelled are not replaced, and neither is their guarantee.
    """
    if (trained.path / "samples" / LABELS).exists():
        return
    gan, count = trained.model, config.gan.samples
    images = gan.coding.decode(gan.sample(count, key=jax.random.key(config.model.seed)))[gan.coding.field]
    labels = np.arange(count) % gan.classes if gan.classes else None
    names = list(classes) if gan.classes else []
    signal = training_signal(
        noise_multiplier, weights=trees.size(gan.critic), cohort=config.privacy.cohort, rounds=trained.rounds
    )
    arm = ArmView(config.name, samples=images, labels=labels, signal_to_noise=signal)
    title = f"Samples of {config.name}"
    save_set([arm], trained.path / "samples", title=title, guarantee=trained.guarantee, classes=names)
    (trained.path / "samples.png").write_bytes(gallery.png(gallery.grid(images)))
