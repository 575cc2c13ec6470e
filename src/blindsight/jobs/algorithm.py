"""How a run trains: its privacy settings, its algorithm and its loss, from the configuration."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import optax

from blindsight.accounting.events import Event, Unit
from blindsight.algorithms import AdaptiveClip, Algorithm, dp_fedavg
from blindsight.config import Config
from blindsight.errors import InvalidInput
from blindsight.jobs.gan import gan_algorithm
from blindsight.jobs.optimizer import make_server_optimizer
from blindsight.mechanisms import gaussian
from blindsight.mechanisms.noise import Sampler
from blindsight.models.cifg_lstm import next_token_loss
from blindsight.models.classifiers import cross_entropy
from blindsight.privacy import Privacy

__all__ = ["given_privacy", "make_algorithm", "make_loss", "make_privacy"]


def make_privacy(
    config: Config, population: int, *, before: Sequence[Event] = (), sampler: Sampler | None = None
) -> Privacy:
    """The run's privacy settings, with noise solved for its epsilon minus the cost of releases made `before`.

    `sampler` draws the noise in place of the configured one.
    """
    settings, privacy = config.privacy, given_privacy(config, population)
    if settings.epsilon is None or settings.delta is None:
        return privacy

    def release(noise_multiplier: float) -> Event:
        return gaussian(noise_multiplier, sampler=sampler or settings.sampler).planned_event

    return privacy.calibrate(epsilon=settings.epsilon, delta=settings.delta, release=release, before=before)


def given_privacy(config: Config, population: int) -> Privacy:
    """The run's privacy settings as given: if they state an epsilon, the noise is not solved for yet."""
    settings = config.privacy
    limit, unit, clip, noise = (
        settings.max_participations,
        Unit(settings.unit),
        settings.clip,
        settings.noise_multiplier,
    )
    try:
        privacy = Privacy.none(
            population=population, cohort=settings.cohort, rounds=settings.rounds, participation=settings.participation
        )
        privacy = dataclasses.replace(privacy, max_participations=limit, unit=unit)
        return privacy if settings.none else dataclasses.replace(privacy, noise_multiplier=noise, clip=clip)
    except InvalidInput as error:
        raise InvalidInput(f"[privacy] {error}") from None


def make_algorithm(config: Config, model: Any, privacy: Privacy, *, sampler: Sampler | None = None) -> Algorithm:
    """DP-FedAvg as configured, or the Bayesian GAN; `sampler` draws the noise in place of the configured one."""
    sampler = sampler or config.privacy.sampler
    if config.model.kind == "gan":
        return gan_algorithm(config, model, privacy, sampler=sampler)
    quantile = config.privacy.adaptive_clip
    return dp_fedavg(
        model,
        make_loss(config),
        privacy,
        client_optimizer=optax.sgd(config.client.learning_rate),
        server_optimizer=make_server_optimizer(config.server),
        batch_size=config.client.batch_size,
        epochs=config.client.epochs,
        adaptive_clip=None if quantile is None else AdaptiveClip(quantile),
        sampler=sampler,
        compute_dtype=jax.numpy.dtype(config.client.precision),
    )


def make_loss(config: Config) -> Any:
    """The loss that clients minimise; audits score planted clients with it too."""
    return next_token_loss() if config.model.is_language else cross_entropy(config.model.inputs, config.model.label)
