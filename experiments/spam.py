"""Spam against Draw and Discard: what the window of the service catches, what it lets through, and what that does.

    python experiments/spam.py [--updates 300000] [--out experiments/results]

The paper compares each weight with mean and spread over the instances and gives no numbers. Here they are, for the
window that the service uses (`blindsight.service.spam`: refreshed every 50 updates taken, widened in between).

**Honest clients refused**, by number of weights, without signal: Laplace noise alone, k = 20; and by the paper's check.

**Attacks** on the phishing model of `draw_and_discard_models.py` (387 weights, k = 20, learning rate 0.001, epsilon =
log 32 by feature), by 1 % and 10 % of the updates, with the window and without:

    random      weights from a standard normal distribution
    negated     the model that was drawn, times minus one
    flipped     an honest update with the sign of its step changed
    boosted     the same, with a step a hundred times as long
    edge        by an attacker who knows it: half of its width in the direction of the flipped step, in every weight

Noise is drawn in float32, which a deployment must not do. Measured on data: `simulation_only`. Writes spam.json.
"""

import argparse
import json
import math
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
from draw_and_discard_models import metrics, phishing_features, phishing_rows

from blindsight import data
from blindsight.algorithms.draw_and_discard import Task
from blindsight.codings.specs import BooleanField, Response
from blindsight.models import glm
from blindsight.service.spam import REFRESH_EVERY, Window, standard_deviations

EACH = 10
ATTACKS = ("random", "negated", "flipped", "boosted", "edge")


class Server:
    """Instances, and the window in front of them."""

    def __init__(self, task: Task, random: np.random.Generator, *, checked: bool = True) -> None:
        self.task, self.random, self.checked = task, random, checked
        spread = math.sqrt(task.instances / 2 * task.variance)
        self.rows = (spread * random.standard_normal((task.instances, task.weights))).astype(np.float32)
        self.window, self.count = Window(task), 0
        self._refresh()

    def draw(self) -> np.ndarray:
        """One of the instances."""
        return self.rows[self.random.integers(len(self.rows))]

    def take(self, update: np.ndarray) -> bool:
        """Whether the update was inside, and so taken."""
        if self.checked:
            if self.window.age(self.count) >= REFRESH_EVERY:
                self._refresh()
            if not self.window.admits(update.tobytes(), self.count):
                return False
        self.rows[self.random.integers(len(self.rows))] = update
        self.count += 1
        return True

    def _refresh(self) -> None:
        self.window.refresh([row.tobytes() for row in self.rows], self.count)


def noise(task: Task, random: np.random.Generator) -> np.ndarray:
    """Laplace noise of one client."""
    exponentials = random.standard_exponential((2, task.weights), np.float32)
    return np.float32(task.scale) * (exponentials[0] - exponentials[1])


def honest_refused(weights: int, updates: int, chains: int) -> dict[str, Any]:
    """The share of honest updates that the window refuses, over chains that each have a genealogy of their own."""
    task = Task(model="honest", family="custom", weights=weights, unit="feature", epsilon=1.0)
    refused = 0
    for seed in range(chains):
        random = np.random.default_rng(seed)
        server = Server(task, random)
        refused += sum(not server.take(server.draw() + noise(task, random)) for _ in range(updates))
    share = refused / (updates * chains)
    return {
        "weights": weights,
        "t": round(standard_deviations(weights), 2),
        "updates": updates * chains,
        "refused": share,
    }


def honest_refused_as_published(weights: int, updates: int, chains: int) -> dict[str, Any]:
    """The same for the paper's check: within t standard deviations of the mean of the instances, as they are."""
    task = Task(model="honest", family="custom", weights=weights, unit="feature", epsilon=1.0)
    furthest: list[float] = []
    for seed in range(chains):
        random = np.random.default_rng(seed)
        server = Server(task, random, checked=False)
        for _ in range(updates):
            update = server.draw() + noise(task, random)
            gap = np.abs(update - server.rows.mean(axis=0)) / server.rows.std(axis=0, ddof=1)
            furthest.append(float(gap.max()))
            server.take(update)
    shares = {f"t = {t}": float(np.mean(np.array(furthest) > t)) for t in (3, 4, 5, 6, 8)}
    return {"weights": weights, "updates": updates * chains, "refused": shares}


def attacked(
    task: Task,
    clients: tuple[np.ndarray, np.ndarray],
    held: tuple[np.ndarray, np.ndarray],
    *,
    attack: str,
    share: float,
    checked: bool,
    updates: int,
) -> dict[str, Any]:
    """A model trained by honest clients and a share of others."""
    random = np.random.default_rng(1)
    server = Server(task, random, checked=checked)
    x, y = clients
    order, is_spam = random.integers(len(x), size=updates), random.random(updates) < share
    taken = {False: 0, True: 0}
    began = time.monotonic()
    with np.errstate(over="ignore", invalid="ignore"):  # a model that was ruined has weights that overflow
        for client, spam in zip(order, is_spam, strict=True):
            drawn = server.draw()
            excess = 1 / (1 + np.exp(-(x[client] @ drawn))) - y[client]
            step = np.float32(-task.learning_rate / EACH) * (excess @ x[client])
            sent = _spam(attack, task, drawn, step, random) if spam else drawn + step + noise(task, random)
            taken[bool(spam)] += server.take(sent.astype(np.float32))
        average = np.nan_to_num(server.rows.mean(axis=0, dtype=np.float64))
        found = metrics(glm.predict("logistic", average, held[0]), held[1] > 0)
    spammers = int(is_spam.sum())
    return {
        "attack": attack,
        "share": share,
        "checked": checked,
        "honest refused": 1 - taken[False] / (updates - spammers),
        "spam refused": 1 - taken[True] / spammers if spammers else None,
        "simulation_only": {"accuracy": found["accuracy"], "roc_auc": found["roc_auc"]},
        "seconds": round(time.monotonic() - began, 1),
    }


def _spam(attack: str, task: Task, drawn: np.ndarray, step: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if attack == "random":
        return random.standard_normal(task.weights, np.float32)
    if attack == "negated":
        return -drawn
    if attack == "edge":
        width = standard_deviations(task.weights) * math.sqrt((task.instances / 2 + 1) * task.variance)
        return drawn - np.float32(width / 2) * np.sign(step)
    return drawn - np.float32(100 if attack == "boosted" else 1) * step + noise(task, random)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300_000)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    asked = parser.parse_args()
    honest: list[dict[str, Any]] = []
    for weights, updates, chains in ((10, 4000, 20), (387, 4000, 20), (5000, 2000, 10), (50_000, 500, 6)):
        honest.append(honest_refused(weights, updates, chains))
        print(honest[-1], flush=True)
    published = [honest_refused_as_published(*sizes) for sizes in ((10, 4000, 5), (387, 4000, 5), (5000, 1000, 5))]
    print(published, flush=True)
    task = Task(
        model="phishing",
        family="logistic",
        features=phishing_features(),
        response=Response(BooleanField("phishing")),
        unit="feature",
        epsilon=math.log(32),
    )
    population = data.dataset("phishing", matched=True).columns
    order = np.random.default_rng(0).permutation(len(population["label"]))
    x = phishing_features().encode(phishing_rows([str(url) for url in population["url"]])).astype(np.float32)[order]
    y = population["label"][order].astype(np.float32)
    kept = len(x) // 5
    dealt = (len(x) - kept) // EACH
    clients = x[kept : kept + dealt * EACH].reshape(dealt, EACH, -1), y[kept : kept + dealt * EACH].reshape(dealt, EACH)
    runs: list[dict[str, Any]] = []
    for attack, share in [("none", 0.0), *((attack, share) for attack in ATTACKS for share in (0.01, 0.1))]:
        for checked in (True, False):
            found = attacked(
                task,
                clients,
                (x[:kept], y[:kept]),
                attack=attack,
                share=share,
                checked=checked,
                updates=asked.updates,
            )
            runs.append(found)
            print(json.dumps(found), flush=True)
    results = {
        "command": f"python {Path(__file__).name} --updates {asked.updates}",
        "hardware": f"{platform.machine()}, two CPU cores, shared",
        "honest clients alone, no signal": honest,
        "the same with the paper's check": published,
        "attacks": runs,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "spam.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
