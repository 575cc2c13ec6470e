"""What every test gets: strict JAX, a ledger of its own, a home that is not yours.

All of it goes through the environment, so that nothing here imports JAX and subprocesses inherit it.

Nearly all of what a test pays for is compiling programs that run once, so JAX compiles without optimising. What XLA
makes of a program then differs in the last bits from what users get; `make test-all` compiles as users do.
"""

import atexit
import contextlib
import ctypes
import gc
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from importlib import metadata
from pathlib import Path
from typing import Any

import lighter
import pytest
from browser import CHROMIUM, Browser
from hypothesis import settings
from progress import LeftOut, Progress
from waiting import HANG_S, until

_scratch = tempfile.TemporaryDirectory(prefix="blindsight-tests-")
atexit.register(_scratch.cleanup)
os.environ |= {
    "BLINDSIGHT_LEDGER": str(Path(_scratch.name, "ledger.db")),  # for the doctests under src/
    "HOME": _scratch.name,
    "XDG_CACHE_HOME": _scratch.name,
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "MALLOC_ARENA_MAX": "2",  # for workers and other processes that begin from here
}
is_plain = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") != "0"
if is_plain and metadata.version("jaxlib").startswith("0.10."):  # a newer one ends at a flag that it does not know
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    # One core each: a pool of threads for every core in every worker spends a fifth of its time waiting.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

gc.set_threshold(100_000, 20, 20)  # tracing leaves many objects that live on: scanning them takes 4 % of all time

settings.register_profile("steady", deadline=None, derandomize=True, print_blob=True, max_examples=25)
settings.register_profile("thorough", deadline=None, print_blob=True)
settings.load_profile("steady")

_MOST_WORKERS = 4
_MUCH_BYTES = 1.0e9  # held by a worker after a module
_MORE_BYTES = 0.15e9  # since what was compiled went last; much of the rest stays whatever is done
_WORKER_BYTES = 2.5e9  # what a worker may take, and something for what it starts


@pytest.hookimpl(trylast=True)  # once there is a terminal to write to
def pytest_configure(config: pytest.Config) -> None:
    """One line of progress for a person who runs everything; pytest's own report for one who asks about a test."""
    if config.option.verbose <= -2:
        config.pluginmanager.register(LeftOut(config) if hasattr(config, "workerinput") else Progress(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """As many workers as there are cores and as memory has room for; each imports everything, so more gain little."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _MOST_WORKERS, int(_free_bytes() / _WORKER_BYTES)))


def _free_bytes() -> float:
    """What the machine has free, and no more than this container may take."""
    free = math.inf
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024.0 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    with contextlib.suppress(OSError, ValueError):  # "max" is no number
        free = min(free, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    return free


def _resident_bytes() -> float:
    """What this process holds; without end where nobody can say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError):
        return math.inf


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: a collection of garbage that passes them over costs a tenth."""
    gc.collect()
    gc.freeze()


class _Memory:
    """What this process held when compiled code went last."""

    left = 0.0


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code() -> Generator[None]:
    """What modules compiled goes when it is much: thousands of programs fill memory and the kernel's table of maps."""
    yield
    is_much = _resident_bytes() > max(_MUCH_BYTES, _Memory.left + _MORE_BYTES)
    if is_much and (jax := sys.modules.get("jax")) is not None:
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # glibc gives back what is free only when asked to
            ctypes.CDLL(None).malloc_trim(0)
        left = _resident_bytes()
        _Memory.left = left if math.isfinite(left) else 0.0


@pytest.fixture(autouse=True)
def ledger_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of this test's own ledger, which is also the default one while the test runs."""
    path = tmp_path / "ledger.db"
    monkeypatch.setenv("BLINDSIGHT_LEDGER", str(path))
    return path


def _runs() -> set[Path]:
    """What is in the checkout's own folder of runs."""
    folder = Path(__file__).resolve().parents[1] / "runs"
    return {*folder.iterdir()} if folder.is_dir() else set[Path]()


@pytest.fixture(autouse=True)
def no_run_is_left_in_the_checkout() -> Generator[None]:
    """A test that asks without `out` asks in a folder of its own. With several workers another test may be blamed."""
    before = _runs()
    yield
    assert not _runs() - before, "a run was left in the checkout: use out=, --out, or monkeypatch.chdir(tmp_path)"


@contextlib.contextmanager
def _children() -> Generator[Callable[..., Any]]:
    """A function that starts processes; all are killed, waited for and their pipes closed at the end."""
    with contextlib.ExitStack() as stack:

        def start(*words: str, **options: Any) -> subprocess.Popen[str]:
            process = stack.enter_context(subprocess.Popen(words, text=True, **options))
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def children() -> Callable[..., Any]:
    """A context that starts processes and ends them."""
    return _children


@pytest.fixture
def spawn() -> Generator[Callable[..., Any]]:
    """Starts processes that end with the test, whether it passes or fails."""
    with _children() as start:
        yield start


@pytest.fixture(scope="module")
def spawn_for_module() -> Generator[Callable[..., Any]]:
    """Starts processes that end with the module's last test."""
    with _children() as start:
        yield start


@pytest.fixture(name="optimised")
def _optimised() -> Generator[None]:
    with lighter.optimised():
        yield


@pytest.fixture(name="few_steps")
def _few_steps() -> Generator[None]:
    with lighter.few_steps():
        yield


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Generator[Any]:
    """One page of a headless Chromium; see `tests/support/browser.py`."""
    if CHROMIUM is None:
        pytest.skip("need chromium: apt-get install chromium")
    one = Browser(tmp_path_factory.mktemp("chromium"))
    yield one
    one.close()


@pytest.fixture
def artefacts(tmp_path: Path) -> Path:
    """Where screenshots go: $BLINDSIGHT_ARTEFACTS, or nowhere that lasts."""
    folder = Path(os.environ.get("BLINDSIGHT_ARTEFACTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def make_set(tmp_path: Path) -> Callable[..., Any]:
    """A function that writes a synthetic set of any kind, without any generator, and reads it again."""
    import numpy as np

    from blindsight.accounting.guarantee import Guarantee
    from blindsight.samples.export import save_set
    from blindsight.samples.synthetic_set import BY_GENERATOR, read_set
    from blindsight.samples.views import ArmView

    promise = Guarantee(epsilon=2.0, delta=1e-6, accountant="PLD", participation="full: all 300", releases=1)

    def make(
        kind: str = "images",
        count: int = 12,
        classes: tuple[str, ...] = ("cat", "dog", "owl"),
        proposed: bool = True,
        folder: Path | None = None,
        seed: int = 0,
    ) -> Any:
        dice = np.random.default_rng(seed)
        rows = {"age": dice.integers(20, 90, count), "work": dice.integers(0, 2, count), "pay": dice.normal(size=count)}
        given: dict[str, Any] = {
            "images": {"samples": dice.integers(0, 256, (count, 8, 8), np.uint8)},
            "rows": {"rows": rows},
            "text": {"rows": {"text": np.array([f"line {number}\nand <b>more</b>" for number in range(count)])}},
        }[kind]
        labels = np.arange(count) % len(classes) if classes else None
        guessed = {"pred": (np.arange(count) + 1) % max(len(classes), 1), "score": np.linspace(0.5, 1.0, count)}
        save_set(
            [ArmView("everyone", labels=labels, **given)],
            folder or tmp_path / "set",
            title="Pets to label",
            guarantee=promise,
            classes=classes,
            extra=guessed if proposed else {},
            facts={"proposer": "a model" if proposed else BY_GENERATOR, "names": {"work": ["office", "field"]}},
        )
        return read_set(folder or tmp_path / "set")

    return make


class RedisServer:
    """A real Redis of the tests' own, on a free port of this machine, that keeps nothing on disk."""

    def __init__(self, *options: str, config: Path | None = None, program: str = "redis-server") -> None:
        self._options = options
        self._words = [program, *([str(config)] if config else [])]  # a sentinel writes to its configuration
        for _ in range(20):  # Redis takes no port of the system's choice, and somebody may be quicker
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            self.address = f"redis://127.0.0.1:{self.port}/0"
            if self.start():
                return
        raise OSError("redis-server does not start")

    def start(self) -> bool:
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *self._options]
        self.process = subprocess.Popen([*self._words, *words], stdout=subprocess.DEVNULL, cwd=_scratch.name)
        until(lambda: self._answers() or self.process.poll() is not None)
        return self.process.poll() is None

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), HANG_S):
            return True
        return False

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def redis_server() -> Generator[RedisServer]:
    """A Redis that the test may stop and start."""
    if shutil.which("redis-server") is None:
        pytest.skip("need redis-server: apt-get install redis-server")
    server = RedisServer()
    yield server
    server.stop()


@pytest.fixture
def append_only_redis() -> Generator[RedisServer]:
    """A Redis with an append-only file."""
    if shutil.which("redis-server") is None:
        pytest.skip("need redis-server: apt-get install redis-server")
    server = RedisServer("--appendonly", "yes")
    yield server
    server.stop()
