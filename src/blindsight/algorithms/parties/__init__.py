"""Parties of a cross-silo computation: each with its own data, generator, model and process.

::

    party       a party, and everything it does with its data
    generators  private generators of examples that may leave: one noisy sum, or private training
    voters      models that may vote
    wire        the bytes that a party exchanges
    processes   parties in their own processes, which may die

Nothing is imported before it is used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
