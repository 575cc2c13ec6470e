"""Does the service learn what the simulation learns? Draw and Discard over HTTP, compared with the simulation.

    python experiments/draw_and_discard_service.py [--runs 100] [--updates 200] [--out experiments/results]

Many small models (20 weights, k = 20, Laplace noise by feature) are trained by the same clients in the same order:
through `blindsight.service` on a socket, with every secret source of randomness as in production and the spam check on,
and in the simulation that the paper's figures were drawn with. Each run is compared in four ways: the loss of the
averaged model on public examples, the scatter of its weights, the final spread over the instances (rank tests),
and each weight of the averaged model (Welch tests), with Bonferroni's correction.

A test that accepts everything is worthless, so the same comparison is made with broken variants: noise of 2/3 and of
3/2 of its scale, instances that start without their spread, and an update that overwrites the drawn instance, the last
also as a service that was broken on purpose. Synthetic data. Writes draw_and_discard_service.json.
"""

import argparse
import contextlib
import dataclasses
import http.client
import json
import os
import platform
import tempfile
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from draw_and_discard_simulation import Configuration, simulate, spread
from scipy import stats

from blindsight.algorithms.draw_and_discard import Task, client_update
from blindsight.codings.specs import BooleanField, FeatureSpec, NumberField, Response
from blindsight.keys import root
from blindsight.models import glm
from blindsight.service import Running, Settings, memory, running
from blindsight.service.protocol import decode, encode
from blindsight.service.randomness import random_index
from blindsight.service.store import Record

FEATURES, EACH = 19, 5
ADMIN = "an admin token that is only for this experiment"


@dataclasses.dataclass(frozen=True)
class Problem:
    """A task, what its clients hold, in the order in which they come, and public examples."""

    task: Task
    clients: list[tuple[np.ndarray, np.ndarray]]
    public: tuple[np.ndarray, np.ndarray]


def make_problem(updates: int, *, seed: int = 0) -> Problem:
    """Clients with examples of a logistic model, `EACH` for each of `updates` updates."""
    features = FeatureSpec(tuple(NumberField(f"x{number}", 0, 1) for number in range(FEATURES)))
    task = Task(
        model="run-0",
        family="logistic",
        features=features,
        response=Response(BooleanField("y")),
        unit="feature",
        epsilon=32.0,
        learning_rate=0.5,
        instances=20,
        participations=updates,
    )
    random = np.random.default_rng(seed)
    truth = random.normal(0, 2, task.weights)

    def examples(count: int) -> tuple[np.ndarray, np.ndarray]:
        x = np.concatenate([np.ones((count, 1)), random.random((count, FEATURES))], axis=1)
        return x, (random.random(count) < glm.predict("logistic", truth, x - 0.5)).astype(float)

    return Problem(task, [examples(EACH) for _ in range(updates)], examples(1000))


@dataclasses.dataclass(frozen=True)
class Runs:
    """What was learnt: averaged models (runs, weights), the spread over instances (runs,), and updates refused."""

    models: np.ndarray
    spreads: np.ndarray
    refused: int = 0


def in_service(problem: Problem, service: Running, runs: int) -> Runs:
    """As many models, trained over HTTP at the same time."""
    talk = http.client.HTTPConnection(service.address.removeprefix("http://"), timeout=60)

    def ask(
        method: str, path: str, token: str, body: bytes | None = None, more: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        talk.request(method, path, body, {"Authorization": f"Bearer {token}"} | dict(more or {}))
        answer = talk.getresponse()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read().decode()}")
        return answer

    tasks = [dataclasses.replace(problem.task, model=f"run-{number}") for number in range(runs)]
    tokens: list[str] = []
    for task in tasks:
        made = ask("POST", "/v1/admin/models", ADMIN, json.dumps({"task": task.to_dict()}).encode())
        tokens.append(json.loads(made.read())["token"])
    for x, y in problem.clients:
        for task, token in zip(tasks, tokens, strict=True):
            drawn = ask("GET", f"/v1/models/{task.model}/draw", token)
            weights = decode(drawn.read())
            update = client_update(task, weights, x, y, key=root().derive("update"))
            more = {name: drawn.headers[name] for name in ("Blindsight-Ticket", "Blindsight-Version")}
            path = f"/v1/models/{task.model}/update"
            ask("POST", path, token, encode(update), more | {"Content-Type": "application/octet-stream"}).read()
    models: list[list[float]] = []
    statistics: list[dict[str, float]] = []
    for task in tasks:
        models.append(json.loads(ask("GET", f"/v1/admin/models/{task.model}/average", ADMIN).read())["weights"])
        statistics.append(json.loads(ask("GET", f"/v1/admin/models/{task.model}/statistics", ADMIN).read()))
    talk.close()
    spreads = np.array([found["spread"] for found in statistics])
    return Runs(np.array(models), spreads, sum(int(found["spam"]) for found in statistics))


def in_simulation(problem: Problem, runs: int, *, seed: int, **changes: Any) -> Runs:
    """The same from the simulation; `changes` make it another algorithm."""
    task = problem.task
    given: dict[str, Any] = {"k": task.instances, "noise": task.scale, "start": spread(task.instances, task.scale)}
    configurations = [Configuration(name=str(number), **(given | changes)) for number in range(runs)]
    clients = [(x.astype(np.float32), y[None].astype(np.float32)) for x, y in problem.clients]
    instances = simulate(
        configurations,
        clients.__getitem__,
        np.arange(len(clients)),
        outputs=1,
        learning_rate=task.learning_rate,
        seed=seed,
        watch=lambda *_: None,
        every=len(clients),
    )
    found = np.stack(instances)[:, :, 0]  # (runs, k, weights)
    return Runs(found.mean(axis=1), np.sqrt(found.var(axis=1, ddof=1).mean(axis=1)))


def wrong_variants(problem: Problem) -> dict[str, dict[str, Any]]:
    """What a service could do wrong, as changes to the simulation."""
    scale = problem.task.scale
    return {
        "noise of 2/3": {"noise": scale * 2 / 3},
        "noise of 3/2": {"noise": scale * 3 / 2},
        "no spread at the start": {"start": 0.0},
        "the drawn instance is overwritten": {"replace": "same"},
    }


def losses(problem: Problem, models: np.ndarray) -> np.ndarray:
    """The loss of each model on the public examples."""
    return np.array([glm.loss("logistic", weights, *problem.public) for weights in models])


def p_value(problem: Problem, found: Runs, simulated: Runs, reference: Runs) -> float:
    """How likely runs as different as these are if both samples come from one distribution; Bonferroni's.

    `reference` is a third sample, simulated too, that only says where weights are and how far they scatter.
    """
    centre, scatter = reference.models.mean(axis=0), reference.models.std(axis=0)

    def off(runs: Runs) -> np.ndarray:
        return np.mean(((runs.models - centre) / scatter) ** 2, axis=1)

    tests = [
        stats.mannwhitneyu(losses(problem, found.models), losses(problem, simulated.models)).pvalue,
        stats.mannwhitneyu(off(found), off(simulated)).pvalue,
        stats.mannwhitneyu(found.spreads, simulated.spreads).pvalue,
        *stats.ttest_ind(found.models, simulated.models, equal_var=False)[1],
    ]
    return float(np.clip(len(tests) * min(tests), 1e-100, 1.0))  # smaller ones are not computed with any precision


@contextlib.contextmanager
def served() -> Generator[Running]:
    """A service of its own, with its memory store, for as long as the context lasts."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.toml"
        tokens.write_text(f'admin = ["{ADMIN}"]\n', encoding="utf-8")
        with running(Settings(port=0, data=None, tokens=tokens, rate_per_s=0.0, batch=1, shed_s=1e6)) as service:
            yield service


@contextlib.contextmanager
def broken() -> Generator[None]:
    """As long as the context lasts, services overwrite the instance that was drawn, as the paper says they must not.

    A model's clients take turns, so an update belongs to the draw before it: both are given the same index.
    """
    replace, drawn = memory.MemoryStore.replace_now, dict[str, int]()  # by life

    def draw_now(store: memory.MemoryStore, record: Record) -> bytes:
        instances = store.instances_now(record)
        drawn[record.life] = random_index(len(instances))
        return instances[drawn[record.life]]

    def replace_now(store: memory.MemoryStore, record: Record, update: bytes) -> bool:
        with mock.patch.object(memory, "random_index", return_value=drawn[record.life]):
            return replace(store, record, update)

    with mock.patch.multiple(memory.MemoryStore, draw_now=draw_now, replace_now=replace_now):
        yield


def main() -> None:
    """Train, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--simulated", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    asked = parser.parse_args()
    began, problem = time.time(), make_problem(asked.updates)
    simulated, reference = (in_simulation(problem, asked.simulated, seed=seed) for seed in (1, 2))
    samples = {"simulation": in_simulation(problem, asked.runs, seed=3)}
    with served() as service:
        samples["service"] = in_service(problem, service, asked.runs)
    for number, (name, changes) in enumerate(wrong_variants(problem).items()):
        samples[f"wrong: {name}"] = in_simulation(problem, asked.runs, seed=4 + number, **changes)
    with broken(), served() as service:
        samples["wrong, in service: the drawn instance is overwritten"] = in_service(problem, service, asked.runs)
    rows: list[dict[str, Any]] = []
    for name, found in samples.items():
        loss = losses(problem, found.models)
        row = {
            "what": name,
            "loss": round(float(loss.mean()), 5),
            "loss_error": round(float(loss.std() / np.sqrt(len(loss))), 5),
            "scatter_of_weights": round(float(np.sqrt(found.models.var(axis=0).mean())), 5),
            "spread_over_instances": round(float(np.mean(found.spreads)), 5),
            "refused_as_spam": found.refused,
            "p": p_value(problem, found, simulated, reference),
        }
        rows.append(row)
        print(f"{name:55} loss {row['loss']:.4f} +- {row['loss_error']:.4f}", end="   ")
        print(f"spread {row['spread_over_instances']:.4f}   p = {row['p']:.2g}", flush=True)
    about = {
        "command": f"python experiments/draw_and_discard_service.py --runs {asked.runs} --updates {asked.updates}",
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}",
        "seconds": round(time.time() - began),
        "runs": asked.runs,
        "updates": asked.updates,
        "simulated_beside": asked.simulated,
        "loss_at_the_start": round(float(losses(problem, np.zeros((1, problem.task.weights)))[0]), 5),
    }
    text = json.dumps(about | {"rows": rows}, indent=2) + "\n"
    (asked.out / "draw_and_discard_service.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
