"""A whole fleet in real processes: a NATS server with mutual TLS, an agent for each site, and commands that ask."""

import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fleet_up import Up, new_fleet
from forked import Forked
from waiting import until

from blindsight.accounting.ledger import Ledger
from blindsight.errors import BlindsightError
from blindsight.fleet.site.diary import Diary

__all__ = ["Processes"]

SITE_TOML = """
[site]
name = "{name}"
server = "tls://{server}"
clients = {clients}

[data]
population = "clients.csv"

[columns]
age = "{column}"

[policy]
tasks = ["all"]
epsilon_per_question = 20.0
epsilon_total = 1000.0
delta = 1e-3
approve = "automatically"
{policy}
"""


def write_clients(path: Path, count: int, seed: int) -> np.ndarray:
    """A table of clients; returns the age of each."""
    ages = np.random.default_rng(seed).integers(20, 80, count)
    path.write_text("client,years\n" + "".join(f"{n},{age}\n" for n, age in enumerate(ages)), encoding="utf-8")
    return ages


class Processes:
    """The processes of a fleet in a folder."""

    def __init__(
        self, folder: Path, names: Sequence[str], forked: Forked, spawn: Callable[..., Any], policy: str = ""
    ) -> None:
        self.folder, self.forked, self._policy = folder, forked, policy
        self.fleet = new_fleet(folder / "hospitals", *names)
        self.ages = {name: self._site(name, seed) for seed, name in enumerate(names)}
        self.up = Up(self.fleet, spawn)
        self.agents: dict[str, int] = {}
        for name in names:
            self.start(name)

    def _site(self, name: str, seed: int) -> np.ndarray:
        place, count = self.place(name), 8 + seed % 5
        about = {"server": self.fleet.settings.server, "column": "years", "policy": self._policy}
        text = SITE_TOML.format(name=name, clients=count, **about)
        (place / "SITE.toml").write_text(text, encoding="utf-8")
        if not (place / "roster.json").exists():
            (place / "roster.json").write_bytes((self.fleet.path / "roster.json").read_bytes())
        return write_clients(place / "clients.csv", count, seed)

    def place(self, name: str) -> Path:
        """The folder of a site."""
        return self.fleet.path / "sites" / name

    def start(self, name: str) -> None:
        """Start a site's agent."""
        self.agents[name] = self.forked.start(
            self.place(name) / "out", "site", "run", str(self.place(name) / "SITE.toml")
        )

    def kill(self, pid: int) -> None:
        """SIGKILL, and wait for the end."""
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.forked.code(pid) is not None)

    def here(self) -> set[str]:
        """The sites that answer; none while there is no server."""
        from blindsight.fleet.roll_call import roll_call

        with contextlib.suppress(BlindsightError):
            return {one.site for one in roll_call(self.fleet, timeout_s=2.0) if one.here}
        return set()

    def ask(self, run: str, *more: str) -> int:
        """A process that asks for the mean age."""
        words = ["ask", "age", "--mean", "--type", "age=number:0:100", "--fleet", str(self.fleet.path)]
        words += ["--epsilon", "8", "--delta", "1e-4", "--json", "--asker", "modeller"]
        words += ["--out", str(self.folder / run), "--ledger", str(self.folder / "ledger.db"), *more]
        return self.forked.start(self.folder / f"{run}.out", *words)

    def train(self, run: str, settings: Path) -> int:
        """A process that trains as a file says, or goes on with it."""
        words = ["train", str(settings), "--fleet", str(self.fleet.path), "--json", "--asker", "modeller"]
        words += ["--out", str(self.folder / run), "--ledger", str(self.folder / "ledger.db")]
        return self.forked.start(self.folder / f"{run}.out", *words)

    def ended(self, pid: int) -> int:
        """The exit code of a process, once it has one."""
        until(lambda: self.forked.code(pid) is not None)
        return self.forked.code(pid) or 0

    def printed(self, run: str) -> dict[str, Any]:
        """What a command printed, as JSON."""
        return json.loads((self.folder / f"{run}.out").read_text(encoding="utf-8"))

    def errors(self, run: str) -> str:
        """What a command said on its standard error, colours left out."""
        return re.sub(r"\x1b\[[0-9;]*m", "", (self.folder / f"{run}.out.err").read_text(encoding="utf-8"))

    def diary(self, name: str) -> list[str]:
        """What a site wrote down."""
        return [line.what for line in Diary(self.place(name) / "state/diary.jsonl").lines()]

    def paid(self, name: str, job: str = "") -> int:
        """Number of payments in a site's ledger, which must be intact: for one job, or in all."""
        ledger = Ledger(self.place(name) / "state/ledger.db")
        assert ledger.verify().ok
        return sum(one.kind == "release" and job in one.run for one in ledger.entries(name))

    def paid_here(self, run: str = "") -> int:
        """Number of payments in the coordinator's ledger, which must be intact: for one run, or in all."""
        ledger = Ledger(self.folder / "ledger.db")
        assert ledger.verify().ok
        name = self.fleet.settings.name
        return sum(one.kind == "release" and one.run.startswith(run) for one in ledger.entries(name))
