"""One paper, one file.

Nothing is imported before it is used: `draw_and_discard` runs without JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
