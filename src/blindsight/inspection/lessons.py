"""Models trained on clients as part of a question: one noise multiplier for all, within the remaining cost."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from blindsight import runs
from blindsight.accounting.accountants import epsilon as epsilon_of
from blindsight.accounting.composition import Split
from blindsight.accounting.events import Composed, Event
from blindsight.accounting.ledger import Ledger, Payers, names_of
from blindsight.accounting.planning import solve_noise
from blindsight.algorithms import Algorithm
from blindsight.backends import Backend
from blindsight.data.population import Population
from blindsight.errors import BudgetExceeded
from blindsight.inspection.question import Question
from blindsight.keys import Key
from blindsight.mechanisms import gaussian
from blindsight.mechanisms.release import marked
from blindsight.privacy import Privacy
from blindsight.runs import Run
from blindsight.samples.clarity import training_signal
from blindsight.training import Checkpointing, RunTerms
from blindsight.training import train as train_model

__all__ = ["Lesson", "together", "train"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Lesson:
    """One model to train on `clients`: `algorithm` builds it from its privacy, which comes without noise.

    `name` appears in reports and messages, `folder` is its place in the run, `weights` the number of values it releases
    each round, and `settings` what a resumed run must match. `payers` are the clients in the ledger.
    """

    name: str
    folder: str
    clients: Population
    privacy: Privacy
    algorithm: Callable[[Privacy], Algorithm]
    weights: int
    settings: Mapping[str, Any]
    payers: Payers
    arm: str = ""

    def cost(self, noise_multiplier: float, key: Key) -> Event:
        """The cost of its training."""
        one = marked(gaussian(noise_multiplier).planned_event, key)
        return self.privacy.sampling.event(one, self.privacy.rounds)

    def signal_to_noise(self, noise_multiplier: float) -> float:
        """An upper bound on the signal-to-noise ratio of its training."""
        return training_signal(
            noise_multiplier, weights=self.weights, cohort=self.privacy.cohort, rounds=self.privacy.rounds
        )


class Asking(Protocol):
    """The parts of an inquiry that training reads."""

    question: Question
    run: Run
    ledger: Ledger
    backend: Callable[[Population], Backend]
    spent: list[Event]


def train(
    asking: Asking, planned: Sequence[Lesson], key: Key, progress: Callable[[int, int], None], split: Split | None
) -> tuple[list[Event], list[Any], float]:
    """The cost of training each lesson, the models, and their noise multiplier.

    **Guarantee**: what the inquiry has spent and these costs together (in a `split`, the most expensive lesson) stay
    within the question's (epsilon, delta). Rounds are in the ledger before they begin.
    """
    noise = _noise(asking, planned, key, split)
    models = list[Any]()
    for number, lesson in enumerate(planned):
        progress(number, len(planned))
        privacy = dataclasses.replace(lesson.privacy, noise_multiplier=noise)
        trained = train_model(
            lesson.algorithm(privacy),
            asking.backend(lesson.clients),
            privacy,
            population=lesson.payers,
            delta=asking.question.delta,
            key=key.derive("lesson", number),
            run=runs.begin(asking.run.path / lesson.folder, "model", dict(lesson.settings)),
            ledger=asking.ledger,
            checkpointing=Checkpointing(every_rounds=max(1, privacy.rounds // 5)),
            # the initial model or the choice of clients may depend on earlier releases
            terms=RunTerms(split=split, arm=lesson.arm, before=tuple(asking.spent)),
        )
        if trained.rounds < privacy.rounds:
            raise BudgetExceeded(
                f"the budget of {' and '.join(names_of(lesson.payers))!r} ran out after {trained.rounds} of "
                f"{privacy.rounds} rounds of training ({lesson.name}): raise it with blindsight ledger budget set and "
                f"run the same command again"
            )
        models.append(trained.model)
    progress(len(planned), len(planned))
    return [lesson.cost(noise, key) for lesson in planned], models, noise


def _noise(asking: Asking, planned: Sequence[Lesson], key: Key, split: Split | None) -> float:
    """The least noise at which everything spent and all lessons stay within (epsilon, delta)."""
    question = asking.question

    def event(noise: float) -> Event:
        costs = [lesson.cost(noise, key) for lesson in planned]
        return Composed((*asking.spent, *(together(costs, asking.spent, question.delta) if split else costs)))

    return solve_noise(event, epsilon=question.epsilon, delta=question.delta)


def together(costs: Sequence[Event], spent: Sequence[Event], delta: float) -> list[Event]:
    """The cost of lessons on disjoint clients: that of the most expensive one."""
    different = list(dict.fromkeys(costs))
    if len(different) == 1:
        return different
    return [max(different, key=lambda cost: epsilon_of(Composed((*spent, cost)), delta).epsilon)]
