"""Inspection: what is wrong with data that nobody may look at, asked and answered in one private round.

::

    contrast/    arms of clients measured, compared, diagnosed and shown: sanity, mistakes, slices
    unknowns/    words that a vocabulary lacks, before and after a change
    bias/        clients against public data
    labelling/   synthetic examples for people to label
    measuring    one round over all clients, every part noised, paid for before any noise is drawn
    report       everything on one page

The functions that ask are in `blindsight.inspect`. Nothing is imported before it is used: a report is read without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.inspection.contrast.asking import Training
    from blindsight.inspection.contrast.findings import Diagnosis, Finding
    from blindsight.inspection.contrast.task import Quarters
    from blindsight.inspection.report import Report
    from blindsight.inspection.unknowns.models import WordTraining

__all__ = ["Diagnosis", "Finding", "Quarters", "Report", "Training", "WordTraining"]

_HOMES = {
    "Diagnosis": "contrast.findings",
    "Finding": "contrast.findings",
    "Quarters": "contrast.task",
    "Report": "report",
    "Training": "contrast.asking",
    "WordTraining": "unknowns.models",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.inspection.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.inspection' has no attribute {name!r}")
