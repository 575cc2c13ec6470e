"""The cost of the service's own code for a draw and its update: processor time in one process, without sockets.

    python benchmarks/service_steps.py [--weights 387] [--at-once 2 16] [--pairs 20000] [--out RESULTS.json]

`benchmarks/service.py` measures whole servers and wants a quiet machine. Here the bare handler of that benchmark and
the service take turns, a few hundred pairs each, in one process: first called as functions (`handler`), then through
uvicorn's HTTP protocol with connections whose transport only keeps what is written (`protocol`). `--at-once` is how
many of them ask in one turn of the event loop: 16 if they wait for the service, two or so if it waits for them. Other
work on the machine slows both alike, so medians over turns of the difference and of the ratio can be read on a busy one
too. What is missing is the kernel's part, which is the same for both and makes the ratio of whole servers better than
this one. `guard` is what the guard against spam takes for each of so many honest updates, of a draw that is new.
"""

import argparse
import asyncio
import gc
import itertools
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from service import ADMIN, TOKEN, bare, write
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from blindsight.algorithms.draw_and_discard import Task
from blindsight.service import Settings
from blindsight.service.app import Service
from blindsight.service.connections import Connection
from blindsight.service.listeners import Listener, limits_of
from blindsight.service.protocol import decode, encode
from blindsight.service.registry import Registry
from blindsight.service.spam import Guard, recent_draws

TURN = 320  # pairs
DRAW, UPDATE = "/v1/models/load/draw", "/v1/models/load/update"


class Handler:
    """An application, called as a function: what it is sent is made beforehand, what it answers is kept."""

    def __init__(self, app: Any, task: Task, at_once: int) -> None:
        self._app, self._at_once = app, at_once
        self._start: dict[str, Any] = {}
        self._body = b""
        self._token = [(b"host", b"127.0.0.1:8752"), (b"authorization", f"Bearer {TOKEN}".encode())]
        self._about = [
            (b"content-type", b"application/octet-stream"),
            (b"blindsight-version", task.version.encode()),
            (b"content-length", b"%d" % (4 * task.weights)),
        ]

    async def turn(self) -> float:
        """Seconds of processor time for `TURN` pairs."""
        began = time.process_time()
        for number in range(TURN):
            await self._app({"type": "http", "method": "GET", "path": DRAW, "headers": self._token}, None, self._send)
            ticket = (b"blindsight-ticket", dict(self._start["headers"])[b"blindsight-ticket"])
            headers = [*self._token, *self._about, ticket]
            await self._app(
                {"type": "http", "method": "POST", "path": UPDATE, "headers": headers}, self._receive, self._send
            )
            if number % self._at_once == 0:
                await asyncio.sleep(0)  # what was left for the end of the loop's turn
        return time.process_time() - began

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif self._start["status"] == 200:
            self._body = message["body"]


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        """Keep `data`."""
        self.written.append(data)

    def writelines(self, list_of_data: Any) -> None:
        """Keep them."""
        self.written += list_of_data

    def is_closing(self) -> bool:
        """Never."""
        return False

    def pause_reading(self) -> None:
        """Nothing is read."""

    resume_reading = close = pause_reading

    def get_write_buffer_size(self) -> int:
        """Everything is written at once."""
        return 0


class Protocol:
    """An application behind uvicorn's protocol, the service behind its own, on connections without sockets."""

    def __init__(self, app: Any, task: Task, at_once: int) -> None:
        config = uvicorn.Config(app, ws="none", lifespan="off", access_log=False, log_config=None, proxy_headers=False)
        config.load()
        state = ServerState()
        state.default_headers = [(b"date", b"Sun, 15 Nov 2026 12:00:00 GMT")]
        given: dict[str, Any] = {"config": config, "server_state": state, "app_state": {}}
        if isinstance(app, Service):
            listener = Listener(limits_of(app.registry.settings))
            self._all = [Connection({0: listener}, app, **given) for _ in range(at_once)]
        else:
            self._all = [HttpToolsProtocol(**given) for _ in range(at_once)]
        for one in self._all:
            one.connection_made(Transport())
        token = f"Host: 127.0.0.1:8752\r\nAuthorization: Bearer {TOKEN}\r\n"
        self._draw = f"GET {DRAW} HTTP/1.1\r\n{token}\r\n".encode()
        self._update = (
            f"POST {UPDATE} HTTP/1.1\r\n{token}Content-Type: application/octet-stream\r\n"
            f"Blindsight-Version: {task.version}\r\nContent-Length: {4 * task.weights}\r\nBlindsight-Ticket: "
        ).encode()

    async def turn(self) -> float:
        """Seconds of processor time for `TURN` pairs."""
        used = 0.0
        for _ in range(TURN // len(self._all)):
            used += await self._ask([self._draw] * len(self._all))
            used += await self._ask([self._with_ticket(one.transport.written) for one in self._all])  # pyright: ignore
        return used

    async def _ask(self, requests: list[bytes]) -> float:
        for one in self._all:
            one.transport.written.clear()  # pyright: ignore
        began = time.process_time()
        for one, request in zip(self._all, requests, strict=True):
            one.data_received(request)
        while not all(one.transport.written for one in self._all):  # pyright: ignore
            await asyncio.sleep(0)
        return time.process_time() - began

    def _with_ticket(self, written: list[bytes]) -> bytes:
        head, _, body = b"".join(written).partition(b"\r\n\r\n")
        ticket = head.partition(b"blindsight-ticket: ")[2][:64]
        return self._update + ticket + b"\r\n\r\n" + body


def guard_us(task: Task, at_once: int, batches: int = 400) -> float:
    """Median processor time of the guard for one update of a batch, once it knows its directions."""
    guard, random, taken = Guard(task), np.random.default_rng(0), list[float]()
    recent = [encode(random.normal(0, task.scale, task.weights)) for _ in range(recent_draws(task.weights))]
    for number in range(batches):
        drawn = decode(recent[(number - 1) % len(recent)])
        recent[number % len(recent)] = shown = encode(drawn + random.normal(0, task.scale / 4, task.weights))
        updates = [encode(decode(shown) + random.laplace(0, task.scale, task.weights)) for _ in range(at_once)]
        began = time.process_time()
        for first in range(0, at_once, guard.at_once):
            guard.measure(updates[first : first + guard.at_once], recent, shown)
        taken.append(time.process_time() - began)
    return 1e6 / at_once * statistics.median(taken[batches // 4 :])


async def measure(weights: int, pairs: int, at_once: int) -> dict[str, Any]:
    """Both ways of asking, both applications by turns."""
    task = Task(model="load", family="custom", weights=weights, unit="feature", epsilon=1.0)
    with tempfile.TemporaryDirectory() as folder:
        task_file, tokens = Path(folder) / "load.json", Path(folder) / "tokens.toml"
        task_file.write_text(json.dumps(task.to_dict()), encoding="utf-8")
        tokens.write_text(f'admin = ["{ADMIN}"]\n[models]\nload = ["{TOKEN}"]\n', encoding="utf-8")
        registry = Registry(Settings(port=0, data=None, tasks=(task_file,), tokens=tokens, rate_per_s=0.0))
        await registry.open()
    service = Service(registry)
    gc.freeze()
    found: dict[str, Any] = {"weights": weights, "at_once": at_once}
    for asked in (Handler, Protocol):
        both = asked(bare(weights), task, at_once), asked(service, task, at_once)
        turns = [[1e6 / TURN * await one.turn() for one in both] for _ in range(pairs // TURN + 3)][3:]
        found[asked.__name__.lower()] = {
            "bare_us": statistics.median(one for one, _ in turns),
            "memory_us": statistics.median(other for _, other in turns),
            "more_us": statistics.median(other - one for one, other in turns),
            "memory_to_bare": statistics.median(one / other for one, other in turns),
        }
    pool = registry.pools["load"]
    found["guard_us"] = guard_us(task, at_once)
    found |= {"taken": pool.taken, "spam": pool.spam, "replayed": pool.replays}
    await registry.close()
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=int, nargs="+", default=[387])
    parser.add_argument("--at-once", type=int, nargs="+", default=[2, 16])
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    loop: Any = None
    try:
        import uvloop

        loop = uvloop.new_event_loop
    except ImportError:
        print("without uvloop")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; microseconds of processor time for a pair")
    print("weights  at once             bare    memory   more   ratio")
    results: list[dict[str, Any]] = []
    for weights, at_once in itertools.product(asked.weights, asked.at_once):
        with asyncio.Runner(loop_factory=loop) as runner, threadpool_limits(1, user_api="blas"):  # as `serve` does
            results.append(runner.run(measure(weights, asked.pairs, at_once)))
        for name in ("handler", "protocol"):
            row = results[-1][name]
            print(f"{weights:7,} {at_once:8} {name:9}", end="")
            print(f" {row['bare_us']:7.1f} {row['memory_us']:9.1f} {row['more_us']:6.1f}", end="")
            print(f"   {row['memory_to_bare']:.3f}", flush=True)
        print(f"{weights:7,} {at_once:8} guard     {results[-1]['guard_us']:17.1f}", flush=True)
    write(asked.out, {"results": results})


if __name__ == "__main__":
    main()
