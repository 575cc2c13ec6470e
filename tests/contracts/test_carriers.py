"""Every carrier keeps the same promises: within a process, over a real NATS server with mutual TLS, and over Flower."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fleet_server import Server
from flower import Direct, RealFlower

from blindsight.errors import InvalidInput
from blindsight.fleet.carriers.carrier import COORDINATOR, Carrier, Delivery
from blindsight.fleet.carriers.in_process import Exchange
from blindsight.fleet.carriers.over_flower import CoordinatorOverFlower

Connect = Callable[[str], Carrier]
PATIENCE_S = 240.0  # for what must come, however slow the machine
MOMENT_S = 0.2  # for what must not


CARRIERS = ["in process", "NATS", "Flower's ends", pytest.param("Flower", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=CARRIERS)
def lines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spawn_for_module: Callable[..., Any]
) -> Iterator[Connect]:
    match request.param:
        case "in process":
            yield Exchange().connect
        case "NATS":
            server = Server(tmp_path_factory.mktemp("nats"))
            server.start()
            yield server.connect
            server.kill()
        case name:
            flower = Direct() if name == "Flower's ends" else RealFlower(spawn_for_module)
            yield flower.connect
            flower.close()


@pytest.fixture
def connect(lines: Connect) -> Iterator[Connect]:
    ends: list[Carrier] = []

    def new_end(name: str) -> Carrier:
        ends.append(lines(name))
        return ends[-1]

    yield new_end
    for end in ends:
        end.close()


def settle(coordinator: Carrier, bystander: Carrier) -> None:
    """Until what was sent before is dealt with: a server sees one sender's messages in order.

    Flower finds out on its next visit that a site is not there.
    """
    coordinator.send(bystander.name, b"and then")
    assert bystander.receive(PATIENCE_S) == Delivery(COORDINATOR, b"and then")
    if isinstance(coordinator, CoordinatorOverFlower):
        assert coordinator.flush(PATIENCE_S)


def test_messages_arrive_whole_in_order_and_under_the_name_of_their_sender(connect: Connect):
    coordinator, a, b = connect(COORDINATOR), connect("a"), connect("b")
    large = bytes(range(256)) * 12_000  # 3 MB: several pieces
    for data in (b"", large, b"last"):
        a.send(COORDINATOR, data)
    assert [coordinator.receive(PATIENCE_S) for _ in range(3)] == [Delivery("a", d) for d in (b"", large, b"last")]
    b.send(COORDINATOR, b"from b")
    assert coordinator.receive(PATIENCE_S) == Delivery("b", b"from b")
    coordinator.send("b", large)
    assert b.receive(PATIENCE_S) == Delivery(COORDINATOR, large)
    assert a.receive(MOMENT_S) is None, "what is meant for another site does not arrive"


def test_sites_talk_to_the_coordinator_only(connect: Connect):
    a, coordinator = connect("a"), connect(COORDINATOR)
    for sender, receiver in ((a, "b"), (a, "a"), (coordinator, COORDINATOR)):
        with pytest.raises(InvalidInput, match="talk to each other only"):
            sender.send(receiver, b"x")


def test_nothing_is_kept_for_a_party_that_is_not_there(connect: Connect):
    coordinator, bystander = connect(COORDINATOR), connect("b")
    coordinator.send("a", b"too early")
    settle(coordinator, bystander)
    first = connect("a")
    coordinator.send("a", b"now")
    assert first.receive(PATIENCE_S) == Delivery(COORDINATOR, b"now")
    first.close()
    coordinator.send("a", b"too late")
    settle(coordinator, bystander)
    again = connect("a")
    coordinator.send("a", b"again")
    assert again.receive(PATIENCE_S) == Delivery(COORDINATOR, b"again")


def test_a_closed_end_refuses_to_send(connect: Connect):
    a = connect("a")
    a.close()
    a.close()
    with pytest.raises(InvalidInput, match="closed"):
        a.send(COORDINATOR, b"x")


@pytest.mark.parametrize("name", ["", "A", "a.b", "*", ">", "a b", "-a", "a" * 41])
def test_names_that_could_be_subjects_of_others_are_refused(name: str):
    with pytest.raises(InvalidInput, match="site's name"):
        Exchange().connect(name)
