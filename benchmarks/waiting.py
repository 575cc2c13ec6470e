"""How long a person waits for anything but training: plans, calibration, the embedded population, the bar, the demo.

    python benchmarks/waiting.py [--repeats 3] [--demo] [--output benchmarks/results/waiting.json]

Every row has a bar, the most seconds (or the largest share of a run) that it should take on two cores. Commands are
processes of their own, with imports of modules that are compiled, as installers leave them (they are compiled first
where they are not); the best of some repetitions counts. `--demo` adds `blindsight demo`, run twice,
of which the second time counts. On a busy machine the clock means little: `--processor` counts the processor time of
this process and its children instead, which also grows when others use the cores: `import_scipy_stats_s` in the file
says by how much. Nothing here is a test.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLAN = ["plan", "--population", "250k", "--cohort", "1000", "--delta", "4e-8"]
DIRECTIONS = {
    "epsilon": ["--noise-multiplier", "1", "--rounds", "1000"],
    "noise": ["--epsilon", "4", "--rounds", "1000"],
    "rounds": ["--epsilon", "4", "--noise-multiplier", "40"],
    "epsilon of 10^12 rounds": ["--noise-multiplier", "1", "--rounds", "1e12"],
    "noise of 10^12 rounds": ["--epsilon", "4", "--rounds", "1e12"],
}
RULES = {
    "poisson": [],
    "fixed": ["--participation", "fixed"],
    "full": ["--participation", "full"],
    "unproven": ["--participation", "unproven", "--max-participations", "5"],
}
clock: Callable[[], float] = time.perf_counter
REFUSED = 2, 3  # exit codes of an answer in one sentence: a promise that no noise keeps


def processor() -> float:
    """Processor seconds of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(whose)[:2]) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def command(arguments: list[str], folder: Path) -> float:
    """Seconds that one command takes; a traceback ends the benchmark."""
    settings = with_bytecode() | {"BLINDSIGHT_LEDGER": str(folder / "ledger.db")}
    began = clock()
    run = subprocess.run(
        [sys.executable, "-m", "blindsight", *arguments], cwd=folder, env=settings, capture_output=True, text=True
    )
    taken = clock() - began
    if run.returncode not in (0, *REFUSED) or "Traceback" in run.stderr:
        raise SystemExit(f"blindsight {' '.join(arguments)} failed: {run.stderr[-2000:]}")
    return taken


def with_bytecode() -> dict[str, str]:
    """The environment of commands, in which Python keeps the modules that it compiles."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def best(function: Callable[[], float], repeats: int) -> float:
    """The least of some measurements."""
    return min(function() for _ in range(repeats))


def plans(folder: Path, repeats: int) -> list[dict[str, Any]]:
    """Every form of `blindsight plan` that needs no data."""
    forms = {f"{what}, {rule}": [*DIRECTIONS[what], *RULES[rule]] for what in DIRECTIONS for rule in RULES}
    forms["as published, group, clip, explained"] = [
        *DIRECTIONS["epsilon"],
        *["--as-published", "--group", "5", "--adaptive-clipping", "--explain"],
    ]
    rows = [
        row(f"plan: {name}", best(lambda f=form: command([*PLAN, *f], folder), repeats), 2.0)
        for name, form in forms.items()
    ]
    detect = ["plan", "--population", "250k", "--detect", "invert", "--epsilon", "8"]
    return [*rows, row("plan: detect", best(lambda: command(detect, folder), repeats), 2.0)]


def calibration() -> float:
    """Seconds to find the noise of `examples/handwriting.toml`, in a process that has computed nothing before."""
    program = (
        "import time; from blindsight.privacy import Privacy; p = Privacy(population=3060, cohort=306, rounds=150);"
        f"clock = time.{'process_time' if clock is processor else 'perf_counter'}; t = clock();"
        "p.calibrate(epsilon=8.0, delta=1e-6); print(clock() - t)"
    )
    words = [sys.executable, "-c", program]
    return float(subprocess.run(words, env=with_bytecode(), capture_output=True, text=True, check=True).stdout)


def population(cache: Path, *, drawn: bool) -> float:
    """Seconds to draw 3,400 writers, or to read those that were drawn before."""
    from blindsight.data.embedded import embedded

    os.environ["XDG_CACHE_HOME"] = str(cache)
    if drawn:
        shutil.rmtree(cache, ignore_errors=True)
    began = clock()
    embedded("handwriting", clients=3400).columns  # noqa: B018
    return clock() - began


def share_of_bar() -> float:
    """The largest share of a run that epsilons in the progress bar can take: one each time it is drawn."""
    from blindsight import round_bar
    from blindsight.accounting.accountants import epsilon_by_renyi
    from blindsight.accounting.events import Gaussian
    from blindsight.privacy import Privacy

    sampling = Privacy(population=3060, cohort=306, rounds=150).sampling
    times: list[float] = []
    for rounds in range(1, 151):
        event = sampling.event(Gaussian(1.05, rounded=True), rounds)
        began = clock()
        epsilon_by_renyi(event, 1e-6, sampling.relation)
        times.append(clock() - began)
    return sum(times) / len(times) / round_bar._UPDATE_S


def row(name: str, taken: float, bar: float) -> dict[str, Any]:
    """One line of the table, printed as soon as it is known."""
    print(f"{name:46} {taken:8.3f}  bar {bar:6.2f}  {'' if taken <= bar else 'MISSED'}", flush=True)
    return {"name": name, "measured": taken, "bar": bar, "reached": taken <= bar}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    global clock
    clock = processor if options.processor else time.perf_counter
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command([*PLAN, *DIRECTIONS["epsilon"]], folder)  # whatever is not yet compiled is compiled here
        rows.append(row("calibration: 150 rounds of 306, seconds", best(calibration, options.repeats), 2.0))
        cache = folder / "cache"
        drawn, kept = (best(lambda d=d: population(cache, drawn=d), options.repeats) for d in (True, False))
        rows.append(row("handwriting of 3,400 clients, seconds", drawn, 5.0))
        rows.append(row("handwriting of 3,400 clients, the second time", kept, 1.0))
        rows.append(row("epsilon in the bar, share of a run", best(share_of_bar, options.repeats), 0.01))
        rows += plans(folder, options.repeats)
        if options.demo:
            demo = ["demo", "--folder", str(folder / "runs")]
            rows.append(row("demo, the second time, seconds", [command(demo, folder) for _ in range(2)][1], 45.0))

    def library() -> float:
        """A yardstick: a part of every plan that is not ours."""
        began = clock()
        subprocess.run([sys.executable, "-c", "import scipy.stats"], env=with_bytecode(), check=True)
        return clock() - began

    yardstick = best(library, options.repeats)
    if options.output:
        about = {
            "import_scipy_stats_s": yardstick,
            "command": f"python benchmarks/{' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}",
            "seconds": "of processors" if options.processor else "by the clock",
            "machine": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "load_at_end": os.getloadavg()[0],
            "python": platform.python_version(),
        }
        options.output.write_text(json.dumps(about | {"rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
