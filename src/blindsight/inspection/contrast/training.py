"""Samples of arms from generators that are trained on clients, arm by arm, as the papers do it (DP-FedAvg-GAN).

Arms that share no client are trained one after the other at the price of one: a client's data enter one generator. With
`zero_fill` every arm's cohorts are drawn from all clients, and those outside the arm contribute zeros; with `eligible`
they are drawn among the arm's own.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from blindsight import runs, trees
from blindsight.accounting.accountants import epsilon as epsilon_of
from blindsight.accounting.composition import Split
from blindsight.accounting.events import Composed, Event
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.planning import solve_noise
from blindsight.algorithms import Algorithm
from blindsight.algorithms.dp_fedavg_gan import dp_fedavg_gan
from blindsight.backends import Backend
from blindsight.codings.images_and_rows import coding_of
from blindsight.data.population import Population
from blindsight.errors import BudgetExceeded, PrivacyError
from blindsight.inspection.contrast.asking import Asked, Training
from blindsight.keys import Key
from blindsight.mechanisms import gaussian
from blindsight.mechanisms.release import marked
from blindsight.models.gan import GAN, compact_gan
from blindsight.privacy import Privacy
from blindsight.runs import Run
from blindsight.selection import Arms
from blindsight.training import train

__all__ = ["train_arms"]

Columns = Mapping[str, np.ndarray]
_SPLIT = "split.json"


def train_arms(
    asked: Asked,
    training: Training,
    arms: Arms,
    spent: Sequence[Event],
    *,
    per_class: int,
    run: Run,
    backend: Callable[[Population], Backend],
    key: Key,
    ledger: Ledger,
    population: str,
    model: str,
    progress: Callable[[int, int], None],
) -> tuple[list[Columns], np.ndarray | None, list[Event]]:
    """Examples of every arm from the same latents, their labels, and what training cost on top of `spent`.

    **Guarantee**: `spent` and what is returned together stay within the (epsilon, delta) that was asked for. Rounds are
    in the ledger before they begin, and a run that stopped goes on. `model` is the digest of the primary model, which
    says who is in which arm.
    """
    pair = _pair(asked)
    crowds = [
        asked.clients if asked.forming == "zero_fill" else Arms({name: arms.alone(name)}).eligible(asked.clients)
        for name in arms
    ]
    noise = _noise(asked, training, arms, crowds, spent, trees.size(pair.critic), key)
    split = _split(asked, arms, run, model) if arms.disjoint_by_client and len(arms) > 1 else None
    made, costs = list[Columns](), list[Event]()
    labels = np.repeat(np.arange(max(pair.classes, 1), dtype=np.int32), per_class)
    for number, (name, crowd) in enumerate(zip(arms, crowds, strict=True)):
        progress(number, len(arms))
        privacy = dataclasses.replace(_privacy(training, crowd.size), noise_multiplier=noise)
        algorithm = _algorithm(pair, privacy, training, arms.alone(name))
        trained = train(
            algorithm,
            backend(crowd),
            privacy,
            population=population,
            delta=asked.delta,
            key=key.derive("arm", number),
            run=runs.begin(run.path / "arms" / f"{number}", "arm", {"arm": name, **dataclasses.asdict(training)}),
            ledger=ledger,
            checkpoint_every=max(1, training.rounds // 5),
            split=split,
            arm=name if split else "",
        )
        if trained.rounds < training.rounds:
            raise BudgetExceeded(
                f"the budget of {population!r} ended after {trained.rounds} of {training.rounds} rounds of training "
                f"{name!r}: raise it with blindsight ledger budget set, and run again to go on"
            )
        costs.append(privacy.sampling.event(marked(algorithm.event, key), training.rounds))
        examples = trained.model.sample(len(labels), key=jax.random.key(0), labels=jnp.asarray(labels))
        made.append(pair.coding.decode(np.asarray(examples)))
    progress(len(arms), len(arms))
    return made, labels if pair.classes else None, _together(costs, spent, arms, asked.delta)


def _split(asked: Asked, arms: Arms, run: Run, model: str) -> Split:
    """The split that arms of this run are paid for in parallel under, which no other run has.

    Parallel composition needs that a client is in one arm of *this* division. A model that cannot be told from another
    by a digest may have been exchanged since an earlier arm was trained, so the run keeps a digest of all that decides
    its arms, and goes on with the same arms only. It is read off the clients' data, and stays in the run's folder.
    """
    read = {field: asked.clients.columns[field] for field in arms.fields}
    begun = {"arms": arms.exact, "simulation_only": {"members": asked.clients.replace(read).fingerprint}}
    if (run.path / _SPLIT).exists() and run.read(_SPLIT) != begun:
        raise PrivacyError(
            f"the arms of {run.path} hold other clients than those that training began with, and cannot be paid for in "
            f"parallel: use the model and the data that it began with, or another folder"
        )
    run.write(_SPLIT, begun)
    of_model = f"model {model}" if model else "a model that is known to this run alone"
    identity = f"run {run.path.name} {run.read('run.json')['id']}; {of_model}; {arms.exact}"
    return Split("inspection", arms.rule, tuple(arms), identity)


def _pair(asked: Asked) -> GAN:
    fields = {
        field: asked.clients.columns[field] for field in (*asked.fields, asked.label) if field in asked.clients.fields
    }
    coding = coding_of(asked.clients.replace(fields), label=asked.label, ranges=asked.ranges)
    classes = len(asked.classes or ())
    return compact_gan(coding, classes=classes, label=asked.label, latents=32, width=32, key=jax.random.key(0))


def _privacy(training: Training, clients: int) -> Privacy:
    cohort = min(training.cohort, clients)
    return Privacy(population=clients, cohort=cohort, rounds=training.rounds, clip=training.clip)


def _noise(
    asked: Asked,
    training: Training,
    arms: Arms,
    crowds: Sequence[Population],
    spent: Sequence[Event],
    size: int,
    key: Key,
) -> float:
    """The least noise at which training every arm, after what is spent, keeps the promise."""

    def event(noise: float) -> Event:
        one = marked(gaussian(noise).event_for(size), key)
        costs = [_privacy(training, crowd.size).sampling.event(one, training.rounds) for crowd in crowds]
        return Composed((*spent, *_together(costs, spent, arms, asked.delta)))

    return solve_noise(event, epsilon=asked.epsilon, delta=asked.delta)


def _together(costs: Sequence[Event], spent: Sequence[Event], arms: Arms, delta: float) -> list[Event]:
    """What training all arms costs: the dearest one where a client is in one arm only, else every one."""
    different = list(dict.fromkeys(costs))
    if not arms.disjoint_by_client:
        return list(costs)
    if len(different) == 1:
        return different
    return [max(different, key=lambda cost: epsilon_of(Composed((*spent, cost)), delta).epsilon)]


@functools.cache
def _adam(rate: float) -> optax.GradientTransformation:
    return optax.adam(rate, b1=0.5, b2=0.9)


def _algorithm(pair: GAN, privacy: Privacy, training: Training, criterion: Any) -> Algorithm:
    return dp_fedavg_gan(
        pair,
        privacy,
        critic_rate=training.critic_rate,
        critic_optimizer=optax.sgd(1.0),
        generator_optimizer=_adam(training.generator_rate),
        batch_size=training.batch_size,
        critic_steps=training.critic_steps,
        generator_steps=training.generator_steps,
        generator_batch_size=64,
        average=0.98,
        criterion=criterion,
    )
