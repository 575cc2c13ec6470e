"""The client for browsers and Node, tested where it runs."""

import json
import re
import subprocess
from pathlib import Path

from waiting import HANG_S

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "js"


def run_node(node: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([node, *words], capture_output=True, text=True, cwd=CLIENT, timeout=HANG_S, check=False)


def test_its_own_tests_pass(node):
    run = run_node(node, "--test")
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    passed = re.search(r"^\S pass (\d+)$", run.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) > 60


def test_it_depends_on_nothing():
    package = json.loads((CLIENT / "package.json").read_text())
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & set(package)
    for path in sorted((CLIENT / "src").glob("*.js")):
        for origin in re.findall(r"""(?:from|import\()\s*"([^"]+)""", path.read_text(encoding="utf-8")):
            assert origin.startswith(("./", "node:", "../index.d.ts")), f"{path.name} imports {origin}"
            assert not origin.startswith("node:") or path.name == "node.js" or origin == "node:crypto", path.name


def test_what_is_exported_has_a_type():
    exported = re.findall(
        r"[\w]+", " ".join(re.findall(r"export \{([^}]*)\}", (CLIENT / "src" / "index.js").read_text()))
    )
    types = (CLIENT / "index.d.ts").read_text()
    assert exported
    assert [name for name in exported if not re.search(rf"export (?:function|class) {name}\b", types)] == []


def test_the_public_face_loads_in_node(node):
    run = run_node(
        node,
        "--input-type=module",
        "-e",
        "import * as face from './src/index.js'; console.log(Object.keys(face).join())",
    )
    assert run.stdout.split(",")[:2] == ["BlindsightError", "Budget"], run.stderr
