"""The documentation is true: its Python runs, its commands print what it shows, and no option goes without mention."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from command import run

from blindsight import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

# Each of these trains or inspects for seconds on end: `make docs` runs them, which CI and `make check` do.
LONG = (
    "asking",
    "bayesian-gans",
    "rows",
    "bias",
    "guide",
    "heterogeneous",
    "inspection",
    "labelling",
    "language",
    "synthesis",
)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def with_python() -> list[Any]:
    pages = [page for page in PAGES if blocks(page, "python")]
    return [pytest.param(page, id=page.name, marks=[pytest.mark.slow] * (page.stem in LONG)) for page in pages]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("page", with_python())
def test_python_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)


def test_pages_that_are_left_out_of_make_test_exist_and_have_python():
    assert set(LONG) <= {page.stem for page in PAGES if blocks(page, "python")}


COMMANDS = [(page, block) for page in PAGES for block in blocks(page, "console")]


@pytest.mark.parametrize(("page", "block"), COMMANDS, ids=[page.name for page, _ in COMMANDS])
def test_commands_on_the_page_print_what_it_shows(page, block, tmp_path, monkeypatch):
    command, *expected = block.rstrip("\n").split("\n")
    words = shlex.split(command.removeprefix("$ "))
    assert words[0] == "blindsight"
    monkeypatch.chdir(tmp_path)
    done = run(*words[1:])
    assert done.returncode == 0, done.stderr
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert printed[: len(expected)] == expected


def options(command: Any, path: str) -> list[tuple[str, str]]:
    if hasattr(command, "commands"):  # a group
        return [pair for name, sub in command.commands.items() for pair in options(sub, f"{path} {name}".strip())]
    return [(path, option) for parameter in command.params for option in parameter.opts if option.startswith("--")]


def test_every_command_and_option_is_documented():
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for path, option in options(typer.main.get_command(cli.app), ""):
        assert path.split()[-1] in page, f"blindsight {path}"
        assert f"`{option}`" in page or f"{option} " in page, f"blindsight {path} {option}"


def test_every_field_of_the_plan_is_documented():
    from blindsight import Privacy, plan

    privacy = Privacy(population=1000, cohort=10, rounds=2, noise_multiplier=2.0)
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for key in plan(privacy, delta=1e-5, as_published=True, group=2).to_dict():
        assert f"`{key}`" in page, key


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_links_of_the_readme_work_wherever_it_is_shown():
    """On a package index there are no files beside it: links and images are whole addresses of this repository."""
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not link.startswith("https://")] == []
    own = re.compile(
        r"https://(?:github\.com|raw\.githubusercontent\.com)/blindsight-ml/blindsight/(?:blob/)?main/([^#]+)"
    )
    files = [found[1] for link in links if (found := own.match(link))]
    assert len(files) > 20
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_the_architecture_names_every_room_and_only_files_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "blindsight"
    rooms = {path.stem for path in source.iterdir() if path.is_dir() or path.suffix == ".py"}
    for room in rooms - {"__init__", "__main__", "__pycache__"}:
        assert f"`{room}`" in page, room
    files = re.findall(r"`(src/blindsight/[\w/]+\.py)`", page)
    assert len(files) > 10
    for file in files:
        assert (ROOT / file).exists(), file


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "decisions"
    page = (folder / "README.md").read_text(encoding="utf-8")
    for record in folder.glob("[0-9]*.md"):
        assert f"]({record.name})" in page, record.name


def test_the_version_is_stated_once():
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
