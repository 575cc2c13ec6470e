"""Arms of clients measured, compared, diagnosed and shown: the server half of `sanity`, `mistakes` and `slices`."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from blindsight.accounting.assumptions import CLASSES_LISTED
from blindsight.accounting.guarantee import Guarantee
from blindsight.inspection.answering import Round
from blindsight.inspection.contrast.generators import train_generators
from blindsight.inspection.contrast.question import Comparing
from blindsight.inspection.contrast.reading import notes, read, samples, views
from blindsight.inspection.contrast.rounds import MEASURE, next_round, observe
from blindsight.inspection.measuring import Measurement
from blindsight.inspection.question import check_reference
from blindsight.inspection.report import Report
from blindsight.inspection.session import Inquiry
from blindsight.selection import ASSUMED, FORMINGS

__all__ = ["compare", "inspect_arms"]


def inspect_arms(question: Comparing, inquiry: Inquiry) -> Report:
    """`compare`, with the synthetic samples kept in the run's folder."""
    report = compare(question, inquiry)
    if any(view.samples is not None or view.rows is not None for view in report.arms):
        report.save_samples(inquiry.run.path / "samples")
    return report


def compare(question: Comparing, inquiry: Inquiry) -> Report:
    """Ask every round, then read what was released: findings, diagnoses, synthetic samples, and the promise."""
    check_reference(inquiry.clients, inquiry.public.reference)
    inquiry.progress("running the model on every client's examples", 0, 4)
    public = inquiry.public.reference
    normal = None if public is None else observe(question, inquiry.public, public, is_public=True)
    measured, one = _measure(question, inquiry)
    made: Sequence[Mapping[str, np.ndarray]] = [{} for _ in one.arms]
    labels = None
    if question.training is not None:
        made, labels = train_generators(question, question.training, inquiry, one)
    guarantee = _promise(question, inquiry, one)
    # from here on there is nothing but what was released
    if "moments" in one.by_name:
        part = one.by_name["moments"]
        doing = functools.partial(inquiry.progress, "fitting the generator")
        made, labels = samples(measured, part, question.samples_of(len(part.classes)), inquiry.root, doing)
    findings, diagnoses = read(measured, one.by_name, one.arms, normal)
    return Report(
        title=question.title,
        task=question.task,
        question=question.sentence(inquiry.name),
        arms=views(measured, one.by_name["cues"], made, labels),
        findings=tuple(findings),
        diagnoses=tuple(diagnoses),
        guarantee=guarantee,
        releases=tuple(inquiry.releases),
        population={
            "name": inquiry.name,
            "clients": question.clients,
            "classes": list(one.empty.classes.get(question.schema.label, ())),
        },
        notes=notes(one.arms, guarantee, normal),
        ledger=inquiry.so_far(),
    )


def _measure(question: Comparing, inquiry: Inquiry) -> tuple[Measurement, Round]:
    """The last round and what it measured."""
    doing = {MEASURE: "measuring everyone in one round"}
    while True:
        one = next_round(question, inquiry.public)
        if one is None:
            raise AssertionError("the last round is the one that measures")
        inquiry.progress(doing.get(one.name, "estimating where the quarters begin"), 1 + (one.name == MEASURE), 4)
        measured = inquiry.measure(one)
        if one.name == MEASURE:
            return measured, one


def _promise(question: Comparing, inquiry: Inquiry, one: Round) -> Guarantee:
    """What everything that was spent amounts to, with who took part in words.

    Names of classes are in the report as they are. Those of embedded clients come from no data; those of others may
    have been read off the clients' data by a loader, and only whoever loaded them knows whether they are public.
    """
    words = f"full: all {question.clients:,}, {FORMINGS[question.forming]}"
    if question.training is not None:
        words += f"; training: poisson, {question.training.cohort:,.0f} expected in a round"
    looked_at = (*question.inputs, question.schema.label, *one.arms.fields)
    is_listed = not inquiry.clients.synthetic and any(field in one.empty.classes for field in looked_at)
    assumed = ((ASSUMED,) if question.forming == "eligible" else ()) + ((CLASSES_LISTED,) if is_listed else ())
    return inquiry.promise(words, assumed)
