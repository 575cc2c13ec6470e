"""Mechanisms: a bounded sum goes in, a noised value and its event come out of one call.

Nothing is imported before it is used: the samplers of whole-number noise (`discrete`) are had without JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
