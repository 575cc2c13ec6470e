"""A small training run in a process of its own, to be killed: `python training_child.py FOLDER ROUNDS SEED|-`.

Every release is noted in FOLDER/released before it is used for anything, as one line with its round and a digest of
the value. The process prints `finished` when it is done.
"""

import dataclasses
import functools
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from blindsight import keys, runs
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import AdaptiveClip, Algorithm, dp_fedavg
from blindsight.backends import Simulation
from blindsight.data.population import Population
from blindsight.privacy import Privacy
from blindsight.training import Checkpointing, Trained, train

POPULATION = "squares"


def population(clients: int = 12) -> Population:
    generator = np.random.default_rng(0)
    sizes = generator.integers(0, 5, clients)
    x = generator.normal(size=(int(sizes.sum()), 4)).astype(np.float32)
    return Population({"x": x}, sizes=sizes, name=POPULATION)


def privacy(rounds: int, **settings: Any) -> Privacy:
    defaults: dict[str, Any] = {"population": 12, "cohort": 6, "rounds": rounds, "noise_multiplier": 4.0, "clip": 0.5}
    return Privacy(**{**defaults, **settings})


@functools.cache  # its client half is compiled once for all runs with these settings
def algorithm(settings: Privacy, **more: Any) -> Algorithm:
    def loss(model: Any, batch: Any, key: jax.Array) -> jax.Array:
        return batch.mean(jnp.sum(jnp.square(batch["x"] - model[None]), axis=-1)) + 0 * jax.random.uniform(key)

    optimizers: dict[str, Any] = {"client_optimizer": optax.sgd(0.1), "server_optimizer": optax.sgd(0.5, momentum=0.9)}
    defaults: dict[str, Any] = {**optimizers, "batch_size": 2, "adaptive_clip": AdaptiveClip(count_std=4.0)}
    return dp_fedavg(jnp.zeros(4), loss, settings, **(defaults | more))


def noting(inner: Algorithm, file: Path) -> Algorithm:
    """The same algorithm, every step of which is noted once its value exists."""

    def step(state: Any, cohort: Any, *, key: keys.Key) -> Any:
        after, event = inner.step(state, cohort, key=key)
        digest = hashlib.sha256(np.asarray(after.params).tobytes()).hexdigest()
        with open(file, "ab", buffering=0) as out:
            out.write(f"{digest}\n".encode())
        return after, event

    return dataclasses.replace(inner, step=step)


def go(folder: Path, rounds: int, seed: int | None, **settings: Any) -> Trained:
    chosen = privacy(rounds)
    key = keys.root() if seed is None else keys.reproducible(seed)
    run = runs.begin(folder / "run", "killed", {})
    about: dict[str, Any] = {"population": POPULATION, "delta": 1e-5, "key": key, "run": run}
    about |= {
        "ledger": Ledger(folder / "ledger.db"),
        "checkpointing": Checkpointing(every_rounds=5, every_seconds=0.02),
    }
    inner = noting(algorithm(chosen), folder / "released")
    return train(inner, Simulation(population()), chosen, **{**about, **settings})


if __name__ == "__main__":
    where, count, seed = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    print("ready", flush=True)
    trained = go(where, count, None if seed == "-" else int(seed))
    (where / "final").write_bytes(np.asarray(trained.model).tobytes())
    print("finished", flush=True)
    os._exit(0)
