"""Hosts that do not come, or do not fit together, are told so in a sentence: JAX would end them with a stack trace."""

import contextlib
import socket
import threading
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from blindsight.backends import meeting
from blindsight.backends.meeting import Place, meet
from blindsight.errors import BlindsightError, InvalidInput

LONG_S, SHORT_S = 60.0, 0.5


def free_address() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


@contextlib.contextmanager
def met(*places: Place, wait_s: float = LONG_S) -> Generator[list[Future[None]]]:
    with ThreadPoolExecutor(len(places)) as pool:
        yield [pool.submit(meet, place, place.address, wait_s=wait_s) for place in places]


def test_all_go_on_once_all_are_there_and_the_port_is_free_again():
    address = free_address()
    with met(Place(2, 3, address), Place(0, 3, address), Place(1, 3, address)) as hosts:
        assert [host.result() for host in hosts] == [None] * 3
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        pass
    meet(Place(0, 1, address), address, wait_s=0.0)  # alone


def test_a_host_that_does_not_come_is_named_to_all_others():
    address = free_address()
    with met(Place(0, 3, address), Place(2, 3, address), wait_s=SHORT_S) as hosts:
        with pytest.raises(BlindsightError, match=r"^host 1 did not come within 0.5 s: start the same command"):
            hosts[0].result()
        with pytest.raises(BlindsightError, match=r"^host 1 did not come$|host 2 of 3 did not reach host 0"):
            hosts[1].result()


def test_without_host_0_the_others_end_with_a_sentence():
    address = free_address()
    with pytest.raises(BlindsightError, match=f"host 1 of 2 did not reach host 0 at {address} within 0.3 s"):
        meet(Place(1, 2, address), address, wait_s=0.3)
    with pytest.raises(BlindsightError, match="check address and port"):
        meet(Place(1, 2, "no-such-host.invalid:80"), "", wait_s=LONG_S)


def test_a_port_that_is_taken_and_a_stranger_behind_it_are_refused():
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"

        def answer() -> None:
            line, _ = other.accept()
            with line:
                line.recv(100)
                line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        with pytest.raises(BlindsightError, match=f"host 0 of 2 cannot use {address}: check address and port"):
            meet(Place(0, 2, address), address, wait_s=LONG_S)
        stranger = threading.Thread(target=answer)
        stranger.start()
        with pytest.raises(InvalidInput, match="is no host of Blindsight"):
            meet(Place(1, 2, address), address, wait_s=LONG_S)
        stranger.join()


def test_hosts_of_different_runs_are_refused_on_all_sides():
    address = free_address()
    with met(Place(0, 2, address), Place(2, 3, address)) as hosts:
        for host in hosts:
            with pytest.raises(InvalidInput, match="host 2 was started as one of 3, host 0 as one of 2"):
                host.result()


def test_hosts_with_other_versions_are_refused_on_all_sides(monkeypatch: pytest.MonkeyPatch):
    address, own = free_address(), meeting._introduction
    newer = lambda place: {**own(place), **({"versions": "Blindsight 9"} if place.index else {})}  # noqa: E731
    monkeypatch.setattr(meeting, "_introduction", newer)
    with met(Place(0, 2, address), Place(1, 2, address)) as hosts:
        for host in hosts:
            with pytest.raises(InvalidInput, match=r"host 1 runs Blindsight 9, host 0 Blindsight .* on JAX"):
                host.result()


def test_two_hosts_of_one_number_are_refused():
    address = free_address()
    with met(Place(0, 3, address), Place(1, 3, address), Place(1, 3, address)) as hosts:
        for host in hosts:
            with pytest.raises(InvalidInput, match="two hosts were started as number 1"):
                host.result()


@pytest.mark.parametrize(
    "noise", [b"", b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b"{}\n", b"\xff" * 5000, b'{"index": "x"}\n']
)
def test_whoever_is_no_host_is_ignored(noise: bytes):
    address = free_address()
    host, port = address.split(":")
    with met(Place(0, 2, address)) as (leader,):
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection((host, int(port))) as line:
                line.sendall(noise)
                break
        meet(Place(1, 2, address), address, wait_s=LONG_S)
        leader.result()


def test_a_host_that_left_again_is_waited_for():
    address = free_address()
    host, port = address.split(":")
    with met(Place(0, 3, address)) as (leader,):
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection((host, int(port))) as line:
                line.sendall(f"{meeting.json.dumps(meeting._introduction(Place(1, 3, address)))}\n".encode())
                break
        with met(Place(1, 3, address), Place(2, 3, address)) as others:
            assert [one.result() for one in (leader, *others)] == [None] * 3
