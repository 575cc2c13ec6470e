"""The cost of proved clipping compared with the usual float32 line, and how far each overshoots its bound.

    python benchmarks/clip.py [--clients 100] [--coordinates 1300000] [--output FILE.json]

Both are timed in one run on JAX's default device; only the ratio means anything on a busy machine.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from blindsight import trees

BOUND = 0.1


def usual(update: jax.Array) -> jax.Array:
    """Clipping as it is usually written."""
    return update * jnp.minimum(jnp.float32(1), jnp.float32(BOUND) / jnp.sqrt(jnp.sum(update * update)))


def milliseconds(function, updates: jax.Array, repeats: int = 5) -> float:
    """The best of some runs of the whole cohort, after compiling."""
    function(updates).block_until_ready()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function(updates).block_until_ready()
        times.append(1e3 * (time.perf_counter() - began))
    return min(times)


def overshoot(function, coordinates: int) -> float:
    """The largest excess of the exact norm over the bound, relative, over vectors that make summation hard."""
    rng = np.random.default_rng(0)
    hard = (np.full(coordinates, 0.1), rng.normal(size=coordinates), np.geomspace(1e-12, 1.0, coordinates))
    clipped = [np.asarray(function(jnp.asarray(vector, jnp.float32)[None]))[0] for vector in hard]
    return max(float(np.sqrt(np.sum(np.square(vector.astype(np.longdouble))))) / BOUND - 1 for vector in clipped)


def main() -> None:
    """Time, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--coordinates", type=int, default=1_300_000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    updates = jax.random.normal(jax.random.key(0), (options.clients, options.coordinates), jnp.float32)
    functions = {
        "proved": jax.jit(jax.vmap(lambda update: trees.clip(update, BOUND))),
        "usual": jax.jit(jax.vmap(usual)),
    }
    found = {
        name: {"ms": milliseconds(function, updates), "overshoot": overshoot(function, options.coordinates)}
        for name, function in functions.items()
    }
    found["ratio"] = found["proved"]["ms"] / found["usual"]["ms"]
    found["device"] = f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {platform.machine()}"
    print(json.dumps(found, indent=2))
    if options.output:
        options.output.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
