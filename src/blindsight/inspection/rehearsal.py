"""Ask before paying: what a question would release, cost and find, and what the ledger would say afterwards.

All of it follows from the question, public data and the ledger. No client is read, so a refusal here tells nothing
about clients: it depends on their number, which is public, on epsilon and on the reference.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from blindsight.accounting.events import Event, Thresholded
from blindsight.accounting.guarantee import certify, round_up
from blindsight.accounting.ledger import Ledger, Payers, names_of
from blindsight.accounting.planning import solve_noise
from blindsight.accounting.so_far import spent_afterwards
from blindsight.errors import InvalidInput
from blindsight.inspection.question import Question, ReleasePlan
from blindsight.inspection.report import Report
from blindsight.inspection.sections.detection import Detection
from blindsight.mechanisms import gaussian
from blindsight.mechanisms.gaussian_mechanism import joint
from blindsight.samples.views import ArmView
from blindsight.wording import counted

__all__ = ["Sight", "refuse_blind", "rehearse"]


class Sight(Protocol):
    """What a question could find, from public data alone."""

    def blind(self) -> str:
        """Why nothing could be found; empty if something could, or if public data cannot tell."""
        ...

    def detection(self) -> Detection | None:
        """On how many clients every fault would be found; None if public data cannot tell."""
        ...

    def notes(self) -> Sequence[str]:
        """What else could be found."""
        ...


def refuse_blind(question: Question, plan: ReleasePlan, sight: Sight | None) -> None:
    """Refuse a question that can find nothing: its answer would cost epsilon and say nothing."""
    why = _hopeless(question, plan) or ("" if sight is None else sight.blind())
    if why:
        raise InvalidInput(
            f"{counted(question.clients, 'client')} at epsilon {question.epsilon:g} cannot give an answer: {why}. Ask "
            f"more clients, raise epsilon, or ask anyway with --even-if-blind (in Python, Session(even_if_blind=True))"
        )


def _hopeless(question: Question, plan: ReleasePlan) -> str:
    if question.clients >= plan.least:
        return ""
    return f"the noise hides fewer than {plan.least:,.0f} clients, whatever their data"


def rehearse(question: Question, plan: ReleasePlan, sight: Sight | None, ledger: Ledger, payers: Payers) -> Report:
    """What the question would release, cost and find: computed without a client, and recorded nowhere."""
    events = {part.name: plan.mechanisms[part.name].planned_event for part in plan.parts}
    event: Event = joint(*events.values())
    event = Thresholded(plan.chance, event) if plan.chance else event
    whole = certify(event, delta=question.delta, participation="a dry run: no client was asked")
    rows: list[dict[str, Any]] = [
        {"what": part.name, "epsilon": certify(events[part.name], delta=question.delta).epsilon}
        | {"noise_multiplier": plan.mechanisms[part.name].noise_multiplier, "coordinates": part.coordinates}
        for part in plan.parts
    ]
    listed = ", ".join(
        f"{row['what']} ({row['coordinates']:,} numbers, epsilon {round_up(row['epsilon'])} alone)" for row in rows
    )
    name, then = " and ".join(names_of(payers)), ""
    if whole.epsilon < 0.99 * question.epsilon:
        then = " Models that are trained afterwards cost the rest."
        event = _costing(question)
    detection = None if sight is None else sight.detection()
    return Report(
        title=question.title,
        task=question.task,
        question=question.sentence(name),
        arms=(ArmView("nobody was asked"),),
        findings=(),
        diagnoses=(),
        guarantee=whole,
        releases=tuple(rows),
        population={"name": name, "clients": question.clients},
        notes=(
            "Every option was checked, no client was asked, and nothing was spent.",
            f"Would release {listed}.",
            *plan.notes,
            *(() if sight is None else sight.notes()),
        ),
        answer=f"Dry run: asking would cost epsilon {question.epsilon:g} at delta {question.delta:g}.{then}"
        f"{_found(question, plan, detection)}",
        detection=detection,
        ledger=spent_afterwards(ledger, payers, event, question.delta),
    )


def _found(question: Question, plan: ReleasePlan, detection: Detection | None) -> str:
    """What could be found, in a sentence."""
    if why := _hopeless(question, plan):
        return f" It would say nothing: {why}."
    return "" if detection is None else f" {detection.statement}"


def _costing(question: Question) -> Event:
    """A release that costs all of the question's epsilon: a bound on measurements and training together."""
    noise = solve_noise(lambda z: gaussian(z).planned_event, epsilon=question.epsilon, delta=question.delta)
    return gaussian(noise).planned_event
