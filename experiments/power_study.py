"""What can be found at which epsilon? Faults x affected fraction x epsilon x clients, simulated and predicted.

    python experiments/power_study.py [--runs 200] [--out experiments/results]

The primary model is a small CNN trained on public writers (embedded handwriting, seed 99). Other public writers (seed
100) say what arms look like where nothing is wrong, and how each fault moves them: the yardstick, which is what
`blindsight plan --detect` reads. The writers under test (seed 5) are in neither. Arms are the papers' (T4):
clients whose accuracy is below the 25th percentile of the public writers' (`failing`) and above the 75th (`healthy`).

What each writer would send is computed once, healthy and under each fault. A run draws the writers anew, the affected
ones among them, and the noise of one round at (epsilon, 1e-6) with cues and votes at half of the precision each. A
fault is found *by a sanity check* (T1) if a cue of everyone differs from public writers', *by cues* if one differs
between the arms beyond what public writers show, *by votes* if the failing arm names any fault; it is *named* if that
is the right one. Runs with nothing wrong have no fault; `halves` divides their writers by a coin. Writes power.json,
power.png and power_yardstick.json, of which the package holds a copy (inspection/yardstick.json).
"""

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np

from blindsight import selection
from blindsight.data import Population, embedded, faults
from blindsight.inspection.contrast import cues, power
from blindsight.inspection.contrast import votes as diagnosis
from blindsight.inspection.contrast.cues import Cues
from blindsight.inspection.contrast.findings import compare_cues, diagnose
from blindsight.inspection.contrast.power import FAMILIES, HEALTHY, Yardstick
from blindsight.inspection.contrast.vectors import client_vectors
from blindsight.inspection.finding import Finding
from blindsight.inspection.measuring import Measured, noise_for
from blindsight.models import CNN
from blindsight.models.equinox_models import fit
from blindsight.models.primary import Primary, primary

matplotlib.use("agg")

FAULTS = (
    *("invert", "rotate90", "rotate90:turns=2", "flip", "flip:axis=vertical", "shift", "label_swap"),
    *("byte_swap", "gamma", "blur", "crop", "constant"),
)
FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5)
EPSILONS = (1.0, 4.0, 8.0)
CLIENTS = (425, 850, 3400)
DELTA = 1e-6
HIT = 500  # writers that faulty ones are drawn from

Vectors = dict[str, dict[str, np.ndarray]]
"""Healthy or a fault, then the part: what each writer would send."""


def writers(clients: int, seed: int) -> Population:
    """Embedded writers, drawn once."""
    population = embedded("handwriting", clients=clients, seed=seed)
    return population.replace(population.columns)


def train_primary() -> Primary:
    """The model in the field."""
    columns = writers(600, seed=99).columns
    model = CNN((28, 28), 10, key=jax.random.key(0))
    return primary(fit(model, columns["image"], columns["label"], epochs=2, key=jax.random.key(1)), name="small CNN")


def quarters(population: Population, model: Primary) -> selection.Arms:
    """The papers' arms, with the quartiles of public writers."""
    low, high = np.quantile(selection.accuracies(selection.observe(population, model)), [0.25, 0.75])
    return selection.by_accuracy(round(float(low), 3), round(float(high), 3))


def what_writers_send(population: Population, model: Primary, arms: selection.Arms, yardstick: Yardstick) -> Vectors:
    """Every writer's contributions, healthy, and of the first `HIT` writers under each fault."""
    suspects = diagnosis.candidates(population)
    vectors: Vectors = {}
    for name in (HEALTHY, *FAULTS):
        hit = population if name == HEALTHY else faults.apply(population.select(np.arange(HIT)), name)
        seen = diagnosis.observe(selection.observe(hit, model), model, suspects)
        vectors[name] = client_vectors(cues.observe(seen, ("image",)), arms, (yardstick.cues, yardstick.votes))
    return vectors


def sums_of(vectors: Vectors, fault: str, fraction: float, clients: int, dice: np.random.Generator) -> Any:
    """The sums over as many writers, drawn anew; each is hit with probability `fraction`."""
    healthy, faulty, hit = vectors[HEALTHY], vectors[fault], dice.binomial(clients, fraction)
    weights = [counted(len(pool["cues"]), n, dice) for pool, n in ((healthy, clients - hit), (faulty, hit))]
    return {part: weights[0] @ healthy[part] + weights[1] @ faulty[part] for part in healthy}


def counted(writers: int, draws: int, dice: np.random.Generator) -> np.ndarray:
    """How often each writer is drawn."""
    return np.bincount(dice.integers(0, writers, draws), minlength=writers)


def halves_of(vectors: Vectors, clients: int, dice: np.random.Generator) -> np.ndarray:
    """The sums of cues of two arms that a coin has divided: every writer sends its block to one of them."""
    blocks, heads = vectors["everyone"]["cues"], dice.binomial(clients, 0.5)
    return np.concatenate([counted(len(blocks), n, dice) @ blocks for n in (heads, clients - heads)])


def noise_stds(yardstick: Yardstick) -> dict[float, dict[str, float]]:
    """The standard deviation of the noise in each part's sums, for each epsilon."""
    parts = (yardstick.cues, yardstick.votes)
    found: dict[float, dict[str, float]] = {}
    for epsilon in EPSILONS:
        made = noise_for(parts, epsilon=epsilon, delta=DELTA)
        found[epsilon] = {part.name: made[part.name].noise_multiplier * part.bound for part in parts}
    return found


def verdicts(
    yardstick: Yardstick, sums: Any, clients: int, stds: dict[str, float], dice: np.random.Generator
) -> tuple[bool, bool, str]:
    """Whether everyone's cues and the arms' differ, and what the failing arm is diagnosed with, in one noisy round.

    The sanity check is a round of its own with a single arm, so it has its own noise.
    """
    together = sums["cues"].reshape(len(yardstick.cues.arms), -1).sum(axis=0)
    alone = Cues(yardstick.cues.names, ("everyone",), True)
    noisy = Measured(together + dice.normal(0, stds["cues"], together.shape), stds["cues"], 1.0)
    odd = compare_cues(alone.read(noisy)["everyone"], yardstick.reference, epsilon=1.0, looks=FAMILIES)
    measured = {n: Measured(s + dice.normal(0, stds[n], s.shape), stds[n], 1.0) for n, s in sums.items()}
    arms = yardstick.cues.read(measured["cues"])
    pair = arms["failing"], arms["healthy"]
    seen = compare_cues(*pair, epsilon=1.0, expected=yardstick.expected, looks=FAMILIES)
    votes = yardstick.votes.read(measured["votes"])["failing"]
    public = {"public": yardstick.usual_votes, "public_clients": yardstick.clients}
    diagnosed = diagnose(votes, epsilon=1.0, clients=clients, looks=3 * FAMILIES, **public)[0].fault
    return is_found(odd), is_found(seen), diagnosed


def is_found(findings: list[Finding]) -> bool:
    """Whether one or more were found."""
    return any(finding.verdict == "detected" for finding in findings)


def simulate(yardstick: Yardstick, vectors: Vectors, runs: int) -> list[dict[str, Any]]:
    """Rates over `runs` rounds of every cell, beside the predicted ones."""
    stds, dice, rows = noise_stds(yardstick), np.random.default_rng(2024), list[dict[str, Any]]()
    for fault in FAULTS:
        answer = yardstick.answer(fault)
        for clients in CLIENTS:
            for fraction in FRACTIONS:
                outcomes: dict[float, list[tuple[bool, bool, str]]] = {epsilon: [] for epsilon in EPSILONS}
                for _ in range(runs):
                    sums = sums_of(vectors, fault, fraction, clients, dice)
                    for epsilon in EPSILONS:
                        outcomes[epsilon].append(verdicts(yardstick, sums, clients, stds[epsilon], dice))
                for epsilon in EPSILONS:
                    found = outcomes[epsilon]
                    told = power.predict(yardstick, fault, fraction, clients=clients, epsilon=epsilon, delta=DELTA)
                    row = {"fault": fault, "clients": clients, "fraction": fraction, "epsilon": epsilon}
                    row["by_sanity"] = float(np.mean([odd for odd, _, _ in found]))
                    row["by_cues"] = float(np.mean([cue for _, cue, _ in found]))
                    row["by_votes"] = float(np.mean([name != "none" for *_, name in found]))
                    row["named"] = float(np.mean([name == answer for *_, name in found]))
                    row |= {"predicted_by_sanity": told.by_sanity, "predicted_by_cues": told.by_cues}
                    row["predicted_named"] = told.by_votes
                    rows.append(row)
        best = [row for row in rows if row["fault"] == fault and row["clients"] == 3400 and row["epsilon"] == 1]
        print(fault, {r["fraction"]: (r["by_sanity"], r["by_cues"], r["named"]) for r in best}, flush=True)
    return rows


def false_alarms(yardstick: Yardstick, vectors: Vectors, runs: int) -> list[dict[str, Any]]:
    """How often something is found where nothing is wrong."""
    stds, dice, rows = noise_stds(yardstick), np.random.default_rng(2025), list[dict[str, Any]]()
    halves = Cues(yardstick.cues.names, ("heads", "tails"), True)
    for clients in CLIENTS:
        outcomes: dict[float, list[tuple[bool, bool, str, bool]]] = {epsilon: [] for epsilon in EPSILONS}
        for _ in range(runs):
            sums = sums_of(vectors, FAULTS[0], 0.0, clients, dice)
            split = halves_of(vectors, clients, dice)
            for epsilon in EPSILONS:
                std = stds[epsilon]["cues"]
                arms = halves.read(Measured(split + dice.normal(0, std, split.shape), std, 1.0))
                coin = compare_cues(arms["heads"], arms["tails"], epsilon=1.0)
                outcomes[epsilon].append((*verdicts(yardstick, sums, clients, stds[epsilon], dice), is_found(coin)))
        for epsilon in EPSILONS:
            odd, by_cues, named, by_halves = zip(*outcomes[epsilon], strict=True)
            row = {"clients": clients, "epsilon": epsilon, "by_sanity": float(np.mean(odd))}
            row["by_cues"] = float(np.mean(by_cues))
            row["by_votes"] = float(np.mean([name != "none" for name in named]))
            row["halves_by_cues"] = float(np.mean(by_halves))
            rows.append(row)
            print("nothing wrong:", row, flush=True)
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Simulated rates as dots and predicted ones as lines, epsilon by epsilon; below, prediction against simulation."""
    from matplotlib import pyplot

    shown = ("invert", "rotate90", "flip", "shift", "gamma")
    figure, axes = pyplot.subplots(2, 3, figsize=(12, 7), layout="constrained", sharey=True)
    for place, (clients, axis) in enumerate(zip(CLIENTS, axes[0], strict=True)):
        for number, fault in enumerate(shown):
            cells = [r for r in rows if (r["fault"], r["clients"], r["epsilon"]) == (fault, clients, 1.0)]
            x, colour = [100 * r["fraction"] for r in cells], f"C{number}"
            axis.plot(x, [r["by_cues"] for r in cells], "o", color=colour)
            axis.plot(x, [r["predicted_by_cues"] for r in cells], "-", color=colour, label=fault)
            axis.plot(x, [r["named"] for r in cells], "^", color=colour, fillstyle="none")
            axis.plot(x, [r["predicted_named"] for r in cells], ":", color=colour)
        axis.set(xscale="log", title=f"{clients:,} clients, epsilon 1", xlabel="clients hit (%)")
        axis.set_xticks([100 * f for f in FRACTIONS], [f"{100 * f:g}" for f in FRACTIONS])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        if place == 0:
            axis.set_ylabel("rate: ● cues, △ named; lines: predicted")
            axis.legend(fontsize=8)
    for epsilon, axis in zip(EPSILONS, axes[1], strict=True):
        cells = [r for r in rows if r["epsilon"] == epsilon]
        axis.plot([0, 1], [0, 1], "-", color="grey", lw=0.8)
        axis.plot([r["predicted_by_sanity"] for r in cells], [r["by_sanity"] for r in cells], "s", ms=3, label="sanity")
        axis.plot([r["predicted_by_cues"] for r in cells], [r["by_cues"] for r in cells], "o", ms=3, label="cues")
        axis.plot([r["predicted_named"] for r in cells], [r["named"] for r in cells], "^", ms=3, label="named by votes")
        axis.set(title=f"all faults, epsilon {epsilon:g}", xlabel="predicted")
        axis.grid(alpha=0.3)
    axes[1, 0].set_ylabel("simulated")
    axes[1, 0].legend(fontsize=8)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Train, measure, simulate, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--writers", type=int, default=3400)
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    model, public = train_primary(), writers(options.writers, seed=100)
    arms = quarters(public, model)
    about = f"embedded handwriting ({public.size:,} public writers, a small CNN)"
    yardstick = power.measure_yardstick(public, model, arms, FAULTS, hit=HIT, about=about)
    yardstick.save(options.out / "power_yardstick.json")
    print(f"yardstick after {time.monotonic() - began:.0f} s: {arms.rule}", flush=True)
    others = ("others", selection.everything())
    strangers = writers(options.writers, seed=5)
    vectors = what_writers_send(strangers, model, selection.Arms([*arms.criteria, others]), yardstick)
    seen = cues.observe(strangers, ("image",))
    everyone = selection.Arms({"everyone": selection.everything()})
    part = cues.cues_part(seen, tuple(everyone), disjoint_by_client=True)
    vectors["everyone"] = client_vectors(seen, everyone, (part,))
    print(f"{strangers.size} writers under test after {time.monotonic() - began:.0f} s", flush=True)
    alarms = false_alarms(yardstick, vectors, max(options.runs, 1000))
    rows = simulate(yardstick, vectors, options.runs)
    result = {
        "command": f"python experiments/power_study.py --runs {options.runs} --writers {options.writers}",
        "hardware": f"{jax.devices()[0].device_kind}, {platform.processor() or platform.machine()}",
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
        "seconds": round(time.monotonic() - began),
        "delta": DELTA,
        "arms": arms.rule,
        "runs": {"cells": options.runs, "nothing wrong": max(options.runs, 1000)},
        "answers": {fault: yardstick.answer(fault) for fault in FAULTS},
        "simulation_only": "rates over simulated rounds; who was hit is known to the simulation alone",
        "nothing_wrong": alarms,
        "cells": [{name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()} for row in rows],
    }
    (options.out / "power.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    draw(rows, options.out / "power.png")


if __name__ == "__main__":
    main()
