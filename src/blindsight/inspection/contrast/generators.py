"""Samples of arms from GANs trained on the clients of each arm (DP-FedAvg-GAN).

Arms that share no client cost together as much as one: a client's data enter one generator. With `zero_fill` every
arm's cohorts are drawn from all clients, and clients outside the arm contribute zeros; with `eligible` they are drawn
from the arm's own clients.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from blindsight import trees
from blindsight.accounting.composition import Split
from blindsight.algorithms import Algorithm
from blindsight.algorithms.dp_fedavg_gan import dp_fedavg_gan
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.codings.images_and_rows import coding_of
from blindsight.data.population import Population
from blindsight.errors import PrivacyError
from blindsight.inspection.answering import Round
from blindsight.inspection.contrast.question import Comparing, Training
from blindsight.inspection.kept_settings import sealed
from blindsight.inspection.lessons import Lesson
from blindsight.inspection.session import Inquiry
from blindsight.models.gan import GAN, compact_gan
from blindsight.privacy import Privacy
from blindsight.selection import Arms, Criterion

__all__ = ["train_generators"]

_SPLIT = "split.json"


def train_generators(
    question: Comparing, training: Training, inquiry: Inquiry, one: Round
) -> tuple[Sequence[Mapping[str, np.ndarray]], np.ndarray | None, list[float]]:
    """Examples of every arm, from the same latents by a generator trained on its clients; their labels; its signal."""
    clients, arms = inquiry.observed(one), one.arms
    pair = _pair(question, clients)
    planned = [_lesson(question, training, inquiry, pair, clients, arms, number) for number in range(len(arms))]
    split = _split(inquiry, clients, arms) if arms.disjoint_by_client and len(arms) > 1 else None
    if split is None:
        planned = [dataclasses.replace(lesson, arm="") for lesson in planned]
    models = inquiry.train(planned, "training generators", split=split)
    labels = np.repeat(np.arange(max(pair.classes, 1), dtype=np.int32), question.samples_of(max(pair.classes, 1)))
    drawn = [model.sample(len(labels), key=jax.random.key(0), labels=jnp.asarray(labels)) for model in models]
    shown = [pair.coding.decode(np.asarray(examples)) for examples in drawn]
    signals = [lesson.signal_to_noise(inquiry.training_noise) for lesson in planned]
    return shown, labels if pair.classes else None, signals


def _lesson(
    question: Comparing,
    training: Training,
    inquiry: Inquiry,
    pair: GAN,
    clients: Population,
    arms: Arms,
    number: int,
) -> Lesson:
    name = list(arms)[number]
    crowd = clients if question.forming == "zero_fill" else Arms({name: arms.alone(name)}).eligible(clients)
    cohort = min(training.cohort, crowd.size)
    return Lesson(
        name=f"generator of {name}",
        folder=f"arms/{number}",
        clients=crowd,
        privacy=Privacy(population=crowd.size, cohort=cohort, rounds=training.rounds, clip=training.clip),
        algorithm=functools.partial(_algorithm, pair, training, arms.alone(name)),
        weights=trees.size(pair.critic),
        settings={"arm": name, **dataclasses.asdict(training)},
        payers=inquiry.payers,
        arm=name,
    )


def _split(inquiry: Inquiry, clients: Population, arms: Arms) -> Split:
    """The split under which this run's arms are paid for in parallel; no other run shares it.

    Parallel composition needs every client to be in one arm of *this* division. A model without a digest may have been
    replaced since an earlier arm was trained. So the run stores a digest of everything that decides its arms, and
    continues only with the same arms. The digest is computed from clients' data, and sealed like that of all data.
    """
    run, model = inquiry.run, inquiry.public.model
    read = {field: clients.columns[field] for field in arms.fields}
    members = clients.replace(read)
    begun, unsealed = (
        {"arms": arms.exact, "simulation_only": {"members": digest}}
        for digest in (sealed(members, inquiry.ledger), members.fingerprint)
    )
    if (run.path / _SPLIT).exists() and run.read(_SPLIT) not in (begun, unsealed):  # older runs did not seal it
        raise PrivacyError(
            f"the arms of {run.path} hold different clients than when training began, and cannot be paid for in "
            f"parallel: use the original model and data, or another folder"
        )
    run.write(_SPLIT, begun)
    of_model = f"model {model.digest}" if model is not None and model.digest else "a model known to this run alone"
    return Split("inspection", arms.rule, tuple(arms), f"run {inquiry.run_id}; {of_model}; {arms.exact}")


def _pair(question: Comparing, clients: Population) -> GAN:
    label = question.schema.label
    read = {field: clients.columns[field] for field in (*question.inputs, label) if field in clients.fields}
    coding = coding_of(clients.replace(read), label=label, ranges=question.ranges)
    classes = len(clients.classes.get(label, ())) if label in clients.fields else 0
    return compact_gan(coding, classes=classes, label=label, latents=32, width=32, key=jax.random.key(0))


@functools.cache
def _adam(rate: float) -> optax.GradientTransformation:
    return optax.adam(rate, b1=0.5, b2=0.9)


def _algorithm(pair: GAN, training: Training, criterion: Criterion, privacy: Privacy) -> Algorithm:
    return dp_fedavg_gan(
        pair,
        privacy,
        critic_rate=training.critic_rate,
        critic_optimizer=optax.sgd(1.0),
        generator=GeneratorSteps(
            optimizer=_adam(training.generator_rate), batch_size=64, steps=training.generator_steps, average=0.98
        ),
        batch_size=training.batch_size,
        critic_steps=training.critic_steps,
        criterion=criterion,
    )
