"""Models as plain pytrees (Equinox modules), one readable file each.

::

    classifiers          logistic regression, perceptrons and convolutional networks
    cifg_lstm            language models of words and of bytes; `generation` samples from them, `ngram` is the baseline
    gan, selu_gan, vae   generators trained by rounds over clients
    generators           generators fitted to moments released once
    glm                  generalised linear models in NumPy, for clients and servers without JAX
    primary              the model under inspection: a function, a classifier, a run or an ONNX file
    equinox_models, python_models, onnx_files    sources of such a model; `onnx_export` writes ONNX files
    scaling              standardised rows for a classifier
    latents, layers, recurrent   building blocks

Submodules are imported on first use, so clients and servers of linear models run without JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
