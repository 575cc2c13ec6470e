"""The cost of the service compared with a bare handler that moves the same bytes, in memory and with Redis.

    python benchmarks/service.py [--seconds 2] [--rounds 9] [--weights 387 5000 50000] [--out RESULTS.json]
    python benchmarks/service.py --growth 600 [--weights 387] [--out RESULTS.json]

Three servers on the same stack (uvicorn, httptools, uvloop), asked in turn by the same load generator: a raw ASGI
handler that hands out bytes and keeps what it is sent; the service with its memory store; the service with a Redis. All
on this machine, so the rates say little by themselves: read ratios within one run, and CPU time per pair. One pair is a
draw and its update. The generator is wrk (Debian's) with a script that gives back each ticket with the weights it drew;
so every check is made on every update, and all are inside the window. With --growth the memory store is under load for
that many seconds, and its resident memory is recorded; tickets then live for a minute, so that the marks of used ones
(4 MiB for each minute of their life) are all there from the third minute on.
"""

import argparse
import contextlib
import gc
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

TOKEN = "a token that is only for benchmarks"
ADMIN = "an admin token that is only for benchmarks"
SCRIPT = """
local tickets, bodies, waiting = {}, {}, 0
local draw = wrk.format("GET", "/v1/models/load/draw", {["Authorization"] = "Bearer TOKEN"})
function request()
  if waiting == 0 then return draw end
  local ticket, body = tickets[waiting], bodies[waiting]
  waiting = waiting - 1
  return wrk.format("POST", "/v1/models/load/update", {
    ["Authorization"] = "Bearer TOKEN", ["Content-Type"] = "application/octet-stream",
    ["Blindsight-Ticket"] = ticket, ["Blindsight-Version"] = "VERSION"}, body)
end
function response(status, headers, body)
  if status == 200 then
    waiting = waiting + 1
    tickets[waiting], bodies[waiting] = headers["blindsight-ticket"], body
  end
end
"""


def bare(weights: int) -> Any:
    """The least that moves the same bytes: one of 20 bodies out, one in its place, no checks at all.

    Not handicapped: uvicorn is set up for it as the service sets it up for itself (`run_server`), it looks at nothing
    but the method, its headers are made once, and it takes instances by turns without any randomness. Not gilded: it
    sends the same headers of the same lengths, reads the body to its end in as many parts as it comes, keeps what it
    was sent (so that the next draw moves those bytes, cold as they are), and answers through the same two messages.
    """
    instances = [bytes(4 * weights)] * 20
    drawn = [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % (4 * weights)),
        (b"cache-control", b"no-store"),
        (b"blindsight-version", b"0" * 16),
        (b"blindsight-ticket", b"0" * 64),
    ]
    noted = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    turn = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal turn
        turn = (turn + 1) % 20
        if scope["method"] == "GET":
            await send({"type": "http.response.start", "status": 200, "headers": drawn})
            await send({"type": "http.response.body", "body": instances[turn]})
            return
        message = await receive()
        parts = [message["body"]]
        while message.get("more_body"):
            message = await receive()
            parts.append(message["body"])
        instances[turn] = b"".join(parts)
        await send({"type": "http.response.start", "status": 202, "headers": noted})
        await send({"type": "http.response.body", "body": b"{}"})

    return app


def run_server(kind: str, weights: int, port: int, store: str, folder: Path, ticket_s: float) -> None:
    """Be one of the three servers until told to stop."""
    if kind == "bare":
        import uvicorn

        gc.freeze()
        uvicorn.run(  # as `blindsight.service.run` does
            bare(weights),
            port=port,
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="critical",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=4096,
            backlog=2048,
        )
        return
    from blindsight.algorithms.draw_and_discard import Task
    from blindsight.service import Settings, serve

    task = Task(model="load", family="custom", weights=weights, unit="feature", epsilon=1.0)
    (folder / "load.json").write_text(json.dumps(task.to_dict()))
    (folder / "tokens.toml").write_text(f'admin = ["{ADMIN}"]\n[models]\nload = ["{TOKEN}"]\n')
    serve(
        Settings(
            port=port,
            data=folder / "kept",
            store=store,
            tasks=(folder / "load.json",),
            tokens=folder / "tokens.toml",
            rate_per_s=0,
            ticket_s=ticket_s,
        )
    )


def version(weights: int) -> str:
    """The version of the task that the servers have."""
    from blindsight.algorithms.draw_and_discard import Task

    return Task(model="load", family="custom", weights=weights, unit="feature", epsilon=1.0).version


def free_port() -> int:
    """A port that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextlib.contextmanager
def started(words: list[str], port: int) -> Generator[int]:
    """A process that listens at `port`; its id."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.05)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@contextlib.contextmanager
def server(kind: str, weights: int, store: str = "memory", ticket_s: float = 600) -> Generator[tuple[int, int]]:
    """One of the three servers in a process of its own: its port and id."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--be", kind, "--port", str(port), "--store", store, "--folder", folder]
        words += ["--ticket", str(ticket_s), "--weights", str(weights)]
        with started(words, port) as pid:
            yield port, pid


@contextlib.contextmanager
def redis() -> Generator[str]:
    """A Redis of our own."""
    port = free_port()
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with started(words, port):
        yield f"redis://127.0.0.1:{port}/0"


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(port: int, pid: int, weights: int, seconds: float, connections: int) -> dict[str, float]:
    """Pairs per second, and the server's CPU time for each."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT.replace("TOKEN", TOKEN).replace("VERSION", version(weights)))
        script.flush()
        before = cpu_s(pid)
        words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", script.name, f"http://127.0.0.1:{port}"]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        used = cpu_s(pid) - before
    found, refused = re.search(r"(\d+) requests in ([\d.]+)(m?s|m)", said), re.search(r"Non-2xx.*: (\d+)", said)
    # Redis refuses one ticket in hundreds at the end of a minute, because others have left all of its marks
    if found is None or "Socket errors" in said or (refused and int(refused[1]) > int(found[1]) / 300):
        raise RuntimeError(said)
    length = float(found[2]) * {"s": 1, "ms": 0.001, "m": 60}[found[3]]
    pairs = int(found[1]) / 2
    return {"pairs_per_s": pairs / length, "cpu_us": 1e6 * used / pairs}


def measure(weights: int, seconds: float, rounds: int, connections: int) -> dict[str, Any]:
    """All three servers in turn, `rounds` times: medians, and medians of the ratios within each round."""
    found: dict[str, list[dict[str, float]]] = {"bare": [], "memory": [], "redis": []}
    with (
        redis() as address,
        server("bare", weights) as plain,
        server("memory", weights) as memory,
        server("redis", weights, address) as shared,
    ):
        for number in range(rounds + 1):
            for name, (port, pid) in (("bare", plain), ("memory", memory), ("redis", shared)):
                once = load(port, pid, weights, seconds if number else 1, connections)
                if number:  # the first is to warm up
                    found[name].append(once)
        metrics = Request(f"http://127.0.0.1:{memory[0]}/metrics", headers={"Authorization": f"Bearer {ADMIN}"})
        with urlopen(metrics) as answer:
            counted = dict(re.findall(r'outcome="(\w+)"} (\d+)', answer.read().decode()))
    medians = {
        name: {key: statistics.median(once[key] for once in runs) for key in runs[0]} for name, runs in found.items()
    }

    def ratio(one: str, other: str, key: str) -> float:
        return statistics.median(a[key] / b[key] for a, b in zip(found[one], found[other], strict=True))

    return {
        "weights": weights,
        **medians,
        "memory_to_bare": ratio("memory", "bare", "pairs_per_s"),
        "redis_to_memory": ratio("redis", "memory", "pairs_per_s"),
        "memory_to_bare_by_cpu": ratio("bare", "memory", "cpu_us"),
        "redis_to_memory_by_cpu": ratio("memory", "redis", "cpu_us"),
        "taken": int(counted["taken"]),
        "spam": int(counted["spam"]),
    }


def watch_memory(weights: int, seconds: float, connections: int) -> dict[str, Any]:
    """Resident memory of the service under load, every ten seconds."""
    megabytes: list[float] = []
    with server("memory", weights, ticket_s=60) as (port, pid):
        pairs = 0.0
        while len(megabytes) * 10 < seconds:
            once = load(port, pid, weights, 10, connections)
            pairs += 10 * once["pairs_per_s"]
            status = Path(f"/proc/{pid}/status").read_text()
            megabytes.append(int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024)
            print(f"{len(megabytes) * 10:5} s   {megabytes[-1]:7.1f} MiB   {pairs:12,.0f} pairs", flush=True)
    third = len(megabytes) // 3
    early, late = statistics.median(megabytes[third : 2 * third]), statistics.median(megabytes[-third:])
    return {
        "weights": weights,
        "pairs": round(pairs),
        "mebibytes": megabytes,
        "middle_third": early,
        "last_third": late,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=int, nargs="+", default=[387, 5000, 50000])
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--growth", type=float, metavar="SECONDS")
    parser.add_argument("--ticket", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--be", choices=["bare", "memory", "redis"], help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.be:
        run_server(asked.be, asked.weights[0], asked.port, asked.store, asked.folder, asked.ticket)
        return
    for program in ("wrk", "redis-server"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is needed: apt-get install {program}")
    if asked.growth:
        found = watch_memory(asked.weights[0], asked.growth, asked.connections)
        write(asked.out, {"growth": found})
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("pairs per second, and the ratio: of rates | of the server's CPU time per pair")
    print("weights   bare        memory (of bare)             redis (of memory)")
    results: list[dict[str, Any]] = []
    for weights in asked.weights:
        row = measure(weights, asked.seconds, asked.rounds, asked.connections)
        results.append(row)
        rates = {name: row[name]["pairs_per_s"] for name in ("bare", "memory", "redis")}
        print(
            f"{weights:7,}   {rates['bare']:6,.0f}      "
            f"{rates['memory']:6,.0f} ({row['memory_to_bare']:.2f} | {row['memory_to_bare_by_cpu']:.2f})         "
            f"{rates['redis']:6,.0f} ({row['redis_to_memory']:.2f} | {row['redis_to_memory_by_cpu']:.2f})",
            flush=True,
        )
    write(asked.out, {"results": results})


def write(path: Path | None, results: dict[str, Any]) -> None:
    """The results with how they came about, if they are wanted."""
    if path:
        about = {"command": " ".join(["python", *sys.argv]), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        path.write_text(json.dumps(about | results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
