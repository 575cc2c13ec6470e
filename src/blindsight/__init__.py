"""Blindsight: machine learning on data nobody may look at.

Nothing is imported before it is used, so the ledger and the command line start at once and without JAX. The public
names are listed in `__init__.pyi`, here and in every package that loads its names this way.
"""

import lazy_loader

from blindsight.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
