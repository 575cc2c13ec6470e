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
    """Fit generators in a few steps: how good their samples look is measured in experiments."""
    from blindsight.algorithms import moments

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "fit", functools.partial(moments.fit, steps=50))
        yield
