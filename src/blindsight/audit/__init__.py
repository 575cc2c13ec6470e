"""What a model gives away about those it was trained on, measured with canaries that the auditor made up.

::

    canaries     phrases and pictures that mean nothing, and the synthetic clients that hold them
    planting     those clients beside the real ones, in the same rounds and the same bounded sums
    exposure     how much likelier than chance the model finds a phrase: rank and exposure
    extraction   whether a beam search finds it
    membership   scores of planted clients on what a run released
    one_run      from scores and coins to a lower bound on epsilon
    report       everything on one page

Nothing is imported before it is used: a report is read without JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
