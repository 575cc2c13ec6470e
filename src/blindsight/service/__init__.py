"""The Draw-and-Discard service: clients train a model together over HTTP without trusting the server.

::

    app          the ASGI application; draw and update bypass the framework
    registry     all models, their tokens, and admin calls
    pool         one model: draw, update, average
    spam         checks whether an update is within the range of honest ones
    store        the interface of stores: `memory` with snapshots on disk, `redis_store`
    tickets      each draw allows one update
    client       the Python client

Modules are imported on first use, and none imports JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
