"""Synthetic examples for people to label (T5 of Augenstein et al. 2020): nobody looks at a client's own example.

One private round measures moments of all clients, a generator is fitted to them, and people label the samples. If
clients have no labels, each runs the primary model on its own examples, and the moments are of the predicted classes:
the client still sends the same bounded vector. The primary model then proposes labels for the synthetic examples, which
costs no privacy.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.errors import InvalidInput
from blindsight.inspection.contrast.task import compare, plan, rounds
from blindsight.inspection.labelling.question import Labelling
from blindsight.inspection.question import reading
from blindsight.inspection.report import Report
from blindsight.inspection.session import Inquiry
from blindsight.models.primary import Primary, gather
from blindsight.runs import write_whole
from blindsight.samples import label_studio
from blindsight.samples.export import save_set
from blindsight.samples.synthetic_set import BY_GENERATOR, LABELS, read_set
from blindsight.samples.views import ArmView

__all__ = ["check_unlabelled", "conduct", "plan", "rounds"]


def check_unlabelled(folder: Path) -> None:
    """Refuse a folder with labels, because new samples would replace the labelled ones."""
    if (folder / "samples" / LABELS).exists():
        raise InvalidInput(f"{folder} has labels, and new samples would replace them: choose another folder")


def conduct(question: Labelling, inquiry: Inquiry) -> Report:
    """The set with proposed labels, the files for Label Studio, and the report."""
    model = inquiry.public.model
    if model is not None:
        model = reading(model, question.schema)
        model.check(inquiry.clients, question.inputs, question.schema.label)
    report = compare(question, inquiry)
    (arm,) = report.arms
    if arm.samples is None and arm.rows is None:
        raise InvalidInput("too few clients to generate samples at this epsilon: raise epsilon, or ask more clients")
    columns = {question.inputs[0]: arm.samples} if arm.samples is not None else dict(arm.rows or {})
    proposed, scores, proposer = _proposed(arm, model, columns, question.inputs)
    by = f", with labels proposed by {proposer}" if proposed is not None else ""
    count = len(next(iter(columns.values())))
    report = dataclasses.replace(report, answer=f"{count:,} synthetic examples for people to label{by}.")
    extra: dict[str, Any] = {} if proposed is None else {"pred": proposed.astype(np.int64)}
    extra |= {} if scores is None else {"score": np.round(np.nan_to_num(scores.astype(np.float64)), 4)}
    names = {field: list(values) for field, values in question.schema.classes.items() if field in question.inputs}
    folder = inquiry.run.path
    save_set(
        [arm],
        folder / "samples",
        title=report.title,
        guarantee=report.guarantee,
        classes=report.class_names,
        question=report.question,
        extra=extra,
        facts={"proposer": proposer, "names": names},
        created=report.created,
    )
    written = read_set(folder)
    write_whole(folder / "label_studio.json", label_studio.as_text(label_studio.tasks(written)))
    write_whole(folder / "label_studio.xml", label_studio.config(written))
    return report


def _proposed(
    arm: ArmView, model: Primary | None, columns: Mapping[str, np.ndarray], inputs: Sequence[str]
) -> tuple[np.ndarray | None, np.ndarray | None, str]:
    """The proposed labels, their confidence, and the name of the proposer."""
    if model is None:
        return arm.labels, None, BY_GENERATOR
    labels, scores = model.predict(gather(columns, inputs))
    return labels, scores, model.name
