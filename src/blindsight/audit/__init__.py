"""What a model gives away about those it was trained on, measured with canaries that the auditor made up.

::

    canaries     phrases and pictures that mean nothing, and the synthetic clients that hold them
    planting     those clients beside the real ones, in the same rounds and the same bounded sums
    exposure     how much likelier than chance the model finds a phrase: rank and exposure
    extraction   whether a beam search finds it
    membership   scores of planted clients on what a run released
    one_run      from scores and coins to a lower bound on epsilon
    report       everything on one page

Nothing is imported before it is used: a report is read without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.audit.canaries import Canaries, secret_sharer
    from blindsight.audit.exposure import exposures, ranks, references
    from blindsight.audit.extraction import extracted
    from blindsight.audit.membership import client_scores, direction_scores
    from blindsight.audit.one_run import LowerBound, lower_bound
    from blindsight.audit.planting import Planted, direction_clients, joined
    from blindsight.audit.report import AuditReport

__all__ = [
    "AuditReport",
    "Canaries",
    "LowerBound",
    "Planted",
    "client_scores",
    "direction_clients",
    "direction_scores",
    "exposures",
    "extracted",
    "joined",
    "lower_bound",
    "ranks",
    "references",
    "secret_sharer",
]

_HOMES = {
    "AuditReport": "report",
    "Canaries": "canaries",
    "LowerBound": "one_run",
    "Planted": "planting",
    "client_scores": "membership",
    "direction_clients": "planting",
    "direction_scores": "membership",
    "exposures": "exposure",
    "extracted": "extraction",
    "joined": "planting",
    "lower_bound": "one_run",
    "ranks": "exposure",
    "references": "exposure",
    "secret_sharer": "canaries",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.audit.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.audit' has no attribute {name!r}")
