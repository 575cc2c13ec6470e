"""How good are images and labels under plain differential privacy? MNIST and Fashion-MNIST, one image for each client.

    python experiments/plain_dp_generator.py [--data mnist fashion_mnist] [--epsilons 1 10] [--seeds 2] [--small]

60,000 clients with one training image each, add or remove one, delta 1e-5: the published setting. Two releases
(`algorithms.synthesis`) make a generator and an annotator; students learn from generated images alone. All are
evaluated once, on the 10,000 real test images; settings were chosen on 5,600 held-out training images of MNIST (with
the others' moments noised as here) and used unchanged for Fashion-MNIST.

    annotator   the classifier that is read off the second release in closed form
    strokes     a perceptron on the strokes of an image, taught by generated and redrawn images
    cnn         taught by the blurred images of the first release, and with it the samples' fidelity; not with --small,
                which also draws half as many images, for a shared machine

Writes plain_dp_generator.json after every run, resumes where it was stopped, and adds a strip to plain_dp_generator.png
for every data set and epsilon: blurred samples, redrawn ones, and real images.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

from blindsight import data, fidelity, keys
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.synthesis import Synthesis, synthesise
from blindsight.codings.features import images
from blindsight.codings.wavelets import OnStrokes
from blindsight.data import Population
from blindsight.models import CNN, MLP
from blindsight.students import Augmentation, train_student

DELTA, FREQUENCIES, SIZES, SHARE = 1e-5, 81, {1: 100, 10: 150}, 0.4
PER_CLASS, STEPS = 300, 600
MOVES: dict[str, float] = {"shift": 1.5, "turn": 0.15, "zoom": 0.1}
PUBLISHED = {
    "what": "accuracy in percent of classifiers on real test images, example level, delta 1e-5, at epsilon 1 and 10; "
    "as collected from DPImageBench and the papers themselves",
    "mnist": {
        "DP-MERF": [80.3, 81.3],
        "DP-Kernel": [94.0, 93.6],
        "DP-GAN": [92.4, 92.7],
        "DPDM": [95.3, 98.1],
        "DP-FETA": [95.6, 98.1],
        "DP-SGD on real images": [88.2, 96.4],
    },
    "fashion_mnist": {
        "DP-MERF": [62.2, 62.2],
        "DP-Kernel": [68.4, 70.0],
        "DP-GAN": [71.8, 70.3],
        "DPDM": [79.4, 86.2],
        "DP-FETA": [81.7, 87.3],
        "DP-SGD on real images": [70.5, 77.1],
    },
}


def people(name: str) -> tuple[Population, tuple[np.ndarray, np.ndarray]]:
    """60,000 clients of one image each, and the test images with their labels."""
    whole, test = (data.source(name, {"split": split}) for split in ("train", "test"))
    columns = {field: whole.columns[field] for field in ("image", "label")}
    clients = Population(columns, sizes=[1] * whole.n_examples, name=f"{name}, one image each", classes=whole.classes)
    return clients, (test.columns["image"], np.asarray(test.columns["label"]))


def private_part(name: str, clients: Population, epsilon: float, seed: int, ledger: Ledger) -> Synthesis:
    """The two releases: all that is ever read off the clients."""
    reference = data.embedded("handwriting", clients=60).columns["image"] if name == "mnist" else None
    return synthesise(
        clients,
        images((28, 28), frequencies=FREQUENCIES, reference=reference),
        epsilon=epsilon,
        delta=DELTA,
        key=keys.reproducible(seed),
        ledger=ledger,
        size=SIZES[int(epsilon)],
        share=SHARE,
    )


def run(
    name: str, clients: Population, test: Any, epsilon: float, seed: int, *, small: bool
) -> tuple[dict[str, Any], Any]:
    """One synthesis, its students, and how it all went."""
    began, key = time.monotonic(), keys.reproducible(seed)
    made = private_part(name, clients, epsilon, seed, Ledger())
    measured = time.monotonic()
    scores = {"annotator": float(np.mean(made.annotator.labels(test[0]) == test[1]))}
    print(name, epsilon, seed, scores, made.guarantee, f"{measured - began:.0f} s", flush=True)
    per_class = PER_CLASS // 2 if small else PER_CLASS
    blurred, drawn = made.blurred(per_class, key=key), made.samples(per_class, key=key)
    redrawn = time.monotonic()
    network = MLP((SIZES[int(epsilon)],), 10, hidden=(256,), key=jax.random.key(seed))
    models: dict[str, Any] = {"strokes": OnStrokes(made.annotator.encoding, network)}
    if not small:
        models["cnn"] = CNN((28, 28), 10, hidden=64, key=jax.random.key(seed))
    for kind, model in models.items():
        taught = drawn if kind == "strokes" else blurred
        noise = 0.05 if kind == "strokes" else 0.3
        varied = Augmentation(noise=noise, **MOVES)
        student = train_student(*taught, model=model, steps=STEPS, key=key, augmentation=varied)
        scores[kind] = student.accuracy(test)
    row: dict[str, Any] = {
        "data": name,
        "epsilon": epsilon,
        "delta": DELTA,
        "seed": seed,
        "guarantee": made.guarantee.to_dict(),
        "frequencies": FREQUENCIES,
        "strokes": SIZES[int(epsilon)],
        "images_of_each_class": per_class,
        "simulation_only": {"test": {kind: round(100 * share, 2) for kind, share in scores.items()}},
        "measured_in_s": round(measured - began, 1),
        "redrawn_in_s": round(redrawn - measured, 1),
        "in_all_s": round(time.monotonic() - began, 1),
        "hardware": f"{jax.devices()[0].device_kind}, {len(os.sched_getaffinity(0))} cores",
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
        "load": round(os.getloadavg()[0], 1),
    }
    if not small:
        row["simulation_only"]["fidelity"] = seen(name, clients, test, {"blurred": blurred, "redrawn": drawn})
    return row, (blurred, drawn)


def seen(name: str, clients: Population, test: Any, sets: dict[str, Any]) -> dict[str, Any]:
    """The fidelity of samples in the eyes of a perceptron that has seen real images."""
    few = slice(0, 2000)
    real = clients.columns["image"], np.asarray(clients.columns["label"])
    model = MLP((28, 28), 10, hidden=(128,), key=jax.random.key(0))
    eyes = train_student(*real, model=model, steps=500, key=keys.reproducible(0)).model
    against = (test[0][few], test[1][few]), real[0][few]
    return {kind: fidelity.fidelity(made, *against, eyes).to_dict() for kind, made in sets.items()}


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each data set and epsilon: mean, least and most over seeds."""
    rows: list[dict[str, Any]] = []
    for name, epsilon in dict.fromkeys((one["data"], one["epsilon"]) for one in runs):
        mine = [one for one in runs if (one["data"], one["epsilon"]) == (name, epsilon)]
        found = [one["simulation_only"]["test"] for one in mine]
        accuracy = {
            kind: [
                round(float(pick([test[kind] for test in found if kind in test])), 2) for pick in (np.mean, min, max)
            ]
            for kind in dict.fromkeys(kind for test in found for kind in test)
        }
        rows.append(
            {
                "data": name,
                "epsilon": epsilon,
                "delta": DELTA,
                "accuracy": accuracy,
                "seeds": len(mine),
                "guarantee": mine[0]["guarantee"],
            }
        )
    return rows


def write(runs: list[dict[str, Any]], path: Path) -> None:
    """The results with what made them."""
    result = {
        "command": "python experiments/plain_dp_generator.py --seeds 2",
        "unit": "one client with one image: example level",
        "accuracy": "percent of the 10,000 real test images: mean, least, most over seeds",
        "simulation_only": "accuracies and fidelity are read off real images without noise",
        "settings chosen on": "5,600 held-out training images of MNIST, unaccounted; none on Fashion-MNIST",
        "published": PUBLISHED,
        "rows": summary(runs),
        "runs": runs,
    }
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def sheet(pictures: np.ndarray, labels: np.ndarray, count: int = 6) -> np.ndarray:
    """`count` pictures of every class, a column for each class, with a white edge."""
    rows = np.stack([pictures[labels == label][:count] for label in range(10)])
    classes, _, height, width = rows.shape
    return np.pad(rows.transpose(1, 2, 0, 3).reshape(count * height, classes * width), 4, constant_values=255)


def main() -> None:
    """Run everything, print as it goes, write the results and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=["mnist", "fashion_mnist"], default=["mnist", "fashion_mnist"])
    parser.add_argument("--epsilons", type=int, nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    path = options.out / "plain_dp_generator.json"
    runs: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []
    for seed in range(options.seeds):
        for name in options.data:
            clients, test = people(name)
            for epsilon in options.epsilons:
                if any((one["data"], one["epsilon"], one["seed"]) == (name, epsilon, seed) for one in runs):
                    continue  # a stopped run resumes
                row, (blurred, drawn) = run(name, clients, test, epsilon, seed, small=options.small)
                runs.append(row)
                write(runs, path)
                print(name, epsilon, seed, row["simulation_only"]["test"], f"{row['in_all_s']} s", flush=True)
                if seed == 0:
                    real = test[0][: len(drawn[0])], test[1][: len(drawn[0])]
                    strip = np.concatenate([sheet(*blurred), sheet(*drawn), sheet(*real)], axis=1)
                    picture = path.with_suffix(".png")
                    before = [np.asarray(Image.open(picture))] if picture.exists() else []
                    Image.fromarray(np.concatenate([*before, strip])).save(picture)


if __name__ == "__main__":
    main()
