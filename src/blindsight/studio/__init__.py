"""The studio: local pages for labelling synthetic examples. Does not import JAX.

::

    labels       decisions about a synthetic set, one line each, on disk before the next example is shown
    queue        what a rater still has to label, in the rater's own order, and the keys of the classes
    agreeing     agreement of raters, and majority labels
    annotations  import from and export to Label Studio
    app          the page with the queue, served to this machine only
    run          runs the page while people label
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
