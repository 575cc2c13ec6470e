"""Accounting: what a computation costs in privacy, proved where it can be, and written down. No JAX in here.

Nothing is imported before it is used: events are plain data and load at once, accountants take a second.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.accounting.accountants import Bound, delta, epsilon
    from blindsight.accounting.events import Event, Relation, Unit
    from blindsight.accounting.guarantee import Guarantee, certify
    from blindsight.accounting.planning import group_privacy, rounds_for, solve_noise, split_noise

__all__ = [
    "Bound",
    "Event",
    "Guarantee",
    "Relation",
    "Unit",
    "certify",
    "delta",
    "epsilon",
    "group_privacy",
    "rounds_for",
    "solve_noise",
    "split_noise",
]

_HOMES = {
    "Bound": "accountants",
    "Event": "events",
    "Guarantee": "guarantee",
    "Relation": "events",
    "Unit": "events",
    "certify": "guarantee",
    "delta": "accountants",
    "epsilon": "accountants",
    "group_privacy": "planning",
    "rounds_for": "planning",
    "solve_noise": "planning",
    "split_noise": "planning",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.accounting.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.accounting' has no attribute {name!r}")
