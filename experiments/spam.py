"""Spam against Draw and Discard: what hostile clients who know everything can do despite the guard.

    python experiments/spam.py [--data phishing] [--updates 60000] [--out experiments/results]

The service's own code decides (`Guard`, `Canary`); only HTTP and the exact noise are left out. Attackers know the code,
the task, the instances, the public examples, and examples of their own; not the server's coins, and not the sketch,
which holds the noise of all clients. Each attack sends

    random, negated, boosted   naive ones: random weights; the drawn model times -1; an honest step times -1000
    push                       the longest difference that the guard takes, along the steepest descent of the AUC,
                               from the worst draw that is still accepted
    push, layered              the same, but as long as the public examples' shield allows on each of its levels
    hidden M                   M sigma along that descent, the rest of the length at random, to look like noise
    aside M                    the same, along what is left of that descent beside the directions of the anchor
    waves N                    three sigma, the rest at random, for N updates, then nothing for as many, and so on
    decoys M                   M sigma along the descent, the rest along 16 directions that draw the sketch's attention
    insider M                  M sigma along what the sketch misses of that descent, all that its bounds allow along the
                               rest: possible only for someone who reads the memory of the process
    rotating                   push along a different part of the weights each time, out of 32 parts
    hopping N                  the same, but along one of N parts for 500 updates, after which the sketch has learned it
                               on average: gone by then, and back when it is forgotten
    push, by 100 % at the end  hostile clients wait, send all their updates in a row, and are gone
    to one of N processes      all that is hostile goes to one of several processes, each with a guard of its own

with and without public examples; and nothing, if the public examples are all of one kind, which clients' are not. Both
sets of data were looked at when the guard's constants were chosen. Phishing: 387 weights; Adult, census rows: 108; k =
20, learning rate 0.001, epsilon = log 32 by feature, clients of ten. Of a fifth of the examples, 4,000 are public and
the rest measure; attackers hold 4,000 of the clients' examples. Measured on data: `simulation_only`. Writes spam.json
or spam_adult.json.
"""

import argparse
import json
import math
import os
import platform
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from draw_and_discard_models import phishing_features, phishing_rows
from threadpoolctl import threadpool_limits

from blindsight import data
from blindsight.algorithms.draw_and_discard import Task
from blindsight.codings.specs import BooleanField, FeatureSpec, NumberField, Response
from blindsight.service.canary import INSPECT_EVERY, Canary, ranking
from blindsight.service.shown import MIXED, mixture
from blindsight.service.spam import Guard, recent_draws

EACH, PUBLIC, OWN, DECOYS, PARTS, HOP = 10, 4000, 4000, 16, 32, 500
ONE_KIND = "public, two fifths with the smallest first feature"
Examples = tuple[np.ndarray, np.ndarray]


def phishing() -> tuple[Task, np.ndarray, np.ndarray]:
    """The task that the paper has, and its examples in random order."""
    columns = data.dataset("phishing", matched=True).columns
    x = phishing_features().encode(phishing_rows([str(url) for url in columns["url"]]))
    return _task(phishing_features()), x, columns["label"]


def adult() -> tuple[Task, np.ndarray, np.ndarray]:
    """Census rows: numbers scaled to their range, categories as they are listed."""
    columns = dict(data.dataset("adult").columns)
    y, parts = columns.pop("label"), list[np.ndarray]()
    for name, column in columns.items():
        if name in ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week"):
            parts.append(np.clip(column[:, None] / np.quantile(column, 0.99).clip(1), 0, 1))
        elif name != "fnlwgt":
            parts.append(np.eye(column.max() + 1)[column])
    x = np.hstack([np.ones((len(y), 1)), *parts])
    return _task(FeatureSpec(tuple(NumberField(f"x{n}", 0, 1) for n in range(x.shape[1] - 1)))), x, y


def _task(features: FeatureSpec) -> Task:
    named = {"model": "phishing", "family": "logistic", "unit": "feature"}
    return Task(**named, features=features, response=Response(BooleanField("phishing")), epsilon=math.log(32))


class Server:
    """Instances behind the guard, as a pool of the service has them."""

    def __init__(
        self, task: Task, random: np.random.Generator, canary: Canary | None = None, processes: int = 1
    ) -> None:
        self.task, self.random, self.canary = task, random, canary
        self.guards = [Guard(task) for _ in range(processes)]
        self.guard = self.guards[0]  # what is hostile goes there
        self.count = self.frozen_at = 0
        self.shown = list[bytes]()
        self.restart(np.zeros(task.weights))

    def restart(self, start: np.ndarray) -> None:
        """Instances around `start`."""
        spread = math.sqrt(self.task.instances / 2 * self.task.variance)
        rows = start + spread * self.random.standard_normal((self.task.instances, self.task.weights))
        self.rows = [row.astype(np.float32).tobytes() for row in rows]
        self.show()

    def show(self) -> None:
        """Show the next mixture of instances to everybody, as long as a batch of updates."""
        chosen = self.random.choice(len(self.rows), MIXED, replace=False)
        guard = self.guards[self.random.integers(len(self.guards))]  # of the process that shows it
        drawn = guard.anchored(mixture([self.rows[place] for place in chosen]))
        self.shown = [*self.shown, drawn][-recent_draws(self.task.weights) :]

    def mean(self) -> np.ndarray:
        """The model."""
        return np.mean([np.frombuffer(row, np.float32) for row in self.rows], axis=0, dtype=np.float64)

    def draw(self) -> np.ndarray:
        """What everybody is shown."""
        return np.frombuffer(self.shown[-1], np.float32)

    def take(self, updates: np.ndarray, hostile: np.ndarray | None = None) -> list[bool]:
        """Which of these updates of one batch, the rows, were accepted."""
        if self.canary is not None and self.count % INSPECT_EVERY == 0:
            shield, good = self.canary.inspect(self.mean())
            for guard in self.guards:
                guard.shield = shield
            if good is not None and not self.frozen_at:
                self.frozen_at = self.count
                self.restart(good)
        self.count += len(updates)
        sent, taken = [row.tobytes() for row in updates.astype(np.float32)], [False] * len(updates)
        process = np.zeros(len(sent), int)
        if len(self.guards) > 1 and hostile is not None:
            process = np.where(hostile, 0, self.random.integers(len(self.guards), size=len(sent)))
        for number, guard in enumerate(self.guards):
            places = np.flatnonzero(process == number).tolist()
            measured = guard.measure([sent[place] for place in places], self.shown, self.shown[-1]) if places else []
            for place, (is_known, instance) in zip(places, measured, strict=True):
                taken[place] = is_known
                if is_known:
                    self.rows[self.random.integers(len(self.rows))] = instance
        if self.count % self.task.instances == 0:
            self.show()
        return taken


def noise(task: Task, random: np.random.Generator, clients: int = 1) -> np.ndarray:
    """Laplace noise of clients, one in each row, in float32, which a deployment must not use."""
    exponentials = random.standard_exponential((2, clients, task.weights), np.float32)
    return np.float32(task.scale) * (exponentials[0] - exponentials[1])


class Attacker:
    """Hostile clients that act as one. The direction of the harm is computed anew every ten updates."""

    def __init__(self, attack: str, server: Server, own: Examples, seed: int = 3) -> None:
        self.attack, self.server, self.task = attack, server, server.task
        self.random, self.sent = np.random.default_rng(seed), 0
        self.positive, self.negative = own[0][own[1] > 0], own[0][own[1] == 0]
        self.sigma = math.sqrt(self.task.variance)
        self.decoys = _unit_rows(self.random.standard_normal((DECOYS, self.task.weights)))
        self.place = self.random.permutation(self.task.weights)  # the parts are of these
        self.harm = np.zeros(self.task.weights)

    def update(self, honest: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        """What is sent instead of `honest`."""
        if self.attack == "random":
            return self.random.standard_normal(self.task.weights)
        if self.attack == "negated":
            return -drawn
        if self.attack == "boosted":
            return drawn - 1000 * (honest - drawn)
        if self.sent % 10 == 0:
            self.harm = self._steepest()
        self.sent += 1
        rows = np.array([np.frombuffer(row, np.float32) for row in self.server.shown])
        start = rows[(rows @ self.harm).argmax()]  # of those that are still accepted, the one that is worst already
        return start + self._difference()

    def _difference(self) -> np.ndarray:
        guard, harm = self.server.guard, self.harm
        radius = guard.radius * 0.9999
        kind, _, much = self.attack.partition(" ")
        if kind in ("hidden", "decoys", "aside", "waves"):
            if kind == "aside" and guard.shield is not None:
                anchored = guard.shield.basis[: len(guard.shield.step)]
                harm = _unit(harm - (anchored @ harm) @ anchored)
            if kind == "waves":
                much = 3 * (self.server.count // int(much) % 2 == 0)
            along = float(much) * self.sigma * harm
            random = self.random
            away = self.decoys[random.integers(DECOYS)] if kind == "decoys" else random.standard_normal(len(harm))
            away = _unit(away - (away @ harm) * harm)
            return along + math.sqrt(max(radius**2 - float(along @ along), 0)) * away
        if kind == "insider":
            return self._past_the_sketch(float(much) * self.sigma)
        if kind == "rotating":
            return radius * _unit(np.where(self.place % PARTS == self.random.integers(PARTS), harm, 0))
        if kind == "hopping":
            parts = int(much)
            return radius * _unit(np.where(self.place % parts == self.server.count // HOP % parts, harm, 0))
        if self.attack == "push, layered" and guard.shield is not None:
            return self._layered(radius)
        return radius * harm

    def _past_the_sketch(self, along: float) -> np.ndarray:
        sketch, weights = self.server.guard.sketch, self.task.weights
        inner = _unit((sketch.basis @ self.harm) @ sketch.basis)
        outer = _unit(self.harm - (self.harm @ inner) * inner)
        lengths = np.sqrt(np.cumsum(np.square(sketch.basis @ inner)))
        most = min((bound / max(float(lengths[size - 1]), 1e-9) for size, bound in sketch.bounds), default=0.0)
        found, random = 0.999 * most * inner + along * outer, self.random.standard_normal(weights)
        random -= (sketch.basis @ random) @ sketch.basis + (random @ outer) * outer
        return found + math.sqrt(max(weights * self.sigma**2 - float(found @ found), 0)) * _unit(random)

    def _layered(self, radius: float) -> np.ndarray:
        shield, found, used, low = self.server.guard.shield, np.zeros(self.task.weights), 0.0, 0
        if shield is None:
            return found
        inside = shield.basis @ self.harm
        for size, most in zip(shield.sizes, shield.radii, strict=True):
            found += math.sqrt(max(most**2 - used, 0)) * _unit(inside[low:size]) @ shield.basis[low:size]
            used, low = max(used, most**2), size
        rest = _unit(self.harm - inside @ shield.basis)
        return found + math.sqrt(max(radius**2 - float(found @ found), 0)) * rest

    def _steepest(self) -> np.ndarray:
        """The direction in which a smoothed AUC on the attacker's own examples falls fastest."""
        random = self.random
        pairs = self.positive[random.integers(len(self.positive), size=1000)]
        pairs = pairs - self.negative[random.integers(len(self.negative), size=1000)]
        margin = pairs @ self.server.mean()
        wrong = 1 / (1 + np.exp(margin / max(float(margin.std()), 1e-3)))
        return _unit(-(wrong * (1 - wrong)) @ pairs)


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def trained(
    task: Task,
    parts: dict[str, Examples],
    *,
    attack: str,
    share: float,
    public: bool,
    updates: int,
    begin: int = 0,
    most: int | None = None,
    processes: int = 1,
    kind: str = "public",
) -> dict[str, Any]:
    """A model trained by honest clients and, for `most` updates from `begin` on, a share of hostile ones."""
    random, began = np.random.default_rng(1), time.monotonic()
    canary = Canary(task, *parts[kind], fall=0.05) if public else None
    server = Server(task, random, canary, processes)
    attacker = Attacker(attack, server, parts["own"])
    x, y = parts["clients"]
    order, hostile = random.integers(len(x), size=updates), random.random(updates) < share
    hostile[:begin] = hostile[begin + (updates if most is None else most) :] = False
    taken, curve, end = {False: 0, True: 0}, list[float](), 0
    while end < updates and not server.frozen_at:
        batch = slice(end, end + task.instances)
        end, drawn, spam = batch.stop, server.draw(), hostile[batch]
        rows, labels = x[order[batch]], y[order[batch]]
        excess = 1 / (1 + np.exp(-(rows @ drawn))) - labels
        steps = np.float32(task.learning_rate / EACH) * np.einsum("ij,ijk->ik", excess, rows)
        sent_now = drawn - steps + noise(task, random, len(spam))
        for place in np.flatnonzero(spam):
            sent_now[place] = attacker.update(sent_now[place], drawn)
        for was_hostile, is_taken in zip(spam.tolist(), server.take(sent_now, spam), strict=True):
            taken[was_hostile] += is_taken
        if end % (updates // 6) == 0 or server.frozen_at:
            curve.append(round(ranking(parts["held"][0] @ server.mean(), parts["held"][1]), 4))
    sent = {spam: int((hostile[:end] == spam).sum()) for spam in (False, True)}
    return {
        "attack": attack,
        "share": share,
        "public examples": kind if public else None,
        "attacked from update": begin,
        "processes": processes,
        "honest refused": 1 - taken[False] / sent[False],
        "hostile refused": 1 - taken[True] / sent[True] if sent[True] else None,
        "shortened": sum(guard.shortened for guard in server.guards) / end,
        "frozen and rolled back at": server.frozen_at or None,
        "simulation_only": {"roc_auc": curve[-1], "curve": curve},
        "seconds": round(time.monotonic() - began, 1),
    }


def honest_refused(weights: int, updates: int, in_flight: int) -> dict[str, Any]:
    """Honest updates refused and shortened if so many others arrive between draw and update, on average."""
    task = Task(model="honest", family="custom", weights=weights, unit="feature", epsilon=1.0)
    random = np.random.default_rng(weights + in_flight)
    server, flying, refused = Server(task, random), list[np.ndarray](), 0
    for _ in range(updates + in_flight):
        flying.append(server.draw() + noise(task, random))
        if len(flying) > in_flight:
            refused += not all(server.take(flying.pop(int(random.integers(len(flying))))))
    shares = {"refused": refused / updates, "shortened": server.guard.shortened / updates}
    return {"weights": weights, "in flight": in_flight, "updates": updates} | shares


def burst(weights: int = 387, runs: int = 20) -> list[dict[str, Any]]:
    """How far one token moves a weight of the mean if all updates of a burst are hostile, in units of `reach`."""
    task = Task(model="burst", family="custom", weights=weights, unit="feature", epsilon=math.log(32))
    rows = list[dict[str, Any]]()
    for length in (task.instances, 200, 1000):
        moved = list[float]()
        for seed in range(runs):
            server = Server(task, np.random.default_rng(seed))
            before = server.mean()[0]
            for _ in range(length):
                server.take(_spike(server)[None])
            moved.append((server.mean()[0] - before) / server.guard.bounds.reach)
        rows.append({"updates": length, "mean": float(np.mean(moved)), "largest": float(np.max(moved))})
    return rows


def _spike(server: Server) -> np.ndarray:
    update = np.frombuffer(server.shown[-1], np.float32).copy()
    update[0] += server.guard.bounds.reach
    return update


ATTACKS = {
    (0.05, False): (
        *("hidden 1.25", "hidden 2", "hidden 2.5", "hidden 3", "hidden 5", "push", "rotating"),
        *("hopping 16", "hopping 32", "hopping 64", "insider 4"),
    ),
    (0.05, True): (
        *("hidden 1.25", "hidden 2.5", "hidden 3", "hidden 5", "push", "push, layered", "hopping 64", "insider 4"),
        *("aside 2.5", "aside 3", "aside 4", "waves 1000", "waves 4000"),
    ),
    (0.01, False): ("hidden 5", "push", "hopping 32"),
    (0.01, True): ("hidden 5", "aside 4"),
    (0.1, True): ("hidden 3", "aside 4"),
}
"""By the share of hostile clients, and whether there are public examples."""


def one_thread() -> None:
    """Compute as `serve` does: matrices of a few updates are small."""
    threadpool_limits(1, user_api="blas")


def plan(updates: int) -> list[dict[str, Any]]:
    """The runs: clean ones, attacks from the start, and a strong one that begins late."""
    runs: list[dict[str, Any]] = [{"attack": "none", "share": 0.0, "public": public} for public in (True, False)]
    for (share, public), attacks in ATTACKS.items():
        runs += [{"attack": attack, "share": share, "public": public} for attack in attacks]
    runs += [{"attack": "none", "share": 0.0, "public": True, "kind": ONE_KIND}]
    late = {"attack": "hidden 2.5", "share": 0.05, "begin": updates // 2}
    runs += [late | {"public": public} for public in (True, False)]
    for processes, attack in ((4, "hidden 3"), (20, "hidden 5")):
        to_one = {"attack": attack, "share": 0.05, "processes": processes}
        runs += [to_one | {"public": public} for public in (True, False)]
    all_of_5 = {"share": 1.0, "begin": updates - 1000 - updates // 20, "most": updates // 20}  # in a row
    runs += [{"attack": "push", "public": public} | all_of_5 for public in (True, False)]
    return [{"updates": updates} | run for run in runs]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=("phishing", "adult"), default="phishing")
    parser.add_argument("--updates", type=int, default=60_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    asked = parser.parse_args()
    task, x, y = phishing() if asked.data == "phishing" else adult()
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order].astype(np.float32), y[order].astype(np.float32)
    kept, of_one_kind = len(x) // 5, np.argsort(x[:PUBLIC, 1])[: 2 * PUBLIC // 5]  # the first column is constant
    dealt = (len(x) - kept) // EACH
    end = kept + dealt * EACH
    parts = {
        "public": (x[:PUBLIC], y[:PUBLIC]),
        "held": (x[PUBLIC:kept], y[PUBLIC:kept]),
        ONE_KIND: (x[of_one_kind], y[of_one_kind]),
        "own": (x[kept : kept + OWN], y[kept : kept + OWN]),
        "clients": (x[kept:end].reshape(dealt, EACH, -1), y[kept:end].reshape(dealt, EACH)),
    }
    results: dict[str, Any] = {
        "command": f"python experiments/{Path(__file__).name} --data {asked.data} --updates {asked.updates}",
        "hardware": f"{platform.machine()}, {os.cpu_count()} CPU cores, shared",
        "weights": task.weights,
    }
    if asked.data == "phishing":
        sizes = ((10, 5000), (387, 5000), (5000, 1000))
        results["honest clients alone, no signal"] = [
            honest_refused(weights, updates, flying) for weights, updates in sizes for flying in (0, 100)
        ]
        results["a burst of hostile updates alone"] = burst()
        print(json.dumps(results, indent=1), flush=True)
    with ProcessPoolExecutor(asked.jobs, initializer=one_thread) as jobs:
        started = [jobs.submit(trained, task, parts, **run) for run in plan(asked.updates)]
        for job in as_completed(started):
            print(json.dumps(job.result()), flush=True)
        results["runs"] = [job.result() for job in started]
    asked.out.mkdir(parents=True, exist_ok=True)
    name = "spam.json" if asked.data == "phishing" else "spam_adult.json"
    (asked.out / name).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
