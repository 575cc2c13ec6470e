"""How much accuracy does a guarantee cost? A CNN on embedded handwriting, 3,400 writers, epsilon 2, 4, 8 and infinity.

    python experiments/handwriting_accuracy.py [--clients 3400] [--seeds 3] [--out experiments/results]

Writers are the clients: a tenth of them are held out, and accuracy is measured on their digits. Runs at finite epsilon
differ only in their noise; delta is 1e-6 throughout. Writes handwriting_accuracy.json and .png.
"""

import argparse
import functools
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np

from blindsight import config, jobs
from blindsight.accounting.ledger import Ledger
from blindsight.data import Population, embedded

matplotlib.use("agg")

EPSILONS = (2.0, 4.0, 8.0, float("inf"))
SETTINGS: dict[str, dict[str, Any]] = {
    "model": {"kind": "cnn"},
    "client": {"learning_rate": 0.1, "batch_size": 20, "epochs": 1},
    "server": {"optimizer": "nesterov", "learning_rate": 1.0, "momentum": 0.9},
    "privacy": {"cohort": 1000, "rounds": 100, "clip": 0.5, "delta": 1e-6},
}


@functools.cache
def writers(clients: int) -> Population:
    """The population, drawn once."""
    population = embedded("handwriting", clients=clients)
    return population.replace(population.columns)


def train(epsilon: float, clients: int, seed: int, **changes: dict[str, Any]) -> dict[str, Any]:
    """One run: what it promised and how accurate it became."""
    table: dict[str, Any] = {name: {**values, **changes.get(name, {})} for name, values in SETTINGS.items()}
    table["data"] = {"population": "handwriting", "options": {"clients": clients}, "held_out": 0.1}
    table["name"], table["seed"] = "handwriting-accuracy", seed
    table["model"]["seed"] = seed
    if epsilon == float("inf"):
        table["privacy"] = {"none": True, **{k: table["privacy"][k] for k in ("cohort", "rounds")}}
    else:
        table["privacy"]["epsilon"] = epsilon
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        trained = jobs.run_training(
            config.parse(table),
            out=Path(scratch, "run"),
            ledger=Ledger(Path(scratch, "ledger.db")),
            population=writers(clients),
        )
    return {
        "epsilon": trained.guarantee.to_dict()["epsilon"],
        "accuracy": trained.simulation_only["accuracy"],
        "seconds": round(time.monotonic() - began, 1),
        "seed": seed,
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Accuracy against epsilon, every run a dot, the means joined."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    names = [f"{epsilon:g}" for epsilon in EPSILONS]
    for place, name in enumerate(names):
        found = [row["accuracy"] for row in rows if row["asked"] == name]
        axes.plot([place] * len(found), found, "o", color="tab:blue", alpha=0.5)
    means = [np.mean([row["accuracy"] for row in rows if row["asked"] == name]) for name in names]
    axes.plot(range(len(names)), means, "-", color="tab:blue")
    axes.set_xticks(range(len(names)), ["∞" if name == "inf" else name for name in names])
    axes.set_xlabel("epsilon per writer, delta = 1e-6")
    axes.set_ylabel("accuracy on unseen writers")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run everything, print the table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=3400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for epsilon in EPSILONS:
        for seed in range(options.seeds):
            rows.append({"asked": f"{epsilon:g}", **train(epsilon, options.clients, seed)})
            print(f"epsilon {epsilon:<4g} seed {seed}: accuracy {rows[-1]['accuracy']:.4f}, {rows[-1]['seconds']} s")
            write(rows, options.clients, options.out / "handwriting_accuracy.json")  # nothing is lost on a crash
    draw(rows, options.out / "handwriting_accuracy.png")


def write(rows: list[dict[str, Any]], clients: int, path: Path) -> None:
    """The results with what made them."""
    result = {
        "command": f"python experiments/handwriting_accuracy.py --clients {clients} --seeds {1 + rows[-1]['seed']}",
        "hardware": f"{jax.devices()[0].device_kind}, {platform.processor() or platform.machine()}",
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
        "clients": clients,
        "settings": SETTINGS,
        "simulation_only": "accuracies are read off held-out writers without noise",
        "rows": rows,
    }
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
