"""The cost of a round as the population and the cohort grow: time and memory, from 100 to a million clients.

    python benchmarks/scaling.py [--json FILE] [--png FILE]

Every client has 10 examples of 32 numbers and trains a logistic regression for one epoch under DP-FedAvg, truncated
Poisson rounds, float noise. Each point is a separate process, so that its memory is measured alone; times are the
median of the rounds after the first three. Linear means: the time for one client stays the same.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

POINTS = [(10**power, 100) for power in range(2, 7)] + [(10**6, cohort) for cohort in (10, 1000, 10_000)]
EXAMPLES, FEATURES, CLASSES, ROUNDS = 10, 32, 10, 13


def measure(population: int, cohort: int) -> dict[str, Any]:
    """One point: how long it takes to make the population, then a round, and how much memory that needs."""
    import jax
    import optax

    from blindsight import keys
    from blindsight.algorithms import dp_fedavg
    from blindsight.backends import Simulation
    from blindsight.data import Population
    from blindsight.models.classifiers import Logistic, cross_entropy
    from blindsight.privacy import Privacy

    imported_mib = peak_mib()
    began = time.perf_counter()
    generator = np.random.default_rng(0)
    columns = {
        "x": generator.standard_normal((population * EXAMPLES, FEATURES), np.float32),
        "label": generator.integers(0, CLASSES, population * EXAMPLES, dtype=np.int32),
    }
    clients = Population(columns, sizes=np.full(population, EXAMPLES), name="scaling")
    made_s = time.perf_counter() - began
    privacy = Privacy(population=population, cohort=cohort, rounds=ROUNDS, noise_multiplier=1.0)
    algorithm = dp_fedavg(
        Logistic((FEATURES,), CLASSES, key=jax.random.key(0)),
        cross_entropy("x"),
        privacy,
        client_optimizer=optax.sgd(0.1),
        server_optimizer=optax.sgd(1.0),
        batch_size=EXAMPLES,
        sampler="float",
    )
    backend, root, state, rounds = Simulation(clients), keys.reproducible(0), algorithm.init(), []
    for number in range(ROUNDS):
        began = time.perf_counter()
        chosen = privacy.sampling.draw(key=root.derive("cohort", number))
        drawn = time.perf_counter()
        group = backend.cohort(chosen, n_expected=cohort, key=root.derive("clients", number))
        state, _ = algorithm.step(state, group, key=root.derive("noise", number))
        jax.block_until_ready(state)
        rounds.append((drawn - began, time.perf_counter() - drawn))
    draw_s, sum_s = np.median(rounds[3:], axis=0).tolist()
    data_mib = sum(column.nbytes for column in columns.values()) / 2**20
    return {
        "population": population,
        "cohort": cohort,
        "made_s": made_s,
        "draw_ms": 1e3 * draw_s,
        "round_ms": 1e3 * sum_s,
        "us_per_client": 1e6 * sum_s / cohort,
        "data_mib": data_mib,
        "memory_mib": peak_mib() - imported_mib,
    }


def peak_mib() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def draw(points: list[dict[str, Any]], path: Path) -> None:
    """Both curves and the memory, on logarithmic axes: linear is a straight line of slope one."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    by_population = [point for point in points if point["cohort"] == 100]
    by_cohort = sorted((p for p in points if p["population"] == 10**6), key=lambda p: p["cohort"])
    sizes = [point["population"] for point in by_population]
    left.loglog(sizes, [point["round_ms"] for point in by_population], "o-", label="round")
    left.loglog(sizes, [point["draw_ms"] for point in by_population], "s--", label="choosing the cohort")
    left.set(xlabel="clients in the population (cohort 100)", ylabel="ms")
    left.legend()
    middle.loglog([p["cohort"] for p in by_cohort], [p["round_ms"] for p in by_cohort], "o-")
    middle.set(xlabel="clients in the cohort (population 10^6)", ylabel="ms a round")
    right.loglog(sizes, [point["memory_mib"] for point in by_population], "o-", label="all that was added")
    right.loglog(sizes, [point["data_mib"] for point in by_population], "s--", label="the examples themselves")
    right.set(xlabel="clients in the population", ylabel="MiB")
    right.legend()
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure every point in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--png", type=Path)
    parser.add_argument("--point", type=int, nargs=2, metavar=("POPULATION", "COHORT"), help="this one only, as JSON")
    options = parser.parse_args()
    if options.point:
        print(json.dumps(measure(*options.point)))
        return
    points: list[dict[str, Any]] = []
    print("population  cohort  made s  choosing ms  round ms  us/client  data MiB  memory MiB")
    for population, cohort in POINTS:
        command = [sys.executable, __file__, "--point", str(population), str(cohort)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        points.append(found)
        print(
            f"{population:10,} {cohort:7,} {found['made_s']:7.2f} {found['draw_ms']:12.2f} {found['round_ms']:9.2f} "
            f"{found['us_per_client']:10.1f} {found['data_mib']:9.1f} {found['memory_mib']:11.0f}",
            flush=True,
        )
    if options.json:
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        text = json.dumps({"command": "python benchmarks/scaling.py", "machine": machine, "points": points}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
    if options.png:
        draw(points, options.png)


if __name__ == "__main__":
    main()
