"""Parties of a cross-silo computation: their own data, their own generator, their own model, their own process.

::

    party       what a party is, and all that it does with its data
    generators  ways to make examples that may leave: one noisy sum, or training under privacy
    voters      ways to come by a model that may vote
    wire        the bytes that pass between a party and the rest of the world
    processes   parties in processes of their own, which may die

Nothing is imported before it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.algorithms.parties.generators import GivenGenerator, OneShot, TrainedPrivately
    from blindsight.algorithms.parties.party import Party
    from blindsight.algorithms.parties.voters import GivenModel, OnMade, OnRawData, PrivateLinear, PrivateNetwork

__all__ = [
    "GivenGenerator",
    "GivenModel",
    "OnMade",
    "OnRawData",
    "OneShot",
    "Party",
    "PrivateLinear",
    "PrivateNetwork",
    "TrainedPrivately",
]

_HOMES = {
    "GivenGenerator": "generators",
    "GivenModel": "voters",
    "OnMade": "voters",
    "OnRawData": "voters",
    "OneShot": "generators",
    "Party": "party",
    "PrivateLinear": "voters",
    "PrivateNetwork": "voters",
    "TrainedPrivately": "generators",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.algorithms.parties.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.algorithms.parties' has no attribute {name!r}")
