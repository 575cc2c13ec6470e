"""What the long commands do, from their options to the files of a run. Each job is imported when it is first used."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.jobs.audit import run_audit
    from blindsight.jobs.inspect import run_bias, run_labelling, run_mistakes, run_sanity, run_slices
    from blindsight.jobs.models import load_model
    from blindsight.jobs.request import ModelRequest, Request
    from blindsight.jobs.student import load_student, run_student
    from blindsight.jobs.train import load_trained, run_training
    from blindsight.jobs.tune import run_tuning
    from blindsight.jobs.unknowns import run_unknowns

__all__ = ["ModelRequest", "Request", "load_model", "load_student", "load_trained", "run_audit", "run_bias"]
__all__ += ["run_labelling", "run_mistakes", "run_sanity", "run_slices", "run_student", "run_training", "run_tuning"]
__all__ += ["run_unknowns"]

_HOMES = {
    "audit": ("run_audit",),
    "inspect": ("run_bias", "run_labelling", "run_mistakes", "run_sanity", "run_slices"),
    "models": ("load_model",),
    "request": ("ModelRequest", "Request"),
    "student": ("load_student", "run_student"),
    "train": ("load_trained", "run_training"),
    "tune": ("run_tuning",),
    "unknowns": ("run_unknowns",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"blindsight.jobs.{module}"), name)
    raise AttributeError(f"module 'blindsight.jobs' has no attribute {name!r}")
