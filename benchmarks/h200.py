"""Every speed that is promised for one NVIDIA H200, measured by one command, into `results/h200.json`.

    python benchmarks/h200.py [--parts noise,rounds,epochs,command,peers] [--tasks cnn,lm,...] [--repeats 3]
                              [--out FILE.json]

It takes under 25 minutes. Every part is written when it is done, and one that fails does not stop the others: parts
asked for in several calls meet in one file, with the commit and the seconds of each.

It needs Python 3.12, JAX 0.11 with CUDA, NumPy, SciPy and safetensors, and `pip install .`. On a machine without a
network, these packages without compiled code suffice, in a folder on `PYTHONPATH` (`pip install --no-deps --target`):
absl-py, attrs, dp-accounting, equinox, jaxtyping, lazy-loader, mpmath, optax, wadler_lindig for `noise`, `rounds` and
`epochs`; for `command` also annotated-doc, cloudpickle, markdown-it-py, mdurl, Pygments, rich, shellingham and typer.
`peers` needs torch and pfl 0.6.0 in the same environment, with dill, multiprocess, packaging and prv-accountant.

* `noise`: exact beside float noise alone, for 1.6 and 6.6 million coordinates (`exact_noise.py`).
* `rounds`: rounds with exact noise, float noise and none, in turns (`rounds.py`): the CNN with 50 clients, the language
  model with 100, the paper's GAN with 10.
* `epochs`: the paper's 1,000 GAN rounds, and `bayesian_gan`'s 4,395 batches of 2,048, the second run in one process.
* `peers`: both tasks of `simulation.py` with clip and noise, beside pfl at its best setting, four processes.
* `command`: `blindsight train examples/handwriting.toml`, twice, from the shell.

Medians of the repetitions count. `--tasks` computes some of a part. `--quick` does a little of everything, to see that
it works, also on a CPU.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PFL_BEST = "4x2"  # processes x threads on an H200: `results/simulation_h200.json`


def row(name: str, measured: float, bar: float, *, least: bool = False) -> dict[str, Any]:
    """A bar and whether it is reached: the most that may be measured, or the least."""
    reached = measured >= bar if least else measured <= bar
    print(f"{name:66} {measured:10.4g}  {'at least' if least else 'at most'} {bar:<7g} {'' if reached else 'MISSED'}")
    return {"name": name, "measured": measured, "bar": bar, "least": least, "reached": reached}


def program(script: str, *arguments: str) -> dict[str, Any]:
    """What another benchmark writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "found.json")
        option = "--json" if script == "simulation.py" else "--output"
        subprocess.run([sys.executable, HERE / script, *arguments, option, file], check=True)
        return json.loads(file.read_text())


def noise(repeats: int, quick: bool, tasks: set[str]) -> dict[str, Any]:
    """Noise alone."""
    del tasks
    found = {
        size: program("exact_noise.py", "--coordinates", str(size), "--repeats", str(5 * repeats))
        for size in ((20_000,) if quick else (1_600_000, 6_600_000))
    }
    rows = [row(f"exact noise of {size:,}, milliseconds", 1e3 * each["seconds"]["gaussian exact"], 10.0)
            for size, each in found.items()]  # fmt: skip
    return {"rows": rows, "found": found}


def rounds(repeats: int, quick: bool, tasks: set[str]) -> dict[str, Any]:
    """Whole rounds with each noise. Each task in a process of its own: memory is not shared with the last."""
    found: dict[str, Any] = {}
    for task, count in (("cnn", 200), ("lm", 20), ("paper_gan", 100)):
        if task not in tasks:
            continue
        number, few = (2, ["--cohort", "2"]) if quick else (count, [])
        asked = ["--tasks", task, "--rounds", str(number), "--repeats", str(repeats), *few]
        found |= program("rounds.py", *asked)["tasks"]
    rows = [row(f"{task}: a round with exact noise over one with float", each["exact_over_float"], 1.10)
            for task, each in found.items()]  # fmt: skip
    if "paper_gan" in found:
        rows.append(row("paper GAN, clients/s", found["paper_gan"]["clients_per_s"]["exact"], 1000, least=True))
    return {"rows": rows, "found": found}


def epochs(repeats: int, quick: bool, tasks: set[str]) -> dict[str, Any]:
    """Two runs of GANs as long as in the experiments; compilation is in neither."""
    del repeats  # they are long
    asked = {
        task: at for task, at in {"paper_gan": (1000, 15.0), "bayesian_gan": (4395, 20.0)}.items() if task in tasks
    }
    found: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for task, (number, bar) in asked.items():
        number, few = (2, ["--cohort", "2"]) if quick else (number, [])
        words = ["--tasks", task, "--rounds", str(number), "--repeats", "1", "--noises", "exact", *few]
        found |= program("rounds.py", *words)["tasks"]
        rows.append(row(f"{task}: {number:,} rounds, seconds", found[task]["seconds"]["exact"][0], bar))
    return {"rows": rows, "found": found}


def peers(repeats: int, quick: bool, tasks: set[str]) -> dict[str, Any]:
    """Speeds beside pfl's, DP on."""
    device = "gpu" if has_gpu() else "cpu"
    found: list[dict[str, Any]] = []
    for _ in range(repeats):
        for task, count in (("cnn", 23), ("lm", 9)):
            if task not in tasks:
                continue
            asked = ["--task", task, "--private", "yes", "--peers", "pfl,blindsight", "--settings", PFL_BEST]
            asked += ["--rounds", "4", "--cohort", "4"] if quick else ["--rounds", str(count)]
            asked += ["--device", device, *(["--same-python"] if device == "gpu" else [])]
            found += program("simulation.py", *asked)["runs"]
    rows: list[dict[str, Any]] = []
    for task in sorted({run["task"] for run in found}):
        ours, theirs = median_speed(found, task, "blindsight"), median_speed(found, task, "pfl")
        if not (ours and theirs):
            print(f"{task}: nothing to compare: {[run['failure'] for run in found if 'failure' in run]}")
            continue
        rows.append(row(f"{task}: clients/s with DP and exact noise over pfl's", ours / theirs, 20.0, least=True))
    return {"rows": rows, "found": found}


def median_speed(runs: list[dict[str, Any]], task: str, peer: str) -> float | None:
    """The median of a contestant's valid runs, with its default noise."""
    chosen = [run for run in runs if (run["task"], run["peer"], run["variant"]) == (task, peer, "")]
    speeds = [run["clients_per_s"] for run in chosen if "failure" not in run]
    return statistics.median(speeds) if speeds else None


def command(repeats: int, quick: bool, tasks: set[str]) -> dict[str, Any]:
    """The whole command, with imports, the second time: compiled code is kept."""
    del repeats, tasks
    example = HERE.parent / "examples" / ("quick.toml" if quick else "handwriting.toml")
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        surroundings = os.environ | {"BLINDSIGHT_LEDGER": f"{folder}/ledger.db"}
        for number in range(2):
            began = time.monotonic()
            words = [sys.executable, "-m", "blindsight", "train", str(example), "--out", f"{folder}/{number}"]
            subprocess.run(words, env=surroundings, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            taken.append(time.monotonic() - began)
    return {"rows": [row(f"blindsight train {example.name}, the second time, seconds", taken[1], 20.0)], "found": taken}


PARTS: dict[str, Callable[[int, bool, set[str]], dict[str, Any]]] = {
    "noise": noise,
    "rounds": rounds,
    "epochs": epochs,
    "command": command,
    "peers": peers,
}


TASKS = "cnn", "lm", "paper_gan", "bayesian_gan"


def has_gpu() -> bool:
    """Whether JAX computes on a GPU; asked in a process of its own, which gives its memory back."""
    words = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "gpu"


def machine() -> dict[str, str]:
    """What it ran on."""
    words = "import jax; print(jax.devices()[0].device_kind, jax.__version__, sep='; jax ')"
    device = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout.strip()
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return {"device": device, "cores": str(os.cpu_count()), "commit": commit}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "h200.json")
    options = parser.parse_args()
    chosen = options.parts.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    failed: list[str] = []
    for name in chosen:
        began = time.monotonic()
        try:
            part = PARTS[name](options.repeats, options.quick, set(options.tasks.split(",")))
        except (subprocess.CalledProcessError, OSError, KeyError) as error:
            failed.append(name)
            print(f"{name} failed: {error}", file=sys.stderr)
            continue
        some = f" --tasks {options.tasks}" if options.tasks != ",".join(TASKS) else ""
        about = {"command": f"python benchmarks/h200.py --parts {name}{some}" + (" --quick" if options.quick else "")}
        part |= {"seconds": round(time.monotonic() - began, 1), **about, **machine()}
        before = json.loads(options.out.read_text())["parts"] if options.out.exists() else {}
        options.out.write_text(json.dumps({"parts": {**before, name + some: part}}, indent=1) + "\n", encoding="utf-8")
    if failed:
        parser.exit(1, f"not measured: {', '.join(failed)}; the others are in {options.out}\n")


if __name__ == "__main__":
    main()
