"""`blindsight init`: the examples, as they come with the package, and nothing overwritten."""

import json
from pathlib import Path

import pytest
from command import run

from blindsight import config

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_examples_are_written_and_can_be_read():
    done = run("init", "--json")
    written = [Path(path) for path in json.loads(done.stdout)["files"]]
    assert {path.name for path in written} >= {"quick.toml", "keyboard.toml", "RUN.schema.json"}
    packaged = [*ROOT.glob("examples/*.toml"), *ROOT.glob("examples/notebooks/*.ipynb")]
    assert {path.name for path in packaged} == {path.name for path in written} - {"RUN.schema.json"}
    for path in Path("examples").glob("*.toml"):
        assert config.load(path) == config.load(ROOT / "examples" / path.name)
        assert path.read_text().startswith("#:schema ./RUN.schema.json\n")
    for path in Path("examples").glob("notebooks/*.ipynb"):
        assert json.loads(path.read_text())["nbformat"] == 4


def test_a_file_of_ones_own_is_not_overwritten():
    assert run("init").returncode == 0
    assert run("init").returncode == 0  # the same again
    Path("examples/quick.toml").write_text("mine")
    Path("examples/keyboard.toml").unlink()
    done = run("init")
    assert done.returncode == 2
    assert "examples/quick.toml exists and differs" in done.stderr
    assert not Path("examples/keyboard.toml").exists()
