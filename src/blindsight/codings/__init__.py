"""Encodings of examples. Every range, bin and category is public and fixed in advance; nothing is learnt from clients.

::

    images_and_rows  examples as the arrays a generative model reads and writes, and back
    vectors          examples as vectors of typical length 1: frequencies of an image, bins of a row
    wavelets         images as strokes and edges (first layer of a scattering transform)
    features         means and products of those vectors, with a bound on their norm
    oriented         histograms of oriented gradients, for linear models
    fields, specs    JSON specification of the features of a client's rows; NumPy only, so clients need no JAX
"""

__all__: list[str] = []
