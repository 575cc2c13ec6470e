"""The cost of noise from whole numbers, compared with noise in floating point.

    python benchmarks/exact_noise.py [--coordinates 1300000] [--repeats 5] [--output FILE.json]

Ways to noise one sum of that many coordinates, timed in one run: the `exact` and the `float` sampler of both
mechanisms, the discrete Gaussian that `exact` used before, and as the floor a plain numpy normal, which no guarantee
covers. The sum lies where a simulation leaves it. The first call, in which JAX compiles, is not counted. On a busy
machine only the ratios mean anything; what counts is a whole round (`benchmarks/simulation.py`).
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blindsight import keys
from blindsight.mechanisms import gaussian, laplace
from blindsight.mechanisms.discrete import discrete_gaussian
from blindsight.trees import BoundedSum


def seconds(function: Callable[[int], Any], repeats: int) -> float:
    """The best of some runs, after one that is not counted."""
    times: list[float] = []
    for repeat in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(function(repeat))
        times.append(time.perf_counter() - began)
    return min(times[1:])


def contestants(coordinates: int) -> dict[str, Callable[[int], Any]]:
    """Each takes a seed and returns noise on a sum of zeros."""
    whole, real = jnp.zeros(coordinates, jnp.int32), jnp.zeros(coordinates, jnp.float32)
    root = keys.root()
    ways: dict[str, Callable[[int], Any]] = {}
    for name, make in (("gaussian", gaussian), ("laplace", laplace)):
        exact, simulated = make(1.0), make(1.0, sampler="float")
        on_grid = BoundedSum(whole, l2_bound=1.0, l1_bound=1.0, n_expected=1.0, grid=exact.step(1.0))
        floating = BoundedSum(real, l2_bound=1.0, l1_bound=1.0, n_expected=1.0)
        ways[f"{name} exact"] = lambda i, m=exact, t=on_grid: m.release(t, key=root.derive("noise", i)).value
        ways[f"{name} float"] = lambda i, m=simulated, t=floating: m.release(t, key=root.derive("noise", i)).value
    ways["discrete gaussian"] = lambda i: discrete_gaussian(24, coordinates, root.derive("noise", i).stream())
    ways["numpy normal"] = lambda i: np.random.default_rng(i).standard_normal(coordinates, np.float32)
    return ways


def main() -> None:
    """Time, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coordinates", type=int, default=1_300_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    times = {name: seconds(way, options.repeats) for name, way in contestants(options.coordinates).items()}
    floor = times["numpy normal"]
    print(f"{options.coordinates:,} coordinates, best of {options.repeats}")
    for name, taken in times.items():
        print(f"  {name:24} {1e3 * taken:8.1f} ms {taken / floor:7.1f} x numpy")
    ratio = times["gaussian exact"] / times["gaussian float"]
    gain = times["discrete gaussian"] / times["gaussian exact"]
    print(f"exact takes {ratio:.2f} times as long as float, and is {gain:.0f} times as fast as the discrete Gaussian")
    if options.output:
        result = {
            "coordinates": options.coordinates,
            "seconds": times,
            "times_numpy": {name: taken / floor for name, taken in times.items()},
            "exact_over_float": ratio,
            "device": f"{jax.devices()[0].device_kind}, jax {jax.__version__}, numpy {np.__version__}",
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
        }
        options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
