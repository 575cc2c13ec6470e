"""What all contestants share: the command line, the clock, and the one line of JSON at the end."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator

import tasks


class Run:
    """One run of one contestant: what it is asked to do, when each round was done, and how the loss fell."""

    def __init__(self, peer: str) -> None:
        options = arguments(peer)
        self.peer = peer
        self.options = options
        self.task = tasks.TASKS[options.task]
        self.cohort = options.cohort or self.task.cohort
        self.losses: list[float] = []
        self.round_s: list[float] = []
        self.processor_s: list[float] = []
        self.start_up_s = 0.0
        self._began = self._worked = 0.0

    def cohorts(self) -> Iterator[list[int]]:
        """The clients of each round."""
        for number in range(self.options.rounds):
            yield tasks.cohort(self.task, number, self.cohort)

    def round_done(self, parameters: Callable[[], tasks.Parameters] | None) -> None:
        """Note the time, and in the first rounds the loss, if it is the task's model.

        The device must have finished; computing the loss is not timed.
        """
        now, worked = time.time(), time.process_time()
        self.processor_s.append(worked - self._worked)
        if self.round_s:
            self.round_s.append(now - self._began)
        else:
            self.start_up_s = now - self.options.began
            self.round_s.append(self.start_up_s)
        if parameters and len(self.losses) < tasks.PARITY_ROUNDS:
            self.losses.append(tasks.loss(self.task, parameters()))
        self._began, self._worked = time.time(), time.process_time()

    def report(self, version: str) -> None:
        """Print the result."""
        steady = self.round_s[tasks.PARITY_ROUNDS :]
        worked = sum(self.processor_s[tasks.PARITY_ROUNDS :])  # of this process alone: compare single ones
        found = {
            "peer": self.peer,
            "version": version,
            "task": self.task.name,
            "private": self.options.private,
            "variant": self.options.variant,
            "setting": f"{self.options.processes} x {self.options.threads}",
            "device": self.options.device,
            "cohort": self.cohort,
            "losses": self.losses,
            "clients_per_s": self.cohort * len(steady) / sum(steady) if steady else None,
            "clients_per_processor_s": self.cohort * len(steady) / worked if worked else None,
            "start_up_s": self.start_up_s,
            "round_s": self.round_s,
        }
        print(json.dumps(found), flush=True)


def limit_jax_threads(count: int) -> None:
    """Let JAX compute with this many threads; call it before its first computation."""
    os.environ["NPROC"] = str(count)


def arguments(peer: str) -> argparse.Namespace:
    """The command line, the same for every contestant."""
    parser = argparse.ArgumentParser(prog=peer)
    parser.add_argument("--task", choices=list(tasks.TASKS), required=True)
    parser.add_argument("--rounds", type=int, default=tasks.PARITY_ROUNDS)
    parser.add_argument("--cohort", type=int, help="fewer clients a round than the task has")
    parser.add_argument("--private", action="store_true", help="clip each update, noise their sum")
    parser.add_argument("--variant", default="", help="a way of doing it that only this contestant has")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="per process")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--began", type=float, default=time.time(), help="when this process was started, epoch seconds")
    return parser.parse_args()
