"""Flower as a carrier: whole sums over it, what its relay does with nonsense, and what of Flower is switched off."""

import os
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agents import fleet
from command import run
from flower import APP, Direct, RealFlower
from secure_round import names
from waiting import HANG_S, until

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet.carriers.carrier import COORDINATOR, Delivery
from blindsight.fleet.carriers.flower_relay import hand_over, pack, relay, unpack, write_frame
from blindsight.fleet.carriers.lines import line
from blindsight.fleet.carriers.over_flower import CoordinatorOverFlower, SiteOverFlower
from blindsight.fleet.folder import FleetFolder
from blindsight.fleet.opening import open_job
from blindsight.fleet.site.settings import SiteSettings
from blindsight.fleet.sites import Patience

PATIENT = Patience(again_s=120.0, silence_s=4 * HANG_S)  # a visit of Flower's takes seconds, or many on a busy machine


@pytest.mark.timeout(3600)
@pytest.mark.slow  # a site asks its relay for messages every few seconds
@pytest.mark.parametrize("real", [False, True])
def test_a_sum_over_flower_is_exact(tmp_path: Path, spawn: Callable[..., Any], real: bool):
    flower = RealFlower(spawn, names(3)) if real else Direct(names(3))
    try:
        with fleet(tmp_path, 3, patience=PATIENT, opened=False, lines=flower) as one:
            open_job(one.sites, one.job, {}, wait_s=4 * HANG_S)
            summing = one.sum()
            summing.collect()
            total, count = summing.total()
            assert count == 3
            assert np.array_equal(total, one.expected(names(3)))
            one.sites.close()
    finally:
        flower.close()


@pytest.fixture
def direct() -> Iterator[Direct]:
    one = Direct()
    yield one
    one.close()


@pytest.mark.parametrize("parcel", [b"x", pack([b"whole"])[:-1], (1 << 63).to_bytes(8, "little")])
def test_a_damaged_parcel_holds_nothing(parcel: bytes):
    assert unpack(parcel) == []


def test_a_stranger_at_a_socket_stops_neither_the_relay_nor_an_agent(direct: Direct):
    a, coordinator = direct.connect("a"), direct.connect(COORDINATOR)
    for path in (direct.socket, direct.folder / "a.sock"):
        for data in (b"nonsense", b"\xff" * 64, b""):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(str(path))
                stranger.sendall(data)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(direct.socket))
        write_frame(stranger, "nobody", b"to a site that is not there")
    coordinator.send("a", b"hello")
    assert a.receive(HANG_S) == Delivery(COORDINATOR, b"hello")
    a.send(COORDINATOR, b"answer")
    assert coordinator.receive(HANG_S) == Delivery("a", b"answer")
    a.close()
    coordinator.close()


def test_two_commands_of_the_coordinator_hear_the_same_site(direct: Direct):
    """As `blindsight fleet status` while a question is asked."""
    a, one, two = direct.connect("a"), direct.connect(COORDINATOR), direct.connect(COORDINATOR)
    two.send("a", b"ping")
    assert a.receive(HANG_S) == Delivery(COORDINATOR, b"ping")
    a.send(COORDINATOR, b"pong")
    assert one.receive(HANG_S) == two.receive(HANG_S) == Delivery("a", b"pong")
    for end in (a, one, two):
        end.close()


def test_a_relay_that_was_started_again_is_rejoined(direct: Direct):
    a, coordinator = direct.connect("a"), direct.connect(COORDINATOR)
    direct._over.set()
    direct._thread.join()
    coordinator.send("a", b"lost")
    direct._over.clear()
    words = {"path": direct.socket, "sites": ("a",), "courier": direct, "is_over": direct._over.is_set}
    direct._thread = threading.Thread(target=relay, kwargs=words)
    direct._thread.start()
    received = list[Delivery]()

    def arrives() -> bool:
        coordinator.send("a", b"again")
        received.extend(filter(None, [a.receive(0.2)]))
        return bool(received)

    until(arrives)
    assert received[0] == Delivery(COORDINATOR, b"again")
    a.close()
    coordinator.close()


def test_only_this_user_and_its_group_reach_the_sockets(direct: Direct):
    a = direct.connect("a")
    assert [path.stat().st_mode & 0o777 for path in (direct.socket, direct.folder / "a.sock")] == [0o660, 0o660]
    a.close()
    assert not (direct.folder / "a.sock").exists()
    assert hand_over(direct.folder / "a.sock", pack([b"x"])) == b"", "an agent that is not there has nothing to say"


# --- addresses


def test_an_address_of_flower_is_a_socket_beside_the_settings(tmp_path: Path, direct: Direct):
    files: Any = {"authority": tmp_path, "certificate": tmp_path, "key": tmp_path}
    site = line("flower:flower.sock", "a", folder=direct.folder, **files)
    assert isinstance(site, SiteOverFlower)
    assert (direct.folder / "flower.sock").is_socket()
    site.close()
    coordinator = line("flower:relay.sock", COORDINATOR, folder=direct.folder, **files)
    assert isinstance(coordinator, CoordinatorOverFlower)
    coordinator.close()
    with pytest.raises(BlindsightError, match=r"start Flower's run of deploy/fleet/flower"):
        line("flower:nobody.sock", COORDINATOR, folder=direct.folder, **files)
    with pytest.raises(BlindsightError, match="choose another socket"):
        line("flower:no/folder.sock", "a", folder=direct.folder, **files)
    with pytest.raises(InvalidInput, match="choose a shorter one"):
        line(f"flower:{'long' * 30}.sock", "a", folder=direct.folder, **files)


def test_a_fleet_of_flower_has_no_server_of_its_own(tmp_path: Path):
    fleet = FleetFolder.init(tmp_path / "hospitals", sites=["a", "b", "c"])
    path = fleet.path / "fleet.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(f'"{fleet.settings.server}"', '"flower:relay.sock"'), encoding="utf-8")
    up = run("fleet", "up", str(fleet.path))
    assert up.returncode == 2
    assert "Flower carries for hospitals" in up.stderr.replace("\n", " ")
    assert run("fleet", "add", str(fleet.path), "d").returncode == 0
    place = fleet.path / "sites/d/SITE.toml"
    written = place.read_text(encoding="utf-8")
    place.write_text(written.replace("# clients", "clients").replace("# population", "population"), encoding="utf-8")
    assert SiteSettings.read(place).site.server == "flower:flower.sock"
    status = run("fleet", "status", str(fleet.path), "--wait", "0.1")
    assert status.returncode == 2
    assert "nothing answers at" in status.stderr


# --- what is switched off


def test_the_app_does_not_start_while_telemetry_is_on():
    def imported(**settings: str) -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FLWR_")} | settings
        words = [sys.executable, "-c", "import blindsight_carrier"]
        return subprocess.run(words, cwd=APP, env=environment, capture_output=True, text=True, check=False)

    for settings in ({}, {"FLWR_TELEMETRY_ENABLED": "1"}):
        done = imported(**settings)
        assert done.returncode == 1
        assert "flower.env" in done.stderr
    lines = (APP / "flower.env").read_text(encoding="utf-8").splitlines()
    assert imported(**dict(one.split("=") for one in lines if not one.startswith("#"))).returncode == 0


def test_the_app_brings_no_packages_and_names_its_two_halves():
    app = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))
    assert app["project"]["dependencies"] == [], "nothing is installed when it runs"
    for module in app["tool"]["flwr"]["app"]["components"].values():
        assert (APP / f"{module.partition(':')[0].replace('.', '/')}.py").exists()
