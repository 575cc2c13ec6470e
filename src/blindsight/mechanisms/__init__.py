"""Mechanisms: a bounded sum goes in, a noised value and its event come out of one call.

Nothing is imported before it is used: the samplers of whole-number noise (`discrete`) are had without JAX.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.mechanisms.argmax import NoisyArgmax, noisy_argmax
    from blindsight.mechanisms.gaussian import GaussianMechanism, gaussian
    from blindsight.mechanisms.laplace import LaplaceMechanism, laplace
    from blindsight.mechanisms.quantile import Quantile, QuantileEstimate, quantile
    from blindsight.mechanisms.release import Mechanism, Release, publish
    from blindsight.mechanisms.unprotected import WithoutNoise, without_noise
    from blindsight.mechanisms.votes import Tally, Votes, votes

__all__ = [
    "GaussianMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "NoisyArgmax",
    "Quantile",
    "QuantileEstimate",
    "Release",
    "Tally",
    "Votes",
    "WithoutNoise",
    "gaussian",
    "laplace",
    "noisy_argmax",
    "publish",
    "quantile",
    "votes",
    "without_noise",
]

_HOMES = {
    "GaussianMechanism": "gaussian",
    "LaplaceMechanism": "laplace",
    "Mechanism": "release",
    "NoisyArgmax": "argmax",
    "Quantile": "quantile",
    "QuantileEstimate": "quantile",
    "Release": "release",
    "Tally": "votes",
    "Votes": "votes",
    "WithoutNoise": "unprotected",
    "gaussian": "gaussian",
    "laplace": "laplace",
    "noisy_argmax": "argmax",
    "publish": "release",
    "quantile": "quantile",
    "votes": "votes",
    "without_noise": "unprotected",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.mechanisms.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.mechanisms' has no attribute {name!r}")


class _Package(ModuleType):
    """A package in which `gaussian` is the function, also after Python has bound the module of that name here."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
