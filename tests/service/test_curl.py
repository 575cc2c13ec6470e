"""The examples with curl in docs/service.md, against a real service."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "service.md"
ADMIN, CLIENT = "the administrator of the tests", "the clients of the tests"


def test_the_examples_work_as_written(talk, tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    (script,) = re.findall(r"^```sh\n(service=.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    words = {"SERVICE": talk.address, "MODEL_TOKEN": CLIENT, "ADMIN_TOKEN": ADMIN}
    run = ["bash", "-e", "-c", script.replace("curl -s ", "curl -sf ")]
    done = subprocess.run(run, env=os.environ | words, cwd=tmp_path, capture_output=True, text=True, check=True)
    task, noted, statistics = _values(done.stdout)
    assert task["model"] == "phishing"
    assert noted == {}
    assert (statistics["draws"], statistics["taken"]) == (1, 1)
    assert (tmp_path / "drawn").stat().st_size == 12
    assert b"blindsight" in (tmp_path / "phishing.onnx").read_bytes()


def _values(text: str) -> list[dict]:
    """The JSON objects in a text, one after the other."""
    found, decoder, at = [], json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found
