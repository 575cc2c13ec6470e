"""Arms of clients, measured, compared, diagnosed and illustrated: the server half of `sanity`, `mistakes`, `slices`."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from blindsight.accounting.assumptions import CLASSES_LISTED
from blindsight.accounting.guarantee import Guarantee
from blindsight.inspection.answering import Round
from blindsight.inspection.contrast.foresight import Foresight
from blindsight.inspection.contrast.generators import train_generators
from blindsight.inspection.contrast.planting import explanations, unknown_fault
from blindsight.inspection.contrast.question import Comparing
from blindsight.inspection.contrast.reading import notes, read, samples, signals, usual, views, warnings
from blindsight.inspection.contrast.rounds import plan, rounds
from blindsight.inspection.report import Report
from blindsight.inspection.sections.evidence import is_difference
from blindsight.inspection.sections.explanation import ExplanationSection
from blindsight.inspection.session import Inquiry
from blindsight.selection import ASSUMED, FORMINGS

__all__ = ["compare", "conduct", "foresee", "plan", "rounds"]

foresee = Foresight


def conduct(question: Comparing, inquiry: Inquiry) -> Report:
    """`compare`, which also saves the synthetic samples in the run's folder."""
    report = compare(question, inquiry)
    if any(view.samples is not None or view.rows is not None for view in report.arms):
        report.save_samples(inquiry.run.path / "samples")
    return report


def compare(question: Comparing, inquiry: Inquiry) -> Report:
    """Ask every round, then read the releases: findings, diagnoses, synthetic samples, and the guarantee.

    If the inquiry has foresight, also on how many clients each fault would have been found.
    """
    sight = inquiry.sight if isinstance(inquiry.sight, Foresight) else None
    measured, one = inquiry.ask(rounds(question, inquiry.public, inquiry.progress))
    planter = (sight or Foresight(question, inquiry.public)).planter
    normal = planter.healthy
    examples: Sequence[Mapping[str, np.ndarray]] = [{} for _ in one.arms]
    labels, of_arms = None, [0.0 for _ in one.arms]
    if question.training is not None:
        examples, labels, of_arms = train_generators(question, question.training, inquiry, one)
    guarantee = _promise(question, inquiry, one)
    # everything below is post-processing of releases
    if "moments" in one.by_name:
        part = one.by_name["moments"]
        doing = functools.partial(inquiry.progress, "fitting the generator")
        of_arms = signals(measured, part)
        examples, labels = samples(measured, part, question.samples_of(len(part.classes)), inquiry.root, doing)
    public = None if normal is None else usual(one.by_name, one.arms, normal)
    findings, diagnoses = read(measured, one.by_name, one.arms, public)
    warned = warnings(measured, one.by_name["cues"], one.arms, public, inquiry.public.model)
    explanation, detection, is_found = None, None, any(is_difference(finding) for finding in findings)
    if public is not None and (is_found or sight is not None):
        inquiry.progress("planting candidate faults in public data", 3, 4)
    if public is not None and is_found:
        tried = explanations(question, inquiry.public, one, measured, dict(public.exact), planter)
        unknown = unknown_fault(measured, one.by_name["cues"], public, findings)
        explanation = ExplanationSection(tried, unknown) if tried else None
    if public is not None and sight is not None:
        detection = sight.detection(one, public)
    return Report(
        title=question.title,
        task=question.task,
        question=question.sentence(inquiry.name),
        arms=views(measured, one.by_name["cues"], examples, labels, of_arms),
        findings=tuple(findings),
        diagnoses=tuple(diagnoses),
        explanation=explanation,
        detection=detection,
        guarantee=guarantee,
        releases=tuple(inquiry.releases),
        population={
            "name": inquiry.name,
            "clients": question.clients,
            "classes": list(one.empty.classes.get(question.schema.label, ())),
        },
        notes=(*warned, *notes(one.arms, guarantee, public)),
        ledger=inquiry.so_far(),
    )


def _promise(question: Comparing, inquiry: Inquiry, one: Round) -> Guarantee:
    """The guarantee for everything that was released, with its participation in words.

    Class names appear in the report. Those of embedded clients come from no data. For other clients, a loader may have
    derived them from clients' data, and only the person who loaded the data knows whether they are public.
    """
    words = f"full: all {question.clients:,}, {FORMINGS[question.forming]}"
    if question.training is not None:
        words += f"; training: poisson, {question.training.cohort:,.0f} expected in a round"
    looked_at = (*question.inputs, question.schema.label, *one.arms.fields)
    is_listed = not inquiry.clients.synthetic and any(field in one.empty.classes for field in looked_at)
    assumed = ((ASSUMED,) if question.forming == "eligible" else ()) + ((CLASSES_LISTED,) if is_listed else ())
    return inquiry.promise(words, assumed)
