"""Non-interference of files: with noise that does not depend on data, whole populations leave no trace in a folder.

Two populations have nothing in common but what is public: how many clients there are, and the classes. Releases are
replaced by fixed numbers, so every file of the run, less what is marked `simulation_only`, has to be equal. An exact
count, an accuracy or a number of examples is not.
"""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flat
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from blindsight import asking, inspect, keys, runs
from blindsight.accounting.ledger import Ledger
from blindsight.algorithms import dp_fedavg
from blindsight.backends import Simulation
from blindsight.data.population import TEXT, Population
from blindsight.data.text import Vocabulary
from blindsight.mechanisms import GaussianMechanism, Release
from blindsight.privacy import Privacy
from blindsight.training import Checkpointing, Evaluation, train

CLIENTS, DELTA = 50, 1e-6
PRICE: dict[str, Any] = {"epsilon": 4.0, "delta": DELTA}
WORDS = ("we", "see", "it", "now", "here", ".")


def people(seed: int, name: str = "people") -> Population:
    """Clients with numbers, a class and a text; how many examples each has depends on the seed too."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 9, CLIENTS)
    count = int(sizes.sum())
    x, y = random.normal(size=(2, count)).astype(np.float32)
    said = [" ".join([*row, "." if random.random() < 0.5 else "zorg ."]) for row in random.choice(WORDS, (count, 4))]
    columns = {"x": x, "y": y, "label": (x > seed).astype(np.int32), "text": np.array(said, dtype=TEXT)}
    return Population(columns, sizes=sizes, name=name, classes={"label": ("no", "yes")})


def by_sign(inputs: np.ndarray) -> np.ndarray:
    return np.stack([-inputs[:, 0], inputs[:, 0]], axis=1)


def ask_train(clients: Population, about: dict[str, Any]) -> None:
    """A classifier whose true accuracy on its clients is evaluated on the way."""

    def loss(model: Any, batch: Any, key: jax.Array) -> jax.Array:
        del key
        return batch.mean(jnp.square(batch["x"] * model[0] - batch["y"]))

    def evaluate(model: Any) -> dict[str, float]:
        right = (clients.columns["x"] * float(model[0]) > 0) == clients.columns["label"]
        return {"accuracy": float(right.mean()), "examples": float(clients.n_examples)}

    privacy = Privacy(population=CLIENTS, cohort=10, rounds=4, noise_multiplier=2.0, clip=1.0)
    optimizers: dict[str, Any] = {"client_optimizer": optax.sgd(0.1), "server_optimizer": optax.sgd(1.0)}
    algorithm = dp_fedavg(jnp.zeros(1), loss, privacy, **optimizers, batch_size=2, sampler="float")
    run = runs.begin(about["out"], "train", {})
    settings: dict[str, Any] = {"evaluation": Evaluation(function=evaluate, every=2), "delta": DELTA}
    settings["checkpointing"] = Checkpointing(every_rounds=2)
    settings |= {"population": clients.name, "key": about["key"], "run": run, "ledger": about["ledger"]}
    train(algorithm, Simulation(clients, dropout=0.3), privacy, **settings)


def ask_unknowns(clients: Population, about: dict[str, Any]) -> None:
    after = clients.replace({"text": clients.columns["text"][::-1].copy()}, name="after")
    flat.ask_unknowns(clients, after, vocabulary=Vocabulary(WORDS), suspects=("token_join",), **PRICE, **about)


def with_rows(ask: Callable[..., Any], **more: Any) -> Callable[[Population, dict[str, Any]], None]:
    return lambda clients, about: ask(clients, inputs=["x", "y"], **PRICE, **about, **more)


def ask_statistics(clients: Population, about: dict[str, Any]) -> None:
    items = ["x", asking.Mean("y", by="label"), asking.Cross("label", "x"), asking.Missing("text")]
    ranges = {"x": (-3.0, 3.0), "y": (-3.0, 3.0)}
    asking.ask(clients, items, **PRICE, ranges=ranges, session=inspect.Session(**about, even_if_blind=True))


QUESTIONS: dict[str, Callable[[Population, dict[str, Any]], Any]] = {
    "ask": ask_statistics,
    "train": ask_train,
    "mistakes": with_rows(functools.partial(flat.ask, inspect.mistakes), model=by_sign, minimum=1),
    "bias": with_rows(flat.ask_bias, reference=people(9, "public")),
    "unknowns": ask_unknowns,
}


def released(self: GaussianMechanism, total: Any, *, key: keys.Key, begun: Any = None) -> Release[Any]:
    """The same numbers for everyone, of a size that reports can be made of."""
    del key, begun
    value = jax.tree.map(lambda leaf: np.full(np.shape(leaf), 0.3 * total.l2_bound, np.float32), total.value)
    return Release(value, self.event(total), self.noise_multiplier * total.l2_bound / total.n_expected)


def public(value: Any) -> Any:
    """JSON without what is marked, and without times and names that every run has of its own."""
    if isinstance(value, dict):
        own = ("simulation_only", "created", "id", "began", "ledger", "identity", "run")
        return {name: public(item) for name, item in value.items() if name not in own}
    return [public(item) for item in value] if isinstance(value, list) else value


def files(folder: Path) -> dict[str, Any]:
    """What can be read off every file of a run."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        read, name = path.is_file(), str(path.relative_to(folder))
        if path.suffix == ".json":
            found[name] = public(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            found[name] = [public(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.suffix in (".html", ".svg"):
            found[name] = re.sub(r"\d{4}-\d\d-\d\d\S*( \d\d:\d\d)?", "", path.read_text())
        else:
            found[name] = read
    return found


@pytest.mark.parametrize("name", QUESTIONS)
def test_two_populations_leave_the_same_files(tmp_path, monkeypatch, name):
    monkeypatch.setattr(GaussianMechanism, "release", released)
    monkeypatch.setattr(keys.Key, "bound_to", lambda self, _: self)  # a secret root is bound to nothing either
    left = list[dict[str, Any]]()
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        about: dict[str, Any] = {"out": folder / "run", "ledger": Ledger(folder / "ledger.db")}
        QUESTIONS[name](people(seed), about | {"key": keys.reproducible(1)})
        left.append(files(folder / "run"))
    assert set(left[0]) == set(left[1])
    for file, said in left[0].items():
        assert left[1][file] == said, file
