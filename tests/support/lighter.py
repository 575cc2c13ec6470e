"""Ways to make a test lighter, as contexts: the fixtures of the same names are these for one test."""

import contextlib
import functools
from collections.abc import Generator

import pytest

__all__ = ["few_steps", "optimised"]


@contextlib.contextmanager
def optimised() -> Generator[None]:
    """Compile as users do, where a test computes longer than it compiles."""
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


@contextlib.contextmanager
def few_steps() -> Generator[None]:
    """Leave generators at the closed form that they start from: how good their samples look is measured elsewhere."""
    from blindsight.algorithms import latent_classes, moments

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latent_classes, "_FITS", 1)
        patch.setattr(moments, "fit", functools.partial(moments.fit, steps=0))
        yield
