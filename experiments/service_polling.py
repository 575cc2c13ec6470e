"""What a token holder who draws after every update sees, by the number of updates that become visible together.

    python experiments/service_polling.py [--updates 4000] [--runs 5] [--out experiments/results]

A pool of the service (387 weights, 20 instances) takes honest updates, and the poller draws after each. Three
questions, by size of the batch (1: the paper's algorithm, each draw is an instance):

    bytes    updates that some draw shows byte for byte
    parent   updates that the poller sees byte for byte and whose drawn instance it names
    own      one update in 25 is the poller's own. It knows that one was taken if a later draw correlates with the noise
             in it more than 99 % of refused updates' noise does. A refused update is made, and never sent.

What batches cost is in `learning`: area under the ROC curve on held-out addresses of the demo's task, with 20
instances, and the spread over instances next to `expected_spread`. Measured on made-up or public data:
`simulation_only`. Writes service_polling.json and service_polling.png.
"""

import argparse
import asyncio
import dataclasses
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

from blindsight.algorithms.draw_and_discard import Task, client_update
from blindsight.keys import root
from blindsight.service.addresses import collect, make_task
from blindsight.service.memory import MemoryStore
from blindsight.service.pool import Pool, first_instances
from blindsight.service.protocol import decode, encode
from blindsight.service.shown import expected_spread
from blindsight.service.store import Record

BATCHES = (1, 5, 10, 20, 50)
OWN_EVERY = 25  # updates


async def pool_of(task: Task, batch: int) -> Pool:
    """A model in memory."""
    record, store = Record(task=task), MemoryStore(None)
    await store.put(record, first_instances(record))
    return Pool(record, store, batch)


def offer(pool: Pool, update: np.ndarray) -> None:
    """An update, taken at once."""
    pool._waiting.append(encode(update))  # pyright: ignore[reportPrivateUsage]
    pool.settle()


def drawn(pool: Pool) -> np.ndarray:
    """The weights of a draw."""
    return decode(pool.draw_now() or b"")


def noisy(task: Task, weights: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """An honest update of a client without examples: noise alone, in float32, which a deployment must not do."""
    return (weights + random.laplace(0.0, task.scale, task.weights)).astype(np.float32)


async def poll(batch: int, updates: int, seed: int, draws_each: int = 20) -> dict[str, float]:
    """What a poller learns from `draws_each` draws after each of some updates."""
    task = Task(model="polled", family="custom", weights=387, unit="feature", epsilon=1.0)
    pool, random = await pool_of(task, batch), np.random.default_rng(seed)
    sent: list[tuple[bytes, bytes]] = []  # update, and what it was made from
    seen: dict[bytes, int] = {}  # draws, and after which update they appeared
    own: list[tuple[int, np.ndarray, bool]] = []
    for number in range(updates):
        parent = drawn(pool)
        update = noisy(task, parent, random)
        offer(pool, update)
        sent.append((encode(update), parent.tobytes()))
        if number % OWN_EVERY == 0:
            own.append((number, update - parent, True))
            own.append((number, noisy(task, parent, random) - parent, False))
        for _ in range(draws_each):
            seen.setdefault(drawn(pool).tobytes(), number)
    order = [decode(body) for body in seen]
    shown_after = np.array(list(seen.values()))
    named = [_named(update, order, shown_after, seen) == parent for update, parent in sent if update in seen]
    return {
        "bytes": sum(update in seen for update, _ in sent) / updates,
        "parent": sum(named) / updates,
        "own": _told(own, np.stack(order), shown_after, updates),
    }


def _named(update: bytes, order: list[np.ndarray], shown_after: np.ndarray, seen: dict[bytes, int]) -> bytes:
    """The nearest of what was shown before this update: what the poller takes for its parent."""
    before = [row for row, at in zip(order, shown_after, strict=True) if at < seen[update]][-60:]
    if not before:
        return b""
    distances = [float(np.square(decode(update) - row).sum()) for row in before]
    return before[int(np.argmin(distances))].tobytes()


def _told(own: list[tuple[int, np.ndarray, bool]], shown: np.ndarray, shown_after: np.ndarray, updates: int) -> float:
    """Share of the poller's own updates that it knows to be taken."""
    scores: dict[bool, list[float]] = {True: [], False: []}
    for number, noise, is_taken in own:
        later = shown[(shown_after >= number) & (shown_after < number + 150)]
        if number + 150 <= updates and len(later):
            moved = later - shown[shown_after < number + 150][-300:].mean(axis=0)
            lengths = np.linalg.norm(moved, axis=1) * np.linalg.norm(noise)
            scores[is_taken].append(float(np.max(moved @ noise / lengths)))
    if not scores[False]:
        return float("nan")
    threshold = np.quantile(scores[False], 0.99)
    return float(np.mean(np.array(scores[True]) > threshold))


async def learn(batch: int, updates: int, seed: int) -> dict[str, float]:
    """How well a model learns, and the spread of its instances."""
    task = dataclasses.replace(make_task(), instances=20)
    addresses, random, pool = collect(task), np.random.default_rng(seed), await pool_of(task, batch)
    for number in range(updates):
        rows = random.integers(0, len(addresses.y), 50)
        update = client_update(
            task, drawn(pool), addresses.x[rows], addresses.y[rows], key=root().derive("update", number)
        )
        offer(pool, update)
    spread, _ = await pool.spread()
    scores = addresses.public_x @ await pool.average()
    return {
        "auc": area(scores, addresses.public_y.astype(bool)),
        "spread": spread,
        "expected_spread": expected_spread(task, batch),
        "refused": pool.spam / updates,
    }


def area(scores: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve."""
    ranks = np.argsort(np.argsort(scores)) + 1
    count = positive.sum()
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (~positive).sum()))


def draw_figure(results: dict[str, Any], path: Path) -> None:
    """Both halves: what is seen, and what it costs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    words = {
        "bytes": "seen byte for byte",
        "parent": "and its drawn instance named",
        "own": "own update known as taken",
    }
    for (key, label), style in zip(words.items(), ("o-", "s--", "^-"), strict=True):
        left.plot(BATCHES, [100 * results["seen"][str(batch)][key] for batch in BATCHES], style, label=label)
    left.set(xscale="log", xticks=BATCHES, xticklabels=BATCHES, ylabel="% of updates", ylim=(-3, 103))
    left.set(xlabel="updates that become visible together")
    left.legend(frameon=False)
    right.plot(BATCHES, [results["learning"][str(batch)]["auc"] for batch in BATCHES], "o-", color="grey")
    right.set(xscale="log", xticks=BATCHES, xticklabels=BATCHES, ylabel="area under the ROC curve", ylim=(0.5, 1))
    right.set(xlabel="updates that become visible together")
    for axes in (left, right):
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


async def measure(updates: int, runs: int) -> dict[str, Any]:
    """Everything, by size of the batch."""
    results: dict[str, Any] = {"seen": {}, "learning": {}}
    for batch in BATCHES:
        seen = [await poll(batch, updates, seed) for seed in range(runs)]
        learned = [await learn(batch, 2 * updates, seed) for seed in range(runs)]
        results["seen"][str(batch)] = _means(seen)
        results["learning"][str(batch)] = _means(learned) | {"auc_runs": [run["auc"] for run in learned]}
        print(batch, results["seen"][str(batch)], results["learning"][str(batch)], flush=True)
    return results


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def main() -> None:
    """Measure, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    asked = parser.parse_args()
    results = asyncio.run(measure(asked.updates, asked.runs))
    about = {"updates": asked.updates, "runs": asked.runs, "python": platform.python_version(), "simulation_only": True}
    text = json.dumps(about | results, indent=2) + "\n"
    (asked.out / "service_polling.json").write_text(text, encoding="utf-8")
    draw_figure(results, asked.out / "service_polling.png")


if __name__ == "__main__":
    main()
