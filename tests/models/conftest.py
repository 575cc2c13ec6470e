"""Models are compiled in many shapes and run once in each: here compiling is what takes time, so it is kept short."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="package")
def quick_compilation():
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
