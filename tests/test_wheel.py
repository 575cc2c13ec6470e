"""The wheel, in an environment of its own with what it declares and nothing else, does what the README says."""

import importlib.metadata
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def built(folder: Path) -> Path:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def closure(requirements: list[str]) -> set[str]:
    """The distributions that these requirements need, without extras that nobody asks for."""
    found, pending = set[str](), [Requirement(one) for one in requirements]
    while pending:
        wanted = pending.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if name not in found:
            found.add(name)
            inner = importlib.metadata.distribution(name).requires or []
            pending += [one for one in map(Requirement, inner) if _applies(one, wanted.extras)]
    return found


def _applies(one: Requirement, extras: set[str]) -> bool:
    return one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def linked(names: set[str], site: Path) -> None:
    """The installed distributions in another environment, as links."""
    for name in names:
        distribution = importlib.metadata.distribution(name)
        tops = {Path(str(file)).parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
        for top in tops:
            source = Path(str(distribution.locate_file(top)))
            if source.exists() and not (site / top).exists():
                (site / top).symlink_to(source)


def test_the_wheel_has_templates_examples_and_clients(tmp_path):
    with zipfile.ZipFile(built(tmp_path)) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    for name in ("pages/templates/card.html", "example_files/quick.toml", "service/page/client/index.js"):
        assert f"blindsight/{name}" in names
    assert {Path(name).name for name in names if name.endswith(".ipynb")} == {
        path.name for path in ROOT.glob("examples/notebooks/*.ipynb")
    }
    for url in re.findall(r"\]\(([^)]+)\)", metadata):
        assert url.startswith("https://"), url  # links and images work wherever the text is shown


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_wheel_in_an_empty_environment_runs_its_commands_and_the_demo(tmp_path):
    wheel = built(tmp_path / "dist")
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    declared = importlib.metadata.PathDistribution(next(site.glob("*.dist-info"))).requires or []
    linked(closure([one for one in declared if "extra ==" not in one]), site)
    python = str(tmp_path / "env" / "bin" / "python")
    ours = ("PYTHONPATH", "BLINDSIGHT_", "JAX_", "XLA_")  # what tests set: code is compiled as users have it
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}

    def blindsight(*words: str) -> str:
        done = subprocess.run(
            [python, "-I", "-m", "blindsight", *words],
            cwd=tmp_path,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    assert blindsight("--version").startswith("blindsight ")
    assert "quick.toml" in blindsight("init")
    assert "finished" in blindsight("train", "examples/quick.toml")
    assert blindsight("export", "runs/quick", "quick.onnx").startswith("quick.onnx: logistic")
    assert "invert" in blindsight("demo", "--folder", "runs")
    absent = [python, "-I", "-c", "import onnxruntime"]
    assert subprocess.run(absent, capture_output=True, check=False).returncode == 1  # nothing that is not declared
