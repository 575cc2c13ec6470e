"""SIGHUP writes a snapshot and the process goes on; SIGTERM ends it soon, whatever clients do, and saves."""

import signal
import socket
import time

import pytest
from waiting import HANG_S, until

from blindsight.service import snapshots


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_hang_up_is_a_snapshot(processes, request, kind):
    server = request.getfixturevalue("redis_server") if kind == "redis" else None
    service = processes(server.address if server else "memory", snapshot_s=1000)
    process = service.start()
    service.wait()
    with service.load():
        service.until_taken(20)
        process.send_signal(signal.SIGHUP)
        until(lambda: snapshots.read(service.folder, "phishing").updates >= 20)
        service.until_taken(20)
    assert process.poll() is None
    process.terminate()
    assert process.wait(HANG_S) == 0
    assert snapshots.read(service.folder, "phishing").updates >= 40


def test_a_service_stops_whatever_its_clients_do(processes):
    service = processes("memory", snapshot_s=1000, body_s=1000)
    process = service.start()
    service.wait()
    with service.client() as client:
        drawn = client.get("/draw")
        ticket, version = (drawn.headers[f"Blindsight-{name}"] for name in ("Ticket", "Version"))
    head = (
        f"POST /v1/models/phishing/update HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer clients-of-the-tests\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: 12\r\nBlindsight-Ticket: {ticket}\r\n"
        f"Blindsight-Version: {version}\r\n\r\n"
    )
    stuck = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(3)]
    stuck[1].sendall(b"GET /healthz HTTP/1.1\r\nHo")
    stuck[2].sendall(head.encode() + b"half")
    with service.load():
        service.until_taken(20)
        began = time.monotonic()
        process.terminate()
        assert process.wait(HANG_S) == 0
    assert time.monotonic() - began < 10  # 3.2 s where nothing else runs; the half body is waited for 1000 s
    assert snapshots.read(service.folder, "phishing").updates >= 20
    for one in stuck:
        one.close()


def test_a_last_snapshot_without_a_redis_is_said_and_changes_the_exit_code(processes, redis_server):
    service = processes(redis_server.address, snapshot_s=1000)
    process = service.start()
    service.wait()
    redis_server.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    process.terminate()
    assert process.wait(HANG_S) != 0
    assert time.monotonic() - began < 12
    redis_server.process.send_signal(signal.SIGCONT)
    assert "the last snapshot could not be taken" in service.errors.read_text()
