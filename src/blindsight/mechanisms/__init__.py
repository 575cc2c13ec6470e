"""Mechanisms: a bounded sum goes in, a noised value and its event come out of one call.

Modules are imported on first use: the samplers of integer noise (`discrete`) do not need JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
