"""Models as plain pytrees (Equinox modules), one readable file each; `glm` and `specs` in NumPy, for clients.

Nothing is imported before it is used: a client or a server of linear models runs without JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
