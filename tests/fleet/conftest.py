"""A process in which the fault tests of a site run their commands; see `site_child.py`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import blindsight

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def run_child() -> Generator[Callable[..., Any]]:
    """A function that runs a command of `site_child.py` and returns what it printed."""
    paths = [str(Path(next(iter(blindsight.__path__))).parent), str(HERE.parent / "support")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OPENBLAS_NUM_THREADS": "1",  # threads do not survive a fork
        "OMP_NUM_THREADS": "1",
    }
    call, pipe = [sys.executable, str(HERE / "site_child.py")], subprocess.PIPE
    with subprocess.Popen(call, env=environment, stdin=pipe, stdout=pipe, text=True) as process:

        def run(command: str, **arguments: Any) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([command, arguments]) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert "failed" not in answer, answer["failed"]
            return answer

        yield run
        process.kill()
