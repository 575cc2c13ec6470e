"""Which small faults in the privacy code would no test notice?

    make mutants                                                      planted bugs, then every module below
    make mutants MODULES=planted                                      the planted privacy bugs alone
    make mutants MODULES="planted --only arms"                        those with that in their names
    make mutants MODULES="src/blindsight/trees.py"                    some of them, files or folders
    make mutants MODULES="src/blindsight/trees.py --tests tests/x.py" against tests of your choice

Cosmic Ray plants one fault at a time in a copy of the project, and a fresh interpreter runs the tests that mirror the
module: its doctests and `tests/**/test_<module>.py`, or `tests/<package>/` if there is none such; never the slow ones.
Survivors are printed as they would stand in the source. Verdicts are kept in `mutants/`: an interrupted run continues,
and a second run of an unchanged module repeats only its survivors, so add a test and run again.

Planted privacy bugs (`planted.toml`) are written by hand. Each names the law that must notice it, and only that is run:
it has to fail by an assertion of its own. A survivor, or a law that merely crashes, makes the command fail.
"""

import argparse
import ast
import hashlib
import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult
from planted import Plant, Uprooted, listed

ROOT = Path(__file__).resolve().parents[1]
SRC = Path("src/blindsight")
PLANTED = Path("planted")
DEFAULT = [PLANTED] + [SRC / unit for unit in ("trees.py", "participation.py", "mechanisms", "accounting")]

# Left out: faults that any test notices (a float has no bits to shift), that none can (`is` for `==`), or for which
# another at the same place stands (`*` for `/` is there, so `//` and `%` need not be).
TRIVIAL = re.compile(
    r"ReplaceBinaryOperator_\w+_(BitOr|BitAnd|BitXor|LShift|RShift|Mod|FloorDiv|Pow)$"
    r"|ReplaceComparisonOperator_\w+_(Is|IsNot)$"
    r"|ReplaceComparisonOperator_(Is|IsNot)_(?!Is)"
    r"|ReplaceUnaryOperator_\w+_(Invert|UAdd)$"
)


def annotations(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where the type annotations begin and end: no test can notice a fault there."""
    for node in ast.walk(ast.parse(source)):
        for field in ("annotation", "returns"):
            if isinstance(hint := getattr(node, field, None), ast.expr):
                yield (hint.lineno, hint.col_offset), (hint.end_lineno or 0, hint.end_col_offset or 0)


def plant(module: Path) -> Path:
    """The database of this module's mutants, made unless it exists for just this source."""
    source = module.read_text(encoding="utf-8")
    digest = hashlib.sha256(source.encode()).hexdigest()[:8]
    path = Path("mutants", f"{'.'.join(module.with_suffix('').parts[1:])}-{digest}.sqlite")
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        hints = list(annotations(source))
        with use_db(str(path)) as db:
            init([module], db, {})
            for item in db.work_items:
                spec = item.mutations[0]
                if TRIVIAL.search(spec.operator_name) or any(
                    start <= spec.start_pos and spec.end_pos <= end for start, end in hints
                ):
                    db.set_result(item.job_id, WorkResult(WorkerOutcome.SKIPPED))
    return path


def mirror(module: Path) -> list[Path]:
    """The module itself, for its doctests, and the tests that speak of it, the closest first."""
    own = sorted(Path("tests").rglob(f"test_{module.stem}.py"))
    package = Path("tests", *module.relative_to(SRC).parent.parts)
    return [module, *(own or [package])]


def enter_copy(scratch: str) -> None:
    """Makes this process work in a copy of the project, which shadows the installed one."""
    copy = Path(scratch, str(os.getpid()))
    for part in ("src", "tests"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy(file, copy)
    os.chdir(copy)
    path = os.pathsep.join(filter(None, [str(copy / "src"), os.environ.get("PYTHONPATH")]))
    os.environ |= {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "ci", "COLUMNS": "400"}


def baseline(command: list[str]) -> float:
    """How long the tests take without a fault, in seconds; they must pass."""
    start = time.monotonic()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{run.stdout}\nThe tests must pass before faults are planted: {shlex.join(command)}")
    return time.monotonic() - start


PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
BY_ITSELF = re.compile(r"^FAILED .* - (?:\S*AssertionError|assert |Failed: DID NOT RAISE)", re.MULTILINE)


def notices(plant: Plant) -> str:
    """What the law says about the bug: "caught", "SURVIVES", or how it failed otherwise; run in a copy."""
    file = Path(plant.file)
    source = file.read_text(encoding="utf-8")
    file.write_text(plant.planted(source), encoding="utf-8")
    try:
        run = subprocess.run([*PYTEST, plant.law], capture_output=True, text=True, check=False)
    finally:
        file.write_text(source, encoding="utf-8")
    if run.returncode == 0:
        return "SURVIVES"
    return "caught" if BY_ITSELF.search(run.stdout) else f"FAILS OTHERWISE\n{run.stdout[-2000:]}{run.stderr[-500:]}"


def hunt_planted(only: str, workers: int) -> int:
    """Plants every bug of the list whose name holds `only`, one in a copy at a time; returns how many got away."""
    plants, missed = [plant for plant in listed() if only in plant.name], 0
    if not plants:
        sys.exit(f"No planted bug has {only!r} in its name: see .ci/planted.toml.")
    laws = list(dict.fromkeys(plant.law for plant in plants))
    with tempfile.TemporaryDirectory() as scratch:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=spawn, initializer=enter_copy, initargs=(scratch,)) as pool:
            for plant in plants:  # before anything slow
                plant.planted(Path(plant.file).read_text(encoding="utf-8"))
            pool.submit(baseline, [*PYTEST, *laws]).result()
            for plant, verdict in zip(plants, pool.map(notices, plants), strict=True):
                missed += verdict != "caught"
                print(f"{verdict}: {plant.name}\n    by {plant.law}", flush=True)
    print(f"\n{len(plants)} planted privacy bugs, {missed} not caught by their laws")
    return missed


def survived(result: WorkResult) -> bool:
    """Whether no test noticed."""
    return result.test_outcome == TestOutcome.SURVIVED


def hunt(module: Path, tests: list[Path], workers: int) -> list[tuple[MutationSpec, str]]:
    """Runs the mutants that have no verdict yet or survived last time; returns those that survive now."""
    command = [*PYTEST, *map(str, tests)]
    with use_db(str(plant(module)), WorkDB.Mode.open) as db, tempfile.TemporaryDirectory() as scratch:
        again = [item for item, result in db.completed_work_items if survived(result)]
        todo: list[WorkItem] = [*db.pending_work_items, *again]
        if todo:
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, mp_context=spawn, initializer=enter_copy, initargs=(scratch,)) as pool:
                timeout_s = 10 + 4 * pool.submit(baseline, command).result()
                jobs = {pool.submit(mutate_and_test, i.mutations, shlex.join(command), timeout_s): i for i in todo}
                for done, job in enumerate(as_completed(jobs), 1):
                    db.set_result(jobs[job].job_id, job.result())
                    if sys.stderr.isatty():
                        print(f"\r{done}/{len(jobs)}, at most {timeout_s:.0f} s each", end="\r", file=sys.stderr)
        results = [(i.mutations[0], r) for i, r in db.completed_work_items if r.worker_outcome != WorkerOutcome.SKIPPED]
    alive = sorted(((spec, r.diff or "") for spec, r in results if survived(r)), key=lambda pair: pair[0].start_pos)
    late = sum(r.output == "timeout" for _, r in results)
    print(f"\n{module}: {len(results)} mutants, {len(alive)} survive, {late} killed only by the time limit")
    for spec, diff in alive:
        print(f"  {module}:{spec.start_pos[0]}  {spec.operator_name.removeprefix('core/')}")
        print("\n".join(f"    {line}" for line in diff.splitlines() if re.match(r"[-+](?![-+]{2}).", line)))
    return alive


def main() -> None:
    """Parses the command line and hunts module by module."""
    os.chdir(ROOT)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about = "files or folders under src/blindsight, or planted"
    parser.add_argument("modules", nargs="*", type=Path, default=DEFAULT, help=about)
    parser.add_argument("--tests", nargs="+", type=Path, help="run these tests instead of those that mirror the module")
    parser.add_argument("--only", default="", metavar="WORD", help="planted bugs with this in their names")
    parser.add_argument("--workers", type=int, default=2, help="mutants at the same time (2)")
    options = parser.parse_args()
    units = [path for path in options.modules if path != PLANTED]
    modules = [m for path in units for m in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    if missing := [str(m) for m in modules if not m.is_file() or SRC not in m.parents]:
        sys.exit(f"There is no such module under {SRC}: {', '.join(missing)}.")
    try:
        missed = hunt_planted(options.only, options.workers) if PLANTED in options.modules else 0
    except Uprooted as error:
        sys.exit(str(error))
    if modules:
        alive = sum(len(hunt(m, options.tests or mirror(m), options.workers)) for m in modules)
        print(f"\n{alive} mutants survive in all. Each needs a test, or a judgement in docs/mutants.md.")
    if missed:
        sys.exit(f"{missed} planted privacy bugs were not caught: write the law, or mend it.")


if __name__ == "__main__":
    main()
