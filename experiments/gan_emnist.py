"""The experiment of Augenstein et al. 2020 (arXiv:1911.06679, Section 6 and Appendix C), with their settings (Table 9).

    python experiments/gan_emnist.py [--population femnist] [--clients 3400] [--only-sizes] [--out experiments/results]

A primary model reads handwriting; pixels are inverted on half of the clients, or on none. Two federated GANs learn
where it does badly and where it does well: by client (Figures 3 and 6) and by example (Figures 7 and 8). Their grids of
36 samples are shown side by side, from the same latents. 1,000 rounds of 10 eligible clients and noise of 0.01 times
the clip protect nobody; the table beside the grids states the epsilon.

What differs from the paper: `femnist` are 541 writers of LEAF, not the 3,400 of TFF's EMNIST; `handwriting` are 3,400
synthetic writers. Thresholds are the paper's quantiles (the quarters of clients) of our own primary model's accuracies,
not its 0.882 and 0.939. As in the paper, samples are inverted only in the arms that fail under the bug; the minority in
an arm (15 % of the failing examples are not inverted) appears in no sample. Eligibility is computed from the data, as
in the paper, so all numbers here are `simulation_only`.
Writes gan_emnist_POPULATION.json, .png and .npz (the samples), after every arm; finished arms are not repeated.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

from blindsight import keys, runs
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import Algorithm
from blindsight.algorithms.dp_fedavg_gan import dp_fedavg_gan
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.backends import Simulation
from blindsight.codings.images_and_rows import Images
from blindsight.data import Population, dataset, embedded, faults
from blindsight.models.gan import paper_gan
from blindsight.models.layers import Conv, Dense, max_pool, softmax_cross_entropy
from blindsight.privacy import Privacy, plan
from blindsight.selection import where
from blindsight.training import Checkpointing, train

matplotlib.use("agg")

BUG = "invert:0.5"
SETTINGS: dict[str, Any] = {
    "rounds": 1000,
    "cohort": 10,
    "noise_multiplier": 0.01,
    "clip": 0.1,
    "critic_rate": 0.0005,
    "generator_rate": 0.005,
    "batch_size": 32,
    "critic_steps": 6,
    "generator_batch_size": 32,
    "generator_steps": 6,
    "latents": 128,
    "minimum": 5,
}
PUBLISHED = {
    "Table 10": {"25th percentile": 0.882, "75th percentile": 0.939},
    "sizes of 3,400": {
        "none, healthy": 850,
        "none, failing": 850,
        "bug, healthy": 425,
        "bug, failing": 2125,
        "none, correct": 3400,
        "none, mistakes": 3282,
        "bug, correct": 2905,
        "bug, mistakes": 3340,
    },
}
ARMS = {"by client": ("healthy", "failing"), "by example": ("correct", "mistakes")}
FIGURES = {
    ("bug", "by client"): "Figure 3",
    ("none", "by client"): "Figure 6",
    ("bug", "by example"): "Figure 7",
    ("none", "by example"): "Figure 8",
}
CLASSES = 36  # digits and letters, large and small alike, as the authors have it


class Reader(eqx.Module):
    """The authors' primary model: three convolutions and two dense layers."""

    convolutions: list[Conv]
    dense: Dense
    output: Dense

    def __init__(self, *, key: jax.Array) -> None:
        first, second, third, *rest = jax.random.split(key, 5)
        sizes = ((1, 32, first), (32, 64, second), (64, 64, third))
        self.convolutions = [Conv(a, b, 3, padding="VALID", key=k) for a, b, k in sizes]
        self.dense, self.output = Dense(576, 64, key=rest[0]), Dense(64, CLASSES, key=rest[1])

    def __call__(self, image: jax.Array) -> jax.Array:
        x = image[..., None].astype(jnp.float32) / 127.5 - 1
        x = max_pool(jax.nn.relu(self.convolutions[0](x)))
        x = max_pool(jax.nn.relu(self.convolutions[1](x)))
        x = jax.nn.relu(self.convolutions[2](x))
        return self.output(jax.nn.relu(self.dense(x.reshape(x.shape[0], -1))))


def primary_model(image: np.ndarray, label: np.ndarray, *, epochs: int = 3, batch_size: int = 32) -> Reader:
    """The authors': Adam, batches of 32, three times through."""
    optimizer, batches = optax.adam(1e-3), len(label) // batch_size
    images, labels = jnp.asarray(image), jnp.asarray(label)

    def step(carry: Any, rows: jax.Array) -> tuple[Any, None]:
        model, state = carry
        loss = lambda model: jnp.mean(softmax_cross_entropy(model(images[rows]), labels[rows]))  # noqa: E731
        updates, state = optimizer.update(jax.grad(loss)(model), state)
        return (optax.apply_updates(model, updates), state), None

    @jax.jit
    def epoch(carry: Any, key: jax.Array) -> Any:
        order = jax.random.permutation(key, len(label))[: batches * batch_size]
        return jax.lax.scan(step, carry, order.reshape(batches, batch_size))[0]

    model = Reader(key=jax.random.key(0))
    carry = model, optimizer.init(model)
    for number in range(epochs):
        carry = epoch(carry, jax.random.key(number + 1))
    return carry[0]


def is_correct(model: Reader, population: Population) -> np.ndarray:
    """Whether the model reads each example aright."""
    read = jax.jit(lambda image: jnp.argmax(model(image), axis=-1))
    image, parts = population.columns["image"], []
    for start in range(0, len(image), 8192):
        some = image[start : start + 8192]
        parts.append(np.asarray(read(np.pad(some, [(0, 8192 - len(some)), (0, 0), (0, 0)])))[: len(some)])
    return np.concatenate(parts) == population.columns["label"]


def folded(population: Population) -> Population:
    """Small letters with the labels of capitals; everything in memory."""
    columns = population.columns
    label = columns["label"].astype(np.int32)
    label = np.where(label >= CLASSES, label - 26, label).astype(np.int32)
    return Population({"image": columns["image"], "label": label}, sizes=population.sizes, name=population.name)


def people(name: str, clients: int) -> tuple[Population, Reader]:
    """The clients as they should be, and the primary model, which learned from them (or from other synthetic ones)."""
    if name == "femnist":
        population = folded(dataset("femnist", invert=True))
        population = population.select(np.arange(min(clients, population.size)))
        teachers = population
    else:
        population = folded(embedded("handwriting", clients=clients, glyphs="all"))
        teachers = folded(embedded("handwriting", clients=max(clients // 8, 20), glyphs="all", seed=1))
    return population, primary_model(teachers.columns["image"], teachers.columns["label"])


def per_client(population: Population, values: np.ndarray) -> np.ndarray:
    """The sum of values over each client's examples."""
    return np.add.reduceat(np.append(values.astype(np.int64), 0), population.offsets[:-1]) * (population.sizes > 0)


def arms(population: Population, right: np.ndarray, low: float, high: float) -> dict[str, np.ndarray]:
    """Which examples each arm has: all of a client's, or some of them if they are enough."""
    spread = lambda of_client: np.repeat(of_client, population.sizes)  # noqa: E731
    accuracy = per_client(population, right) / np.maximum(population.sizes, 1)
    enough = lambda mask: mask & spread(per_client(population, mask) >= SETTINGS["minimum"])  # noqa: E731
    return {
        "healthy": spread(accuracy >= high),
        "failing": spread(accuracy < low),
        "correct": enough(right),
        "mistakes": enough(~right),
    }


@dataclasses.dataclass(frozen=True)
class Eligible:
    """A backend that knows only some of the clients of another one, counted anew: the papers' way to form an arm."""

    backend: Simulation
    clients: np.ndarray

    def cohort(self, clients: np.ndarray, **settings: Any) -> Any:
        """The cohort of these clients."""
        return self.backend.cohort(self.clients[clients], **settings)


def algorithm(settings: dict[str, Any]) -> Algorithm:
    """Algorithm 1 with the settings of Table 9; the same for every arm, so that it is compiled once."""
    gan = paper_gan(Images(28, 28), latents=settings["latents"], key=jax.random.key(0))
    given: Any = {name: settings[name] for name in ("critic_rate", "batch_size", "critic_steps")}
    given |= {"critic_optimizer": optax.sgd(1.0), "criterion": where("chosen", 1)}
    generator = GeneratorSteps(
        optimizer=optax.sgd(settings["generator_rate"]),
        batch_size=settings["generator_batch_size"],
        steps=settings["generator_steps"],
    )
    return dp_fedavg_gan(gan, protection(settings, settings["cohort"]), **given, generator=generator)


def protection(settings: dict[str, Any], eligible: int) -> Privacy:
    """The paper's rounds over the eligible clients."""
    named: Any = {name: settings[name] for name in ("cohort", "rounds", "noise_multiplier", "clip")}
    return Privacy(population=eligible, participation="fixed", **named)


def grow(shared: Algorithm, population: Population, mask: np.ndarray, settings: dict[str, Any]) -> dict[str, Any]:
    """One GAN for one arm: its samples, how long it took, and what the arm really looks like."""
    eligible = np.flatnonzero(per_client(population, mask))
    column = population.replace({"image": population.columns["image"], "chosen": mask.astype(np.int32)})
    privacy = protection(settings, len(eligible))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        trained = train(
            shared,
            Eligible(Simulation(column), eligible),
            privacy,
            population=population.name,
            delta=1 / len(eligible),
            key=keys.reproducible(0),
            run=runs.begin(Path(scratch, "run"), "gan", {}),
            ledger=Ledger(Path(scratch, "ledger.db")),
            checkpointing=Checkpointing(every_rounds=privacy.rounds),
        )
    seconds = time.monotonic() - began
    made = np.asarray(eqx.filter_jit(lambda gan: gan.sample(1000, key=jax.random.key(9)))(trained.model))
    image = trained.model.coding.decode(made)["image"]
    real = population.columns["image"][mask]
    return {
        "clients": len(eligible),
        "examples": int(mask.sum()),
        "seconds": round(seconds, 1),
        "rounds_per_s": round(privacy.rounds / seconds, 1),
        "bright samples": round(bright(image), 3),
        "bright examples": round(bright(real), 3),
        "epsilon": trained.guarantee.epsilon,
        "images": image[:36],
    }


def bright(image: np.ndarray) -> float:
    """The share of images that are more white than black, as only inverted ones are."""
    return float(np.mean(image.mean(axis=(1, 2)) > 127.5))


def promises(sizes: dict[str, int], clients: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Tables 3 and 13 for our sizes: as published, and what holds; simulated, and with 2,000,000 clients at z = 1."""
    rows: dict[str, Any] = {}
    for name, eligible in sizes.items():
        larger = round(2_000_000 * eligible / clients)
        cases = {
            "simulation": (protection(settings, eligible), 1 / eligible),
            "realistic": (protection({**settings, "cohort": 1000, "noise_multiplier": 1.0}, larger), 0.01 / larger),
        }
        for case, (privacy, delta) in cases.items():
            found = plan(privacy, delta=delta, as_published=True).to_dict()
            rows[f"{name}, {case}"] = {
                "clients": privacy.population,
                "delta": delta,
                "as published": found["published"],
                "at least": found["lower"],
                "at most": found["upper"],
                "with poisson rounds": found["alternatives"]["poisson"]["epsilon"],
            }
    return rows


def draw(grids: dict[str, np.ndarray], path: Path) -> None:
    """Grids of 36 samples, a row for each figure of the paper that is there."""
    from matplotlib import pyplot

    panels = {
        f"{figure}: {arm}, {'inverted on 50 %' if bug == 'bug' else 'no bug'}": grids.get(f"{bug}, {arm}")
        for (bug, how), figure in FIGURES.items()
        for arm in ARMS[how]
    }
    shown = {title: grid for title, grid in panels.items() if grid is not None}
    figure, axes = pyplot.subplots(-(-len(shown) // 2), 2, figsize=(5.2, 1.4 * len(shown)), layout="constrained")
    for place in axes.flat:
        place.axis("off")
    for place, (title, grid) in zip(axes.flat, shown.items(), strict=False):
        place.imshow(grid.reshape(6, 6, 28, 28).swapaxes(1, 2).reshape(168, 168), cmap="gray", vmin=0, vmax=255)
        place.set_title(title, fontsize=8)
    figure.savefig(path, dpi=90)


def main() -> None:
    """Run what is missing, print as it goes, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--population", choices=["femnist", "handwriting"], default="femnist")
    parser.add_argument("--clients", type=int, default=3400)
    parser.add_argument("--rounds", type=int, default=SETTINGS["rounds"])
    parser.add_argument("--only-sizes", action="store_true", help="no GANs: only the arms' sizes and the guarantee")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    settings = {**SETTINGS, "rounds": options.rounds}
    path = options.out / f"gan_emnist_{options.population}"
    rows, grids = done(path, settings)
    whole, model = people(options.population, options.clients)
    right = is_correct(model, whole)
    accuracy = per_client(whole, right) / np.maximum(whole.sizes, 1)
    low, high = (float(np.quantile(accuracy, q)) for q in (0.25, 0.75))
    print(f"primary model: accuracy {right.mean():.3f}, quarters of clients at {low:.3f} and {high:.3f}", flush=True)
    populations = {"bug": faults.apply(whole, BUG), "none": whole}
    masks = {
        f"{bug}, {arm}": mask
        for bug, population in populations.items()
        for arm, mask in arms(population, is_correct(model, population), low, high).items()
    }
    sizes = {name: int(np.count_nonzero(per_client(whole, mask))) for name, mask in masks.items()}
    print(f"clients in the arms: {sizes}", flush=True)
    result = {
        "command": f"python experiments/gan_emnist.py --population {options.population}",
        "clients": whole.size,
        "settings": settings,
        "simulation_only": "accuracies, thresholds, sizes and shares are read off the data without noise",
        "accuracy": {"all": float(right.mean()), "25th percentile": low, "75th percentile": high},
        "sizes": sizes,
        "published": PUBLISHED,
        "privacy": promises(sizes, whole.size, settings),
    }
    write(path, result, rows, grids)
    shared = algorithm(settings)
    for name, mask in masks.items():
        if name not in rows and not options.only_sizes:
            row = grow(shared, populations[name.split(", ")[0]], mask, settings)
            grids[name] = row.pop("images")
            rows[name] = {**row, "hardware": jax.devices()[0].device_kind, "jax": jax.__version__}
            print(f"{name}: {rows[name]}", flush=True)
            write(path, result, rows, grids)


def done(path: Path, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The arms that earlier runs with the same settings finished, and their samples."""
    if not (path.with_suffix(".json").exists() and path.with_suffix(".npz").exists()):
        return {}, {}
    found = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    if found["settings"] != settings:
        return {}, {}
    with np.load(path.with_suffix(".npz")) as opened:
        return found["arms"], {name: opened[name] for name in opened.files}


def write(path: Path, result: dict[str, Any], rows: dict[str, Any], grids: dict[str, np.ndarray]) -> None:
    """Everything that is known so far."""
    path.with_suffix(".json").write_text(json.dumps({**result, "arms": rows}, indent=2) + "\n", encoding="utf-8")
    if grids:
        np.savez_compressed(path.with_suffix(".npz"), allow_pickle=False, **grids)
        draw(grids, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
