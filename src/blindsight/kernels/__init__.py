"""Convolutions and losses that stay fast when every client has its own weights.

::

    patches     a convolution as patches and one matrix product, which vectorises over clients
    vocabulary  the cross-entropy of a large vocabulary without its logits, for CPUs
    winograd    3 x 3 convolutions of stride 1 by Winograd's tiles, for CPUs
"""

__all__: list[str] = []
