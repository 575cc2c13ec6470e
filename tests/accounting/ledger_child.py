"""What the ledger's fault tests run in processes of their own: `python ledger_child.py COMMAND JSON` prints JSON.

Imports happen once, here; children are forked from this process, so that hundreds of them cost seconds.
"""

import contextlib
import json
import mmap
import os
import random
import resource
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blindsight.accounting.events import Gaussian
from blindsight.accounting.ledger import Ledger
from blindsight.errors import BlindsightError, BudgetExceeded, LedgerError

EVENT = Gaussian(1000.0)
POPULATION = "phones"
NOBODY = 65534
IDLE, RECORDING, RECORDED = range(3)  # where in its loop a child is


def killed(folder: str, kills: int, seed: int, value_first: bool = False) -> dict[str, int]:
    """Kills `kills` releasing children at random points; what the ledgers and the files of values say afterwards.

    Every fifth child has a ledger of its own, so that some are killed while they create it.
    """
    shared, rng, where = mmap.mmap(-1, 2), random.Random(seed), Path(folder)
    main = Ledger(where / "ledger.db")
    main.set_budget(POPULATION, epsilon=100.0, delta=1e-6)
    start = time.monotonic()
    for _ in range(5):
        main.record(EVENT, population=POPULATION, run="parent")
    window_s = min(0.2, max(0.03, time.monotonic() - start))  # a slow disk gets time for some releases too
    ledgers = [main if kill % 5 else Ledger(where / f"fresh-{kill}" / "ledger.db") for kill in range(kills)]
    last: list[tuple[int, int]] = []
    for kill, ledger in enumerate(ledgers):
        shared[:] = bytes([IDLE, 0])
        if (child := os.fork()) == 0:
            _release_for_ever(ledger, where / f"values-{kill}", kill, shared, value_first)
        time.sleep(rng.uniform(0, window_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        last.append((shared[0], shared[1]))
        if rng.random() < 0.1:  # mostly it is the next child that finds what this one left behind
            main.verify().raise_if_broken()
    found: Counter[str] = Counter(missing=0)
    for kill, ledger in enumerate(ledgers):
        ledger.verify().raise_if_broken()
        runs = {entry.run for entry in ledger.entries(POPULATION) if entry.run.startswith(f"{kill}/")}
        values = (
            set((where / f"values-{kill}").read_text().split()) if (where / f"values-{kill}").exists() else set[str]()
        )
        found.update(entries=len(runs), values=len(values), missing=len(values - runs))
        found[_where_it_died(*last[kill], kept=f"{kill}/{last[kill][1]}" in runs)] += 1
    return dict(found)


def _release_for_ever(ledger: Ledger, values: Path, kill: int, shared: mmap.mmap, value_first: bool) -> None:
    out = os.open(values, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in range(250):
        shared[:] = bytes([IDLE, number])
        if value_first:  # the bug that the test must be able to see
            _use(out, f"{kill}/{number}")
        shared[0] = RECORDING
        ledger.record(EVENT, population=POPULATION, run=f"{kill}/{number}")
        shared[0] = RECORDED
        if not value_first:
            _use(out, f"{kill}/{number}")
    os._exit(1)


def _use(out: int, value: str) -> None:
    os.write(out, f"{value}\n".encode())
    os.fsync(out)


def _where_it_died(phase: int, _: int, *, kept: bool) -> str:
    if phase == RECORDING:
        return "died_in_record_kept" if kept else "died_in_record_lost"
    return "died_before_value" if phase == RECORDED else "died_idle"


def race(jobs: list[tuple[str, int, int]]) -> list[list[int]]:
    """For each (ledger, processes, tries): how many of its tries each process was granted.

    Nobody gets in before all have begun: a ledger that exists is locked until then, so that whatever a process looks at
    before it waits is what all others look at, however fast or slow the machine is.
    """
    results: list[list[int]] = []
    for path, processes, tries in jobs:
        shared = mmap.mmap(-1, processes + 1)  # who has begun, and whether anyone may
        children: list[int] = []
        for place in range(processes):
            if (child := os.fork()) == 0:
                os._exit(_granted(Ledger(path), tries, shared, place))
            children.append(child)
        with contextlib.closing(sqlite3.connect(path if Path(path).exists() else ":memory:")) as lock:
            lock.execute("BEGIN IMMEDIATE")  # after the forks: SQLite's locks do not survive them
            shared[processes] = 1
            while 0 in shared[:processes]:
                time.sleep(0.005)
            time.sleep(0.01)  # they are on their way to the lock
        results.append([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
    return results


def _granted(ledger: Ledger, tries: int, shared: mmap.mmap, place: int) -> int:
    won = 0
    signal.alarm(240)  # for hangs
    try:
        while not shared[-1]:
            time.sleep(0.001)
        shared[place] = 1
        for _ in range(tries):
            with contextlib.suppress(BudgetExceeded):
                ledger.record(EVENT, population=POPULATION)
                won += 1
    except BaseException:
        traceback.print_exc()
        return 255
    return won


def forks(path: str, children: int) -> dict[str, Any]:
    """Forks while another thread is recording; parent and children all record into the same ledger."""
    ledger, stop, recorded = Ledger(path), threading.Event(), [0]

    def record_on() -> None:
        while not stop.is_set():
            ledger.record(EVENT, population=POPULATION)
            recorded[0] += 1
            time.sleep(0.002)  # SQLite's lock is not fair: who asks for it again at once keeps the others waiting

    thread = threading.Thread(target=record_on)
    thread.start()
    failed = 0
    for _ in range(children):
        if (child := os.fork()) == 0:
            signal.alarm(60)  # one that waits for ever for a lock of its parent's must not outlive the test
            for _ in range(3):
                ledger.record(EVENT, population=POPULATION)
            os._exit(0)
        failed += os.waitpid(child, 0)[1] != 0
    stop.set()
    thread.join()
    expected = recorded[0] + 3 * children
    return {"failed": failed, "expected": expected, "entries": len(ledger.entries()), "ok": ledger.verify().ok}


def limited(path: str) -> dict[str, Any]:
    """Records until the operating system lets no file grow further, then lifts the limit and records again."""
    ledger, granted, error = Ledger(path), 0, ""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ledger.record(EVENT, population=POPULATION)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(path).stat().st_size + 20_000, hard))
    try:
        while granted < 1000:
            ledger.record(EVENT, population=POPULATION)
            granted += 1
    except LedgerError as refused:
        error = str(refused)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    before = len(ledger.entries())
    ledger.record(EVENT, population=POPULATION)
    ledger.verify().raise_if_broken()
    return {"granted": granted + 1, "before": before, "after": len(ledger.entries()), "error": error}


def unprivileged(paths: list[str]) -> list[Any]:
    """For each path: what recording and reading give to a user without special rights."""
    with contextlib.suppress(BlindsightError):  # whatever is imported late is imported now
        Ledger(os.devnull).record(EVENT, population=POPULATION)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return [
        {
            "record": _outcome(lambda path=path: Ledger(path).record(EVENT, population=POPULATION).number),
            "read": _outcome(lambda path=path: len(Ledger(path).entries())),
            "verify": _outcome(lambda path=path: Ledger(path).verify().ok),
        }
        for path in paths
    ]


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except BlindsightError as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    commands = {f.__name__: f for f in (killed, race, forks, limited, unprivileged)}
    print(json.dumps(commands[sys.argv[1]](**json.loads(sys.argv[2]))))
