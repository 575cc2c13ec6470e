"""Accounting: what a computation costs in privacy, proved where it can be, and written down. No JAX in here.

Nothing is imported before it is used: events are plain data and load at once, accountants take a second.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
