"""Environments for the contestants of `simulation.py`, and one run of a contestant as a monitored process."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
SAMPLE_S = 0.2

QUIET_AND_COLD = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "JAX_ENABLE_COMPILATION_CACHE": "false",  # or only the first start-up would compile
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # or JAX takes most of a GPU whatever it needs
}
WITHOUT_GPU = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


class Failure(Exception):
    """A contestant that could not run, and why, in one line."""


def environment(peer: str) -> Path:
    """The interpreter of the contestant's own virtual environment, made from its requirements if need be."""
    folder, wanted = HERE / ".envs" / peer, (HERE / "peers" / f"{peer}.txt").read_text()
    python, ready = folder / "bin" / "python", folder / "ready.txt"
    if not ready.exists() or ready.read_text() != wanted:
        say(f"{peer}: making its environment, once")
        for command in (
            [sys.executable, "-m", "venv", "--clear", folder],
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", HERE / "peers" / f"{peer}.txt"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Failure(f"its environment cannot be made: {reason(done.stderr)}")
        ready.write_text(wanted)
    return python


def start(python: Path, module: str, arguments: list[str], *, gpu: bool, timeout_s: float) -> dict[str, Any]:
    """What the contestant reports of one run, and the most memory that it and its children held."""
    began = time.time()
    before = gpu_memory_mib() if gpu else 0.0
    peak = peak_gpu = 0.0
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        command = [python, "-m", module, *arguments, "--began", str(began)]
        process = subprocess.Popen(
            command, cwd=HERE, env=surroundings(gpu), stdout=out, stderr=errors, start_new_session=True
        )
        try:
            while process.poll() is None:
                peak = max(peak, memory_mib(process.pid))
                peak_gpu = max(peak_gpu, gpu_memory_mib() - before) if gpu else 0.0
                if time.time() - began > timeout_s:
                    raise Failure(f"not done after {timeout_s:.0f} s")
                time.sleep(SAMPLE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # it, or what it left behind
        out.seek(0)
        errors.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith('{"peer"')]
        if process.returncode or not lines:
            raise Failure(reason(errors.read()))
    return json.loads(lines[-1]) | {"peak_memory_mib": peak, "peak_gpu_memory_mib": peak_gpu if gpu else None}


def surroundings(gpu: bool) -> dict[str, str]:
    """The environment variables of every contestant; paths to packages hold from any folder."""
    paths = [str(Path(path).absolute()) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.environ | QUIET_AND_COLD | ({} if gpu else WITHOUT_GPU) | {"PYTHONPATH": os.pathsep.join(paths)}


def memory_mib(root: int) -> float:
    """The resident memory of a process and all below it; what they may share is counted once. 0 without /proc."""
    own = shared = 0.0
    for pid in family(root):
        with contextlib.suppress(OSError):
            _, resident, common, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
            own, shared = own + (resident - common) * PAGE_MIB, max(shared, common * PAGE_MIB)
    return own + shared


def family(root: int) -> Iterator[int]:
    """A process and its descendants."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        yield parent
        waiting.extend(pid for pid, above in parents.items() if above == parent)


def gpu_memory_mib() -> float:
    """The memory in use on the first GPU, by anyone."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, IndexError):
        return float(subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()[0])
    return 0.0


def reason(errors: str) -> str:
    """The line that best says what went wrong."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line.partition(":")[0] or line.startswith("ERROR")]
    return (telling or lines or ["no word of why"])[-1][:200]


def say(text: str) -> None:
    """Progress, out of the way of the results."""
    print(text, file=sys.stderr, flush=True)
