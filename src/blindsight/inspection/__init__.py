"""Inspection: what is wrong with data that nobody may look at, asked and answered in one private round.

::

    contrast/    arms of clients measured, compared, diagnosed and shown: sanity, mistakes, slices
    unknowns/    words that a vocabulary lacks, before and after a change
    bias/        clients against public data
    labelling/   synthetic examples for people to label
    measuring    one round over all clients, every part noised, paid for before any noise is drawn
    report       everything on one page

The functions that ask are in `blindsight.inspect`. Nothing is imported before it is used: a report is read without JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
