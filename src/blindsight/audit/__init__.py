"""What a model reveals about its training data, measured with synthetic canaries.

::

    canaries     random phrases and pictures, and the synthetic clients that hold them
    planting     adds those clients to a run, in the same rounds and the same bounded sums
    exposure     how much more likely than chance a phrase is to the model: rank and exposure
    extraction   whether beam search recovers it
    membership   scores of planted clients under the released model
    one_run      a lower bound on epsilon from scores and coins
    report       the results on one page

Modules are imported on first use: reading a report does not need JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
