"""Inspection: what is wrong with data that nobody may look at, asked and answered in one private round.

::

    tasks        sanity, mistakes, slices: the questions people ask
    contrasting  arms measured, compared, diagnosed and shown, for one price
    asking       what is measured, and how the precision is divided
    measuring    one round over all clients, every part noised, paid for before any noise is drawn
    cues         named bounded statistics, one block for each arm
    diagnosis    clients undo faults on their own failures and vote for the one that repairs them
    findings     effect, interval, verdict, and what could not have been seen
    reading      from noisy sums to findings and samples
    trained      samples from generators that are trained on clients, in place of moments
    labelling_task, synthetic_set, label_studio
                 synthetic examples for people to label, as they lie on disk, and as Label Studio imports them
    unknown_*    words that a vocabulary lacks, before and after a change: _task asks, _words are looked at on clients,
                 _findings are read from sums, _models are trained, and _report is shown
    bias_*       clients against public data: _task asks, _asking looks at both alike, _rounds measure, _measures are
                 what clients send, _findings are tested, _images and _text learn what differs, and _report is shown
    power        what a population of that size could show, before anything is spent
    report       everything on one page

Nothing is imported before it is used: a report is read without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.inspection.asking import Training
    from blindsight.inspection.bias_task import bias
    from blindsight.inspection.contrasting import Quarters, contrast
    from blindsight.inspection.findings import Diagnosis, Finding
    from blindsight.inspection.labelling_task import labelling
    from blindsight.inspection.report import Report
    from blindsight.inspection.tasks import mistakes, sanity, slices
    from blindsight.inspection.unknown_models import WordTraining
    from blindsight.inspection.unknown_task import unknowns

__all__ = ["Diagnosis", "Finding", "Quarters", "Report", "Training", "WordTraining", "bias", "contrast"]
__all__ += ["labelling", "mistakes", "sanity", "slices", "unknowns"]

_HOMES = {
    "Diagnosis": "findings",
    "Finding": "findings",
    "Quarters": "contrasting",
    "Report": "report",
    "Training": "asking",
    "WordTraining": "unknown_models",
    "bias": "bias_task",
    "contrast": "contrasting",
    "labelling": "labelling_task",
    "mistakes": "tasks",
    "sanity": "tasks",
    "slices": "tasks",
    "unknowns": "unknown_task",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.inspection.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.inspection' has no attribute {name!r}")
