"""Rules of the house that no linter knows."""

import ast
import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Written in pieces, so that this file keeps the rules too.
HOSTS = ["py" + "pi.org", "files.python" + "hosted", "registry.npm" + "js"]
FOREIGN = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/|" + "|".join(re.escape(host) for host in HOSTS))
VAGUE = re.compile(r"(^|_)(utils?|common|managers?|handlers?|helpers?|base)(_|$)")


@functools.cache
def text_files() -> dict[str, str]:
    """Every text file that is part of the project or would be with the next commit."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    contents = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    return {name: data.decode(errors="replace") for name, data in contents.items() if b"\0" not in data}


@functools.cache
def modules() -> dict[str, ast.Module]:
    paths = sorted((ROOT / "src").rglob("*.py"))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_no_file_names_a_machine_or_a_registry():
    files = text_files()
    assert "pyproject.toml" in files
    found = [
        f"{name}:{number} {line.strip()[:80]}"
        for name, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("host", HOSTS)
def test_a_registry_would_be_noticed(host: str):
    assert FOREIGN.search(f"--index-url https://{host}/simple")


@pytest.mark.parametrize("folder", ["work", "root", "home", "Users"])
def test_a_machine_path_would_be_noticed(folder: str):
    assert FOREIGN.search(f"open('/{folder}/someone/data.csv')")
    assert not FOREIGN.search(f"https://example.com/{folder}/data.csv")
    assert not FOREIGN.search(f"../{folder}/data.csv")


def test_the_lock_has_a_hash_for_every_pin_and_no_address():
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    pins = re.split(r"\n(?=[a-z0-9])", lock.strip())
    assert [pin.split()[0] for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []


def test_src_checks_its_input_without_assert():
    found = [
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    ]
    assert found == []


def test_modules_have_names_that_say_something():
    assert [name for name in modules() if any(VAGUE.search(part) for part in Path(name).with_suffix("").parts)] == []
