"""What long commands do, from their options to what they leave in a folder. Each is imported when it is asked for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
