"""What the long commands do, from their options to the files of a run. Each job is imported when it is first used."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
