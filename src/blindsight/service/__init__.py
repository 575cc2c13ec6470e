"""The Draw-and-Discard service: clients that trust nobody train a model together, over HTTP.

::

    app          the ASGI application; draw and update bypass the framework
    registry     all models, their tokens, and admin calls
    pool         one model: draw, update, average
    spam         whether an update lies where honest updates can be
    store        the interface of stores: `memory` with snapshots on disk, `redis_store`
    tickets      each draw allows one update
    client       the Python client

Nothing is imported before it is used, and nothing here imports JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
