"""What `deploy/` names exists: files, commands and options. No engine for containers is needed, and none is tried."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from blindsight import cli

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
FLEET = ROOT / "deploy" / "fleet"
UNITS = sorted(FLEET.glob("*.service"))
COMPOSE = yaml.safe_load((FLEET / "compose.yml").read_text(encoding="utf-8"))
DOCKERFILE = (FLEET / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


def check_command(words: list[str]) -> None:
    """`blindsight` with these words exists: its command, its options and as many arguments as it needs."""
    command: Any = typer.main.get_command(cli.app)
    while hasattr(command, "commands"):
        assert words, "a group needs a command"
        command, words = command.commands[words[0]], words[1:]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options
    needed = [one for one in command.params if one.required and one.param_type_name == "argument"]
    assert len([word for word in words if not word.startswith("-")]) >= len(needed)


def settings_of(unit: Path) -> dict[str, list[str]]:
    found = dict[str, list[str]]()
    for line in unit.read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "#[":
            key, separator, value = line.partition("=")
            assert separator, line
            found.setdefault(key, []).append(value)
    return found


def instructions(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


def test_there_is_a_unit_for_the_server_and_for_a_site():
    assert [unit.name for unit in UNITS] == ["blindsight-fleet-server.service", "blindsight-site.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_runs_a_command_that_exists_as_nobody_in_particular(unit: Path):
    settings = settings_of(unit)
    (line,) = settings["ExecStart"]
    program, *words = shlex.split(line)
    assert program.endswith("/bin/blindsight")
    check_command(words)
    assert settings["User"][0] not in ("", "root")
    assert settings["NoNewPrivileges"] == ["true"]
    folder = Path(words[-1]) if unit.name.startswith("blindsight-fleet") else Path(words[-1]).parent
    assert settings["ReadWritePaths"] == [str(folder)], "it can write where it keeps its state"
    if analyze := shutil.which("systemd-analyze"):
        done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
        assert "Unknown" not in done.stderr


def test_the_image_copies_files_that_exist_and_is_not_root():
    for line in instructions("COPY"):
        if not line.startswith("--from="):
            *sources, _ = line.split()
            for source in sources:
                assert (ROOT / source).exists(), source
    assert instructions("USER")[-1] not in ("root", "0")
    assert "nats-server" in DOCKERFILE
    assert instructions("ENTRYPOINT") == ['["/opt/blindsight/bin/blindsight"]']


def test_the_image_gets_all_that_the_package_is_built_from():
    let_through = (FLEET / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copied = {source for line in instructions("COPY") if "--from" not in line for source in line.split()[:-1]}
    assert {line[1:] for line in let_through if line.startswith("!")} == copied
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {"README.md", "LICENSE", *included} <= copied, "without them the package is not built"


def test_the_versions_are_those_of_the_lock():
    (script,) = re.findall(r"sed -n '(.+?)' requirements\.lock", DOCKERFILE)
    sed = ["sed", "-n", script, str(ROOT / "requirements.lock")]
    versions = subprocess.run(sed, capture_output=True, text=True, check=True).stdout.splitlines()
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert len(versions) == len(re.findall(r"^[a-z0-9]\S*==", lock, re.MULTILINE))
    assert any(re.fullmatch(r"nats-py==[0-9.]+", version) for version in versions)


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_runs_a_command_that_exists_on_folders_that_it_is_given(name: str):
    service = COMPOSE["services"][name]
    check_command(service["command"])
    paths = [volume.rsplit(":", 1)[0] if volume.endswith(":ro") else volume for volume in service["volumes"]]
    mounted = [path.rpartition(":")[2] for path in paths]
    assert any(word.startswith(tuple(mounted)) for word in service["command"])
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    build = service["build"]
    assert (FLEET / build["context"] / build["dockerfile"]).resolve() == FLEET / "Dockerfile"


def test_a_site_needs_no_open_port_and_cannot_write_its_data():
    site = COMPOSE["services"]["site"]
    assert "ports" not in site
    assert [volume.endswith(":ro") for volume in site["volumes"]] == [False, True]


def test_commands_in_comments_exist():
    texts = [path.read_text(encoding="utf-8") for path in (FLEET / "compose.yml", *UNITS)]
    found = re.findall(r"run --rm coordinator (.+)$", "\n".join(texts), re.MULTILINE)
    assert found
    for line in found:
        check_command(shlex.split(line))


def test_a_command_that_does_not_exist_would_be_noticed():
    for words in (["fleet", "start", "/fleet"], ["fleet", "up"], ["fleet", "up", "/fleet", "--fast"]):
        with pytest.raises((KeyError, AssertionError)):
            check_command(words)
