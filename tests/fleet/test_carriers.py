"""What is particular to carriers: pieces that get lost, and what the NATS server refuses to a dishonest site."""

import asyncio
import gc
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from fleet_server import Server
from waiting import HANG_S, until

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.fleet.carriers.carrier import COORDINATOR, Assembler, Delivery, pieces
from blindsight.fleet.carriers.over_nats import OverNats, tls_context
from blindsight.fleet.certificates import Authority, identity_key, party_of, server_configuration, write_secret

LARGE = bytes(range(256)) * 6000  # three pieces


# --- pieces


def taken(assembler: Assembler, parts: list[bytes]) -> list[bytes]:
    return [whole for part in parts if (whole := assembler.take("a", part)) is not None]


def test_a_message_with_a_lost_repeated_or_swapped_piece_never_arrives_and_the_next_one_does():
    first, second, third = pieces(LARGE)
    damaged = [
        [second, third],
        [first, third],
        [first, second],
        [first, first[:24] + second[24:], third],
        [first, second, second, third],
        [second, first, third],
        [first, b"short", second, third],
    ]
    for parts in damaged:
        assembler = Assembler()
        assert taken(assembler, parts) == []
        assert taken(assembler, list(pieces(LARGE))) == [LARGE]


def test_pieces_of_two_messages_or_two_senders_are_never_joined():
    ours, theirs = list(pieces(LARGE)), list(pieces(LARGE[::-1]))
    assert taken(Assembler(), [ours[0], theirs[1], theirs[2]]) == []
    assembler = Assembler()
    whole = [(assembler.take("a", one), assembler.take("b", two)) for one, two in zip(ours, theirs, strict=True)]
    assert whole[-1] == (LARGE, LARGE[::-1])


def test_a_short_message_of_a_second_process_does_not_interrupt_a_long_one():
    """`blindsight fleet status` pings as the coordinator while another command broadcasts a model."""
    first, second, third = pieces(LARGE)
    (ping,) = pieces(b"ping")
    assert taken(Assembler(), [first, ping, second, ping, third]) == [b"ping", b"ping", LARGE]


def test_a_message_that_claims_to_be_too_large_is_not_begun():
    (only,) = pieces(b"x")
    claimed = only[:20] + (1 << 31).to_bytes(4, "little") + only[24:]
    assert taken(Assembler(), [claimed, only[:16] + (1).to_bytes(4, "little") + claimed[20:]]) == []


# --- NATS


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path)
    one.start()
    yield one
    one.kill()


def test_a_server_that_is_killed_while_it_is_waited_for_costs_no_more_than_the_message(server: Server):
    a = server.connect("a")
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)  # it goes on for a moment
    sending = threading.Thread(target=a.send, args=(COORDINATOR, bytes(1 << 20)), daemon=True)
    a.send(COORDINATOR, b"lost")  # a short one waits for nobody
    sending.start()
    sending.join(0.5)
    assert sending.is_alive(), "it waits for the server's answer"
    server.kill()
    sending.join(60)
    assert not sending.is_alive(), "half of what it would wait for"
    a.close()


def test_whoever_is_connected_has_subscribed(server: Server, monkeypatch: pytest.MonkeyPatch):
    """The server has the subscription before it answers the last ping; a message in between would be lost."""
    written = bytearray()
    whole, parts = asyncio.StreamWriter.write, asyncio.StreamWriter.writelines
    monkeypatch.setattr(asyncio.StreamWriter, "write", lambda to, data: (written.extend(data), whole(to, data)))
    monkeypatch.setattr(
        asyncio.StreamWriter, "writelines", lambda to, data: (written.extend(b"".join(data)), parts(to, data))
    )
    a = server.connect("a")
    assert 0 < written.find(b"SUB blindsight.to.a ") < written.rfind(b"PING\r\n")
    a.close()


def test_a_killed_server_is_rejoined_by_all(server: Server):
    coordinator, a = server.connect(COORDINATOR), server.connect("a")
    server.kill()
    coordinator.send("a", b"lost")
    server.start()
    received = None
    while received is None:  # as whoever needs an answer does: ask again
        coordinator.send("a", b"again")
        received = a.receive(0.2)
    assert received == Delivery(COORDINATOR, b"again"), "and what was sent without a server is lost"
    a.close()
    coordinator.close()


def test_a_party_that_is_turned_away_leaves_no_connection_open(server: Server):
    """A revoked site knocks once a second, for as long as its agent runs."""
    a, port = server.connect("a"), int(server.url.rpartition(":")[2])
    server.kill()
    visitors = list[socket.socket]()
    with socket.create_server(("127.0.0.1", port)) as imposter:
        for _ in range(2):
            visitor, _ = imposter.accept()
            visitor.shutdown(socket.SHUT_WR)  # as a server does that is about to end
            visitors.append(visitor)
        until(lambda: _is_left(visitors[0]))
        a.close()
        until(lambda: _is_left(visitors[1]))
    for visitor in visitors:
        visitor.close()


def _is_left(connection: socket.socket) -> bool:
    """Whether the other end has closed it."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def test_a_site_that_floods_the_coordinator_fills_no_memory_and_loses_its_own_messages(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("blindsight.fleet.carriers.over_nats._HELD", 3 << 20)
    coordinator, a = server.connect(COORDINATOR), server.connect("a")
    join, whole = coordinator._assembler.take, list[bytes | None]()
    coordinator._assembler.take = lambda sender, piece: whole.append(join(sender, piece)) or whole[-1]
    for place in range(6):
        a.send(COORDINATOR, bytes([place]) * (1 << 20))
    a.send(COORDINATOR, b"a short one is lost, too" * 9)
    until(lambda: sum(data is not None for data in whole) == 7)
    heard = [coordinator.receive(HANG_S) for _ in range(3)]
    assert [one.data[0] for one in heard if one is not None] == [0, 1, 2]
    assert coordinator.receive(0.1) is None
    a.send(COORDINATOR, b"again")
    assert coordinator.receive(HANG_S) == Delivery("a", b"again"), "what was read makes room"
    a.close()
    coordinator.close()


def test_the_server_lets_a_site_neither_speak_as_another_nor_read_what_others_say(server: Server):
    coordinator = server.connect(COORDINATOR)
    tls = tls_of(server, "a")

    async def misbehave() -> list[str]:
        errors: list[str] = []

        async def note(error: Exception) -> None:
            errors.append(str(error))

        client = await nats.connect(server.url, tls=tls, error_cb=note)
        for subject in ("blindsight.to.b", "blindsight.from.*", "blindsight.>", "_INBOX.>"):
            await client.subscribe(subject)
        for subject in ("blindsight.from.b", "blindsight.to.b", "$SYS.REQ.SERVER.PING"):
            await client.publish(subject, next(pieces(b"forged")))
        await client.publish("blindsight.from.a", next(pieces(b"honest")))
        await client.flush()
        while len(errors) < 7:  # they are told by tasks of their own
            await asyncio.sleep(0.02)
        await client.close()
        return errors

    errors = asyncio.run(misbehave())
    assert coordinator.receive(HANG_S) == Delivery("a", b"honest"), "the forged message, sent first, did not arrive"
    refused = " ".join(errors).lower()
    assert refused.count("permissions violation for subscription") == 4
    assert refused.count("permissions violation for publish") == 3
    coordinator.close()


def test_an_address_that_nobody_can_have_is_a_sentence(server: Server):
    with pytest.raises(BlindsightError, match=r"cannot connect to tls://no\.\.body"):
        OverNats("tls://no..body:4222", "a", tls_of(server, "a"))


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.003, 0.01, 0.03])
def test_whoever_is_interrupted_while_connecting_leaves_nothing_behind(
    server: Server, monkeypatch: pytest.MonkeyPatch, after_s: float
):
    """As by Ctrl-C: no thread, no socket, and no task of which Python complains in whatever runs next."""
    run = OverNats._run

    def interrupted(self: OverNats, work: Any, timeout_s: float) -> None:
        if work.__name__ != "_connect":
            run(self, work, timeout_s)
            return
        asyncio.run_coroutine_threadsafe(work, self._loop)
        time.sleep(after_s)
        raise KeyboardInterrupt

    before = threading.active_count()
    monkeypatch.setattr(OverNats, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        server.connect("a")
    assert threading.active_count() == before
    gc.collect()  # with warnings as errors, what is still open fails this test


def test_a_task_that_forgets_that_it_was_told_to_end_is_told_again(server: Server):
    """`asyncio.wait_for` does so before Python 3.12, if what it waits for comes at that moment."""
    a, told = server.connect("a"), list[None]()

    async def stubborn() -> None:
        while len(told) < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                told.append(None)

    asyncio.run_coroutine_threadsafe(stubborn(), a._loop)
    a.close()
    assert len(told) == 3
    assert a._loop.is_closed()


def tls_of(server: Server, name: str) -> Any:
    own = server.folder / name
    return tls_context(server.folder / "authority/certificate.pem", own / "certificate.pem", own / "key.pem")


def test_strangers_are_refused(server: Server):
    stranger = Authority.new("stranger").party("a")
    server.keep("stranger", stranger)
    with pytest.raises(BlindsightError, match="cannot connect"):
        server.connect("a", certificate_of="stranger")
    server.keep("unlisted", server.authority.party("d"))
    with pytest.raises(BlindsightError, match="cannot connect"):
        server.connect("d", certificate_of="unlisted")


def test_a_certificate_of_another_site_gives_no_messages_of_that_name(server: Server):
    coordinator, posing = server.connect(COORDINATOR), server.connect("b", certificate_of="a")
    posing.send(COORDINATOR, b"as b")
    coordinator.send("b", b"for b")
    assert posing.receive(0.3) is None
    assert coordinator.receive(0.1) is None
    posing.close()
    coordinator.close()


def test_a_site_cannot_pose_as_the_server(server: Server):
    server.kill()
    configuration = (server.folder / "nats.conf").read_text(encoding="utf-8").replace('"server/', '"b/')
    (server.folder / "nats.conf").write_text(configuration, encoding="utf-8")
    server.start()
    with pytest.raises(BlindsightError, match="cannot connect"):
        server.connect("a")


# --- certificates and configuration


def test_a_certificate_names_its_party_and_holds_the_key_that_signs():
    issued = Authority.new("test").party("north")
    party, key = party_of(issued.certificate), identity_key(issued.key)
    assert party == party.of("north", key.public_key())
    with pytest.raises(InvalidInput, match="one DNS name"):
        party_of(Authority.new("test").server(["x.example", "127.0.0.1"]).certificate)


def test_the_server_stores_nothing_and_maps_certificates_to_users():
    authority = Authority.new("test")
    certificates = {name: authority.party(name).certificate for name in (COORDINATOR, "a", "b")}
    text = server_configuration(certificates, address="127.0.0.1:4222")
    assert not re.search("jetstream|store_dir|password|token|allow_responses", text)
    assert "verify_and_map: true" in text
    assert re.findall("publish: (.*?), subscribe: (.*?)}", text) == [
        ('["blindsight.to.*"]', '["blindsight.from.*"]'),
        ('["blindsight.from.a"]', '["blindsight.to.a"]'),
        ('["blindsight.from.b"]', '["blindsight.to.b"]'),
    ]


def test_keys_are_readable_by_their_owner_only_and_never_overwritten(tmp_path: Path):
    write_secret(tmp_path / "site" / "key.pem", b"secret")
    assert (tmp_path / "site" / "key.pem").stat().st_mode & 0o077 == 0
    with pytest.raises(FileExistsError):
        write_secret(tmp_path / "site" / "key.pem", b"other")
    assert (tmp_path / "site" / "key.pem").read_bytes() == b"secret"
