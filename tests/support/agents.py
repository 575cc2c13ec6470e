"""Agents of sites whose data are a few numbers: everything but the questions is real, and nothing is compiled."""

import contextlib
import dataclasses
import datetime
import json
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from secure_round import KEYS, names, parties

from blindsight.fleet.carriers.carrier import COORDINATOR, Carrier, Delivery
from blindsight.fleet.carriers.in_process import Exchange
from blindsight.fleet.codes import Code
from blindsight.fleet.job import Job
from blindsight.fleet.opening import open_job
from blindsight.fleet.secure_sum import RoundBook, signer
from blindsight.fleet.secure_sum.terms import least_threshold
from blindsight.fleet.site.agent import Agent
from blindsight.fleet.site.duties import OwnPart
from blindsight.fleet.sites import Patience, Sites
from blindsight.fleet.summing import SiteSum

__all__ = ["LENGTH", "Desk", "Fleet", "Lossy", "a_job", "fleet", "numbers_of"]

LENGTH = 6
PATIENCE = Patience(again_s=5.0, silence_s=60.0)


def a_job(count: int, run: str = "run", **changes: Any) -> Job:
    """A job of `count` sites, which each declare ten clients."""
    given: dict[str, Any] = {"kind": "question", "content": {}, "noise": "sites", "colluding": 1, "epsilon": 1.0}
    given |= {"clients": dict.fromkeys(names(count), 10), "fewest": least_threshold(count), "delta": 1e-6}
    return Job(run=run, **{**given, **changes})


def numbers_of(place: int, step: str) -> np.ndarray:
    """What the site at a place has to say in a step."""
    return np.random.default_rng([place, *step.encode()]).integers(0, 2**32, LENGTH, dtype=np.uint32)


@dataclasses.dataclass
class Desk:
    """Approves every job; its ledger is a file with one line for each payment."""

    place: int
    folder: Path
    approves: bool = True
    problem: Exception | None = None  # instead of a part
    wait: threading.Event | None = None  # for which a part waits
    said: list[str] = dataclasses.field(default_factory=list[str])

    @property
    def payments(self) -> list[str]:
        ledger = self.folder / "payments"
        return ledger.read_text(encoding="ascii").split() if ledger.exists() else []

    def decide(self, job: Job, inputs: Mapping[str, bytes], folder: Path, sent_at: str) -> tuple[str, Code | None]:
        (folder / "job.json").write_text(json.dumps(job.to_dict()), encoding="utf-8")
        return self.standing(job, sent_at)

    def standing(self, job: Job, sent_at: str) -> tuple[str, Code | None]:
        return ("approved", None) if self.approves else ("refused", Code.not_approved)

    def job(self, digest: str, folder: Path) -> Job | None:
        path = folder / "job.json"
        return Job.from_dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def note(self, words: str) -> None:
        self.said.append(words)

    def open(self, job: Job, inputs: Mapping[str, bytes], folder: Path) -> "Desk":
        return self

    def part(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> OwnPart:
        if self.wait is not None:
            self.wait.wait(60)
        if self.problem is not None:
            raise self.problem
        return OwnPart(numbers_of(self.place, str(head["step"])), 32, lambda: self._pay(str(head["sum"])))

    def _pay(self, number: str) -> None:
        with open(self.folder / "payments", "a", encoding="ascii") as ledger:
            ledger.write(f"{number}\n")


class Lossy:
    """A site's line that falls silent for good, both ways, when `silent` is set."""

    def __init__(self, line: Carrier) -> None:
        self._line, self.name, self.silent = line, line.name, threading.Event()

    def send(self, receiver: str, data: bytes) -> None:
        if not self.silent.is_set():
            self._line.send(receiver, data)

    def receive(self, timeout_s: float) -> Delivery | None:
        delivery = self._line.receive(timeout_s)
        return None if self.silent.is_set() else delivery

    def close(self) -> None:
        self._line.close()


class Clock:
    """The coordinator's clock, which tests put forward instead of waiting."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        """As `time.monotonic`."""
        return time.monotonic() + self.ahead_s


@dataclasses.dataclass
class Fleet:
    """Sites at work, and the coordinator's lines to them; time flies while only silent sites are waited for."""

    job: Job
    folder: Path
    exchange: Exchange
    desks: dict[str, Desk]
    lines: dict[str, Lossy]
    sites: Sites
    clock: Clock
    running: dict[str, tuple[Agent, threading.Thread]] = dataclasses.field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a site, or start it again from what is on its disk."""
        self.stop(name)
        place, folder = list(self.desks).index(name), self.desks[name].folder
        self.lines[name] = Lossy(self.exchange.connect(name))
        agent = Agent(
            name,
            clients=10,
            carrier=self.lines[name],
            parties=parties(len(self.desks)),
            sign=signer(KEYS[place]),
            rounds=RoundBook(folder / "rounds.db"),
            clerk=self.desks[name],
            work=self.desks[name],
            folder=folder / "jobs",
        )
        thread = threading.Thread(target=agent.serve, name=name)
        self.running[name] = agent, thread
        thread.start()

    def stop(self, name: str) -> None:
        if name in self.running:
            agent, thread = self.running.pop(name)
            agent.stop()
            thread.join()

    def sum(self, step: str = "one", **changes: Any) -> SiteSum:
        """A sum of this fleet's job."""
        given: dict[str, Any] = {
            "head": {"step": step},
            "blobs": [],
            "length": LENGTH,
            "bits": 32,
            "progress": self.hurry,
        }
        return SiteSum(self.sites, self.job, **{**given, **changes})

    def hurry(self, waiting: set[str]) -> None:
        """Put the clock forward if all that are waited for are silent for good."""
        if all(self.lines[name].silent.is_set() for name in waiting):
            self.clock.ahead_s += 2.0

    def expected(self, survivors: Sequence[str], step: str = "one") -> np.ndarray:
        order = list(self.desks)
        parts = [numbers_of(order.index(name), step) for name in survivors]
        return np.asarray(np.sum(parts, axis=0, dtype=np.uint32))


@contextlib.contextmanager
def fleet(
    folder: Path, count: int, *, patience: Patience = PATIENCE, opened: bool = True, lines: Any = None
) -> Generator[Fleet]:
    """`count` sites at work until the block ends, on other `lines` if given; their job is taken if `opened`."""
    exchange, desks = lines or Exchange(), dict[str, Desk]()
    for place, name in enumerate(names(count)):
        (folder / name).mkdir(parents=True)
        desks[name] = Desk(place, folder / name)
    sites = Sites(exchange.connect(COORDINATOR), parties(count), patience)
    one = Fleet(a_job(count), folder, exchange, desks, {}, sites, Clock())
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr("blindsight.fleet.sites.time", one.clock)
        for name in desks:
            stack.callback(one.stop, name)
            one.start(name)
        if opened:
            open_job(sites, one.job, {}, wait_s=240)
        yield one


def now() -> str:
    """The time as messages say it."""
    return datetime.datetime.now(datetime.UTC).isoformat()


def caught(action: Callable[[], Any]) -> Exception | None:
    """What an action raised."""
    try:
        action()
    except Exception as error:
        return error
    return None
