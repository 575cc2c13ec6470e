"""What training a generator needs beyond a classifier's: the pair, how it is trained, and the samples it leaves."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax

from blindsight.algorithms import Algorithm
from blindsight.algorithms.bayesian_gan import bayesian_gan
from blindsight.codings.images_and_rows import Images
from blindsight.config import Config
from blindsight.data.population import Population
from blindsight.errors import InvalidInput
from blindsight.jobs.classes import class_names
from blindsight.models.gan import GAN, compact_gan
from blindsight.models.selu_gan import selu_gan
from blindsight.privacy import Privacy
from blindsight.samples import gallery
from blindsight.samples.export import save_set
from blindsight.samples.views import ArmView
from blindsight.studio.labels import FILE as LABELS
from blindsight.training import Trained

__all__ = ["gan_algorithm", "gan_metrics", "make_gan", "save_made"]


def make_gan(config: Config, population: Population) -> GAN:
    """The pair that [gan] describes, for the images of `population`."""
    asked, (field, *others), label = config.gan, config.model.inputs, config.model.label
    fields = population.fields
    for name in (field, *([label] if asked.classes else [])):
        if name not in fields:
            raise InvalidInput(f"[model] names the field {name!r}, but {population.name} has {', '.join(fields)}")
    shape = fields[field][1]
    if others or len(shape) not in (2, 3):
        raise InvalidInput(f"[model] a gan makes images, and {field} has the shape {list(shape)}: name one of images")
    classes = len(class_names(config.model, population))
    if asked.classes and not classes:
        raise InvalidInput(
            f"[gan] classes = true needs classes with names, and {label!r} of {population.name} has none: list them as "
            f"[model] classes, or say false"
        )
    coding = Images(*shape, field=field) if len(shape) == 3 else Images(shape[0], shape[1], field=field)
    about: Any = {"classes": classes if asked.classes else 0, "label": label, "latents": asked.latents}
    about |= {"channels": asked.channels, "key": jax.random.key(config.model.seed)}
    return selu_gan(coding, hidden=asked.hidden, **about) if asked.network == "selu" else compact_gan(coding, **about)


def gan_algorithm(config: Config, gan: GAN, privacy: Privacy) -> Algorithm:
    """The Bayesian GAN as configured: the paper's Adam for both networks unless [server] says otherwise."""
    asked, server = config.gan, config.server
    rate, momentum = server.learning_rate, server.momentum
    if server.optimizer == "adam":
        optimizer = optax.adam(rate)
    else:
        optimizer = optax.sgd(rate, momentum=momentum if server.optimizer == "nesterov" else None)
    return bayesian_gan(
        gan,
        privacy,
        critic_optimizer=optimizer,
        generator_optimizer=optax.adam(asked.generator_learning_rate),
        batch_size=1 if config.privacy.unit == "example" else config.client.batch_size,
        fakes=asked.fakes,
        generator_batch_size=asked.generator_batch_size,
        generator_steps=asked.generator_steps,
        critic_rounds=asked.critic_rounds,
        penalty=asked.penalty,
        weight_clip=asked.weight_clip,
        average=asked.average,
        sampler=config.privacy.sampler,
    )


def gan_metrics() -> dict[str, Any]:
    """By how much the critic prefers real examples of clients that never trained: 0 where it cannot tell."""

    def margin(gan: GAN, batch: Any, key: jax.Array) -> jax.Array:
        labels, weight = gan.labels(batch), batch.weight
        made = gan.sample(len(labels), key=key, labels=labels)
        scores = gan.critic(gan.coding.encode(batch), labels, weight) - gan.critic(made, labels, weight)
        return batch.mean(scores)

    return {"margin": margin}


def save_made(config: Config, trained: Trained, classes: Sequence[str]) -> None:
    """Samples of the generator in the run's folder, under the run's guarantee: `samples`, and a picture of them.

    Samples that people have labelled stay as they are, and so does their guarantee.
    """
    if (trained.path / "samples" / LABELS).exists():
        return
    gan, count = trained.model, config.gan.samples
    made = gan.sample(count, key=jax.random.key(config.model.seed))
    images = gan.coding.decode(made)[gan.coding.field]
    labels = np.arange(count) % gan.classes if gan.classes else None
    names = list(classes) if gan.classes else []
    arm = ArmView(config.name, samples=images, labels=labels)
    title = f"Samples of {config.name}"
    save_set([arm], trained.path / "samples", title=title, guarantee=trained.guarantee, classes=names)
    (trained.path / "samples.png").write_bytes(gallery.png(gallery.grid(images)))
