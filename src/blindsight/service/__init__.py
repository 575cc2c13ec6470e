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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
