"""What a language model memorises of canaries, with and without privacy: Ramaswamy et al. 2020, Tables 3 and 4.

    python experiments/secret_sharer.py [--rounds 150] [--cohort 800] [--epsilon 8] [--references 2000000]

*Training Production Language Models without Memorizing User Data* (arXiv:2009.10031): 27 phrases of random words on 189
synthetic clients, which take part in 57.5 % of the rounds, beside real sentences by author (`stackexchange`). The same
run twice: with a guarantee, and without clipping and noise. Both also have clients included by fair coins, and the
private one has directions, which give a lower bound on epsilon (arXiv:2305.08846).

The scale differs, and it matters. The paper has cohorts of 20,000 from about four million clients for 2,000
rounds; here some hundreds of six thousand for a few hundred. A canary's client is a far larger part of a round here, so
an unprotected model memorises sooner; and the noise is far larger relative to the mean update, so a private model
learns less of everything, as its recall shows. A tenth of the authors count as public: they provide the vocabulary and
the sentences around the canaries. Writes secret_sharer.json and .png.
"""

import argparse
import json
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from blindsight import config, data, jobs
from blindsight.accounting.ledger import Ledger
from blindsight.audit.report import AuditReport
from blindsight.data.population import Population
from blindsight.data.text import Vocabulary

SEEN = [1_150, 16_100, 230_000, 4_600, 64_400, 920_000, 18_400, 257_600, 3_680_000]  # Table 3
RANKS = [  # Table 4, out of two million
    [637_000, 1_550_000, 1_600_000],
    [1_600, 41_000, 542_000],
    [270_000, 347_000, 894_000],
    [281_000, 308_000, 1_370_000],
    [1, 16, 762],
    [263, 904, 4_900],
    [3_700, 112_000, 129_000],
    [1, 1, 1],
    [1, 1, 1],
]
FOUND = [0, 0, 0, 0, 1, 0, 0, 3, 3]
DELTA = 1e-5


def people(folder: Path, size: int) -> Population:
    """The authors who train; a tenth of all is public, and left in `folder` with its vocabulary."""
    everyone = data.dataset("stackexchange", unit="sentence")
    order = np.random.default_rng(0).permutation(everyone.size)
    tenth = everyone.size // 10
    public = everyone.select(np.sort(order[:tenth]))
    public.replace({"text": public.columns["text"]}).save(folder / "public")
    Vocabulary.most_frequent(public, size).save(folder / "vocabulary.json")
    return everyone.select(np.sort(order[tenth:]))


def settings(name: str, folder: Path, options: argparse.Namespace) -> config.Config:
    """The configuration of one of the two runs."""
    private = name == "private"
    noise = {"epsilon": options.epsilon, "delta": DELTA, "clip": 0.8} if private else {"none": True}
    planted = {"one_run": options.planted, "directions": options.planted if private else 0}
    return config.parse(
        {
            "name": name,
            "seed": options.seed,
            "data": {"population": "stackexchange", "options": {"unit": "sentence"}, "held_out": 0.05},
            "model": {"kind": "word_lm", "embedding": options.embedding, "cells": options.cells},
            "text": {"vocabulary": str(folder / "vocabulary.json"), "vocabulary_size": options.vocabulary},
            "client": {"learning_rate": 0.5, "batch_size": 50, "precision": options.precision},
            "server": {"optimizer": "nesterov", "learning_rate": options.server_rate, "momentum": 0.9},
            "privacy": {"cohort": options.cohort, "rounds": options.rounds, **noise},
            "training": {"checkpoint_every": options.rounds},
            "audit": {"public": str(folder / "public"), **planted},
        }
    )


def run(name: str, folder: Path, population: Population, options: argparse.Namespace) -> dict[str, Any]:
    """Train and audit one of the two runs."""
    began = time.perf_counter()
    chosen, ledger = settings(name, folder, options), Ledger(folder / "ledger.db")
    trained = jobs.run_training(chosen, out=folder / name, ledger=ledger, population=population)
    trained_in = time.perf_counter() - began
    report, _ = jobs.run_audit(folder / name, references=options.references, population=population)
    print(report)
    found = {
        "guarantee": trained.guarantee.to_dict(),
        "simulation_only": trained.simulation_only,
        "rows": rows(report),
        "bounds": {kind: bound.to_dict() for kind, bound in report.bounds.items()},
        "verdict": report.verdict,
        "training_seconds": round(trained_in, 1),
        "audit_seconds": round(time.perf_counter() - began - trained_in, 1),
    }
    print({key: found[key] for key in ("simulation_only", "training_seconds", "audit_seconds")}, flush=True)
    return found


def rows(report: AuditReport) -> list[dict[str, Any]]:
    """Tables 3 and 4, the published numbers beside ours."""
    published = {(u, e): number for number, (u, e) in enumerate((u, e) for u in (1, 4, 16) for e in (1, 14, 200))}
    found: list[dict[str, Any]] = []
    for row in report.configurations:
        number = published[row.clients, row.copies]
        bits = [
            round(one.exposure, 2) for one in report.canaries if (one.clients, one.copies) == (row.clients, row.copies)
        ]
        found.append(
            {
                "clients": row.clients,
                "copies": row.copies,
                "times_seen": round(row.times_seen, 1),
                "ranks": list(row.ranks),
                "exposure_bits": sorted(bits, reverse=True),
                "found_by_beam_search": row.extracted,
                "published": {"times_seen": SEEN[number], "ranks": RANKS[number], "found": FOUND[number]},
            }
        )
    return found


def picture(results: dict[str, Any], path: Path) -> None:
    """Ranks on a log axis: published, private, unprotected."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    references = results["settings"]["references"]
    private = results["runs"]["private"]
    panels = {
        "published: 20,000 of about 4 million, 2,000 rounds": (
            [row["published"]["ranks"] for row in private["rows"]],
            2e6,
        )
    }
    words = {
        "private": f"private: epsilon {results['settings']['epsilon']:g}",
        "unprotected": "no clipping, no noise",
    }
    for name, title in words.items():
        one = results["runs"][name]
        top = one["simulation_only"]["recall_top1"]
        bounds = ", ".join(f"{found['epsilon']:.2f} by {kind}" for kind, found in one["bounds"].items())
        label = f"{title}; top-1 recall {100 * top:.1f} %\nepsilon at least {bounds}"
        panels[label] = ([row["ranks"] for row in one["rows"]], references)
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.6), sharey=True, layout="constrained")
    for axis, (title, (ranks, most)) in zip(axes, panels.items(), strict=True):
        for place, some in enumerate(ranks):
            colour = f"C{place // 3}"
            offsets = np.linspace(-0.2, 0.2, len(some))
            axis.scatter(place + offsets, np.array(some) / most, color=colour, s=28, alpha=0.8, clip_on=False)
        for place in (2.5, 5.5):
            axis.axvline(place, color="0.8", linewidth=1)
        axis.axhline(1 / most, color="0.5", linewidth=1, linestyle=":")
        axis.set_yscale("log")
        axis.invert_yaxis()
        axis.set_xticks(range(9), [str(row["copies"]) for row in private["rows"]])
        axis.set_xlabel("copies on each of\n1 client          |          4 clients          |          16 clients")
        axis.set_title(title, fontsize=10)
    axes[0].set_ylabel("rank over number of references\n(dotted: rank 1, memorised)")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Run both, write after each, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--cohort", type=int, default=800)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--server-rate", type=float, default=0.3)
    parser.add_argument("--planted", type=int, default=200, help="clients by coins, and directions")
    parser.add_argument("--references", type=int, default=2_000_000)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--embedding", type=int, default=96)
    parser.add_argument("--cells", type=int, default=670)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, help="number of authors, to try things out")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = {name: value for name, value in vars(options).items() if name != "out"}
    said = {
        f"--{name.replace('_', '-')} {value}" for name, value in chosen.items() if value != parser.get_default(name)
    }
    results: dict[str, Any] = {
        "command": " ".join(["python experiments/secret_sharer.py", *sorted(said)]),
        "hardware": f"{jax.devices()[0].device_kind}, {platform.machine()}, jax {jax.__version__}",
        "settings": chosen,
        "runs": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        population = people(folder, options.vocabulary)
        if options.clients:
            population = population.select(np.arange(options.clients))
        results["clients"] = population.size
        for name in ("unprotected", "private"):
            results["runs"][name] = run(name, folder, population, options)
            (options.out / "secret_sharer.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    picture(results, options.out / "secret_sharer.png")


if __name__ == "__main__":
    main()
