"""Attacks on connections, with real sockets: silence, endless and huge heads, slow bodies, clients that do not read."""

import contextlib
import resource
import socket
import ssl
import threading
import time

import httpx2 as httpx
import pytest
from waiting import HANG_S, until

from blindsight.errors import InvalidInput
from blindsight.service import Settings


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@contextlib.contextmanager
def sockets(address: str, count: int, first: bytes = b""):
    """Connections that have sent `first` and then are silent."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            opened.append(stack.enter_context(socket.create_connection(("127.0.0.1", port_of(address)), HANG_S)))
            if first:
                with contextlib.suppress(OSError):
                    opened[-1].sendall(first)
        yield opened


def ended(one: socket.socket) -> bytes:
    """Everything that the service sends until it closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := one.recv(1 << 16):
            received += part
    return received


def closed(talk, cause: str) -> int:
    return sum(listener.closed[cause] for listener in talk.service.listeners.values())


@pytest.mark.parametrize("first", [b"", b"GET /v1/models/phishing/draw HT"])
def test_silent_sockets_do_not_keep_clients_out(serving, first):
    """There are more of them than connections may be open; the oldest of them make room."""
    talk = serving(connections=30)
    with sockets(talk.address, 60, first):
        for _ in range(20):
            with httpx.Client(base_url=talk.address, headers=dict(talk.client.headers)) as fresh:
                assert fresh.get("/v1/models/phishing/draw").status_code == 200
    assert closed(talk, "crowded_out") >= 30


@pytest.mark.slow
def test_thousands_of_silent_sockets_do_not_keep_clients_out(serving):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    try:
        talk = serving(connections=2000, first_byte_s=HANG_S)
        with sockets(talk.address, 5000):
            for _ in range(100):
                with httpx.Client(base_url=talk.address, headers=dict(talk.client.headers)) as fresh:
                    assert fresh.get("/v1/models/phishing/draw").status_code == 200
                    assert fresh.get("/healthz").status_code == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_health_and_metrics_have_a_listener_of_their_own(serving):
    talk = serving(None, connections=3, admin_listen="127.0.0.1:0", first_byte_s=HANG_S)
    for path in ("/healthz", "/readyz", "/metrics", "/v1/admin/models"):
        assert talk.client.get(path).status_code == 404
        assert talk.admin.get(talk.admin_address + path).status_code == 200
    assert "/v1/models/{model}/draw" in talk.client.get("/openapi.json").text
    assert httpx.get(f"{talk.admin_address}/metrics").status_code == 401
    head = b"POST /v1/models/phishing/update HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n"
    with sockets(talk.address, 20, head):
        metrics = talk.admin.get(f"{talk.admin_address}/metrics").text
        assert 'blindsight_connections_limit{listener="clients"} 3' in metrics
        assert 'blindsight_connections{listener="admin"} 1' in metrics
        assert httpx.get(f"{talk.admin_address}/healthz").status_code == 200


def test_silence_and_slow_heads_end_at_their_deadlines(serving):
    talk = serving(first_byte_s=0.3, header_s=0.3)
    started = time.monotonic()
    with sockets(talk.address, 1) as (silent,), sockets(talk.address, 1, b"GET / HTTP/1.1\r\n") as (slow,):
        stop = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    slow.sendall(b"a: b\r\n")

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert ended(silent) == ended(slow) == b""
        stop.set()
        dripping.join()
    assert time.monotonic() - started >= 0.3
    assert (closed(talk, "late_first_byte"), closed(talk, "late_header")) == (1, 1)


def test_connections_between_requests_stay_open(serving):
    talk = serving(first_byte_s=0.5, header_s=0.5)
    for _ in range(8):
        assert talk.draw().status_code == 200
        time.sleep(0.1)
    listener = next(iter(talk.service.listeners.values()))
    assert listener.accepted == 2  # the admin's and the client's


@pytest.mark.parametrize("endless", [b"x-more: " + b"a" * 8192, b"".join(b"a%d: b\r\n" % n for n in range(800))])
def test_an_endless_head_is_refused_and_costs_nothing(serving, endless):
    """Its parser would copy the whole of a value with each part of it."""
    talk = serving()
    with sockets(talk.address, 1, b"GET /v1/models/phishing/draw HTTP/1.1\r\nhost: x\r\n" + endless) as (one,):
        with contextlib.suppress(OSError):  # closed meanwhile
            for _ in range(2000):  # 16 MB
                one.sendall(b"a" * 8192)
        answer = ended(one)
    assert answer.startswith(b"HTTP/1.1 431 ") or answer == b""  # the kernel drops it if more arrives after closing
    assert closed(talk, "large_head") == 1
    assert talk.draw().status_code == 200


def test_a_huge_head_that_comes_at_once_is_refused_too(talk):
    with sockets(talk.address, 1, b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-more: " + b"a" * 40_000 + b"\r\n\r\n") as (
        one,
    ):
        assert ended(one).startswith(b"HTTP/1.1 431 ")
    assert talk.client.get("/healthz", headers={"x-more": "a" * 8000}).status_code == 200


def test_a_flood_of_requests_in_one_connection_is_cut_short(talk):
    """40,000 requests in 720 kB, all before the first answer: twenty such connections once took 1.8 GB and a minute."""
    few = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 8
    with sockets(talk.address, 1, few) as (one,):
        received = b""
        while received.count(b"HTTP/1.1 200 ") < 8:
            received += one.recv(1 << 16)
    assert closed(talk, "pipelined") == 0
    total = talk.service.totals.refused.total()
    with sockets(talk.address, 1) as (one,):
        with contextlib.suppress(OSError):
            one.sendall(b"GET / HTTP/1.1\r\n\r\n" * 40_000)
        ended(one)
    assert closed(talk, "pipelined") == 1
    assert talk.service.totals.refused.total() - total < 100  # the others were never made
    assert talk.draw().status_code == 200


def test_fields_after_a_chunked_body_are_not_read_without_an_end(serving):
    """The parser would copy the whole of a value with each part of it, as in a head."""
    talk = serving(body_s=HANG_S)
    head = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-more: "
    with sockets(talk.address, 1, head) as (one,):
        until(lambda: one.recv(1) != b"")
        with contextlib.suppress(OSError):
            for _ in range(2000):  # 16 MB
                one.sendall(b"a" * 8192)
        ended(one)
    assert closed(talk, "late_body") == 1


def test_large_bodies_are_not_taken_for_heads(serving, make_task):
    talk = serving(make_task(model="other", family="custom", features=None, response=None, weights=60_000))
    drawn = talk.draw("other")
    headers = {name: drawn.headers[name] for name in ("Blindsight-Ticket", "Blindsight-Version")}
    headers["Content-Type"] = "application/octet-stream"
    for _ in range(3):
        answer = talk.client.post("/v1/models/other/update", headers=headers, content=drawn.content)
        assert answer.status_code in (202, 410)
    assert closed(talk, "large_head") == 0


def test_a_body_that_nobody_waits_for_ends_at_its_deadline(serving):
    talk = serving(body_s=0.3)
    head = b"POST /v1/models/phishing/update HTTP/1.1\r\nhost: x\r\ncontent-length: 12\r\n\r\n"
    with sockets(talk.address, 1, head) as (one,):
        assert ended(one).startswith(b"HTTP/1.1 401 ")
    assert closed(talk, "late_body") == 1


def test_clients_that_do_not_read_are_left(serving, make_task):
    task = make_task(model="other", family="custom", features=None, response=None, weights=1 << 21, instances=1)
    talk = serving(None, write_s=0.3, data=None)
    talk.admin.timeout = HANG_S
    assert talk.create(task).status_code == 201
    token = talk.client.headers["authorization"].encode()
    draw = b"GET /v1/models/other/draw HTTP/1.1\r\nhost: x\r\nauthorization: " + token + b"\r\n\r\n"
    with sockets(talk.address, 1, draw):
        until(lambda: closed(talk, "late_write") == 1)


def test_bodies_of_all_clients_together_are_limited(serving):
    talk = serving(bodies_bytes=20, body_s=HANG_S)
    drawn, another = talk.draw(), talk.draw()
    lines = [f"{name}: {drawn.headers[name]}" for name in ("Blindsight-Ticket", "Blindsight-Version")]
    lines += [f"authorization: {talk.client.headers['authorization']}", "content-type: application/octet-stream"]
    head = "\r\n".join(["POST /v1/models/phishing/update HTTP/1.1", "host: x", *lines, "content-length: 12", "", ""])
    with sockets(talk.address, 1, head.encode()):
        until(lambda: talk.service._receiving == 12)
        refused = talk.update(another)
        assert (refused.status_code, refused.json()["cause"]) == (503, "bodies")
        assert int(refused.headers["retry-after"]) >= 1
    until(lambda: talk.update(another).status_code == 202)  # the same ticket, and the memory is free again


def test_a_busy_service_refuses_draws_and_takes_updates(talk, monkeypatch):
    monkeypatch.setattr("blindsight.service.run._SHED_LESS", 0.0)  # the next tick would let draws in again
    drawn = talk.draw()
    talk.service.shedding = 1.0
    refused = talk.draw()
    assert (refused.status_code, refused.json()["cause"]) == (503, "busy")
    assert int(refused.headers["retry-after"]) >= 1
    assert talk.update(drawn).status_code == 202


def test_a_late_event_loop_sheds_and_recovers(serving):
    """Something holds the loop; clients are told to come later, and served again once it is free."""
    talk = serving(shed_s=0.25)
    assert talk.draw().status_code == 200
    (listener,) = talk.service.listeners.values()
    loop = next(iter(listener.known)).loop
    stop, seen = threading.Event(), []

    def hold() -> None:
        if not stop.is_set():
            time.sleep(0.4)
            seen.append(talk.service.shedding)
            loop.call_later(0.01, hold)

    loop.call_soon_threadsafe(hold)
    until(lambda: bool(seen) and seen[-1] > 0.3)
    stop.set()
    until(lambda: talk.service.shedding == 0.0)
    assert talk.draw().status_code == 200


def test_settings_that_open_admin_calls_to_a_network_are_refused():
    with pytest.raises(InvalidInput, match="set admin_listen"):
        Settings(host="0.0.0.0")
    with pytest.raises(InvalidInput, match="an address and a port"):
        Settings(admin_listen="8753")
    assert Settings(host="0.0.0.0", admin_listen="127.0.0.1:8753").admin_listen


def test_limits_hold_over_tls_too(serving, certificate):
    talk = serving(None, certificate=certificate[0], private_key=certificate[1], connections=5)
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            raw = socket.create_connection(("127.0.0.1", port_of(talk.address)), HANG_S)
            stack.enter_context(trusting.wrap_socket(raw, server_hostname="127.0.0.1"))
        with httpx.Client(base_url=talk.address, verify=trusting) as fresh:
            assert fresh.get("/healthz").status_code == 200
