"""The studio: pages on this machine about what runs have left behind. No JAX in here.

::

    labels       what people have said about a synthetic set: one line for every decision, on disk before the next
    queue        what one rater has still to label, in an order of their own, and which key stands for which class
    agreeing     how far raters agree, and what the majority says
    annotations  labels from Label Studio and back
    app          the page with the queue, for this machine alone
    run          the page while people label
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
