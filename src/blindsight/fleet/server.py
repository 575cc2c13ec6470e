"""The NATS server of a fleet as a child process: restarted when it dies, reloaded on changes, ended with its parent."""

import contextlib
import ctypes
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet.carriers.lines import is_flower
from blindsight.fleet.folder import FleetFolder

__all__ = ["nats_server", "run_server"]

_WATCHED = ("nats.conf", "server/certificate.pem", "server/key.pem")
_BEAT_S = 0.2
_ENDING_S = 15.0
_LONGEST_PAUSE_S = 10.0


def nats_server() -> str:
    """The path of the server's program: on PATH, or where Debian puts it."""
    found = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/local/bin:/usr/sbin:/usr/bin")
    if found is None:
        raise InvalidInput(
            "there is no program nats-server here: apt-get install nats-server, or put one from "
            "https://github.com/nats-io/nats-server/releases on the PATH"
        )
    return found


def run_server(fleet: FleetFolder, say: Callable[[str], None]) -> None:
    """Run the server until SIGINT or SIGTERM; `say` gets a sentence when it listens, reloads or is restarted.

    When the fleet's folder changes, or at SIGHUP, the server reads its configuration again and disconnects
    parties that are no longer in it.
    """
    if is_flower(fleet.settings.server):
        raise InvalidInput(f"Flower carries for {fleet.settings.name}: start its run of deploy/fleet/flower instead")
    program, pause = nats_server(), 0.1
    fleet.write_server_configuration()
    with _signals() as (ending, reload):
        while not ending.is_set():
            began = time.monotonic()
            code, has_listened = _run_once(program, fleet, say, ending, reload)
            if ending.is_set():
                return
            if not has_listened and pause == 0.1:
                raise BlindsightError(
                    f"nats-server does not start (exit code {code}, see its output above): check that nothing else "
                    f"uses {fleet.settings.listening}, and that {fleet.path} is readable"
                )
            pause = 0.2 if time.monotonic() - began > 60 else min(2 * pause, _LONGEST_PAUSE_S)
            say(f"The server ended with code {code}; restarting it.")
            ending.wait(pause)


def _run_once(
    program: str,
    fleet: FleetFolder,
    say: Callable[[str], None],
    ending: threading.Event,
    reload: threading.Event,
) -> tuple[int, bool]:
    """The server's exit code, and whether it ever listened."""
    with tempfile.TemporaryDirectory() as ports:
        words = [program, "-c", "nats.conf", "--ports_file_dir", ports]
        seen = _stamps(fleet.path)
        # In a separate session, so that Ctrl-C reaches this process alone, which then ends it
        process = subprocess.Popen(words, cwd=fleet.path, start_new_session=True, preexec_fn=_end_with_parent)
        try:
            return _watch(process, fleet, say, ending, reload, Path(ports), seen)
        finally:
            _end(process)


def _watch(
    process: "subprocess.Popen[bytes]",
    fleet: FleetFolder,
    say: Callable[[str], None],
    ending: threading.Event,
    reload: threading.Event,
    ports: Path,
    seen: list[tuple[int, int]],
) -> tuple[int, bool]:
    has_listened = False
    while not ending.wait(_BEAT_S) and process.poll() is None:
        if not has_listened:  # before that, a signal to reload would end it
            if has_listened := _listens(ports):
                say(f"The server of {fleet.settings.name} listens at {fleet.settings.listening}.")
            continue
        if (now := _stamps(fleet.path)) != seen or reload.is_set():
            seen = now
            reload.clear()
            process.send_signal(signal.SIGHUP)
            say("The fleet has changed; the server reads its configuration again.")
    return process.poll() or 0, has_listened


def _listens(ports: Path) -> bool:
    """Whether the server has written its address, which it does once it listens."""
    with contextlib.suppress(OSError, ValueError):
        return any(json.loads(path.read_text(encoding="utf-8")).get("nats") for path in ports.iterdir())
    return False


def _stamps(folder: Path) -> list[tuple[int, int]]:
    """Values that change whenever one of the server's files does."""
    found: list[tuple[int, int]] = []
    for name in _WATCHED:
        with contextlib.suppress(OSError):  # it is being replaced
            state = (folder / name).stat()
            found.append((state.st_ino, state.st_mtime_ns))
    return found


_LIBC: ctypes.CDLL | None = ctypes.CDLL(None) if sys.platform == "linux" else None
_SIGNAL_WHEN_PARENT_ENDS = 1  # PR_SET_PDEATHSIG


def _end_with_parent() -> None:
    """In the server's process: end also if the parent is killed, so that its port is free when it is started again."""
    if _LIBC is not None:
        _LIBC.prctl(_SIGNAL_WHEN_PARENT_ENDS, int(signal.SIGTERM))


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _signals() -> Generator[tuple[threading.Event, threading.Event]]:
    """Two events, set by a signal to end and by one to reload."""
    ending, reload = threading.Event(), threading.Event()
    meanings = {signal.SIGINT: ending, signal.SIGTERM: ending, signal.SIGHUP: reload}
    before = {number: signal.signal(number, lambda *_, event=event: event.set()) for number, event in meanings.items()}
    try:
        yield ending, reload
    finally:
        for number, action in before.items():
            signal.signal(number, action)
