"""Accounting: what a computation costs in privacy, proved where it can be, and written down. No JAX in here."""

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
