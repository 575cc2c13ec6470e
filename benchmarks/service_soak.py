"""The service under more load than it can serve: latency, memory and errors.

    python benchmarks/service_soak.py [--seconds 600] [--weights 387] [--store memory] [--out RESULTS.json]

Three phases of the same length, on one service in a process of its own. `capacity`: as many connections as keep it
busy, each drawing and sending back without a pause. `ten times`: ten times as many, which is ten times the load,
because each asks again as soon as it is answered. `crowd`: the same, and as many silent connections as the service
allows in all. A client that is told 429 or 503 waits for the stated Retry-After, and counts it.

Bars: p99 of each phase bounded, memory at the end of a phase at most 5 % above its middle, and no error other than 429
and 503 with Retry-After, and 410 for a ticket that counts as used because others have left all of its marks (once in
some hundred thousand). Refusals are counted by cause too. A connection that the service closes while it is idle, to
make room, is no error: the client connects again. The generator is Python and shares the cores, so rates are not the
service's best.
"""

import argparse
import asyncio
import json
import os
import random
import re
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

from service import TOKEN, cpu_s, redis, server, version, write

PHASES = {"capacity": 1, "ten times": 10, "crowd": 10}
LIMIT = 4096  # connections, the default


class Client(asyncio.Protocol):
    """One client: draws, sends back, and does so again."""

    def __init__(self, load: "Load") -> None:
        self.load, self.buffer, self.asked_at, self.drawn = load, b"", 0.0, b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self.transport = transport
        self.ask(self.load.draw)

    def ask(self, request: bytes) -> None:
        """Send a request, unless time is up."""
        if time.perf_counter() > self.load.until:
            self.transport.close()
            return
        self.asked_at = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Wait for the whole answer, then go on."""
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(re.search(rb"content-length: (\d+)", head)[1])  # pyright: ignore[reportOptionalSubscript]
        if len(body) < length:
            return
        self.buffer = b""
        self.answered(int(head[9:12]), head, body)

    def answered(self, status: int, head: bytes, body: bytes) -> None:
        """The next request, now or when the service says."""
        taken = time.perf_counter() - self.asked_at
        self.asked_at = 0.0
        self.load.answers[status] += 1
        if status >= 400 and (cause := re.search(rb'"cause": "(\w+)"', body)):
            self.load.causes[f"{status} {cause[1].decode()}"] += 1
        wait = re.search(rb"retry-after: (\d+)", head)
        if status in (429, 503):
            self.load.refused_s.append(taken)
            self.load.wrong += wait is None
            later = int(wait[1] if wait else 1) * random.uniform(1, 2)
            asyncio.get_running_loop().call_later(later, self.ask, self.load.draw)
            return
        self.load.served_s.append(taken)
        if status == 200:
            ticket = re.search(rb"blindsight-ticket: (\w+)", head)
            self.ask(self.load.update % (ticket[1] if ticket else b"") + body)
        else:
            is_marked = status == 410 and b'"ticket_used"' in body  # other tickets left all of this one's marks
            self.load.wrong += status != 202 and not is_marked
            self.ask(self.load.draw)

    def connection_lost(self, exc: Exception | None) -> None:
        """Connect again."""
        if time.perf_counter() < self.load.until:
            self.load.cut += self.asked_at > 0
            self.load.again += 1
            asyncio.get_running_loop().call_later(random.uniform(0.1, 1), self.load.connect)


class Load:
    """Some clients for some seconds."""

    def __init__(self, port: int, weights: int, seconds: float) -> None:
        self.port, self.until = port, time.perf_counter() + seconds
        self.answers: Counter[int] = Counter()
        self.causes: Counter[str] = Counter()
        self.served_s: list[float] = []
        self.refused_s: list[float] = []
        self.wrong = self.cut = self.again = 0
        head = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        self.draw = f"GET /v1/models/load/draw HTTP/1.1\r\n{head}\r\n".encode()
        self.update = (
            f"POST /v1/models/load/update HTTP/1.1\r\n{head}Content-Type: application/octet-stream\r\n"
            f"Blindsight-Version: {version(weights)}\r\nContent-Length: {4 * weights}\r\nBlindsight-Ticket: %b\r\n\r\n"
        ).encode()
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self) -> None:
        """One more client."""
        task = asyncio.get_running_loop().create_task(self._connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: Client(self), "127.0.0.1", self.port)
        except OSError:
            self.again += 1
            asyncio.get_running_loop().call_later(1, self.connect)

    async def run(self, clients: int, silent: int) -> dict[str, Any]:
        """All of them until time is up."""
        sockets = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(silent)]
        for number in range(clients):
            self.connect()
            if number % 50 == 49:
                await asyncio.sleep(0.02)
        await asyncio.sleep(self.until - time.perf_counter() + 1)
        for one in sockets:
            one.close()
        return self.found(clients, silent)

    def found(self, clients: int, silent: int) -> dict[str, Any]:
        """What came of it."""

        def tail(values: list[float], share: float) -> float:
            return round(1000 * sorted(values)[int(share * (len(values) - 1))], 1) if values else 0.0

        return {
            "connections": clients,
            "silent": silent,
            "answers": dict(self.answers),
            "causes": dict(self.causes),
            "p50_ms": tail(self.served_s, 0.5),
            "p99_ms": tail(self.served_s, 0.99),
            "worst_ms": tail(self.served_s, 1.0),
            "refused_p99_ms": tail(self.refused_s, 0.99),
            "other_errors": self.wrong,
            "requests_cut": self.cut,
            "connected_again": self.again,
        }


def resident(pid: int) -> float:
    """Mebibytes of a process."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) / 1024


async def soak(port: int, pid: int, weights: int, seconds: float, clients: int) -> dict[str, Any]:
    """All phases, with the service's memory every second."""
    phases: dict[str, Any] = {}
    megabytes: list[float] = []

    async def watch() -> None:
        while True:
            megabytes.append(round(resident(pid), 1))
            await asyncio.sleep(1)

    watching = asyncio.create_task(watch())
    for name, times in PHASES.items():
        silent = LIMIT if name == "crowd" else 0
        used, since = cpu_s(pid), len(megabytes)
        found = await Load(port, weights, seconds).run(clients * times, silent)
        found["cpu_share"] = round((cpu_s(pid) - used) / seconds, 2)
        phase = megabytes[since:]
        found["mebibytes"] = {"middle": phase[len(phase) // 2], "most": max(phase), "end": phase[-1]}
        phases[name] = found
        print(name, json.dumps(found), flush=True)
    watching.cancel()
    return {"weights": weights, "seconds_each": seconds, "phases": phases}


def main() -> None:
    """Soak, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=int, default=387)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--store", choices=["memory", "redis"], default="memory")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    import resource

    import uvloop

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with (
        redis() as address,
        server("memory", asked.weights, address if asked.store == "redis" else "memory", ticket_s=60) as (port, pid),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        found = runner.run(soak(port, pid, asked.weights, asked.seconds, asked.connections))
    write(asked.out, {"soak": found})


if __name__ == "__main__":
    main()
