"""Compile time of a bounded sum with small leaves measured together or one by one, and the cost of an epsilon.

    python benchmarks/compiling.py [--leaves 40] [--output FILE.json]

Both ways are timed in one run; only the ratios mean anything on a busy machine.
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

from blindsight import trees
from blindsight.accounting import losses
from blindsight.accounting.events import Gaussian, Poisson, Relation


def seconds(work: Callable[[], Any], repeats: int = 1) -> float:
    """The best of some runs."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - began)
    return min(times)


def clipping(leaves: int, small: int) -> dict[str, float]:
    """The first call, which compiles, and later ones, if leaves below `small` coordinates are measured together."""
    trees._SMALL = small
    jax.clear_caches()
    updates = [jnp.ones((8, 64, 32)) for _ in range(leaves)]
    total = jax.jit(lambda stacked: jax.vmap(lambda update: trees.to_grid(update, 1.0, 2.0**-12))(stacked))
    return {"compiling": seconds(lambda: total(updates)), "computing": seconds(lambda: total(updates), repeats=20)}


def main() -> None:
    """Time both, print the ratios."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--leaves", type=int, default=40)
    options.add_argument("--output", type=Path)
    asked = options.parse_args()
    together = trees._SMALL
    apart, joined = clipping(asked.leaves, 0), clipping(asked.leaves, together)
    rounds = losses.self_composed_pld(Poisson(0.05, Gaussian(0.7)), 200, Relation.ADD_OR_REMOVE, 1e-4)
    ours = seconds(lambda: losses.epsilon_for_delta(rounds, 1e-6), repeats=5)
    theirs = seconds(lambda: rounds.get_epsilon_for_delta(1e-6), repeats=5)
    found = {
        "machine": f"{platform.machine()}, {jax.devices()[0].device_kind}, jax {jax.__version__}",
        "leaves": asked.leaves,
        "one_by_one_s": apart,
        "together_s": joined,
        "compiling_ratio": apart["compiling"] / joined["compiling"],
        "computing_ratio": apart["computing"] / joined["computing"],
        "epsilon_ours_s": ours,
        "epsilon_library_s": theirs,
        "epsilon_ratio": theirs / ours,
    }
    print(json.dumps(found, indent=2))
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
