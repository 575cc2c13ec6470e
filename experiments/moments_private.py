"""Moments under real privacy, compared with the federated GAN: the same 3,400 embedded writers and the same measures.

    python experiments/moments_private.py [--clients 3400] [--seed 0] [--out experiments/results]

`gan_private.py` evaluates a GAN that is trained on clients; this script evaluates a generator that is fitted to one
noisy sum. It reads gan_private.json and .png, and writes moments_private.json with both rows of numbers and
moments_private.png with both grids, moments above. Frequencies are chosen by public numbers alone; weights come from
public writers. (What is recorded at epsilon 32 was drawn with noise in float; the script now draws exact noise.)
"""

import argparse
import json
import math
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from gan_private import DELTA, draw, reader, some
from PIL import Image

from blindsight import keys
from blindsight.accounting.events import Gaussian
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.planning import solve_noise
from blindsight.algorithms import moments
from blindsight.codings import features
from blindsight.data import Population, embedded
from blindsight.fidelity import fidelity
from blindsight.models import generators

EPSILONS = (1.0, 2.0, 8.0, 32.0, float("inf"))


def made(population: Population, public: Population, epsilon: float, seed: int) -> tuple[Any, dict[str, Any]]:
    """200 digits of every class from one release at that epsilon, at their full spread, and what it took."""
    began = time.monotonic()
    noise = 1e-3 if math.isinf(epsilon) else solve_noise(Gaussian, epsilon=epsilon, delta=DELTA)
    frequencies = moments.frequencies_for(noise, clients=population.size, classes=10)
    chosen = features.images((28, 28), frequencies=frequencies, reference=public.columns["image"][:5000])
    key = keys.reproducible(seed)
    with tempfile.TemporaryDirectory() as scratch:
        released = moments.measure(
            population,
            chosen,
            epsilon=epsilon,
            delta=DELTA,
            key=key,
            ledger=Ledger(Path(scratch, "ledger.db")),
        )
    generator = moments.fit(released, key=key)
    (columns,), labels = generators.draw(generator, 200, key=key)
    promise = released.guarantee.to_dict()["epsilon"] if released.guarantee else "inf"
    about = {"epsilon": promise, "frequencies": frequencies, "seconds": round(time.monotonic() - began, 1)}
    return (columns["image"], labels), about


def main() -> None:
    """Run everything, print as it goes, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=3400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    population, others, teachers = (
        embedded("handwriting", clients=clients, seed=seed)
        for clients, seed in ((options.clients, 0), (100, 2), (200, 1))
    )
    eyes, real, training = reader(teachers), some(others, 2000), some(population, 5000)
    grids: dict[str, np.ndarray] = {"real": _four_of_each(*real)}
    rows: dict[str, Any] = {}
    for epsilon in EPSILONS:
        found, about = made(population, teachers, epsilon, options.seed)
        grids[f"{epsilon:g}"] = _four_of_each(*found)
        rows[f"{epsilon:g}"] = {**about, **fidelity(found, real, training[0], eyes).to_dict()}
        print(f"epsilon {epsilon:g}: {rows[f'{epsilon:g}']}", flush=True)
    other = options.out / "gan_private.json"
    result = {
        "command": f"python experiments/moments_private.py --clients {options.clients} --seed {options.seed}",
        "hardware": f"{jax.devices()[0].device_kind}, {platform.processor() or platform.machine()}",
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
        "clients": options.clients,
        "delta": DELTA,
        "simulation_only": "everything but epsilon, frequencies and seconds is read off data without noise",
        "moments": rows,
        "gan": json.loads(other.read_text())["rows"] if other.exists() else None,
    }
    (options.out / "moments_private.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    path = options.out / "moments_private.png"
    draw(grids, path)
    below = options.out / "gan_private.png"
    if below.exists():
        parts = [Image.open(path).convert("RGB"), Image.open(below).convert("RGB")]
        both = Image.new("RGB", (max(part.width for part in parts), sum(part.height for part in parts)), "white")
        both.paste(parts[0], (0, 0))
        both.paste(parts[1], (0, parts[0].height))
        both.convert("L").quantize(32).save(path, optimize=True)  # small: it goes into the repository


def _four_of_each(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    chosen = np.stack([images[labels == digit][:4] for digit in range(10)], axis=1)
    return chosen.reshape(40, 28, 28)


if __name__ == "__main__":
    main()
