"""Convolutions that stay fast when every client has its own weights.

::

    patches   a convolution as patches and one matrix product, which vectorises over clients
    winograd  3 x 3 convolutions of stride 1 by Winograd's tiles, for CPUs
"""

__all__: list[str] = []
