"""One paper, one file.

Nothing is imported before it is used: `draw_and_discard` runs without JAX.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.algorithms.dp_fedavg import AdaptiveClip, Algorithm, State, dp_fedavg

__all__ = ["AdaptiveClip", "Algorithm", "State", "dp_fedavg"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("blindsight.algorithms.dp_fedavg"), name)
    raise AttributeError(f"module 'blindsight.algorithms' has no attribute {name!r}")


class _Package(ModuleType):
    """A package in which `dp_fedavg` is the function, also after Python has bound the module of that name here."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in __all__ and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
