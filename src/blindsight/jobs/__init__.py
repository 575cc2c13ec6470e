"""What long commands do, from their options to what they leave in a folder. Each is imported when it is asked for."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.jobs.audit import run_audit
    from blindsight.jobs.inspect import load_model, run_inspection
    from blindsight.jobs.train import run_training

__all__ = ["load_model", "run_audit", "run_inspection", "run_training"]

_HOMES = {"load_model": "inspect", "run_audit": "audit", "run_inspection": "inspect", "run_training": "train"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.jobs.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.jobs' has no attribute {name!r}")
