"""The experiments of Triastcyn and Faltings 2022 (Algorithms 15:232) with both accountants: Figs. 1 to 3 and Table 1.

    python experiments/bayesian_gan.py [--data mnist fashion_mnist] [--epochs 400] [--small] [--out experiments/results]

Every image is a client of its own (example-level privacy, delta 1e-5). Generators are trained with the least noise at
which the Bayesian accountant says (1, 1e-10), as the paper reports, and under plain DP at epsilon 1 and 10. On MNIST a
bug turns half of the images by 90 degrees (Fig. 1). Students learn from samples alone, labelled by an annotator (a
classifier of the real images with the same noise rule) or by the class that the generator was asked for (Table 1, Fig.
3). Every Bayesian number comes with the plain epsilon of the same run, which holds for everyone, and with m and the
largest distance.

At full size a generator takes 80 seconds on an H200, its students some minutes on a core; `--small --epochs 0.25` is a
faster rate and a smaller critic for two CPU cores. The bug is also looked for directly, at plain epsilon 1, with
`inspect.sanity`. Results are written after every part to bayesian_gan.json, .npz and .png; parts already done with the
same settings are skipped, and an interrupted generator resumes from its folder under --runs.
"""

import argparse
import json
import math
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import matplotlib
import numpy as np
import optax

from blindsight import inspect, keys, runs, trees
from blindsight.accounting.bayesian import BayesianConfig, step_cost
from blindsight.accounting.events import Gaussian, Poisson, Relation, Unit
from blindsight.accounting.gaussian_curve import KnownRounds
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import dp_fedavg
from blindsight.algorithms.bayesian_gan import bayesian_gan, published_noise_multipliers
from blindsight.algorithms.gan_server import GeneratorSteps
from blindsight.backends import Simulation
from blindsight.backends.paired import Paired, bayesian_config
from blindsight.codings.oriented import oriented_gradients
from blindsight.data import Population, dataset, faults
from blindsight.jobs.pairs import PairLog
from blindsight.jobs.tasks import one_example_each
from blindsight.models import CNN, MLP, cross_entropy
from blindsight.models.equinox_models import fit
from blindsight.models.primary import primary
from blindsight.models.selu_gan import selu_gan
from blindsight.privacy import Privacy
from blindsight.students import Augmentation, train_student
from blindsight.training import Checkpointing, RunTerms, train

matplotlib.use("agg")

DELTA, BAYESIAN_DELTA, CLIP = 1e-5, 1e-10, 0.5
NOISE = {"mnist": 0.01, "fashion_mnist": 0.02}
BUG = "rotate90:0.5:by=example"
FULL: dict[str, Any] = {
    "batch": 2048,
    "rate": 5e-4,
    "generator_rate": 1e-3,
    "b1": 0.5,
    "b2": 0.9,
    "channels": (16, 32, 64),
    "hidden": 64,
    "fakes": 256,
    "generator_batch": 256,
    "pairs": 16,
    "critic_rounds": 3,
    "penalty": 10.0,
    "average": 0.99,
}
SMALL: dict[str, Any] = FULL | {
    "batch": 64,
    "rate": 1e-3,
    "channels": (8, 16, 32),
    "hidden": 32,
    "fakes": 32,
    "generator_batch": 64,
    "critic_rounds": 2,
    "average": 0.9,
}
LABELLED, SAMPLES = (30, 100, 300, 1000, 3000), 20_000
VARIED = Augmentation(noise=0.1, shift=1.5, turn=0.15, zoom=0.1)
FEW = {"batch": 64, "fakes": 64, "generator_batch": 128, "epochs": 3.2}
"""Where little noise is needed, these rates let the critic run away from the generator: in 4,395 batches of 2,048 at
plain epsilon 10 samples turned into checkers (seen twice). 3,000 batches of 64 need about as much noise in the mean as
epsilon 1 does with large ones, and train as steadily."""
PLANS = {  # panel to data, bug, and what the noise follows from; the most telling first
    "clean, Bayesian 1": ("mnist", False, "bayesian 1"),
    "Fashion-MNIST, Bayesian 1": ("fashion_mnist", False, "bayesian 1"),
    "rotated, Bayesian 1": ("mnist", True, "bayesian 1"),
    "rotated, plain DP 10": ("mnist", True, "plain 10"),
    "rotated, plain DP 1": ("mnist", True, "plain 1"),
    "clean, plain DP 1": ("mnist", False, "plain 1"),
    "clean, plain DP 10": ("mnist", False, "plain 10"),
    "Fashion-MNIST, plain DP 10": ("fashion_mnist", False, "plain 10"),
}
PUBLISHED: dict[str, Any] = {
    "Table 1, percent": {
        "mnist": {"non-private": 99.20, "private classifier": 95.59, "G-PATE": 56.31, "theirs": 93.64},
        "fashion_mnist": {"non-private": 91.51, "private classifier": 82.20, "G-PATE": 51.74, "theirs": 76.83},
    },
    "not private, percent": {"mnist": 96.09, "fashion_mnist": 84.86},
    "Fig. 1c": "samples under plain DP show nothing at epsilon of the order of 1e7",
    "guarantee": "(1, 1e-10)-BDP, read as (1, 1e-5)-DP for all but one record in 100,000",
}
# Of example-level plain DP at delta 1e-5, epsilon 1 and 10, in percent, as their authors or DPImageBench print them.
STRONGEST: dict[str, dict[str, Any]] = {
    "mnist": {"DP-MERF": [80.3, 81.3], "DP-GAN": [92.4, 92.7], "DP-FETA": [95.6, 98.1], "FETA-Pro": [97.1, None]},
    "fashion_mnist": {
        "DP-MERF": [62.2, 62.2],
        "DP-GAN": [71.8, 70.3],
        "DP-FETA": [81.7, 87.3],
        "FETA-Pro": [82.3, None],
    },
}


def plain(records: int, rounds: int, noise: float | None, batch: int) -> Privacy:
    """Poisson batches of examples."""
    about: Any = {"population": records, "cohort": batch, "rounds": rounds, "clip": CLIP, "unit": Unit.EXAMPLE}
    return Privacy(**about, noise_multiplier=noise)


def noise_of(rule: str, records: int, rounds: int, batch: int) -> float:
    """The noise multiplier that follows from a rule of `PLANS`."""
    word, _, number = rule.partition(" ")
    if word == "plain":
        free = plain(records, rounds, None, batch)
        return free.calibrate(epsilon=float(number), delta=DELTA).noise_multiplier or math.nan
    return noise_for_bayesian(float(number), batch / records, rounds)


def noise_for_bayesian(epsilon: float, rate: float, rounds: int) -> float:
    """The least noise at which the Bayesian accountant says `epsilon` if every gradient is as long as the clip."""

    def says(noise: float) -> float:
        config = BayesianConfig(rounds=rounds, rate=rate, sigma=noise)
        cost = rounds * step_cost(config, np.ones(2))
        return float(np.min((cost - math.log(BAYESIAN_DELTA)) / config.lambdas))

    low, high = 0.1, 20.0
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if says(middle) > epsilon else (low, middle)
    return high


def readings(batch: int, epochs: float, records: int = 60_000) -> dict[str, Any]:
    """What the printed noise promises in plain DP, for every reading of it, over this many epochs."""
    found: dict[str, Any] = {}
    rounds = round(epochs * records / batch)
    for name, std in NOISE.items():
        for reading, noise in published_noise_multipliers(std, clip=CLIP, batch=batch).items():
            promise = plain(records, rounds, noise, batch).guarantee(delta=DELTA)
            row: dict[str, Any] = {"noise_multiplier": noise, "epsilon": promise.epsilon, "by": promise.accountant}
            if noise < 0.2:
                known = KnownRounds.of({Poisson(batch / records, Gaussian(noise)): rounds}, Relation.ADD_OR_REMOVE)
                row["at most, by participations"] = known and known.epsilon(DELTA)
            found[f"{name}: {std} {reading}"] = row
    return found


def grow(name: str, images: Population, noise: float, settings: dict[str, Any], rounds: int, folder: Path) -> Any:
    """One generator, with both accountants' numbers."""
    privacy = plain(images.size, rounds, noise, settings["batch"])
    gan = selu_gan(
        classes=10, channels=settings["channels"], hidden=settings["hidden"], key=jax.random.key(0)
    )  # classes are told, as to theirs
    critic, generator = (
        optax.adam(settings[rate], b1=settings["b1"], b2=settings["b2"]) for rate in ("rate", "generator_rate")
    )
    algorithm = bayesian_gan(
        gan,
        privacy,
        critic_optimizer=critic,
        generator=GeneratorSteps(
            optimizer=generator,
            batch_size=settings["generator_batch"],
            steps=1,
            critic_rounds=settings["critic_rounds"],
            average=settings["average"],
        ),
        fakes=settings["fakes"],
        penalty=settings["penalty"],
    )
    run = runs.begin(folder / runs.file_name(name), "bayesian-gan", {"settings": _plain(settings), "noise": noise})
    log, began = PairLog(run, bayesian_config(privacy)), time.monotonic()
    chunk = 1 if jax.default_backend() == "cpu" else 1024
    trained = train(
        algorithm,
        Paired(Simulation(images, chunk=chunk), pairs=settings["pairs"], record=log.record),
        privacy,
        population=images.name,
        delta=DELTA,
        key=keys.reproducible(0).derive(name),
        run=run,
        ledger=Ledger(run.path / "ledger.db"),
        checkpointing=Checkpointing(every_rounds=500),
        progress=sys.stderr.isatty(),
    )
    bayesian = log.report(BAYESIAN_DELTA, trained.guarantee)
    about: dict[str, Any] = {"noise_multiplier": noise, "rounds": rounds, "batch": settings["batch"]}
    about |= {"critic": trees.size(gan.critic), "hardware": hardware()}
    about |= {"epsilon": trained.guarantee.epsilon, "delta": DELTA, "accountant": trained.guarantee.accountant}
    kept = ("epsilon", "delta", "pairs", "largest_distance", "failure", "bound")
    about["bayesian, simulation_only"] = {key: getattr(bayesian, key) for key in kept}
    return trained, {**about, "seconds": round(time.monotonic() - began, 1)}


def made(gan: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples of the generator as bytes, and the classes they were asked for."""
    draw = eqx.filter_jit(lambda gan, key: gan.sample(500, key=key))
    parts = [np.asarray(draw(gan, jax.random.fold_in(jax.random.key(9), n))) for n in range(-(-count // 500))]
    return gan.coding.decode(np.concatenate(parts)[:count])["image"], np.tile(np.arange(500) % 10, len(parts))[:count]


def lying(images: np.ndarray) -> float:
    """The share of images with ink that is wider than tall: hardly any upright digits, most rotated ones."""
    ink = images.astype(np.float64) + 1e-9
    places = np.arange(28)
    spreads: list[np.ndarray] = []
    for axis in (1, 2):
        along = ink.sum(axis=axis) / ink.sum(axis=(1, 2))[:, None]
        mean = along @ places
        spreads.append(along @ places**2 - mean**2)
    return round(float(np.mean(spreads[0] > spreads[1])), 3)


def annotator(train_set: Population, rule: str, before: Privacy, small: bool) -> tuple[Any, dict[str, Any]]:
    """The paper's private classifier: a linear model of oriented gradients, clipped and noised by the generator's rule.

    Returns what labels images with it, and its epsilon alone and together with that of the generator `before`.
    """
    edges = {"image": oriented_gradients(train_set.columns["image"]), "label": train_set.columns["label"]}
    images = Population(edges, sizes=[1] * train_set.n_examples, name=f"{train_set.name}, edges")
    batch, rounds = (256, 100) if small else (2048, 200)
    noise = noise_of(rule, images.size, rounds, batch)
    privacy = plain(images.size, rounds, noise, batch)
    algorithm = dp_fedavg(
        MLP((images.columns["image"].shape[1],), 10, hidden=(), key=jax.random.key(1)),
        cross_entropy("image", "label"),
        privacy,
        batch_size=1,
        client_optimizer=optax.sgd(1.0),
        server_optimizer=optax.sgd(20.0, momentum=0.9),
    )
    with tempfile.TemporaryDirectory() as scratch:
        run = runs.begin(Path(scratch, "run"), "annotator", {})
        log = PairLog(run, bayesian_config(privacy))
        trained = train(
            algorithm,
            Paired(Simulation(images), pairs=16, record=log.record),
            privacy,
            population=images.name,
            delta=DELTA,
            key=keys.reproducible(0).derive("annotator"),
            run=run,
            ledger=Ledger(Path(scratch, "ledger.db")),
            terms=RunTerms(before=[before.event]),
        )
        alone = privacy.guarantee(delta=DELTA)
        bayesian = log.report(BAYESIAN_DELTA, alone)

    def labels(pictures: np.ndarray) -> np.ndarray:
        return np.argmax(np.asarray(trained.model(oriented_gradients(pictures))), axis=-1).astype(np.int32)

    kept = ("epsilon", "delta", "pairs", "largest_distance")
    about = {"noise_multiplier": noise, "rounds": rounds, "batch": batch, "epsilon": alone.epsilon}
    about |= {"epsilon, the generator's with it": trained.guarantee.epsilon}
    return labels, about | {"bayesian, simulation_only": {key: getattr(bayesian, key) for key in kept}}


def student(examples: np.ndarray, labels: np.ndarray, test: Population, small: bool) -> float:
    """The accuracy, in percent, on real test images of a network that learnt from these examples alone."""
    network, steps = (MLP((28, 28), 10, key=jax.random.key(2)), 300) if small else (_cnn(), 1200)
    found = train_student(examples, labels, model=network, steps=steps, key=keys.reproducible(3), augmentation=VARIED)
    return round(100 * found.accuracy(test), 2)


def _cnn() -> CNN:
    return CNN((28, 28), 10, hidden=64, key=jax.random.key(2))


def compare(name: str, rule: str, gan: Any, before: Privacy, small: bool) -> dict[str, Any]:
    """A row of Table 1; everything in it but the epsilons is `simulation_only`."""
    train_set, test = (dataset(name, split=split) for split in ("train", "test"))
    labels, about = annotator(train_set, rule, before, small)
    examples, asked = made(gan, 5000 if small else SAMPLES)
    return {
        "private classifier": round(100 * float(np.mean(labels(test.columns["image"]) == test.columns["label"])), 2),
        "student, labelled by the annotator": student(examples, labels(examples), test, small),
        "student, class as asked for": student(examples, asked.astype(np.int32), test, small),
        "samples that the annotator names as asked for": round(100 * float(np.mean(labels(examples) == asked)), 2),
        "epsilon": before.guarantee(delta=DELTA).epsilon,
        "annotator": about,
        "hardware": hardware(),
    }


def curves(name: str, gan: Any, before: Privacy, small: bool) -> dict[str, Any]:
    """Fig. 3, and with it a student of all real images: accuracy against the number of labelled ones."""
    train_set, test = (dataset(name, split=split) for split in ("train", "test"))
    real = _columns(train_set)
    labels, _ = annotator(train_set, "bayesian 1", before, small)
    examples, _ = made(gan, max(LABELLED))
    order = np.random.default_rng(0).permutation(len(real[1]))
    return {
        "real": {n: student(real[0][order[:n]], real[1][order[:n]], test, small) for n in (*LABELLED, len(order))},
        "synthetic": {n: student(examples[:n], labels(examples[:n]), test, small) for n in LABELLED},
    }


def direct(epsilon: float = 1.0) -> dict[str, Any]:
    """The same bug looked for honestly: MNIST by writer, one private round of cues and votes, plain DP per writer."""
    clients, public = (dataset("mnist", split=split) for split in ("train", "test"))
    reader = primary(fit(CNN((28, 28), 10, key=jax.random.key(0)), *_columns(public), epochs=5, key=jax.random.key(1)))
    found: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "unit": "client (539 writers)", "bug": BUG}
    for name, population in (("rotated", faults.apply(clients, BUG)), ("clean", clients)):
        with tempfile.TemporaryDirectory() as scratch:
            report = inspect.sanity(
                population,
                model=reader,
                reference=public,
                epsilon=epsilon,
                delta=DELTA,
                shares={"cues": 0.5, "votes": 0.5},
                session=inspect.Session(
                    key=keys.reproducible(4).derive(name),
                    ledger=Ledger(Path(scratch, "ledger.db")),
                    out=Path(scratch, "run"),
                ),
            )
        found[name] = {
            "found": [finding.statement for finding in report.findings if finding.verdict == "detected"],
            "diagnoses": [diagnosis.statement for diagnosis in report.diagnoses],
        }
    return found


def _columns(population: Population) -> tuple[np.ndarray, np.ndarray]:
    return population.columns["image"], population.columns["label"].astype(np.int32)


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(settings))


def draw(result: dict[str, Any], grids: dict[str, np.ndarray], out: Path) -> None:
    """Samples of every run, then Table 1 as bars and Fig. 3, with what others published beside ours."""
    from matplotlib import pyplot

    names = [name for name in PLANS if name in grids]
    rows = -(-len(names) // 4)
    figure = pyplot.figure(figsize=(13, 3.4 * rows + 3.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(3.4 * rows, 3.6))
    for place, name in zip(top.subplots(rows, 4, squeeze=False).flat, [*names, *[""] * 4], strict=False):
        place.axis("off")
        if name:
            row = result["runs"][name]
            place.imshow(grids[name].reshape(10, 10, 28, 28).swapaxes(1, 2).reshape(280, 280), cmap="gray")
            other = row["bayesian, simulation_only"]
            words = f"plain ε {row['epsilon']:.3g}, Bayesian {other['epsilon']:.3g}\n(m = {other['pairs']}, "
            place.set_title(f"{name}\n{words}d ≤ {other['largest_distance']:.2g})", fontsize=7)
    axes = bottom.subplots(1, 3)
    for place, name in zip(axes, NOISE, strict=False):
        bars = table_row(result, name)
        place.barh(list(bars), list(bars.values()), color=["0.6" if "published" in bar else "C0" for bar in bars])
        for bar, (_, value) in enumerate(bars.items()):
            place.text(value, bar, f" {value:.1f}", va="center", fontsize=6)
        place.invert_yaxis()
        place.set_xlim(0, 110)
        place.tick_params(labelsize=6)
        place.set_title(f"Table 1, {name}: student accuracy, %", fontsize=8)
    for name, pair in result["fig 3"].items():
        for kind, curve in pair.items():
            counts = [int(count) for count in curve if int(count) in LABELLED]
            share = np.array([curve[str(count)] for count in counts])
            axes[-1].plot(counts, share, "o-" if kind == "synthetic" else "s--", label=f"{name}, {kind}")
    axes[-1].set(xscale="log", title="Fig. 3: accuracy by labelled images, %")
    axes[-1].tick_params(labelsize=6)
    axes[-1].title.set_fontsize(8)
    if result["fig 3"]:
        axes[-1].legend(fontsize=6)
    figure.savefig(out / "bayesian_gan.png", dpi=100)
    pyplot.close(figure)


def table_row(result: dict[str, Any], name: str) -> dict[str, float]:
    """What Table 1 compares, ours and published, in one order; the plain-DP generator where it has been run."""
    published = PUBLISHED["Table 1, percent"][name]
    bars = {"non-private, published": published["non-private"]}
    if name in result["fig 3"]:
        bars["non-private, ours"] = list(result["fig 3"][name]["real"].values())[-1]
    bars |= {"private classifier, published (BDP)": published["private classifier"]}
    bars |= {"WGAN, published (BDP)": published["theirs"], "G-PATE ε 1, published": published["G-PATE"]}
    for rule, row in result["table 1"].get(name, {}).items():
        alone, both = row["annotator"]["epsilon"], row["annotator"]["epsilon, the generator's with it"]
        bars[f"{rule}: private classifier, ours (plain ε {alone:.2g})"] = row["private classifier"]
        bars[f"{rule}: WGAN-GP and annotator, ours (plain ε {both:.2g})"] = row["student, labelled by the annotator"]
        bars[f"{rule}: WGAN-GP alone, ours (plain ε {row['epsilon']:.2g})"] = row["student, class as asked for"]
    for method in ("DP-GAN", "DP-FETA"):
        bars[f"{method} ε 1, published"] = STRONGEST[name][method][0]
    for which, value in result["plain DP generator"].get(name, {}).items():
        bars[f"plain DP generator {which}, ours"] = value
    return bars


def plain_generator(out: Path) -> dict[str, Any]:
    """Students of the plain-DP generator (`plain_dp_generator.py`), by data, in percent, where it has been measured."""
    path = out / "plain_dp_generator.json"
    found: dict[str, Any] = {}
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []:
        for student, (mean, *_) in row["accuracy"].items():
            if student != "annotator":
                found.setdefault(row["data"], {})[f"ε {row['epsilon']:g}, {student}"] = mean
    return found


def main() -> None:
    """Run what is missing, print as it goes, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=[*NOISE], default=[*NOISE])
    parser.add_argument("--epochs", type=float, default=150)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="+", default=[*PLANS, "readings", "direct", "students"])
    parser.add_argument("--runs", type=Path, default=Path("runs/bayesian_gan"))
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    settings: dict[str, Any] = {**(SMALL if options.small else FULL), "epochs": options.epochs}
    result, grids = begun(options.out, settings)
    result["command"] = f"python experiments/bayesian_gan.py --epochs {options.epochs:g}{' --small' * options.small}"
    result["plain DP generator"] = plain_generator(options.out)

    real = dataset("mnist", split="train").columns["image"][:5000]
    turned = np.where(np.arange(5000)[:, None, None] % 2, np.rot90(real, axes=(1, 2)), real)
    result["lying, real"] = {"clean": lying(real), "rotated": lying(turned)}

    def save() -> None:
        for name, grid in grids.items():
            result["runs"][name]["lying"] = lying(grid)
        text = json.dumps(result, indent=2) + "\n"
        (options.out / "bayesian_gan.json").write_text(text, encoding="utf-8")
        if grids:
            np.savez_compressed(options.out / "bayesian_gan.npz", allow_pickle=False, **grids)
            draw(json.loads(text), grids, options.out)

    if "readings" in options.only and not result["readings"]:
        result["readings"] = readings(64, 400)
    if "direct" in options.only and not result["direct"]:
        result["direct"] = direct()
        print(json.dumps(result["direct"], indent=1), flush=True)
    save()
    for name, (data, has_bug, rule) in PLANS.items():
        table = result["table 1"].setdefault(data, {})
        teaches = not has_bug and "students" in options.only and rule not in table
        if data not in options.data or name not in options.only or (name in result["runs"] and not teaches):
            continue
        whole = dataset(data, split="train")
        images = one_example_each(faults.apply(whole, BUG) if has_bug else whole)
        own = settings | FEW if rule == "plain 10" and not options.small else settings
        rounds = max(1, round(own["epochs"] * images.size / own["batch"]))
        noise = noise_of(rule, images.size, rounds, own["batch"])
        trained, row = grow(name, images, noise, own, rounds, options.runs)
        grids[name] = made(trained.model, 500)[0][:100]
        result["runs"].setdefault(name, row)  # a finished one was read again for its students
        print(f"{name}: {row}", flush=True)
        save()
        if teaches:
            before = plain(images.size, rounds, noise, own["batch"])
            table[rule] = compare(data, rule, trained.model, before, options.small)
            print(f"{data}: {table[rule]}", flush=True)
            if rule == "bayesian 1":
                result["fig 3"][data] = curves(data, trained.model, before, options.small)
                print(f"{data}: {result['fig 3'][data]}", flush=True)
            save()


def hardware() -> str:
    """What computes."""
    return f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, {platform.machine()}"


def begun(out: Path, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What earlier runs with the same settings found, and their samples."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "bayesian_gan.json"
    if path.exists() and (out / "bayesian_gan.npz").exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["settings"] == _plain(settings):
            with np.load(out / "bayesian_gan.npz") as opened:
                return found, {name: opened[name] for name in opened.files}
    told = "all accuracies and everything Bayesian are read off data without noise: no guarantee covers them"
    fresh: dict[str, Any] = {"command": "", "settings": _plain(settings), "simulation_only": told}
    fresh |= {"published": PUBLISHED, "strongest plain DP, epsilon 1 and 10": STRONGEST, "plain DP generator": {}}
    return fresh | {"readings": {}, "direct": {}, "runs": {}, "table 1": {}, "fig 3": {}}, {}


if __name__ == "__main__":
    main()
