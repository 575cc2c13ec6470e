"""Blindsight's simulator compared with its peers: the same work, the same losses, then the speed.

    python benchmarks/simulation.py [--task cnn|lm|all] [--peers pfl,flower,fedjax,torch,blindsight] [--rounds 13]
                                    [--cohort N] [--device cpu|gpu] [--json FILE]

`tasks.py` says what the work is. Every contestant runs as a process of its own, in an environment created once under
`.envs/` from the versions pinned in `peers/`; `--python PEER=PATH` or `--same-python` uses another. Each is tried in
several settings, processes x threads, and the fastest counts.

Losses are compared before speeds: after each of the first three rounds, the loss on a fixed evaluation set must be that
of a plain PyTorch loop to within 2 % of how far it has fallen, or the speed is not shown. Most agree to a millionth;
but where a ReLU sits so near zero that rounding decides, right answers in float32 differ by half a per cent.

Clients per second are those of the rounds after the third. Start-up runs from the start of the process to the end of
its first round: imports, data (the same second or two for all), compilation. Memory is the most that all processes of
a contestant held at once. On a busy machine only the ratios mean anything, and less noisy than those of the clock are
those of `clients_per_processor_s` in the JSON, for contestants of one process (`--settings 1x1`).
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tasks
from processes import Failure, environment, say, start

TOLERANCE = 0.02
REFERENCE, OURS = "torch", "blindsight"
SEVERAL_PROCESSES = ("pfl", "flower")


@dataclass(frozen=True)
class Peer:
    """A contestant: its module, and its variants, with those that only private runs have."""

    module: str
    variants: tuple[str, ...] = ("",)
    private_variants: tuple[str, ...] = ("",)


PEERS = {
    "torch": Peer("peers.torch_loop"),
    "pfl": Peer("peers.pfl_peer"),
    "flower": Peer("peers.flower_peer"),
    "fedjax": Peer("peers.fedjax_peer"),
    "blindsight": Peer("peers.blindsight_peer", variants=("", "cifg"), private_variants=("", "float")),
}


def settings(peer: str, options: argparse.Namespace) -> list[tuple[int, int]]:
    """(processes, threads) asked for or worth trying; for Flower, actors and the CPUs of each."""
    cores = options.cores
    if options.settings:
        asked = [(number if peer in SEVERAL_PROCESSES else 1, threads) for number, threads in options.settings]
        return list(dict.fromkeys(asked))
    several = [number for number in (2, 4, 8, 16) if number <= cores]
    if options.device == "gpu":
        return [(number, 2) for number in (1, *several[:2])] if peer in SEVERAL_PROCESSES else [(1, cores)]
    if peer == "flower":
        return [(cores, 1), *([(cores // 2, 2)] if cores > 1 else [])]
    alone = [(1, threads) for threads in (1, *several)]
    return alone + [(processes, 1) for processes in several] if peer == "pfl" else alone


def deviation(found: dict[str, Any], reference: dict[str, Any], begin: float) -> float:
    """The largest difference of a loss from the reference's, as a share of how far that one had fallen."""
    pairs = zip(found["losses"], reference["losses"], strict=True)
    return max(abs(loss - right) / (begin - right) for loss, right in pairs)


def race(peer: str, task: tasks.Task, private: bool, variant: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One contestant in all its settings; those that could not run come back with the reason."""
    common = ["--task", task.name, "--rounds", str(options.rounds), "--device", options.device]
    common += ["--private"] if private else []
    common += ["--variant", variant] if variant else []
    common += ["--cohort", str(options.cohort)] if options.cohort else []
    runs = []
    for processes, threads in settings(peer, options):
        setting = f"{processes} x {threads}"
        about = {"peer": peer, "task": task.name, "private": private, "variant": variant, "setting": setting}
        arguments = [*common, "--processes", str(processes), "--threads", str(threads)]
        try:
            python = options.python.get(peer) or environment(peer)
            gpu = options.device == "gpu"
            found = start(python, PEERS[peer].module, arguments, gpu=gpu, timeout_s=options.timeout_s)
        except Failure as failure:
            found = about | {"failure": str(failure)}
        runs.append(found)
        outcome = found.get("failure") or f"{found['clients_per_s']:.3g} clients/s"
        say(f"{task.name}{', private' if private else ''}: {peer} {variant} {setting}: {outcome}")
    return runs


def judge(runs: list[dict[str, Any]], task: tasks.Task) -> None:
    """Add to each run how far its losses are from the reference's, and void those too far away."""
    begin = tasks.loss(task, tasks.parameters(task))
    reference = next((run for run in runs if run["peer"] == REFERENCE and "failure" not in run), None)
    for run in runs:
        if "failure" in run or run["variant"] == "cifg":  # another model has losses of its own
            continue
        if reference is None:
            run["failure"] = "no reference to compare the losses with"
            continue
        run["deviation"] = deviation(run, reference, begin)
        if not run["deviation"] <= TOLERANCE:
            run["failure"] = f"its losses are {run['deviation']:.1%} of their fall away from the reference's"


def best(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fastest valid run of each contestant and variant, or one that says why there is none."""
    kept: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        before = kept.setdefault((run["peer"], run["variant"]), run)
        if "failure" not in run and ("failure" in before or run["clients_per_s"] > before["clients_per_s"]):
            kept[run["peer"], run["variant"]] = run
    return list(kept.values())


def table(title: str, rows: list[dict[str, Any]], without: dict[str, float]) -> str:
    """The rows as text; `without` has each contestant's speed without privacy, for what privacy costs."""
    ours = next((row["clients_per_s"] for row in rows if row["peer"] == OURS and "failure" not in row), None)
    heads = ["", "setting", "off by", "clients/s", "ours is", "start-up s", "memory MiB", "GPU MiB", "privacy costs"]
    lines, notes = [heads], []
    for row in rows:
        name = f"{row['peer']} {row['variant']}".strip()
        if "failure" in row:
            notes.append(f"  {name}: {row['failure']}")
            continue
        speed, plain = row["clients_per_s"], without.get(row["peer"])
        off = f"{100 * row['deviation']:.4f} %" if "deviation" in row else "other model"
        ratio = f"{ours / speed:.2f} x" if ours else ""
        gpu = f"{row['peak_gpu_memory_mib']:.0f}" if row["peak_gpu_memory_mib"] is not None else ""
        cost = f"{100 * (1 - speed / plain):.0f} %" if plain and row["private"] else ""
        numbers = [f"{speed:.4g}", ratio, f"{row['start_up_s']:.1f}", f"{row['peak_memory_mib']:.0f}", gpu, cost]
        lines.append([name, row["setting"], off, *numbers])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]
    return "\n".join([title, *text, *(["not shown:", *notes] if notes else [])])


def machine(device: str) -> str:
    """What it ran on, in words."""
    words = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    if device == "gpu":
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        words += ", " + subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return words


def pairs(text: str) -> list[tuple[int, int]]:
    """1x2,2x1 as numbers."""
    return [(int(processes), int(threads)) for processes, threads in (part.split("x") for part in text.split(","))]


def command_line() -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=[*tasks.TASKS, "all"], default="all")
    parser.add_argument("--peers", default=",".join(PEERS), help="separated by commas; torch always runs")
    parser.add_argument("--rounds", type=int, default=13, help="the first three are not timed")
    parser.add_argument("--cohort", type=int, help="fewer clients a round than the tasks have, for a quick look")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", help="an interpreter to use")
    parser.add_argument("--same-python", action="store_true", help="this interpreter for all: it has everything")
    parser.add_argument("--settings", type=pairs, help="processes x threads for all, such as 1x2,2x1, and no others")
    parser.add_argument(
        "--private", choices=["no", "yes", "both"], default="both", help="without, or with clip and noise"
    )
    parser.add_argument("--timeout-s", type=float, default=3600, help="for one run of one contestant")
    parser.add_argument("--json", type=Path, help="write every run to this file")
    options = parser.parse_args()
    chosen = {REFERENCE, *options.peers.split(",")}
    if unknown := chosen - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    if options.rounds <= tasks.PARITY_ROUNDS:
        parser.error(f"--rounds must be more than {tasks.PARITY_ROUNDS}")
    options.peers = [peer for peer in PEERS if peer in chosen]
    options.private = {"no": [False], "yes": [True], "both": [False, True]}[options.private]
    named = {peer: Path(path).absolute() for peer, _, path in (entry.partition("=") for entry in options.python)}
    options.python = dict.fromkeys(PEERS if options.same_python else [OURS], Path(sys.executable)) | named
    options.cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return options


def main() -> None:
    """Run all, print a table for each task without and with privacy."""
    options = command_line()
    everything: list[dict[str, Any]] = []
    print(machine(options.device))
    for task in tasks.TASKS.values():
        if options.task not in (task.name, "all"):
            continue
        without: dict[str, float] = {}
        for private in options.private:
            runs: list[dict[str, Any]] = []
            for peer in options.peers:
                for variant in PEERS[peer].private_variants if private else PEERS[peer].variants:
                    if variant != "cifg" or task.name == "lm":
                        runs += race(peer, task, private, variant, options)
            judge(runs, task)
            rows = best(runs)
            title = f"{task.name}{', clipped and noised' if private else ''}: cohort {options.cohort or task.cohort}"
            print(f"\n{table(title, rows, without)}", flush=True)
            without = {row["peer"]: row["clients_per_s"] for row in reversed(rows) if "failure" not in row}
            everything += runs
            if options.json:
                asked = [word for word in sys.argv[1:] if word != str(options.json) and word != "--json"]
                command = " ".join(["python benchmarks/simulation.py", *asked])
                found = {"command": command, "machine": machine(options.device), "runs": everything}
                options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
