"""Draw and Discard on MNIST (Pihur et al. 2018, Figures 2 to 4), and its Theorem 1 and Lemma 2 by simulation.

    python experiments/draw_and_discard.py [--passes 20] [--seed 0] [--out experiments/results]

Multinomial logistic regression on 784 pixels in [0, 1] without intercept (7,840 weights), 6,000 clients of 10 images,
20 passes, learning rate 0.001 (0.0001 in Figure 4). Without noise instances start with the spread of epsilon = 1, as in
the paper. A batch size counts client gradients; counted in images, as the paper may have counted N_s, it is ten times
larger, and then k = 10 and N_s = 100 do overlap; but k = 20 overlaps with N_s = 200, so there is no square root.
Measurements on data are `simulation_only`. Writes draw_and_discard.json and draw_and_discard.png.
"""

import argparse
import json
import math
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
from draw_and_discard_simulation import Client, Configuration, simulate, spread

from blindsight import data

EACH, CLASSES = 10, 10
PUBLISHED = {
    "k": "k = 1 is clearly best, and more instances learn more slowly (Section V-A)",
    "batching": "k = 10 and N_s = 100 overlap, as do k = sqrt(N_s) in general; N_s > k^2 is worse (V-A)",
    "epsilon": "no substantial negative impact above epsilon = log 16, some at log 3 (V-A)",
    "strategies": "draw and discard, same instance and accepting 1/k are essentially equal; averaging before "
    "overwriting is worse (V-B)",
    "learning rate": "at a tenth of the learning rate the distance to server-side training grows, most for large k",
    "theorem 1": "the expected variance over instances stays k/2 times that of the noise",
    "lemma 2": "an update survives in the long run with probability 1/k",
}
"""What the paper says in words; its curves are pictures without numbers."""


def figure_2(rate: float) -> list[Configuration]:
    """Instances, batches, epsilon; the last two at k = 10, and 20 for batches."""
    many = [_plain(k, rate) for k in (1, 5, 10, 20, 30, 50, 100)]
    batches = [Configuration(name=f"batch {size}", batch=size) for size in (10, 20, 40, 100, 1000, 10_000)]
    noisy = [
        Configuration(name=f"epsilon log {e}", k=10, noise=scale, start=spread(10, scale))
        for e, scale in ((e, 2 * rate / math.log(e)) for e in (3, 8, 16, 32))
    ]
    return [*many, *batches, *noisy]


def strategies(k: int, rate: float) -> list[Configuration]:
    """What a server could do instead of drawing and discarding."""
    start = spread(k, 2 * rate)
    return [
        Configuration(name=f"same instance, k = {k}", k=k, replace="same", start=start),
        Configuration(name=f"accept 1 in {k}", accept=k),
        Configuration(name=f"draw and discard averaged, k = {k}", k=k, averaged=True, start=start),
        Configuration(name=f"same instance averaged, k = {k}", k=k, replace="same", averaged=True, start=start),
    ]


def _plain(k: int, rate: float) -> Configuration:
    return Configuration(name=f"k = {k}", k=k, start=spread(k, 2 * rate))


class Curves:
    """Loss on training images and accuracy on test images as the number of ingested examples grows."""

    def __init__(self, names: list[str], train: Client, test: Client) -> None:
        self.names, self.train, self.test = names, train, test
        self.examples: list[int] = []
        self.loss: list[np.ndarray] = []
        self.accuracy: list[np.ndarray] = []

    def watch(self, updates: int, averages: np.ndarray) -> None:
        """Measure every configuration's averaged model."""
        self.examples.append(updates * EACH)
        scores = _scores(averages, self.train[0])
        normaliser = np.log(np.exp(scores).sum(axis=1))
        self.loss.append((normaliser - (scores * self.train[1]).sum(axis=1)).mean(axis=1))
        right = _scores(averages, self.test[0]).argmax(axis=1) == self.test[1].argmax(axis=0)
        self.accuracy.append(right.mean(axis=1))

    def to_dict(self) -> dict[str, Any]:
        """By name: both curves, rounded."""
        loss, accuracy = np.round(self.loss, 4).T.tolist(), np.round(self.accuracy, 4).T.tolist()
        curves = {name: {"loss": loss[n], "accuracy": accuracy[n]} for n, name in enumerate(self.names)}
        return {"examples": self.examples, "curves": curves}


def _scores(averages: np.ndarray, x: np.ndarray) -> np.ndarray:
    return (averages.reshape(-1, x.shape[1]) @ x.T).reshape(*averages.shape[:2], -1)


def mnist(split: str) -> Client:
    """Pixels in [0, 1] and one row of targets for each digit."""
    images = data.dataset("mnist", split=split).columns
    x = images["image"].reshape(len(images["label"]), -1).astype(np.float32) / 255
    return x, np.eye(CLASSES, dtype=np.float32)[:, images["label"]]


def run_mnist(configurations: list[Configuration], *, rate: float, passes: int, seed: int) -> dict[str, Any]:
    """Every configuration over the same 6,000 clients, dealt once and visited in a new order in every pass."""
    (x, target), test = mnist("train"), mnist("test")
    random = np.random.default_rng(seed)
    dealt = random.permutation(len(x)).reshape(-1, EACH)
    x, target = np.ascontiguousarray(x[dealt]), np.ascontiguousarray(target[:, dealt].transpose(1, 0, 2))
    order = np.concatenate([random.permutation(len(dealt)) for _ in range(passes)])
    some = slice(0, 1000)  # 10,000 training images, to measure the loss
    curves = Curves(
        [c.name for c in configurations], (x[some].reshape(10_000, -1), np.hstack(list(target[some]))), test
    )
    began = time.monotonic()
    simulate(
        configurations,
        lambda client: (x[client], target[client]),
        order,
        outputs=CLASSES,
        learning_rate=rate,
        seed=seed,
        watch=curves.watch,
        every=len(dealt) // 2,
    )
    taken = time.monotonic() - began
    return {
        "learning_rate": rate,
        "updates": len(order),
        "seconds": round(taken, 1),
        "simulation_only": curves.to_dict(),
    }


def theorem_1(seed: int, chains: int = 4000) -> list[dict[str, float]]:
    """The variance over k instances, in units of k/2 times the noise's, after 4 k^2 updates from either start."""
    random, rows = np.random.default_rng(seed), list[dict[str, float]]()
    for k in (2, 5, 10, 20, 30):
        row: dict[str, float] = {"k": k, "updates": 4 * k * k}
        for start, deviation in (("spread", math.sqrt(k / 2)), ("identical", 0.0)):
            pool = deviation * random.standard_normal((chains, k))
            before, every = pool.mean(axis=1), np.arange(chains)
            for _ in range(4 * k * k):
                new = pool[every, random.integers(k, size=chains)] + random.laplace(scale=math.sqrt(0.5), size=chains)
                pool[every, random.integers(k, size=chains)] = new
            variance = pool.var(axis=1, ddof=1)
            row[f"mean from {start}"] = float(variance.mean() / (k / 2))
            row[f"standard error from {start}"] = float(variance.std() / (k / 2) / math.sqrt(chains))
            row[f"coefficient of variation from {start}"] = float(variance.std() / variance.mean())
            row[f"drift of the mean per update over noise / k, from {start}"] = float(
                np.var(pool.mean(axis=1) - before) / (4 * k * k) * k
            )
        rows.append(row)
    return rows


def lemma_2(seed: int, chains: int = 40_000) -> list[dict[str, float]]:
    """How often an update is in all instances at last, and after how many updates that is decided."""
    random, rows = np.random.default_rng(seed), list[dict[str, float]]()
    for k in (2, 5, 10, 20):
        holders, updates = np.ones(chains, np.int64), np.zeros(chains)
        while (open_ := (holders > 0) & (holders < k)).any():
            drawn, replaced = random.random(chains) < holders / k, random.random(chains) < holders / k
            holders += open_ & drawn & ~replaced
            holders -= open_ & ~drawn & replaced
            updates += open_
        survived = holders == k
        rows.append(
            {
                "k": k,
                "survived": float(survived.mean()),
                "published": 1 / k,
                "updates until decided": float(updates.mean()),
                "updates until decided, survivors": float(updates[survived].mean()),
            }
        )
    return rows


def readings(results: dict[str, Any]) -> dict[str, Any]:
    """The paper's sentences as numbers of ours."""
    last = {
        figure: {name: curve["accuracy"][-1] for name, curve in results[figure]["simulation_only"]["curves"].items()}
        for figure in ("figure 2 and 3", "figure 4")
    }
    at = last["figure 2 and 3"]
    loss = {n: np.array(c["loss"]) for n, c in results["figure 2 and 3"]["simulation_only"]["curves"].items()}

    def apart(one: str, other: str) -> float:
        return round(float(np.abs(loss[one] - loss[other]).max()), 4)

    return {
        "final accuracy": last,
        "largest distance of loss curves": {
            "k = 10 and a batch of 10 clients (100 images)": apart("k = 10", "batch 10"),
            "k = 10 and a batch of 100 clients": apart("k = 10", "batch 100"),
            "k = 20 and a batch of 20 clients (200 images)": apart("k = 20", "batch 20"),
            "k = 20 and a batch of 40 clients (400 = k^2 images)": apart("k = 20", "batch 40"),
            "draw and discard and same instance, k = 20": apart("k = 20", "same instance, k = 20"),
            "draw and discard and accepting 1 in 20": apart("k = 20", "accept 1 in 20"),
            "draw and discard and the same averaged, k = 20": apart("k = 20", "draw and discard averaged, k = 20"),
        },
        "accuracy lost to noise at k = 10": {
            name.removeprefix("epsilon "): round(at["k = 10"] - at[name], 4)
            for name in at
            if name.startswith("epsilon")
        },
    }


def picture(results: dict[str, Any], path: Path) -> None:
    """Figures 2, 3 and 4 in one: loss above, accuracy below."""
    import matplotlib.pyplot as plt

    main, slow = (results[figure]["simulation_only"] for figure in ("figure 2 and 3", "figure 4"))
    panels = [
        ("Fig. 2: instances", main, [n for n in main["curves"] if n.startswith("k = ")]),
        ("Fig. 2: batches", main, ["k = 10", "k = 20", *(n for n in main["curves"] if n.startswith("batch"))]),
        ("Fig. 2: epsilon, k = 10", main, ["k = 10", *(n for n in main["curves"] if n.startswith("epsilon"))]),
        ("Fig. 3: strategies, k = 20", main, ["k = 1", "k = 20", *(c.name for c in strategies(20, 0.0))]),
        ("Fig. 4: a tenth of the learning rate", slow, [n for n in slow["curves"] if "same instance a" not in n]),
    ]
    figure, axes = plt.subplots(2, len(panels), figsize=(5 * len(panels), 8), sharex=True)
    for column, (title, curves, names) in enumerate(panels):
        colours = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(names)))
        for name, colour in zip(names, colours, strict=True):
            for row, what in enumerate(("loss", "accuracy")):
                style = "--" if "averaged" in name else ":" if "accept" in name or name == "batch 10" else "-"
                axes[row, column].plot(
                    curves["examples"], curves["curves"][name][what], style, color=colour, label=name
                )
        axes[0, column].set_title(title)
        axes[1, column].set_xlabel("examples ingested")
        axes[0, column].legend(fontsize=6)
    axes[0, 0].set_ylabel("loss on training images")
    axes[1, 0].set_ylabel("accuracy on test images")
    figure.tight_layout()
    figure.savefig(path, dpi=70)


def main() -> None:
    """Run everything, print what the paper says beside ours, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    run: dict[str, Any] = {"passes": options.passes, "seed": options.seed}
    fast, slow = 0.001, 0.0001
    slow_grid = [_plain(1, slow), *(c for k in (5, 20, 50) for c in (_plain(k, slow), *strategies(k, slow)))]
    results: dict[str, Any] = {
        "command": f"python experiments/draw_and_discard.py --passes {options.passes} --seed {options.seed}",
        "hardware": f"{platform.machine()}, two CPU cores, shared",
        "published": PUBLISHED,
        "theorem 1": theorem_1(options.seed),
        "lemma 2": lemma_2(options.seed),
        "figure 2 and 3": run_mnist([*figure_2(fast), *strategies(20, fast)], rate=fast, **run),
        "figure 4": run_mnist(slow_grid, rate=slow, **run),
    }
    results["readings"] = readings(results)
    print(json.dumps({name: results[name] for name in ("theorem 1", "lemma 2", "readings")}, indent=2))
    (options.out / "draw_and_discard.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    picture(results, options.out / "draw_and_discard.png")


if __name__ == "__main__":
    main()
