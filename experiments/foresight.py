"""Does an inspection find faults as often as `blindsight plan --detect` and dry runs predict from public data?

    python experiments/foresight.py [--runs 40] [--references 3] [--beds images,tables,texts] [--out FOLDER]

Images (embedded handwriting, a small CNN), tables (embedded census rows, an MLP) and texts (embedded forum). The model
is trained on public clients of its own. A prediction sees one reference of 150 other public clients and nothing else.
The clients under test are in neither: what each client of a pool would send is computed once, healthy and under each
fault. The pool of tables is much larger than a reference, because a small pool would differ from all references alike.
A run draws clients from the pool, the affected ones among them, and the noise of the round at (epsilon, 1e-6) with the
default shares of precision, and reads the sums as `blindsight inspect` does. A fault counts as found if anything is
detected.

Every cell (data, inspection, fault, share, clients, epsilon) is predicted from several references, and simulated with
each. Compared are the means over references; the deviation for single references is stated beside it.
Writes foresight.json, cell by cell, so that a stopped run resumes, and foresight.png.
"""

import argparse
import functools
import json
import platform
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np

from blindsight import selection
from blindsight.accounting.guarantee import certify
from blindsight.data import Population, embedded
from blindsight.data.schema import Field, Schema
from blindsight.data.text import Vocabulary
from blindsight.inspection.contrast import reading
from blindsight.inspection.contrast.foresight import Foresight
from blindsight.inspection.contrast.question import Comparing, Sanity, Slices
from blindsight.inspection.contrast.rounds import observe
from blindsight.inspection.contrast.simulating import noise_of
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.measuring import Measured, Measurement
from blindsight.inspection.question import Public, complete
from blindsight.inspection.sections.evidence import is_difference
from blindsight.inspection.unknowns import findings as of_words
from blindsight.inspection.unknowns.foresight import WordForesight
from blindsight.jobs.models import public_model
from blindsight.mechanisms.gaussian_mechanism import joint

matplotlib.use("agg")

SHARES = (0.02, 0.05, 0.1, 0.2, 0.5)
SETTINGS = ((220, 8.0), (1000, 1.0), (1000, 8.0))  # clients and epsilon
DELTA = 1e-6
POOL = {"images": 800, "tables": 4000, "texts": 300}
HIT = {"handwriting": 200, "tabular": 1000}
PUBLIC = 150
EXAMPLES = (16, 32)
ROWS = Schema({"age": Field("number", 0, 100), "hours": Field("number", 0, 100)}, ("age", "hours", "savings"), "label")

BEDS: dict[str, tuple[str, Schema, tuple[str, ...]]] = {
    "images": ("handwriting", Schema({}, ("image",), "label"), ("invert", "rotate90:turns=2", "crop")),
    "tables": (
        "tabular",
        ROWS,
        ("unit_change:field=savings:factor=100", "missing_fill:field=hours", "age and hours swapped"),
    ),
}
WORDS = ("token_join", "encoding_damage", "truncation")

Done = set[tuple[str, str, int, float, str]]
"""Cells that an earlier run has written: data, inspection, clients, epsilon and fault."""


def people(name: str, clients: int, seed: int) -> Population:
    """Clients of an embedded population, drawn once."""
    options: dict[str, Any] = {"examples": EXAMPLES} if name == "handwriting" else {}
    population = embedded(name, clients=clients, seed=seed, **options)
    return population.replace(population.columns)


def questions(schema: Schema, model: Any, public: Population) -> list[Callable[..., Comparing]]:
    """The inspections of one bed; thresholds of accuracy are fixed in advance, on other public clients."""
    seen = selection.observe(public, model, inputs=schema.inputs, label=schema.label)
    low, high = np.round(np.quantile(selection.accuracies(seen), [0.25, 0.75]), 2).tolist()
    about: dict[str, Any] = {
        "schema": complete(schema, public),
        "delta": DELTA,
        "model": "model",
        "reference": "public",
    }
    return [
        functools.partial(Sanity, **about),
        functools.partial(Slices, **about, thresholds=(low, max(low, high))),
    ]


def drawn(dice: np.random.Generator, sent: dict[str, np.ndarray], clients: int) -> dict[str, np.ndarray]:
    """The sums over so many clients, drawn with replacement."""
    size = len(next(iter(sent.values())))
    weights = dice.multinomial(clients, np.full(size, 1 / size))
    return {name: weights @ vectors for name, vectors in sent.items()}


def released(
    dice: np.random.Generator, healthy: Any, faulty: Any, share: float, clients: int, noise: dict[str, float]
) -> dict[str, Measured]:
    """One noisy release of a population in which each client has the fault with probability `share`."""
    hit = int(dice.binomial(clients, share))
    sums = [drawn(dice, sent, count) for sent, count in ((healthy, clients - hit), (faulty, hit))]
    noisy = {name: sums[0][name] + sums[1][name] for name in healthy}
    return {name: Measured(v + dice.normal(0, noise[name], v.shape), noise[name], 1.0) for name, v in noisy.items()}


def remember_chance() -> None:
    """What chance produces depends on the reference, the noise and the number of clients, not on the release."""
    largest, known = reading.largest, dict[Any, np.ndarray]()

    def remembered(part: Any, sent: np.ndarray, pairs: Any, *, clients: int, noise_std: float) -> np.ndarray:
        key = (id(sent), tuple(pairs), clients, noise_std)
        if key not in known:
            known[key] = largest(part, sent, pairs, clients=clients, noise_std=noise_std)
            kept.append(sent)
        return known[key]

    kept: list[np.ndarray] = []  # an id stays unique as long as its array lives
    reading.largest = remembered


def by_arms(bed: str, runs: int, references: int, done: Done) -> Iterator[dict[str, Any]]:
    """Cells of images and tables."""
    name, schema, listed = BEDS[bed]
    model = public_model(people(name, 300, seed=1), schema.inputs, schema.label)
    pool, publics = people(name, POOL[bed], seed=5), [people(name, PUBLIC, seed=100 + r) for r in range(references)]
    for make in questions(schema, model, people(name, 300, seed=2)):
        sights = [
            Foresight(make(clients=1000, epsilon=1.0), Public(model=model, reference=one), planted=PUBLIC)
            for one in publics
        ]
        healthy = [sent_by(sight, pool) for sight in sights]
        faulty = {fault: [sent_by(sight, pool, fault) for sight in sights] for fault in listed}
        for clients, epsilon in SETTINGS:
            question = make(clients=clients, epsilon=epsilon)
            for sight in sights:
                sight.question = question
                vars(sight).pop("round", None)
            for fault in [one for one in listed if (bed, question.task, clients, epsilon, one) not in done]:
                yield from _cells(bed, question, fault, sights, list(zip(healthy, faulty[fault], strict=True)), runs)


def sent_by(sight: Foresight, pool: Population, fault: str | None = None) -> Any:
    """What clients of a pool send, healthy or the first ones with a fault; the sight's reference defines the cues."""
    one, seen = sight.round, pool
    if fault is not None:
        some = pool.select(np.arange(min(HIT[pool.name], pool.size)))
        damaged = sight.planter.damaged(some.replace(some.columns), fault)
        assert damaged is not None
        seen = damaged
    looked = observe(sight.question, sight.planter.public, seen, is_public=True)
    return client_vectors(looked, one.arms, [one.by_name[part] for part in ("cues", "votes") if part in one.by_name])


def _cells(
    bed: str, question: Comparing, fault: str, sights: list[Foresight], sent: list[tuple[Any, Any]], runs: int
) -> Iterator[dict[str, Any]]:
    dice = np.random.default_rng(zlib.crc32(f"{bed} {question.task} {fault} {question.clients}".encode()))
    predicted, realised = np.zeros((len(sights), len(SHARES))), np.zeros((len(sights), len(SHARES)))
    for place, (sight, (well, ill)) in enumerate(zip(sights, sent, strict=True)):
        one, normal = sight.round, sight.planter.healthy
        assert normal is not None
        public = reading.usual(one.by_name, one.arms, normal)
        simulation = sight.simulation(one, public, shares=SHARES, populations=300)
        planted = None if simulation is None else sight.planter.sent(fault, one, simulation.parts)
        assert simulation is not None
        assert planted is not None
        predicted[place] = simulation.power(planted)
        noise = noise_of(one)
        event = joint(*(one.mechanisms[part.name].planned_event for part in one.parts))
        guarantee = certify(event, delta=DELTA)
        for number, share in enumerate(SHARES):
            for _ in range(runs):
                parts = released(dice, well, ill, share, question.clients, noise)
                measured = Measurement(parts, tuple(one.arms), question.clients, event, guarantee)
                tested = {name: one.by_name[name] for name in parts}
                found = any(map(is_difference, reading.read(measured, tested, one.arms, public)[0]))
                realised[place, number] += found / runs
    for number, share in enumerate(SHARES):
        row = {"data": bed, "task": question.task, "fault": fault, "clients": question.clients}
        row |= {"epsilon": question.epsilon, "share": share}
        yield row | {"predicted": predicted[:, number].tolist(), "realised": realised[:, number].tolist()}


def by_words(runs: int, references: int, done: Done) -> Iterator[dict[str, Any]]:
    """Cells of texts: unknown words before and after a change."""
    vocabulary = Vocabulary.most_frequent(people("forum", 1000, seed=1), 5000)
    pool = people("forum", POOL["texts"], seed=5)
    publics = [people("forum", PUBLIC, seed=100 + r) for r in range(references)]
    for clients, epsilon in SETTINGS:
        about: dict[str, Any] = {"clients": clients, "epsilon": epsilon, "delta": DELTA}
        strangers = WordForesight(pool, vocabulary, **about)
        sights = [WordForesight(one, vocabulary, **about) for one in publics]
        for fault in [one for one in WORDS if ("texts", "unknowns", clients, epsilon, one) not in done]:
            for share in SHARES:
                dice = np.random.default_rng((int(1000 * share) + clients, zlib.crc32(fault.encode())))
                found = 0.0
                for _ in range(runs):
                    parts = released(dice, strangers.healthy, strangers.faulty(fault), share, clients, strangers.noise)
                    read = of_words.read(parts["rates"], parts["signs"], parts["votes"], strangers.labels)
                    found += any(one.verdict == "detected" for one in of_words.compare(read)[0]) / runs
                row = {"data": "texts", "task": "unknowns", "fault": fault, "clients": clients}
                row |= {"epsilon": epsilon, "share": share, "realised": [found]}
                yield row | {"predicted": [sight.power(fault, share, 100) for sight in sights]}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Predicted against realised power, one panel for each kind of data; small dots are single references."""
    from matplotlib import pyplot

    kinds = list(dict.fromkeys(row["data"] for row in rows))
    size = (4 * len(kinds), 4)
    figure, axes = pyplot.subplots(1, len(kinds), figsize=size, layout="constrained", sharey=True, squeeze=False)
    for kind, axis in zip(kinds, axes[0], strict=True):
        axis.fill_between([0, 1], [-0.1, 0.9], [0.1, 1.1], color="grey", alpha=0.2)
        tasks = list(dict.fromkeys(row["task"] for row in rows if row["data"] == kind))
        for number, task in enumerate(tasks):
            cells = [row for row in rows if (row["data"], row["task"]) == (kind, task)]
            means = [[np.mean(row[side]) for row in cells] for side in ("predicted", "realised")]
            axis.plot(*means, "o", ms=4, color=f"C{number}", label=task)
            single = [(p, r) for row in cells for p, r in zip(row["predicted"], row["realised"], strict=False)]
            axis.plot(*zip(*single, strict=True), ".", ms=2, alpha=0.4, color=f"C{number}")
        axis.set(title=kind, xlabel="predicted power", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    axes[0, 0].set_ylabel("realised power")
    figure.savefig(path, dpi=100)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How far predictions are off, for each kind of data and in all."""
    told: dict[str, Any] = {}
    for kind in ("all", *dict.fromkeys(row["data"] for row in rows)):
        cells = [row for row in rows if kind in ("all", row["data"])]
        off = np.array([abs(np.mean(row["predicted"]) - np.mean(row["realised"])) for row in cells])
        single = np.concatenate([np.abs(np.array(row["predicted"]) - np.array(row["realised"])) for row in cells])
        told[kind] = {
            "cells": len(cells),
            "within 0.1": round(float(np.mean(off <= 0.1)), 3),
            "mean deviation": round(float(off.mean()), 3),
            "largest deviation": round(float(off.max()), 3),
            "single references within 0.1": round(float(np.mean(single <= 0.1)), 3),
        }
    return told


def main() -> None:
    """Predict, simulate, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--references", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    parser.add_argument("--beds", default="images,tables,texts")
    options = parser.parse_args()
    path = options.out / "foresight.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cells": [], "cpu_seconds": 0}
    began, rows, spent = time.process_time(), list[dict[str, Any]](kept["cells"]), kept["cpu_seconds"]
    done = {(row["data"], row["task"], row["clients"], row["epsilon"], row["fault"]) for row in rows}
    remember_chance()
    options.out.mkdir(parents=True, exist_ok=True)
    cells = {bed: functools.partial(by_arms, bed) for bed in BEDS} | {"texts": by_words}
    for bed in options.beds.split(","):
        for row in cells[bed](options.runs, options.references, done):
            rows.append(row)
            told, seen = np.mean(row["predicted"]), np.mean(row["realised"])
            print(*list(row.values())[:6], f"predicted {told:.2f} realised {seen:.2f}", flush=True)
            if row["share"] == SHARES[-1]:
                path.write_text(written(rows, options, spent + time.process_time() - began), encoding="utf-8")
    print(json.dumps(summary(rows), indent=1))
    draw(rows, options.out / "foresight.png")


def written(rows: list[dict[str, Any]], options: argparse.Namespace, seconds: float) -> str:
    """Everything so far as JSON; a run that is stopped goes on from there."""
    result = {
        "command": f"python experiments/foresight.py --runs {options.runs} --references {options.references}",
        "hardware": f"{jax.devices()[0].device_kind}, {platform.processor() or platform.machine()}",
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
        "cpu_seconds": round(seconds),
        "delta": DELTA,
        "simulation_only": "rates over simulated rounds; who was hit is known to the simulation alone",
        "summary": summary(rows),
        "cells": [
            row | {side: [round(value, 3) for value in row[side]] for side in ("predicted", "realised")} for row in rows
        ],
    }
    return json.dumps(result, indent=1) + "\n"


if __name__ == "__main__":
    main()
