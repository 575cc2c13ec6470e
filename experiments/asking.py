"""Statistics of fields: how often intervals hold, how wide they are, and how many unknown words are found.

    python experiments/asking.py coverage [--runs 10000]     intervals of whole questions, on embedded rows
    python experiments/asking.py words [--runs 20]           unknown words by set union, on real text by author

*Coverage* asks `tabular` (1,000 districts) the same question again and again: true sums with fresh Gaussian noise of
the mechanism's own standard deviation, read as in reports, except that the quantile for the widths is computed only in
the first run of a cell: it changes by less than a thousandth between runs. A run counts as covered if every interval of
the question contains its true value, which is computed from the rows without noise. *Words* joins the first two words
of some sentences of Stack Exchange (3,424 authors; the 10,000 most frequent words of as many other authors count as
known), as `oov_tables.py` does, and asks for the unknown words that many authors use, through the ledger and with exact
noise.
"""

import argparse
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from oov_tables import BUG, sources

import blindsight as bs
from blindsight import keys
from blindsight.algorithms.vocabulary import own_words
from blindsight.asking import Cross, Histogram, Item, Mean, Missing, Quantiles, Top
from blindsight.backends import Simulation
from blindsight.data import faults
from blindsight.data.population import Population
from blindsight.data.schema import Field, Schema
from blindsight.inspection.asking import reading, tables
from blindsight.inspection.asking.question import Ask
from blindsight.inspection.asking.section import Statistic
from blindsight.inspection.asking.task import plan
from blindsight.inspection.measuring import Measured, client_update
from blindsight.inspection.question import Public
from blindsight.selection import Arms, everything

DELTA, CLIENTS = 1e-6, 1000
RESULTS = Path("experiments/results/asking.json")
QUESTIONS: dict[str, tuple[Item, ...]] = {
    "one mean": (Mean("age"),),
    "shares of a category, missing": (Histogram("education"), Missing("education")),
    "cross-tab": (Cross("sex", "occupation"),),
    "age by sex: mean, quantiles, histogram": (Mean("age", "sex"), Quantiles("age", "sex"), Histogram("age", "sex")),
    "the same of a range of which half is empty": (
        Mean("wide", "sex"),
        Quantiles("wide", "sex"),
        Histogram("wide", "sex"),
    ),
    "a field that few clients have: mean, histogram, missing": (Mean("rare"), Histogram("rare"), Missing("rare")),
}


def people() -> Population:
    """Districts, a field `rare` that nine in ten of them lack, and age again under the name `wide`."""
    drawn = bs.data.embedded("tabular", clients=CLIENTS, examples=(5, 60))
    owner = np.repeat(np.arange(drawn.size), drawn.sizes)
    hours = drawn.columns["hours"].astype(np.float32)
    wide = drawn.columns["age"].astype(np.float32)
    return drawn.replace(
        {**drawn.columns, "wide": wide, "rare": np.where(owner % 10 == 0, hours, np.nan).astype(np.float32)}
    )


def question(clients: Population, items: tuple[Item, ...], epsilon: float) -> Ask:
    """The question, with public ranges."""
    ranges = {"age": Field("whole", 20, 70), "wide": Field("number", -60, 120), "rare": Field("number", 0, 80)}
    fields = {**Schema.of(clients).fields, **ranges}
    used = {name for item in items for name in item.fields}
    schema = Schema({name: field for name, field in fields.items() if name in used})
    return Ask(schema=schema, clients=clients.size, epsilon=epsilon, delta=DELTA, items=items)


def true_sums(asked: Ask, clients: Population) -> dict[str, np.ndarray]:
    """The sums before noise: simulation_only."""
    parts = tables.tables_of(asked)
    backend = Simulation(tables.observe(parts, asked.schema, clients))
    cohort = backend.cohort(np.arange(clients.size), n_expected=clients.size, key=keys.reproducible(0))
    update, bounds = client_update(Arms({"everyone": everything()}), parts), {one.name: one.bound for one in parts}
    sums = cohort.sum(update, jnp.zeros(()), l2_bound=bounds, grid={name: b * 2.0**-22 for name, b in bounds.items()})
    return {name: np.asarray(one.value, np.float64) * one.grid for name, one in sums.items()}


def true_quantiles(clients: Population, item: Quantiles) -> list[list[float]]:
    """Of each slice, from the rows: simulation_only."""
    weight = np.repeat(1 / np.maximum(clients.sizes, 1), clients.sizes)
    found = list[list[float]]()
    for code in range(len(clients.classes[item.by])):
        mine = clients.columns[item.by] == code
        order = np.argsort(clients.columns[item.field][mine], kind="stable")
        low, high = (20, 70) if item.field == "age" else (-60, 120)
        values, reached = np.clip(clients.columns[item.field][mine][order], low, high), np.cumsum(weight[mine][order])
        places = np.searchsorted(reached, np.array(item.levels) * reached[-1])
        found.append([float(values[place]) for place in places])
    return found


def pairs(
    clients: Population, asked: Ask, found: list[Statistic], truth: list[Statistic]
) -> tuple[list[Any], list[Any]]:
    """Every interval with its true value, and those of quantiles, which follow from the others."""
    direct, implied = list[Any](), list[Any]()
    for item, one, exact in zip(asked.items, found, truth, strict=True):
        if isinstance(item, Quantiles):
            known = true_quantiles(clients, item)
            implied += [
                (row, v)
                for group, own in zip(one.groups, known, strict=True)
                for row, v in zip(group.rows, own, strict=True)
            ]
        for group, own in zip(one.groups, exact.groups, strict=True):
            rows = zip(group.curve or group.rows, own.curve or own.rows, strict=True)
            direct += [(row, true.value) for row, true in rows]
    return direct, implied


def _read(asked: Ask, noisy: dict[str, Measured], kept: list[float]) -> list[Statistic]:
    """What a report reads, with the quantile that is kept, if there is one already."""
    computed = reading.critical
    if kept:
        reading.critical = lambda blocks, confidence: kept[0]
    try:
        found, wide = reading.read(asked, noisy)
    finally:
        reading.critical = computed
    kept.append(wide)
    return found


def coverage(runs: int) -> dict[str, Any]:
    """Each question at several epsilons: the share of runs in which all intervals hold, and how wide they are."""
    clients, dice, results = people(), np.random.default_rng(2020), dict[str, Any]()
    for name, items in QUESTIONS.items():
        for epsilon in (1.0, 8.0):
            begun, asked = time.time(), question(clients, items, epsilon)
            noise, sums = plan(asked, Public()).mechanisms, true_sums(asked, clients)
            std = {part.name: noise[part.name].noise_multiplier * part.bound for part in tables.tables_of(asked)}
            truth = reading.read(asked, {part: Measured(one, 1e-6, 0.0) for part, one in sums.items()})[0]
            held = quantiles = 0
            widths, direct, implied = list[float](), list[Any](), list[Any]()
            kept = list[float]()
            for _ in range(runs):
                noisy = {p: Measured(one + dice.normal(0, std[p], one.shape), std[p], 0.0) for p, one in sums.items()}
                direct, implied = pairs(clients, asked, _read(asked, noisy, kept), truth)
                held += all(row.low <= value <= row.high for row, value in direct)
                quantiles += all(row.low <= value <= row.high for row, value in implied)
                widths.append(float(np.median([row.high - row.low for row, _ in direct])) / 2)
            cell = {"covered": held / runs, "numbers": len(direct), "half_width": float(np.median(widths))}
            if implied:
                cell["quantiles_covered"] = quantiles / runs
            results[f"{name}, epsilon {epsilon:g}"] = cell
            print(f"{name}, epsilon {epsilon:g}", cell, f"{time.time() - begun:.0f} s", flush=True)
    return results


def words(runs: int) -> dict[str, Any]:
    """Unknown words at epsilon 8, sentence by sentence joined."""
    sentences, vocabulary = sources("stackexchange", 0)
    results: dict[str, Any] = {"clients": sentences.size, "epsilon": 8.0, "delta": DELTA, "most": 100}
    for fraction, times in ((0.0, 3), (0.01, 3), (0.1, runs), (1.0, 3)):
        broken = faults.apply(sentences, f"{BUG}:{fraction}:by=example")
        used = {word.replace("\u00a0", " ") for word in own_words(broken).columns["word"].tolist()}
        counts, first = list[int](), list[Any]()
        for _ in range(times):
            with tempfile.TemporaryDirectory() as folder:
                session = bs.inspect.Session(out=Path(folder) / "run", ledger=bs.Ledger(Path(folder) / "ledger.db"))
                report = bs.ask(broken, [Top("text", k=1000)], epsilon=8, vocabulary=vocabulary, session=session)
            rows = report.statistics[0].groups[0].rows if report.statistics else ()
            if not all(row.name in used for row in rows):
                raise AssertionError("a word that nobody uses was listed")
            counts.append(len(rows))
            first = first or [
                (row.name, round(row.value, 1), round(row.low, 1), round(row.high, 1)) for row in rows[:20]
            ]
        results[f"{fraction:g}"] = {"runs": times, "words": counts, "fewest": min(counts), "first run": first}
        print(fraction, counts, [row[0] for row in first], flush=True)
    return results


def main() -> None:
    """Run what is asked for and keep its results beside the others'."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["coverage", "words"])
    parser.add_argument("--runs", type=int, default=0)
    given = parser.parse_args()
    begun = time.time()
    runs = given.runs or {"coverage": 10_000, "words": 20}[given.what]
    found = coverage(runs) if given.what == "coverage" else words(runs)
    found |= {
        "command": f"python experiments/asking.py {given.what} --runs {runs}",
        "runs": runs,
        "hardware": f"{jax.default_backend()}, {platform.machine()}",
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
        "seconds": round(time.time() - begun),
    }
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(kept | {given.what: found}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
