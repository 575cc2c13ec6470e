"""What long commands do, from their options to what they leave in a folder. Each is imported when it is asked for."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.jobs.audit import run_audit
    from blindsight.jobs.bias import run_bias
    from blindsight.jobs.inspect import load_model, run_inspection
    from blindsight.jobs.student import load_student, run_student
    from blindsight.jobs.train import load_trained, run_training
    from blindsight.jobs.tune import run_tuning
    from blindsight.jobs.unknowns import run_unknowns

__all__ = ["load_model", "load_student", "load_trained", "run_audit", "run_bias", "run_inspection", "run_student"]
__all__ += ["run_training", "run_tuning", "run_unknowns"]

_HOMES = {
    "load_model": "inspect",
    "load_student": "student",
    "load_trained": "train",
    "run_audit": "audit",
    "run_bias": "bias",
    "run_inspection": "inspect",
    "run_student": "student",
    "run_training": "train",
    "run_tuning": "tune",
    "run_unknowns": "unknowns",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.jobs.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.jobs' has no attribute {name!r}")
