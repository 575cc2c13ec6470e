"""Blindsight: machine learning on data nobody may look at.

Modules are imported on first use, so the ledger and the command line start immediately and without JAX. `__init__.pyi`
lists the public names, here and in every other lazy package.
"""

import lazy_loader

from blindsight.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
