"""Which host of a run this is, and where all of them wait for each other before JAX connects them.

When a host does not arrive, JAX ends the waiting processes with a signal and a stack trace. So host 0 first listens at
its address itself. The other hosts identify themselves, and host 0 replies once all have arrived, or says why the run
cannot start. Nothing else is exchanged here.
"""

import contextlib
import dataclasses
import json
import os
import re
import select
import socket
import time
from collections.abc import Mapping
from typing import Any

import jax

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.version import __version__

__all__ = ["Place", "meet"]

_GO, _NO = "blindsight: go", "blindsight: "
_AGAIN_S = 0.2
_PATIENCE_S = 5.0  # for a process that connects and sends nothing
_LONGEST = 1000  # bytes of a line


@dataclasses.dataclass(frozen=True)
class Place:
    """Which of the run's hosts this process is, and where host 0 is: `INDEX/COUNT@ADDRESS:PORT`.

    >>> Place.parse("1/2@10.0.0.1:8476")
    Place(index=1, count=2, address='10.0.0.1:8476')
    """

    index: int
    count: int
    address: str

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise InvalidInput(f"hosts are numbered from 0: there is no host {self.index} of {self.count}")
        if not re.fullmatch(r".+:\d+", self.address) or not 0 < int(self.address.rpartition(":")[2]) < 1 << 16:
            raise InvalidInput(f"the address of host 0 is ADDRESS:PORT, got {self.address!r}")

    @classmethod
    def parse(cls, text: str) -> "Place":
        """The place in the text of `--hosts`."""
        match = re.fullmatch(r"(\d+)/(\d+)@(.+)", text)
        if match is None:
            raise InvalidInput(
                f"--hosts is INDEX/COUNT@ADDRESS:PORT of host 0, such as 0/2@10.0.0.1:8476, got {text!r}"
            )
        return cls(int(match[1]), int(match[2]), match[3])

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] = os.environ) -> "Place | None":
        """The place that JAX's environment variables state; None unless one of them is set."""
        names = ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_COORDINATOR_ADDRESS")
        given = [variables.get(name, "") for name in names]
        if not any(given):
            return None
        if not (given[0].isdecimal() and given[1].isdecimal() and given[2]):
            raise InvalidInput(f"set all of {', '.join(names)} (two numbers and ADDRESS:PORT), or none of them")
        return cls(int(given[0]), int(given[1]), given[2])


def meet(place: Place, bind: str, *, wait_s: float) -> None:
    """Return once all hosts of the run have arrived; refused if that takes longer than `wait_s`, or if they differ."""
    until = time.monotonic() + wait_s
    try:
        if place.index == 0:
            _receive(place, bind, until)
        else:
            _arrive(place, until)
    except TimeoutError as error:
        raise BlindsightError(f"{error} within {wait_s:g} s: start the same command on every host") from None
    except OSError as error:
        raise BlindsightError(
            f"host {place.index} of {place.count} cannot use {bind if place.index == 0 else place.address}: "
            f"check address and port ({error.strerror or error})"
        ) from error


def _receive(place: Place, bind: str, until: float) -> None:
    """Host 0: wait for everyone else, and tell all of them how it ended."""
    host, port = _split(bind)
    here: dict[int, socket.socket] = {}
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as open_lines, socket.create_server((host, port), family=family) as door:
        try:
            while len(here) < place.count - 1:
                door.settimeout(max(until - time.monotonic(), 0.0))
                line = open_lines.enter_context(door.accept()[0])
                if said := _heard(line):
                    here[_welcomed(said, line, place, here)] = line
                if len(here) == place.count - 1:
                    here = {index: line for index, line in here.items() if not _is_closed(line)}
        except (TimeoutError, BlockingIOError):
            missing = ", ".join(str(index) for index in range(1, place.count) if index not in here)
            reason = f"host {missing} did not come"
            _tell_all(here, f"{_NO}{reason}")
            raise TimeoutError(reason) from None
        _tell_all(here, _GO)
        for line in here.values():  # the side that closes first blocks the port for a while
            with contextlib.suppress(OSError):
                line.settimeout(_PATIENCE_S)
                line.recv(1)


def _heard(line: socket.socket) -> dict[str, Any]:
    """A host's greeting; empty if the other side is not a host, or has disconnected."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        line.settimeout(_PATIENCE_S)
        said = json.loads(_line(line))
        return {"index": int(said["index"]), "count": int(said["count"]), "versions": str(said["versions"])}
    return {}


def _welcomed(said: dict[str, Any], line: socket.socket, place: Place, here: dict[int, socket.socket]) -> int:
    """The index of the host that connected; a host that does not belong to this run is refused on all sides."""
    index, own = said["index"], _introduction(place)
    reason = ""
    if said["count"] != place.count:
        reason = f"host {index} was started as one of {said['count']}, host 0 as one of {place.count}"
    elif said["versions"] != own["versions"]:
        reason = f"host {index} runs {said['versions']}, host 0 {own['versions']}: install the same on every host"
    elif index in here and not _is_closed(here[index]):
        reason = f"two hosts were started as number {index}"
    if reason:
        _tell_all({**here, -1: line}, f"{_NO}{reason}")
        raise InvalidInput(reason)
    return index


def _arrive(place: Place, until: float) -> None:
    """Any other host: say who this is, and wait for the answer."""
    host, port = _split(place.address)
    while True:
        answer = ""
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"host {place.index} of {place.count} did not reach host 0 at {place.address}")
        try:
            with socket.create_connection((host, port), timeout=min(left, _PATIENCE_S)) as line:
                line.settimeout(left)
                line.sendall(f"{json.dumps(_introduction(place))}\n".encode())
                answer = _line(line)
        except socket.gaierror:
            raise
        except OSError:
            pass
        if answer == _GO:
            return
        if answer:
            own = answer.startswith(_NO)
            raise InvalidInput(answer.removeprefix(_NO) if own else f"{place.address} is no host of Blindsight")
        time.sleep(_AGAIN_S)


def _introduction(place: Place) -> dict[str, Any]:
    versions = f"Blindsight {__version__} on JAX {jax.__version__}"
    return {"index": place.index, "count": place.count, "versions": versions}


def _line(line: socket.socket) -> str:
    """The other side's line; empty if it closes the connection before the end."""
    said = b""
    while not said.endswith(b"\n") and len(said) < _LONGEST:
        more = line.recv(_LONGEST)
        if not more:
            return ""
        said += more
    return said.decode(errors="replace").strip()


def _tell_all(lines: dict[int, socket.socket], message: str) -> None:
    for line in lines.values():
        with contextlib.suppress(OSError):
            line.sendall(f"{message}\n".encode())


def _is_closed(line: socket.socket) -> bool:
    """Whether the other side has disconnected: nobody sends more than one line before the answer."""
    return bool(select.select([line], [], [], 0)[0])


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise InvalidInput(f"an address of a host is ADDRESS:PORT, got {address!r}")
    return host.strip("[]"), int(port)
