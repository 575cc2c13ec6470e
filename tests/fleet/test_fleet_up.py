"""`blindsight fleet up`, `status` and `revoke` with a real NATS server: who is let in, and what survives."""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import run
from fleet_up import Up, new_fleet
from waiting import HANG_S, until

from blindsight.errors import BlindsightError
from blindsight.fleet import membership
from blindsight.fleet.carriers.carrier import COORDINATOR, Carrier, Delivery
from blindsight.fleet.codes import Code
from blindsight.fleet.folder import FleetFolder
from blindsight.fleet.roll_call import Presence, roll_call
from blindsight.fleet.wire import decode, encode


@pytest.fixture
def up(tmp_path: Path, spawn: Callable[..., Any]) -> Up:
    return Up(new_fleet(tmp_path / "hospitals"), spawn)


@pytest.fixture
def end() -> Iterator[Callable[[Carrier], Any]]:
    """Closes carriers when the test is over."""
    with contextlib.ExitStack() as stack:

        def later(carrier: Any) -> Any:
            stack.callback(carrier.close)
            return carrier

        yield later


def talk(sender: Carrier, receiver: Carrier) -> None:
    """Send until it arrives: what is sent while there is no connection gets lost."""

    def arrives() -> bool:
        sender.send(receiver.name, b"hello")
        return receiver.receive(0.5) == Delivery(sender.name, b"hello")

    until(arrives)


def is_refused(up: Up, name: str, folder: Path | None = None) -> bool:
    try:
        up.connect(name, folder).close()
    except BlindsightError:
        return True
    return False


def kept(up: Up, name: str) -> Path:
    """A copy of a site's certificate and key, as somebody who stole them has it."""
    return Path(shutil.copytree(up.fleet.path / "sites" / name, up.fleet.path.parent / f"old-{name}"))


# --- who is let in


def test_a_revoked_site_is_disconnected_and_refused_while_the_rest_goes_on(up: Up, end: Callable[[Carrier], Any]):
    stolen, words = kept(up, "b"), list[str]()
    coordinator, a = (end(up.connect(name)) for name in (COORDINATOR, "a"))
    b = end(up.connect("b", note=words.append))
    talk(b, coordinator)
    assert run("fleet", "revoke", str(up.fleet.path), "b").returncode == 0
    until(lambda: not b.is_connected)
    until(lambda: any("was revoked" in said for said in words), "the site says why, in words")
    assert is_refused(up, "b", stolen)
    talk(a, coordinator)
    talk(coordinator, a)
    assert a.is_connected
    assert coordinator.is_connected
    assert len(up.servers) == 1, "the server was told, not started again"


def test_a_rotated_key_is_let_in_and_the_old_one_is_not(up: Up, end: Callable[[Carrier], Any]):
    stolen = kept(up, "b")
    coordinator, a, old = end(up.connect(COORDINATOR)), end(up.connect("a")), end(up.connect("b"))
    talk(old, coordinator)
    membership.rotate(up.fleet.path, "b")
    until(lambda: not old.is_connected)
    assert is_refused(up, "b", stolen)
    talk(end(up.connect("b")), coordinator)
    talk(a, coordinator)
    assert not is_refused(up, "a")


def test_a_new_site_and_a_new_certificate_of_the_server_need_no_restart(up: Up, end: Callable[[Carrier], Any]):
    coordinator = end(up.connect(COORDINATOR))
    membership.add(up.fleet.path, "d")
    until(lambda: not is_refused(up, "d"))
    talk(end(up.connect("d")), coordinator)
    said = up.said.count("configuration again")
    membership.rotate(up.fleet.path, "server")
    until(lambda: up.said.count("configuration again") > said)
    until(lambda: not is_refused(up, "a"))
    assert len(up.servers) == 1


# --- the process


def test_a_server_that_dies_is_started_again_and_rejoined(up: Up, end: Callable[[Carrier], Any]):
    coordinator, a = end(up.connect(COORDINATOR)), end(up.connect("a"))
    talk(a, coordinator)
    for killed in range(2):
        os.kill(up.servers[killed], signal.SIGKILL)
        until(lambda count=killed + 2: up.said.count("listens at") == count)
        talk(a, coordinator)
        talk(coordinator, a)
    assert "ended with code -9; restarting it" in up.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_its_server(up: Up, number: signal.Signals):
    (server,) = up.servers
    up.process.send_signal(signal.SIGHUP)
    until(lambda: "Reloaded server configuration" in up.said)
    up.process.send_signal(number)
    assert up.process.wait(HANG_S) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
    assert "Traceback" not in up.said


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the server stays until it is ended by hand")
def test_its_server_ends_even_if_it_is_killed(up: Up, spawn: Callable[..., Any]):
    (server,) = up.servers
    up.process.kill()
    until(lambda: not Path(f"/proc/{server}").exists())
    assert "listens" in Up(up.fleet, spawn).said


def test_a_port_in_use_is_one_sentence(tmp_path: Path, spawn: Callable[..., Any]):
    fleet = new_fleet(tmp_path / "hospitals")
    with socket.create_server(("127.0.0.1", fleet.settings.port)):
        failed = Up(fleet, spawn)
        assert failed.process.wait(HANG_S) == 2
    assert "nats-server does not start" in failed.said
    assert "Traceback" not in failed.said


def test_without_the_servers_program_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    FleetFolder.init(tmp_path / "hospitals", sites=["a", "b", "c"], port=0)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    done = run("fleet", "up", str(tmp_path / "hospitals"))
    assert done.returncode == 2
    assert "apt-get install nats-server" in done.stderr


# --- the roll call


@contextlib.contextmanager
def answering(carrier: Carrier, answer: bytes) -> Generator[None]:
    """A site that answers pings, as its agent does."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            delivery = carrier.receive(0.1)
            if delivery is not None and decode(delivery.data)[0] == {"kind": "ping"}:
                carrier.send(COORDINATOR, answer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    over.set()
    thread.join()


PONG = {"kind": "pong", "version": "0.1.0", "clients": 1200, "job": "slices-7", "rounds": 3, "refused": None}


def lines_of(printed: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}


def test_status_shows_who_is_there_and_when_the_others_were(up: Up, end: Callable[[Carrier], Any]):
    path = str(up.fleet.path)
    a, b = end(up.connect("a")), end(up.connect("b"))
    sites = dict[str, Any]()

    def are_here() -> bool:
        """On a busy machine, an answer may take longer than a roll call waits."""
        done = run("fleet", "status", path, "--json", "--wait", "2")
        assert done.returncode == 0, done.stderr
        sites.update({one["site"]: one for one in json.loads(done.stdout)["sites"]})
        return sites["a"]["here"] and sites["b"]["here"]

    with answering(a, encode(PONG)):
        with answering(b, encode({**PONG, "job": None, "refused": "budget"})):
            until(are_here)
        assert {site: (one["here"], one["seen"] is not None) for site, one in sites.items()} == {
            "a": (True, True),
            "b": (True, True),
            "c": (False, False),
        }
        assert {key: sites["a"][key] for key in PONG if key != "kind"} == {k: v for k, v in PONG.items() if k != "kind"}
        assert (sites["b"]["refused"], sites["b"]["meaning"]) == ("budget", Code.budget.meaning)
        printed = [""]

        def is_here() -> bool:
            printed[0] = run("fleet", "status", path, "--wait", "1").stdout
            return lines_of(printed[0])["a"][1] == "yes"

        until(is_here)
    lines = lines_of(printed[0])
    assert lines["b"][1] == "no"
    assert {"1,200", "0.1.0", "budget"} <= set(lines["b"]), "what it said last is shown"
    assert lines["c"][1:3] == ["no", "never"]
    assert Code.budget.meaning in printed[0].replace("\n", " ")
    assert run("fleet", "status", path, "--wait", "0.5").returncode == 0


def test_status_without_a_server_is_one_sentence(tmp_path: Path):
    FleetFolder.init(tmp_path / "hospitals", sites=["a", "b", "c"], port=0)
    done = run("fleet", "status", str(tmp_path / "hospitals"), "--wait", "0.1")
    assert done.returncode == 2
    assert "check that the server runs" in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"version": "\x1b[31mred"},
        {"version": "[red]x"},
        {"version": None},
        {"clients": -1},
        {"clients": True},
        {"clients": "many"},
        {"job": "x" * 65},
        {"rounds": 1.5},
        {"refused": "because patient 7 is ill"},
        {"refused": 3},
    ],
)
def test_an_answer_of_another_form_is_not_shown(change: dict[str, Any]):
    presence = Presence.of_answer("a", {**PONG, **change})
    assert presence.here
    assert presence.refused is Code.malformed
    assert (presence.version, presence.clients, presence.job, presence.rounds) == (None, None, None, None)
    assert Presence.of_answer("a", PONG).clients == 1200
    del (short := dict(PONG))["rounds"]
    assert Presence.of_answer("a", short).refused is Code.malformed


@pytest.mark.parametrize("damage", ["", "[]", '{"a": 3}', '{"a": {"refused": "no such code"}}'])
def test_a_damaged_memory_of_who_was_there_is_begun_anew(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from blindsight.fleet.carriers.in_process import Exchange

    fleet = FleetFolder.init(tmp_path / "hospitals", sites=["a", "b", "c"])
    exchange = Exchange()
    monkeypatch.setattr(FleetFolder, "connect", lambda _: exchange.connect(COORDINATOR))

    def is_begun_anew() -> bool:
        """On a busy machine, the answer of "a" may take longer than a roll call waits."""
        (fleet.path / "seen.json").write_text(damage, encoding="utf-8")
        return [one.here for one in roll_call(fleet, timeout_s=0.5)] == [True, False, False]

    with answering(exchange.connect("a"), encode(PONG)):
        until(is_begun_anew)
    assert set(json.loads((fleet.path / "seen.json").read_text(encoding="utf-8"))) == {"a"}
