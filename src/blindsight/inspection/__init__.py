"""Inspection: questions about data that nobody may look at, answered in private rounds.

::

    question     what is asked, as data: JSON in and out
    answering    `answer`, the client half: one client's own examples to named vectors of bounded norm
    measuring    one round over all clients; every part gets noise, and is paid for before the noise is drawn
    session      the server half, the same for all tasks: pay, measure, train, certify, save, resume
    lessons      models trained on clients as part of a question
    finding      the result of a test, and a diagnosis, with what all tests share
    report       everything on one page
    contrast/    arms of clients measured, compared, diagnosed and illustrated: sanity, mistakes, slices
    unknowns/    words that a vocabulary lacks, before and after a change
    bias/        clients compared with public data
    labelling/   synthetic examples for people to label
    asking/      statistics of fields
    synthesizing/  synthetic rows of tables

The functions that ask are in `blindsight.inspect`. Imports are lazy: reading a report does not need JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
