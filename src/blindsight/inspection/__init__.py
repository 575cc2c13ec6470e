"""Inspection: what is wrong with data that nobody may look at, asked and answered in a private round or two.

::

    question     what is asked, as data: JSON in and out
    answering    `answer`, the client half: one client's own examples to named vectors of bounded length
    measuring    one round over all clients, every part noised, paid for before any noise is drawn
    session      the server half, the same for all tasks: pay, measure, train, promise, save, resume
    lessons      models trained on clients as part of a question
    report       everything on one page
    contrast/    arms of clients measured, compared, diagnosed and shown: sanity, mistakes, slices
    unknowns/    words that a vocabulary lacks, before and after a change
    bias/        clients compared with public data
    labelling/   synthetic examples for people to label

The functions that ask are in `blindsight.inspect`. Nothing is imported before it is used: a report is read without JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
