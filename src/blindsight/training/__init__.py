"""Training by rounds: the one loop of all algorithms. Imports are lazy.

::

    by_rounds   `train`: rounds until they are done or the budget is spent
    loop        the state of a run between rounds: drawn, paid for, advanced, saved, restored
    blocks      several rounds in one compiled loop, drawn before it begins
    settings    when a run is evaluated and saved, and what its guarantee has to know
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
