"""The cost that exact noise adds to a round, and the speed of successive rounds.

    python benchmarks/rounds.py [--tasks cnn,lm,paper_gan,bayesian_gan] [--rounds 60] [--cohort N] [--repeats 3]
                                [--noises exact,singly,float,none] [--output FILE.json]
    python benchmarks/rounds.py --profile [--tasks lm,paper_gan] [--rounds 20] [--output FILE.json]

`cnn` and `lm` are the tasks of `simulation.py`. `paper_gan` is the GAN of Augenstein et al. 2020 with their settings,
10 clients of 28 x 28 images in a round; `bayesian_gan` is a critic of one batch of 2,048 images, as
`experiments/bayesian_gan.py` trains it. `small` and `small_gan` have little to compute in a round: a logistic model on
10 clients, and the critic of a small GAN on 16 images. Each trains with exact noise (the default), with float noise and
without any, and if asked for with exact noise and every round computed by itself (`singly`), through `training.train`,
so that payments, checkpoints and the draw of cohorts are in the figures. The repetitions take turns, and the median
counts; what compiles is run before and not counted. Images are random: the time does not depend on them. `--cohort`
sets another cohort for all tasks: noise costs the same in a smaller one, and a larger share of it. On a busy machine
the ratio of processor time means more than that of the clock.

`--profile` prints how much of a round an accelerator computes, and in which kernels.
"""

import argparse
import collections
import dataclasses
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import tasks
from peers import blindsight_peer

from blindsight import keys, runs
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import Algorithm, dp_fedavg
from blindsight.algorithms.bayesian_gan import bayesian_gan
from blindsight.algorithms.dp_fedavg_gan import dp_fedavg_gan
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.backends import Simulation, use_cores
from blindsight.codings.images_and_rows import Images
from blindsight.data import Population
from blindsight.models.classifiers import Logistic, cross_entropy
from blindsight.models.gan import compact_gan, paper_gan
from blindsight.models.selu_gan import selu_gan
from blindsight.privacy import Privacy
from blindsight.training import Checkpointing, train

NOISES = "exact", "float", "none"
SINGLY = "singly"


class Task(NamedTuple):
    """Clients, how many of them a round has, what they train, and the clip and noise multiplier of private rounds."""

    clients: Callable[[], Population]
    cohort: int
    algorithm: Callable[[Privacy, str], Algorithm]
    clip: float
    noise_multiplier: float
    chunk: int | None = None


def images(clients: int, each: int, side: int = 28) -> Population:
    """Clients with random images."""
    random = np.random.default_rng(0)
    columns = {
        "image": random.integers(0, 256, (clients * each, side, side), dtype=np.uint8),
        "label": random.integers(0, 10, clients * each, dtype=np.int32),
    }
    return Population(columns, sizes=np.full(clients, each), name="random images")


def augenstein(privacy: Privacy, sampler: Any) -> Algorithm:
    """Table 9 of the paper."""
    gan = paper_gan(Images(28, 28), latents=128, key=jax.random.key(0))
    generator = GeneratorSteps(optimizer=optax.sgd(0.005), batch_size=32, steps=6)
    return dp_fedavg_gan(
        gan, privacy, critic_rate=5e-4, critic_optimizer=optax.sgd(1.0), generator=generator, sampler=sampler
    )


def triastcyn(privacy: Privacy, sampler: Any) -> Algorithm:
    """One batch of 2,048 images a round, each a client of its own."""
    gan = selu_gan(classes=10, channels=(16, 32, 64), hidden=64, key=jax.random.key(0))
    adam = {rate: optax.adam(rate, b1=0.5, b2=0.9) for rate in (5e-4, 1e-3)}
    generator = GeneratorSteps(optimizer=adam[1e-3], batch_size=256, steps=1, critic_rounds=3, average=0.99)
    return bayesian_gan(
        gan, privacy, critic_optimizer=adam[5e-4], generator=generator, fakes=256, penalty=10.0, sampler=sampler
    )


def small_gan(privacy: Privacy, sampler: Any) -> Algorithm:
    """A critic of 8 x 8 images, one of each client."""
    gan = compact_gan(Images(8, 8), latents=8, channels=(4, 8), width=16, key=jax.random.key(0))
    adam = optax.adam(1e-3, b1=0.5, b2=0.9)
    generator = GeneratorSteps(optimizer=adam, batch_size=8, steps=1)
    return bayesian_gan(
        gan, privacy, critic_optimizer=adam, generator=generator, fakes=4, penalty=10.0, sampler=sampler
    )


def small(privacy: Privacy, sampler: Any) -> Algorithm:
    """Two steps of a logistic model on each client."""
    model = Logistic((28, 28), 10, key=jax.random.key(0))
    optimizers: Any = {"client_optimizer": optax.sgd(0.05), "server_optimizer": optax.sgd(1.0, momentum=0.9)}
    return dp_fedavg(model, cross_entropy(), privacy, **optimizers, batch_size=10, sampler=sampler)


def peer(name: str) -> Task:
    """A task of `simulation.py`, as Blindsight computes it there."""
    task = tasks.TASKS[name]

    def algorithm(privacy: Privacy, sampler: str) -> Algorithm:
        device = "cpu" if jax.default_backend() == "cpu" else "gpu"
        return blindsight_peer.algorithm(task, privacy, variant="float" if sampler == "float" else "", device=device)

    return Task(lambda: blindsight_peer.population_of(task), task.cohort, algorithm, task.clip, task.noise_multiplier)


def choices() -> dict[str, Task]:
    """The tasks by name."""
    chunk = 1 if jax.default_backend() == "cpu" else 1024
    return {
        "cnn": peer("cnn"),
        "lm": peer("lm"),
        "paper_gan": Task(lambda: images(400, 192), 10, augenstein, 0.1, 0.01),
        "bayesian_gan": Task(lambda: images(60_000, 1), 2048, triastcyn, 0.5, 1.0, chunk),
        "small": Task(lambda: images(400, 20), 10, small, 0.5, 1.0),
        "small_gan": Task(lambda: images(1000, 1, side=8), 16, small_gan, 0.5, 1.0),
    }


def privacy_of(task: Task, population: int, cohort: int, rounds: int, noise: str) -> Privacy:
    """Cohorts of a fixed size, so that every round is the same work."""
    settings: Any = {"population": population, "cohort": cohort, "rounds": rounds, "participation": "fixed"}
    if noise == "none":
        return Privacy.none(**settings)
    return Privacy(**settings, clip=task.clip, noise_multiplier=task.noise_multiplier)


def seconds(algorithm: Algorithm, backend: Simulation, privacy: Privacy) -> tuple[float, float]:
    """The time of one whole run of `training.train`, by the clock and of all processors."""
    with tempfile.TemporaryDirectory() as folder:
        run = runs.begin(Path(folder, "run"), "rounds", {})
        began, worked = time.monotonic(), time.process_time()
        trained = train(
            algorithm,
            backend,
            privacy,
            population=backend.population.name,
            delta=1e-5,
            key=keys.root(),
            run=run,
            ledger=Ledger(Path(folder, "ledger.db")),
            checkpointing=Checkpointing(every_rounds=500),
        )
        jax.block_until_ready([leaf for leaf in jax.tree.leaves(trained.model) if isinstance(leaf, jax.Array)])
        return time.monotonic() - began, time.process_time() - worked


def measured(
    task: Task, rounds: int, repeats: int, cohort: int | None = None, noises: Sequence[str] = NOISES
) -> dict[str, Any]:
    """The speed of one task with each noise, in turns."""
    cohort = cohort or task.cohort
    backend = Simulation(task.clients(), chunk=task.chunk)
    made: dict[str, tuple[Algorithm, Simulation, Privacy]] = {}
    for noise in noises:
        privacy = privacy_of(task, backend.population.size, cohort, rounds, noise)
        algorithm = task.algorithm(privacy, "float" if noise == "float" else "exact")
        if noise == SINGLY:  # a step that may do anything is computed by itself
            algorithm = dataclasses.replace(algorithm, step=algorithm.step.__call__)
        made[noise] = algorithm, backend, privacy
    first = {noise: seconds(*ready)[0] for noise, ready in made.items()}
    clock: dict[str, list[float]] = {noise: [] for noise in noises}
    worked: dict[str, list[float]] = {noise: [] for noise in noises}
    for repeat in range(repeats):
        for noise in noises if repeat % 2 == 0 else noises[::-1]:
            for times, taken in zip((clock, worked), seconds(*made[noise]), strict=True):
                times[noise].append(taken)
    median = {noise: statistics.median(taken) for noise, taken in clock.items()}
    work = {noise: statistics.median(taken) for noise, taken in worked.items()}
    found: dict[str, Any] = {
        "cohort": cohort,
        "rounds": rounds,
        "seconds": clock,
        "processor_seconds": worked,
        "first run, compilation included": first,
        "rounds_per_s": {noise: rounds / taken for noise, taken in median.items()},
        "clients_per_s": {noise: cohort * rounds / taken for noise, taken in median.items()},
    }
    if {"exact", "float"} <= set(noises):
        found["exact_over_float"] = median["exact"] / median["float"]
        found["exact_over_float_by_processor_time"] = work["exact"] / work["float"]
    if {"exact", SINGLY} <= set(noises):
        found["singly_over_exact"] = median[SINGLY] / median["exact"]
        found["singly_over_exact_by_processor_time"] = work[SINGLY] / work["exact"]
    return found


def profiled(task: Task, rounds: int, cohort: int | None = None) -> dict[str, Any]:
    """Milliseconds of a round with exact noise, by the clock and of the accelerator, and its dearest kernels."""
    backend = Simulation(task.clients(), chunk=task.chunk)
    privacy = privacy_of(task, backend.population.size, cohort or task.cohort, rounds, "exact")
    algorithm = task.algorithm(privacy, "exact")
    seconds(algorithm, backend, privacy)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            by_clock, _ = seconds(algorithm, backend, privacy)
        (file,) = Path(folder).rglob("*.xplane.pb")
        profile = jax.profiler.ProfileData.from_file(str(file))
    spent: collections.Counter[str] = collections.Counter()
    for plane in profile.planes:
        for line in plane.lines if "GPU" in plane.name else ():
            for event in line.events if line.name.startswith("Stream") else ():
                about = {str(key): value for key, value in event.stats if key is not None}
                spent[f"{about.get('hlo_module')} {about.get('hlo_op')} {event.name}"] += int(event.duration_ns)
    of_a_round = {kernel[:150]: taken / 1e6 / rounds for kernel, taken in spent.most_common(40)}
    return {"clock_ms": 1e3 * by_clock / rounds, "device_ms": sum(spent.values()) / 1e6 / rounds, "kernels": of_a_round}


def machine() -> dict[str, Any]:
    """What it ran on, and how busy that was."""
    return {
        "device": f"{jax.devices()[0].device_kind}, jax {jax.__version__}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_at_end": os.getloadavg()[0],
    }


def main() -> None:
    """Time, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="cnn,lm,paper_gan,bayesian_gan")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--cohort", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--noises", default=",".join(NOISES))
    parser.add_argument("--without-none", action="store_true", help="exact and float noise only")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    use_cores()
    noises = NOISES[:2] if options.without_none else options.noises.split(",")
    if unknown := set(noises) - {*NOISES, SINGLY}:
        parser.error(f"no such noise: {', '.join(sorted(unknown))}")
    found: dict[str, Any] = {}
    for name in options.tasks.split(","):
        if options.profile:
            found[name] = profiled(choices()[name], options.rounds, options.cohort)
            print(f"{name}: {found[name]['clock_ms']:.2f} ms by the clock, {found[name]['device_ms']:.2f} ms computing")
            for kernel, taken in list(found[name]["kernels"].items())[:20]:
                print(f"  {taken:9.3f} ms  {kernel}")
            continue
        found[name] = measured(choices()[name], options.rounds, options.repeats, options.cohort, noises)
        speeds = ", ".join(f"{noise} {speed:.4g}" for noise, speed in found[name]["rounds_per_s"].items())
        ratios = [found[name].get(f"exact_over_float{by}") for by in ("", "_by_processor_time")]
        compared = (
            "; exact takes {:.3f} times as long as float, {:.3f} of its work".format(*ratios) if ratios[0] else ""
        )
        print(f"{name}: rounds/s: {speeds}{compared}")
    if options.output:
        asked = [word for word in sys.argv[1:] if word not in ("--output", str(options.output))]
        result = {"command": " ".join(["python benchmarks/rounds.py", *asked]), **machine(), "tasks": found}
        options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
