"""Blindsight: machine learning on data nobody may look at.

Nothing is imported before it is used, so that the ledger and the command line start at once and without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight import (
        accounting,
        algorithms,
        audit,
        backends,
        config,
        data,
        errors,
        evaluation,
        fidelity,
        inspect,
        inspection,
        jobs,
        keys,
        mechanisms,
        models,
        participation,
        runs,
        selection,
        service,
        students,
        studio,
        training,
        trees,
    )
    from blindsight.accounting.guarantee import Guarantee
    from blindsight.accounting.ledger import Ledger
    from blindsight.privacy import Plan, Privacy, plan

__version__ = "0.1.0"

__all__ = [
    "Guarantee",
    "Ledger",
    "Plan",
    "Privacy",
    "accounting",
    "algorithms",
    "audit",
    "backends",
    "config",
    "data",
    "errors",
    "evaluation",
    "fidelity",
    "inspect",
    "inspection",
    "jobs",
    "keys",
    "mechanisms",
    "models",
    "participation",
    "plan",
    "runs",
    "selection",
    "service",
    "students",
    "studio",
    "training",
    "trees",
]

_HOMES = {
    "Guarantee": "blindsight.accounting.guarantee",
    "Ledger": "blindsight.accounting.ledger",
    "Plan": "blindsight.privacy",
    "Privacy": "blindsight.privacy",
    "plan": "blindsight.privacy",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in __all__:
        return importlib.import_module(f"blindsight.{name}")
    raise AttributeError(f"module 'blindsight' has no attribute {name!r}")
