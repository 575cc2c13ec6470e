"""Models as plain pytrees (Equinox modules), one readable file each; `glm` and `specs` in NumPy, for clients.

Nothing is imported before it is used: a client or a server of linear models runs without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.models.classifiers import CNN, MLP, Logistic, accuracy, cross_entropy

__all__ = ["CNN", "MLP", "Logistic", "accuracy", "cross_entropy"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("blindsight.models.classifiers"), name)
    raise AttributeError(f"module 'blindsight.models' has no attribute {name!r}")
