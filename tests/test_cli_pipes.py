"""Commands that print and then serve, read through a pipe as other programs read them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]

# By hand: no variable may help, and tests run where PYTHONUNBUFFERED is set as well as where it is not.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def label(spawn: Start, folder: Path, *words: str) -> Any:
    command = (sys.executable, "-m", "blindsight", "label", str(folder), "--rater", "anna", *words)
    return spawn(*command, stdout=subprocess.PIPE, env=BUFFERED)


def serve(spawn: Start, folder: Path, *words: str) -> Any:
    command = (sys.executable, "-m", "blindsight", "serve", "--port", "0", *words)
    everything: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return spawn(*command, cwd=folder, env=BUFFERED | {"BLINDSIGHT_DATA": str(folder)}, **everything)


def line_with(process: Any, words: str) -> str:
    """The first line that has these words; the process goes on."""
    for line in process.stdout:
        if words in line:
            assert process.poll() is None
            return line
    raise AssertionError(f"it ended without {words!r}")


def test_label_says_where_it_is_as_json(spawn, make_set):
    process = label(spawn, make_set().folder, "--json")
    lines = ""
    while not lines.endswith("\n}\n"):
        lines += process.stdout.readline()
        assert process.poll() is None
    assert json.loads(lines)["address"].startswith("http://127.0.0.1:")


def test_label_says_where_it_is(spawn, make_set):
    assert "http://127.0.0.1:" in line_with(label(spawn, make_set().folder), "Label 12 synthetic examples")


@pytest.mark.parametrize(("words", "said"), [((), "listening at"), (("--demo",), "Train it yourself")])
def test_the_service_says_where_it_is(spawn, tmp_path, words, said):
    assert "http://127.0.0.1:" in line_with(serve(spawn, tmp_path, *words), said)


def test_a_process_that_a_failing_test_leaves_is_ended(children):
    left = list[Any]()

    def failing() -> None:
        with children() as start:
            left.append(start(sys.executable, "-c", "import time; time.sleep(600)", stdout=subprocess.PIPE))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert left[0].returncode is not None
    assert left[0].stdout.closed
