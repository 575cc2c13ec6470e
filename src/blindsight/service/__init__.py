"""The Draw-and-Discard service: clients that trust nobody train a model together, over HTTP.

::

    app          draw and update by hand, before any framework
    registry     all models, who may use them, what an administrator does
    pool         one model: draw, update, average
    spam         is an update where honest ones can be?
    store        what every store does: `memory` with snapshots on disk, `redis_store`
    tickets      each draw allows one update
    client       the same from the other side, in Python

Nothing is imported before it is used, and nothing here imports JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.service.client import AsyncClient, Client
    from blindsight.service.run import Running, running, serve
    from blindsight.service.settings import Settings

__all__ = ["AsyncClient", "Client", "Running", "Settings", "running", "serve"]

_HOMES = {
    "AsyncClient": "client",
    "Client": "client",
    "Running": "run",
    "Settings": "settings",
    "running": "run",
    "serve": "run",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"blindsight.service.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'blindsight.service' has no attribute {name!r}")
