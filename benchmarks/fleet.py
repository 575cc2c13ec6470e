"""Seconds of a round over a real NATS server with mutual TLS, masks, shares and noise, beside plain NATS.

    python benchmarks/fleet.py [--out benchmarks/results/fleet.json]

Sites are processes of their own (several sites to a process where that is said), and so is the coordinator. A round
sends a model to every site and sums as many numbers; sites compute nothing but their noise, so all of it is what a
fleet costs beyond its sites' own work. `plain_s` is the same bytes there and back over the same lines, added up,
without masks, shares, signatures and noise. Both are measured in turn, and the best of several is taken: other
processes of the machine only ever add to it. The sum is compared with the plain one, noise included.

`cpu_s` is the processor time of a round in all processes, sites, server and coordinator. On a machine that is busy
with something else it says more than seconds: half of it is what a round takes on two free cores that are kept busy.
"""

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blindsight import keys
from blindsight.fleet.carriers.carrier import COORDINATOR, Carrier, Delivery
from blindsight.fleet.carriers.over_nats import OverNats, tls_context
from blindsight.fleet.certificates import identity_key
from blindsight.fleet.codes import Code
from blindsight.fleet.folder import FleetFolder
from blindsight.fleet.job import Job
from blindsight.fleet.noise_shares import NoiseShares
from blindsight.fleet.opening import open_job
from blindsight.fleet.secure_sum import RoundBook, signer
from blindsight.fleet.secure_sum.terms import least_threshold
from blindsight.fleet.server import nats_server
from blindsight.fleet.site.agent import Agent
from blindsight.fleet.site.duties import OwnPart
from blindsight.fleet.sites import Patience, Sites
from blindsight.fleet.summing import SiteSum

PLAIN = b"plain"
CLIENTS = 100


class Desk:
    """Approves every job, and answers with fixed numbers and fresh noise."""

    def __init__(self, folder: Path, place: int, sites: int, length: int) -> None:
        self.folder, self.place, self.length = folder, place, length
        self.numbers = numbers_of(place, length)
        self.noise = NoiseShares(
            noise_multiplier=1.0, sites=sites, fewest=least_threshold(sites), colluding=1, clients=CLIENTS * sites
        )
        self.job_here: Job | None = None

    def decide(self, job: Job, inputs: Mapping[str, bytes], folder: Path, sent_at: str) -> tuple[str, Code | None]:
        """Every job is approved."""
        self.job_here = job
        return "approved", None

    def standing(self, job: Job, sent_at: str) -> tuple[str, Code | None]:
        """Every job stays approved."""
        return "approved", None

    def job(self, digest: str, folder: Path) -> Job | None:
        """The only job."""
        return self.job_here

    def note(self, words: str) -> None:
        """A diary that keeps what went wrong."""
        if "refused" in words or "could not" in words:
            print(self.place, words, flush=True)

    def open(self, job: Job, inputs: Mapping[str, bytes], folder: Path) -> "Desk":
        """Nothing is to be opened."""
        return self

    def part(self, head: Mapping[str, Any], blobs: Sequence[bytes]) -> OwnPart:
        """The numbers with this site's share of the noise; the noise is noted, to check the sum."""
        begin = time.process_time()  # JAX draws in threads of its own
        share = self.noise.share(self.length, self.place, keys.root()).astype(np.uint32)
        spent = time.process_time() - begin
        if head["step"] == "checked":
            np.save(self.folder / f"noise-{self.place}.npy", share)
        (self.folder / f"noise_s-{self.place}").write_text(str(spent), encoding="ascii")
        return OwnPart(self.numbers + share, 32, lambda: None)


def numbers_of(place: int, length: int) -> np.ndarray:
    """The numbers of a site."""
    return np.random.default_rng(place).integers(0, 2**20, length, dtype=np.uint32)


class WithPlain:
    """A line that also answers plain requests, with the same number of bytes and nothing else."""

    def __init__(self, line: Carrier, answer: bytes) -> None:
        self._line, self.name, self._answer = line, line.name, PLAIN + answer

    def send(self, receiver: str, data: bytes) -> None:
        """As `Carrier.send`."""
        self._line.send(receiver, data)

    def receive(self, timeout_s: float) -> Delivery | None:
        """As `Carrier.receive`, of what is not plain."""
        delivery = self._line.receive(timeout_s)
        if delivery is not None and delivery.data.startswith(PLAIN):
            self._line.send(COORDINATOR, self._answer)
            return None
        return delivery

    def close(self) -> None:
        """As `Carrier.close`."""
        self._line.close()


def line_of(fleet: FleetFolder, name: str) -> OverNats:
    """The line of a party, with its own certificate."""
    own = fleet.path / (name if name == COORDINATOR else f"sites/{name}")
    tls = tls_context(fleet.path / "authority/certificate.pem", own / "certificate.pem", own / "key.pem")
    return OverNats(f"tls://{fleet.settings.server}", name, tls)


def serve(fleet: FleetFolder, names: Sequence[str], length: int) -> None:
    """The agents of some sites, in threads of this process."""
    for name in names:
        place = 1 + sorted(fleet.roster).index(name)
        own = fleet.path / f"sites/{name}"
        desk = Desk(fleet.path, place, len(fleet.roster), length)
        agent = Agent(
            name,
            clients=CLIENTS,
            carrier=WithPlain(line_of(fleet, name), desk.numbers.tobytes()),
            parties=fleet.parties,
            sign=signer(identity_key((own / "key.pem").read_bytes())),
            rounds=RoundBook(own / "rounds.db"),
            clerk=desk,
            work=desk,
            folder=own / "jobs",
        )
        threading.Thread(target=agent.serve).start()


def plain_round(line: OverNats, names: Sequence[str], model: bytes) -> np.ndarray:
    """The same bytes there and back."""
    for name in names:
        line.send(name, PLAIN + model)
    total = np.zeros(len(model) // 4, np.uint32)
    left = set(names)
    while left:
        delivery = line.receive(60.0)
        if delivery is not None and delivery.data.startswith(PLAIN) and delivery.sender in left:
            left.discard(delivery.sender)
            total += np.frombuffer(delivery.data[len(PLAIN) :], np.uint32)
    return total


def coordinate(fleet: FleetFolder, length: int, repeats: int, others: Sequence[int]) -> dict[str, Any]:
    """What the coordinator measures; it is a process of its own, so that its memory is its own."""
    names, count = sorted(fleet.roster), len(fleet.roster)
    line = line_of(fleet, COORDINATOR)
    sites = Sites(line, fleet.parties, Patience(again_s=60.0, silence_s=300.0))
    while len(sites.roll_call(5.0)) < count:
        pass
    job = Job(
        kind="training",
        run="benchmark",
        content={},
        clients=dict.fromkeys(names, CLIENTS),
        noise="sites",
        fewest=least_threshold(count),
        colluding=1,
        epsilon=1.0,
        delta=1e-6,
    )
    open_job(sites, job, {}, wait_s=300)
    model = np.random.default_rng(0).normal(size=length).astype(np.float32).tobytes()
    before_mb = _resident_mb()

    def masked(step: str) -> tuple[np.ndarray, int]:
        summing = SiteSum(sites, job, {"step": step}, [model], length=length, bits=32)
        summing.collect()
        return summing.total()

    total, survivors = masked("checked")
    parts = [numbers_of(place, length) + np.load(fleet.path / f"noise-{place}.npy") for place in range(1, count + 1)]
    is_exact = survivors == count and bool(np.array_equal(total, np.sum(parts, axis=0, dtype=np.uint32)))
    del parts, total
    (Path("/proc/self/clear_refs")).write_text("5", encoding="ascii")  # peaks are counted from here on
    rounds = [timed(lambda: masked("round"), others) for _ in range(repeats)]
    peak_mb = _peak_mb()
    plain = [timed(lambda: plain_round(line, names, model), others) for _ in range(repeats)]
    rounds += [timed(lambda: masked("round"), others) for _ in range(repeats)]
    plain += [timed(lambda: plain_round(line, names, model), others) for _ in range(repeats)]
    noise = [float((fleet.path / f"noise_s-{place}").read_text()) for place in range(1, count + 1)]
    return {
        "sites": count,
        "numbers": length,
        "is_exact": is_exact,
        "round_s": _least(rounds, "s"),
        "plain_s": _least(plain, "s"),
        "ratio": round(_least(rounds, "s") / _least(plain, "s"), 2),
        "round_cpu_s": _least(rounds, "cpu_s"),
        "plain_cpu_s": _least(plain, "cpu_s"),
        "cpu_ratio": round(_least(rounds, "cpu_s") / _least(plain, "cpu_s"), 2),
        "coordinator_cpu_s": _least(rounds, "own_s"),
        "plain_coordinator_cpu_s": _least(plain, "own_s"),
        "all_rounds_s": [round(one["s"], 3) for one in rounds],
        "all_plain_s": [round(one["s"], 3) for one in plain],
        "noise_cpu_s_of_all_sites": round(sum(noise), 3),
        "coordinator_mb_before": round(before_mb, 1),
        "coordinator_mb_peak": round(peak_mb, 1),
        "model_mb": round(len(model) / 1e6, 1),
    }


def timed(call: Callable[[], Any], others: Sequence[int]) -> dict[str, float]:
    """Seconds of a call, and processor time: of this process, and of all."""
    begin, own, of_others = time.perf_counter(), time.process_time(), sum(map(_cpu_s, others))
    call()
    own_s = time.process_time() - own
    cpu_s = own_s + sum(map(_cpu_s, others)) - of_others
    return {"s": time.perf_counter() - begin, "cpu_s": cpu_s, "own_s": own_s}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _least(measured: Sequence[Mapping[str, float]], what: str) -> float:
    return round(min(one[what] for one in measured), 3)


def _resident_mb() -> float:
    return _status("VmRSS")


def _peak_mb() -> float:
    return _status("VmHWM")


def _status(key: str) -> float:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"{key}:\s+(\d+) kB", text)
    return int(found[1]) / 1e3 if found else float("nan")


def measure(count: int, length: int, processes: int, repeats: int) -> dict[str, Any]:
    """One fleet: its server, its sites in so many processes, and its coordinator."""
    with tempfile.TemporaryDirectory() as scratch:
        names = [f"site{place:03d}" for place in range(count)]
        fleet = FleetFolder.init(Path(scratch) / "fleet", sites=names, port=0)
        log = Path(scratch) / "server.log"
        server = subprocess.Popen([nats_server(), "-c", "nats.conf", "-l", str(log)], cwd=fleet.path)
        children: list[int] = []
        try:
            time.sleep(1.0)
            for number in range(processes):
                children.append(forked(lambda number=number: serve(fleet, names[number::processes], length)))
            result = Path(scratch) / "result.json"

            def write() -> None:
                result.write_text(
                    json.dumps(coordinate(fleet, length, repeats, [server.pid, *children])), encoding="utf-8"
                )
                os._exit(0)

            os.waitpid(forked(write), 0)
            return {"processes": processes, **json.loads(result.read_text(encoding="utf-8"))}
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            server.kill()
            server.wait()


def forked(call: Callable[[], None]) -> int:
    """A process that calls this, and stays for its threads."""
    if (child := os.fork()) != 0:
        return child
    try:
        call()
        while True:
            signal.pause()
    finally:
        os._exit(1)


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", help="sites x numbers x processes, as 10x1300000x10")
    options = parser.parse_args()
    cases = [(10, 1_300_000, 10), (20, 1_300_000, 10), (100, 50_000, 10)]
    if options.only:
        cases = [tuple(int(part) for part in options.only.split("x"))]
    results = []
    for count, length, processes in cases:
        results.append(measure(count, length, processes, options.repeats))
        print(json.dumps(results[-1], indent=1), flush=True)
    if options.out:
        load = [round(one, 1) for one in os.getloadavg()]
        machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load_average": load}
        options.out.write_text(json.dumps({"machine": machine, "fleets": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
