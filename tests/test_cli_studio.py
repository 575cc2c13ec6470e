"""`blindsight studio` as somebody would start it: a line with the address, no JAX, and refusals in one sentence."""

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from command import run
from studio_runs import training

STARTS = """
import sys
from pathlib import Path
from blindsight.studio import serving
from blindsight.studio.web import Workspace
with serving.serving_studio(Workspace(folder=Path("runs"))) as address:
    print(address)
late = {"jax", "jaxlib", "scipy", "pyarrow", "dp_accounting", "sklearn"} & set(sys.modules)
"""


def said(process: Any) -> dict[str, Any]:
    lines = list[str]()
    while not lines or lines[-1] != "}\n":
        lines.append(process.stdout.readline())
        assert lines[-1]
    return json.loads("".join(lines))


def test_it_prints_its_address_to_a_pipe_and_answers(tmp_path: Path, spawn: Any):
    training(tmp_path / "runs", "one")
    words = ["studio", str(tmp_path / "runs"), "--no-open", "--json"]
    process = spawn(sys.executable, "-m", "blindsight", *words, stdout=subprocess.PIPE)
    facts = said(process)
    assert (facts["folder"], facts["writable"]) == (str(tmp_path / "runs"), False)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    assert opener.open(facts["address"]).status == 200
    origin = facts["address"].partition("/?")[0]
    assert "one" in opener.open(f"{origin}/runs").read().decode()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(facts["address"])  # by anybody else


def test_it_starts_without_anything_that_takes_long():
    words = [sys.executable, "-c", STARTS + "assert not late, late"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("http://127.0.0.1:")


def test_bad_requests_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, refusal in [
            (["studio", str(tmp_path / "file")], "is not a folder of runs"),
            (["studio", str(tmp_path / "nowhere")], "there is no folder"),
            (["studio", "--fleet", str(tmp_path)], "it has no fleet.toml"),
            (["studio", str(tmp_path), "--port", port], f"port {port} (Address already in use)"),
        ]:
            done = run(*words, "--no-open")
            assert done.returncode == 2
            assert refusal in " ".join(done.stderr.split())
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for module in ("serving", "sockets"):
        monkeypatch.delitem(sys.modules, f"blindsight.studio.{module}", raising=False)
    assert "pip install 'blindsight[studio]'" in run("studio", str(tmp_path), "--no-open").stderr
