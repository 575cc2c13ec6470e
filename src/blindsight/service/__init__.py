"""The Draw-and-Discard service: clients train a model together over HTTP without trusting the server.

::

    app          the ASGI application; draw and update bypass the framework
    connections  limits and deadlines of connections; `run` has the listeners
    registry     all models, their tokens, and admin calls
    pool         one model: draw, update, average
    shown        what a draw shows: mixtures that change with each batch of updates
    spam         the guard: how far an update may move a model (`bounds`, `sketch`, `shields`, `nested`)
    canary       public examples: a model that gets worse on them is frozen and rolled back
    store        the interface of stores: `memory` with snapshots on disk, `redis_store`
    tickets      each draw allows one update
    admission    admission tokens by blind signatures: `issuer`, `wallet`, `blind_rsa`
    client       the Python client, with `conversation` and `outbox`

Modules are imported on first use, and none imports JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
