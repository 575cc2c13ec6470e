"""What does a generator learn from one private sum? MNIST on 3,400 clients of 16 images, epsilon 1 to infinity.

    python experiments/moments_mnist.py [--data mnist] [--seeds 3] [--epsilons 1 2 8 32 inf] [--out experiments/results]

Of the 60,000 training images 54,400 are dealt at random to 3,400 clients of 16; the other 5,600 are for validation, on
which every setting was chosen. One release at client level with delta 1e-6, then students (an MLP and a CNN) learn from
generated images alone and are tested on the 10,000 real test images, once. Weights of frequencies come from embedded
handwriting, which is drawn by a program; Fashion-MNIST goes without. Students learn from latents spread a little wider
than a normal distribution, and with noise on pixels; the samples shown, and their fidelity, use the normal
distribution. Writes moments_NAME.json, and moments_NAME.png with samples at every epsilon in rising order, and real
ones at the end.
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
import jax.numpy as jnp
import numpy as np
import optax

from blindsight import data, fidelity, keys
from blindsight.accounting.events import Gaussian
from blindsight.accounting.ledger import Ledger
from blindsight.accounting.planning import solve_noise
from blindsight.algorithms import moments
from blindsight.codings.features import Features, images
from blindsight.data import Population
from blindsight.models import CNN, MLP, generators
from blindsight.models.layers import softmax_cross_entropy

CLIENTS, EACH, DELTA = 3400, 16, 1e-6
SPREAD = 1.25  # of the latents that students learn from: real images vary more than moments tell
STUDENTS: dict[str, Any] = {
    "mlp": functools.partial(MLP, hidden=(512,)),
    "cnn": functools.partial(CNN, hidden=64),
}
STEPS = {"mlp": 2000, "cnn": 1000}
PROTOTYPE = {"1": 80.1, "8": 89.0, "inf": 89.5}
"""Accuracies of an MLP in percent, of random Fourier features on the same clients, before this was written."""
PUBLISHED = {
    "example-level, delta 1e-5, MNIST, epsilon 1 and 10": {
        "DP-MERF": [80.3, 81.3],
        "DP-Kernel": [94.0, 93.6],
        "DP-GAN": [92.4, 92.7],
        "DPDM": [89.2, 97.7],
    }
}


def people(name: str) -> tuple[Population, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The clients, and the images for validation and for the test."""
    whole, test = (data.source(name, {"split": split}) for split in ("train", "test"))
    order = np.random.default_rng(0).permutation(whole.n_examples)
    columns = {field: whole.columns[field] for field in ("image", "label")}
    dealt, held = (
        {field: column[rows] for field, column in columns.items()} for rows in np.split(order, [CLIENTS * EACH])
    )
    clients = Population(dealt, sizes=[EACH] * CLIENTS, name=f"{name} in clients of {EACH}", classes=whole.classes)
    return clients, held, {field: test.columns[field] for field in ("image", "label")}


def features_for(name: str, noise_multiplier: float) -> Features:
    """Features for that much noise, decided by public numbers alone."""
    frequencies = moments.frequencies_for(noise_multiplier, clients=CLIENTS, classes=10)
    drawn = data.embedded("handwriting", clients=60).columns["image"] if name == "mnist" else None
    return images((28, 28), frequencies=frequencies, reference=drawn)


def student(kind: str, image: np.ndarray, label: np.ndarray, *, seed: int, steps: int, noise: float = 0.3) -> Any:
    """A classifier that has seen generated images alone, with noise on their pixels; its parameters averaged."""
    first, second = jax.random.split(jax.random.key(seed))
    model = STUDENTS[kind]((28, 28), 10, key=first)
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-3, steps))
    x, y = jnp.asarray(image), jnp.asarray(label, jnp.int32)

    def loss(model: Any, key: jax.Array) -> jax.Array:
        which, what = jax.random.split(key)
        chosen = jax.random.randint(which, (128,), 0, len(y))
        pixels = x[chosen].astype(jnp.float32) / 255
        pixels += noise * jax.random.normal(what, pixels.shape)
        return jnp.mean(softmax_cross_entropy(model(pixels), y[chosen]))

    @jax.jit
    def learn(model: Any, keys_of_steps: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> tuple[Any, None]:
            model, average, state = state
            updates, state = optimizer.update(jax.grad(loss)(model, key), state)
            model = optax.apply_updates(model, updates)
            return (model, optax.incremental_update(model, average, 0.01), state), None

        return jax.lax.scan(step, (model, model, optimizer.init(model)), keys_of_steps)[0][1]

    return learn(model, jax.random.split(second, steps))


def right(model: Any, examples: dict[str, np.ndarray]) -> float:
    """The share of real images that the student names."""
    answers = [jnp.argmax(model(jnp.asarray(part)), axis=1) for part in np.array_split(examples["image"], 20)]
    return float(np.mean(np.concatenate(answers) == examples["label"]))


def run(name: str, clients: Population, epsilon: float, seed: int) -> tuple[Any, dict[str, Any]]:
    """One release and one generator: how it was measured, and how long that took."""
    noise = 0.0 if epsilon == float("inf") else solve_noise(Gaussian, epsilon=epsilon, delta=DELTA)
    features = features_for(name, noise)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        measured = moments.measure(
            clients,
            features,
            epsilon=epsilon,
            delta=DELTA,
            key=keys.reproducible(seed),
            ledger=Ledger(Path(scratch, "ledger.db")),
        )
    released = time.monotonic()
    generator = moments.fit(measured, key=keys.reproducible(seed))
    about = {
        "epsilon": f"{epsilon:g}",
        "seed": seed,
        "features": features.settings,
        "dimension": features.dimension,
        "noise_over_signal": float(np.mean(measured.noise) * features.dimension**0.5),
        "measured_in_s": round(released - began, 1),
        "fitted_in_s": round(time.monotonic() - released, 1),
    }
    return generator, about


def draw_grid(sheets: dict[str, np.ndarray], real: np.ndarray, path: Path) -> None:
    """Eight samples of every class at each epsilon, and as many real ones, from left to right."""
    from PIL import Image

    tiles = [_tiled(sheets[name]) for name in sorted(sheets, key=float)] + [_tiled(real)]
    Image.fromarray(np.concatenate(tiles, axis=1)).save(path)


def _tiled(images_of: np.ndarray) -> np.ndarray:
    """(classes, samples, height, width) as a grid with a column for every class and a white edge."""
    classes, count, height, width = images_of.shape
    grid = images_of.transpose(1, 2, 0, 3).reshape(count * height, classes * width)
    return np.pad(grid, 4, constant_values=255)


def main() -> None:
    """Run everything, print a table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["mnist", "fashion_mnist"], default="mnist")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1, 2, 8, 32, float("inf")])
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    clients, held, test = people(options.data)
    eyes = student("cnn", clients.columns["image"], clients.columns["label"], seed=0, steps=1000, noise=0.0)
    few = np.arange(5000)  # of each side, for precision and recall
    path = options.out / f"moments_{options.data}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    done, sheets = {(row["epsilon"], row["seed"]) for row in rows}, dict[str, np.ndarray]()
    for epsilon in options.epsilons:
        for seed in range(options.seeds):
            is_done = (f"{epsilon:g}", seed) in done  # a stopped run resumes
            if is_done and seed > 0:
                continue
            generator, row = run(options.data, clients, epsilon, seed)
            (shown,), shown_labels = generators.draw(generator, 500, key=keys.reproducible(seed))
            sheets.setdefault(f"{epsilon:g}", shown["image"].reshape(10, -1, 28, 28)[:, :8])
            if is_done:
                continue
            (drawn,), labels = generators.draw(generator, 2000, key=keys.reproducible(seed), spread=SPREAD)
            kinds = STUDENTS if seed == 0 else ("mlp",)  # a CNN takes minutes on two cores
            learnt = {kind: student(kind, drawn["image"], labels, seed=seed, steps=STEPS[kind]) for kind in kinds}
            row["simulation_only"] = {
                "validation": {kind: right(model, held) for kind, model in learnt.items()},
                "test": {kind: right(model, test) for kind, model in learnt.items()},
            }
            if seed == 0:
                sides = (shown["image"], shown_labels), (test["image"][few], test["label"][few])
                seen = fidelity.fidelity(*sides, clients.columns["image"][few], eyes)
                row["simulation_only"]["fidelity"] = seen.to_dict()
            rows.append(row)
            said = ", ".join(f"{kind} {100 * share:.1f} %" for kind, share in row["simulation_only"]["test"].items())
            print(f"epsilon {epsilon:<4g} seed {seed}: {said}; fitted in {row['fitted_in_s']} s", flush=True)
            write(sorted(rows, key=lambda row: (float(row["epsilon"]), row["seed"])), options, path)
    real = np.stack([test["image"][test["label"] == label][:8] for label in range(10)])
    draw_grid(sheets, real, options.out / f"moments_{options.data}.png")


def write(rows: list[dict[str, Any]], options: argparse.Namespace, path: Path) -> None:
    """The results with what made them."""
    summary: dict[str, dict[str, list[float]]] = {}
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        found = [row["simulation_only"]["test"] for row in rows if row["epsilon"] == epsilon]
        for kind in STUDENTS:
            shares = [100 * test[kind] for test in found if kind in test]
            of_kind = summary.setdefault(epsilon, {})
            of_kind[kind] = [round(float(pick(shares)), 2) for pick in (np.mean, np.min, np.max)]
    result = {
        "command": f"python experiments/moments_mnist.py --data {options.data} --seeds {options.seeds} --epsilons "
        + " ".join(summary),
        "hardware": f"{jax.devices()[0].device_kind}, {platform.processor() or platform.machine()}",
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
        "clients": CLIENTS,
        "examples_per_client": EACH,
        "delta": DELTA,
        "unit": "client",
        "spread_of_latents_for_students": SPREAD,
        "test accuracy in percent: mean, least, most over seeds": summary,
        **({"prototype (MLP)": PROTOTYPE, "published": PUBLISHED} if options.data == "mnist" else {}),
        "simulation_only": "accuracies and fidelity are read off real images without noise",
        "rows": rows,
    }
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
