"""Parties of a cross-silo computation: their own data, their own generator, their own model, their own process.

::

    party       what a party is, and all that it does with its data
    generators  ways to make examples that may leave: one noisy sum, or training under privacy
    voters      ways to come by a model that may vote
    wire        the bytes that pass between a party and the rest of the world
    processes   parties in processes of their own, which may die

Nothing is imported before it is used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
