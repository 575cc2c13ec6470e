"""What docs/fleet.md and docs/site.md tell people to type exists, and what can run on one machine in a second does."""

import re
import shlex
from pathlib import Path
from typing import Any

import flower
import pytest
import typer
from command import run

from blindsight import cli
from blindsight.fleet.codes import Code
from blindsight.fleet.folder import FleetFolder

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("fleet.md", "site.md")}


def typed(page: str, program: str) -> list[str]:
    """The command lines of a page's blocks that begin with this program."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)
    lines = "\n".join(fenced).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if line.removeprefix("$ ").startswith(f"{program} ")]


COMMANDS = [(page, line) for page in PAGES for line in typed(page, "blindsight")]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_every_command_on_the_pages_exists_with_its_options(page: str, line: str):
    words = shlex.split(line, comments=True)[1:]
    command: Any = typer.main.get_command(cli.app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)} <= known


def test_the_pages_have_commands():
    assert len(COMMANDS) > 12


def test_keys_are_rotated_revoked_and_added_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lines = [line for line in typed("fleet.md", "blindsight") if re.match("blindsight fleet (init|rot|rev|add)", line)]
    assert [line.split()[2] for line in lines] == ["init", "rotate", "revoke", "add"]
    for line in lines:
        done = run(*shlex.split(line, comments=True)[1:])
        assert done.returncode == 0, done.stderr
        assert "end" in done.stdout, "it says what to send to whom"
    assert set(FleetFolder.read("hospitals").roster) == {"north", "south", "east"}


def test_the_page_lists_every_code_with_its_meaning():
    listed = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGES["fleet.md"], re.MULTILINE))
    assert listed == {str(code): code.meaning for code in Code}


def test_flower_is_started_as_the_tests_start_it():
    started = Path(flower.__file__).read_text(encoding="utf-8")
    for program in ("flower-superlink", "flower-supernode", "flwr"):
        lines = typed("fleet.md", program)
        assert lines
        for line in lines:
            for option in re.findall(r"--[a-z-]+", line):
                assert f'"{option}"' in started, f"{program} {option}"
