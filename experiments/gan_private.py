"""What a federated GAN shows under real privacy: the compact pair on 3,400 embedded writers, epsilon 1, 2, 8, 32 each.

    python experiments/gan_private.py [--clients 3400] [--rounds 120] [--seed 0] [--out experiments/results]

Clients are writers of digits and delta is 1e-6 for everyone; one run without noise, with the same clip, shows what the
pair could do. Settings were chosen by looking at runs with the noise of epsilon 8 on other writers, and then kept for
all. Samples are compared with 100 held-out writers, in the features of a classifier trained on yet other writers
(`blindsight.fidelity`, which is `simulation_only`). The pair is small enough for two CPU cores (minutes for
every epsilon); results are written after each. Writes gan_private.json and .png.
"""

import argparse
import functools
import json
import platform
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

from blindsight import keys, runs, trees
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms.dp_fedavg_gan import dp_fedavg_gan
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.backends import Simulation
from blindsight.codings.images_and_rows import coding_of
from blindsight.data import Population, embedded
from blindsight.fidelity import fidelity
from blindsight.models.classifiers import CNN
from blindsight.models.gan import GAN, compact_gan
from blindsight.models.layers import softmax_cross_entropy
from blindsight.privacy import Privacy
from blindsight.training import Checkpointing, train

matplotlib.use("agg")

EPSILONS = (8.0, 1.0, 2.0, 32.0, float("inf"))  # the most telling first
DELTA = 1e-6
SETTINGS: dict[str, Any] = {
    "rounds": 120,
    "cohort": 130,
    "clip": 0.2,
    "channels": (8, 16, 32),
    "width": 32,
    "latents": 32,
    "critic_rate": 0.2,
    "critic_steps": 1,
    "batch_size": 16,
    "generator_rate": 2e-3,
    "generator_steps": 4,
    "generator_batch_size": 64,
    "average": 0.98,
}


@functools.cache
def protection(epsilon: float, clients: int, cohort: float, rounds: int, clip: float) -> Privacy:
    """Poisson rounds with the least noise that keeps the promise."""
    privacy = Privacy(population=clients, cohort=cohort, rounds=rounds, clip=clip, noise_multiplier=0.0)
    return privacy.calibrate(epsilon=epsilon, delta=DELTA) if epsilon < float("inf") else privacy


def pair(privacy: Privacy, population: Population, settings: dict[str, Any], seed: int) -> Any:
    """The algorithm with these settings."""
    gan = compact_gan(
        coding_of(population),
        classes=10,
        channels=settings["channels"],
        width=settings["width"],
        latents=settings["latents"],
        key=jax.random.key(seed),
    )
    generator = GeneratorSteps(
        optimizer=optax.adam(settings["generator_rate"], b1=0.5, b2=0.9),
        batch_size=settings["generator_batch_size"],
        steps=settings["generator_steps"],
        average=settings["average"],
    )
    return dp_fedavg_gan(
        gan,
        privacy,
        critic_optimizer=optax.sgd(1.0),
        generator=generator,
        **{name: settings[name] for name in ("critic_rate", "critic_steps", "batch_size")},
    )


def grow(epsilon: float, population: Population, settings: dict[str, Any], seed: int) -> tuple[GAN, dict[str, Any]]:
    """One run at one epsilon: the pair and what it promised."""
    privacy = protection(epsilon, population.size, settings["cohort"], settings["rounds"], settings["clip"])
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        trained = train(
            pair(privacy, population, settings, seed),
            Simulation(population),
            privacy,
            population=population.name,
            delta=DELTA,
            key=keys.reproducible(seed),
            run=runs.begin(Path(scratch, "run"), "gan", {}),
            ledger=Ledger(Path(scratch, "ledger.db")),
            checkpointing=Checkpointing(every_rounds=privacy.rounds),
            progress=True,
        )
    promise = trained.guarantee.to_dict()["epsilon"]
    seconds = time.monotonic() - began
    about = {"epsilon": promise, "noise_multiplier": privacy.noise_multiplier, "seconds": round(seconds, 1)}
    return trained.model, about


def samples(gan: GAN, count: int, seed: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Made digits, as bytes, and what they should show."""
    made = eqx.filter_jit(lambda gan: gan.sample(count, key=jax.random.key(seed)))(gan)
    return gan.coding.decode(made)["image"], np.arange(count) % 10


def reader(teachers: Population, *, epochs: int = 5, batch_size: int = 64) -> CNN:
    """A classifier of digits, which learned from writers that are nobody's clients."""
    image, label = (jnp.asarray(teachers.columns[field]) for field in ("image", "label"))
    optimizer, batches = optax.adam(2e-3), len(label) // batch_size

    def step(carry: Any, rows: jax.Array) -> tuple[Any, None]:
        model, state = carry
        loss = lambda model: jnp.mean(softmax_cross_entropy(model(image[rows]), label[rows]))  # noqa: E731
        updates, state = optimizer.update(eqx.filter_grad(loss)(model), state)
        return (eqx.apply_updates(model, updates), state), None

    @eqx.filter_jit
    def epoch(carry: Any, key: jax.Array) -> Any:
        order = jax.random.permutation(key, len(label))[: batches * batch_size].reshape(batches, batch_size)
        return jax.lax.scan(step, carry, order)[0]

    model = CNN((28, 28), 10, key=jax.random.key(0))
    carry = model, optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    for number in range(epochs):
        carry = epoch(carry, jax.random.key(number + 1))
    return carry[0]


def some(population: Population, count: int) -> tuple[np.ndarray, np.ndarray]:
    """So many examples of everyone's, and their labels."""
    rows = np.random.default_rng(0).permutation(population.n_examples)[:count]
    return population.columns["image"][rows], population.columns["label"][rows]


def draw(grids: dict[str, np.ndarray], path: Path) -> None:
    """Four samples of every digit, a column for each epsilon, all from the same latents."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(grids), figsize=(1.6 * len(grids), 3.9), layout="constrained", squeeze=False)
    for place, name in zip(axes[0], sorted(grids, key=lambda name: 0 if name == "real" else float(name)), strict=True):
        tiles = grids[name].reshape(4, 10, 28, 28).transpose(1, 2, 0, 3).reshape(280, 112)
        place.imshow(tiles, cmap="gray", vmin=0, vmax=255)
        place.set_title("no noise" if name == "inf" else name if name == "real" else f"epsilon {name}", fontsize=9)
        place.axis("off")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run everything, print as it goes, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=3400)
    parser.add_argument("--rounds", type=int, default=SETTINGS["rounds"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    settings = {**SETTINGS, "rounds": options.rounds}
    population, others, teachers = (
        embedded("handwriting", clients=clients, seed=seed)
        for clients, seed in ((options.clients, 0), (100, 2), (200, 1))
    )
    population = population.replace(population.columns)
    eyes, real = reader(teachers), some(others, 2000)
    training = some(population, 5000)
    grids = {"real": np.concatenate([real[0][real[1] == digit][:4] for digit in range(10)])}
    grids["real"] = grids["real"].reshape(10, 4, 28, 28).swapaxes(0, 1).reshape(40, 28, 28)
    rows = {"real": fidelity(some(teachers, 2000), real, training[0], eyes).to_dict()}
    print(f"real: {rows['real']}", flush=True)
    for epsilon in EPSILONS:
        gan, about = grow(epsilon, population, settings, options.seed)
        made = samples(gan, 2000)
        grids[f"{epsilon:g}"] = made[0][:40]
        rows[f"{epsilon:g}"] = {**about, **fidelity(made, real, training[0], eyes).to_dict()}
        print(f"epsilon {epsilon:g}: {rows[f'{epsilon:g}']}", flush=True)
        result = {
            "command": f"python experiments/gan_private.py --clients {options.clients} --rounds {options.rounds}",
            "hardware": f"{jax.devices()[0].device_kind}, {platform.processor() or platform.machine()}",
            "versions": {"jax": jax.__version__, "python": platform.python_version()},
            "clients": options.clients,
            "delta": DELTA,
            "settings": settings,
            "critic": trees.size(eqx.filter(gan.critic, eqx.is_inexact_array)),
            "simulation_only": "everything but epsilon, noise_multiplier and seconds is read off data without noise",
            "rows": rows,
        }
        (options.out / "gan_private.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        draw(grids, options.out / "gan_private.png")


if __name__ == "__main__":
    main()
