"""The two ways to an answer: at once, or through uvicorn's task and ASGI. The same bytes get the same answer."""

import asyncio
import itertools
import random
import re
from collections.abc import Iterable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from blindsight.service import Settings
from blindsight.service.app import Service
from blindsight.service.connections import Connection
from blindsight.service.listeners import Listener, limits_of
from blindsight.service.registry import Registry

TOKEN = "the clients of the tests"
DRAW, UPDATE = "/v1/models/phishing/draw", "/v1/models/phishing/update"


class Wire(asyncio.Transport):
    """A transport that keeps what is written until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.sent += b"" if self.is_closed else bytes(data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """What is sent here has arrived."""

    abort, resume_reading = close, pause_reading


class Patient:
    """A service none of whose answers come at once."""

    def asked(self, method: bytes, path: bytes) -> None:
        return None

    def answer_now(self, *_: Any) -> Any:
        raise AssertionError


def is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two answers are equal. What no parser understands ends a connection before its last task begins."""
    before, invalid, _ = other[0].partition(b"HTTP/1.1 400 ")
    return one == other or bool(invalid and one[0].startswith(before) and invalid in one[0] and one[1] and other[1])


class Both:
    """One service, asked in both ways."""

    def __init__(self, service: Any) -> None:
        self.service, self.at_once = service, 0
        self.pool: Any = service.registry.pools["phishing"]
        self._config = uvicorn.Config(service, ws="none", lifespan="off", access_log=False, log_config=None)
        self._config.load()
        answer_now = service.answer_now

        def counted(*given: Any) -> Any:
            self.at_once += 1
            return answer_now(*given)

        service.answer_now = counted

    def ticket(self) -> str:
        return self.service.registry.tickets.issue(self.pool.scope).decode()

    def connect(self, service: Any) -> tuple[Connection, Wire, Listener]:
        state = ServerState()
        state.default_headers = [(b"date", b"today")]
        given: dict[str, Any] = {"config": self._config, "server_state": state, "app_state": {}}
        listener = Listener(limits_of(self.service.registry.settings))
        connection, wire = Connection({0: listener}, service, **given), Wire()
        connection.connection_made(wire)
        return connection, wire, listener

    async def answers(self, request: str, cuts: Iterable[int] = (), *, hurried: bool = False) -> list[tuple[Any, ...]]:
        """What is sent back in both ways, less what is random, and whether the connection is closed."""
        used = self.ticket()
        registry = self.service.registry
        registry.store.spend_now(*(registry.tickets.check(used.encode(), self.pool.scope) or ()))
        found = []
        for service in (self.service, Patient()):
            connection, wire, listener = self.connect(service)
            data = request.replace("TICKET", self.ticket()).replace("USED", used).encode("latin-1")
            for start, end in itertools.pairwise([0, *(cut for cut in cuts if cut < len(data)), len(data)]):
                if not wire.is_closed:
                    connection.data_received(data[start:end])
                for _ in range(0 if hurried and end < len(data) else 6):
                    await asyncio.sleep(0)
            sent = re.sub(rb"(blindsight-ticket|x-request-id): \w+", rb"\1: random", wire.sent)
            found.append(
                (sent, wire.is_closed, connection.idle, connection.server_state.total_requests, dict(listener.closed))
            )
            connection.connection_lost(None)
            await asyncio.sleep(0)
        return found


def run(tmp_path, make_task, check, **settings: Any) -> None:
    """A service in memory whose draws stay the same, and what is asked of it."""

    async def in_loop() -> None:
        tokens = tmp_path / "tokens.toml"
        tokens.write_text(f'admin = ["{TOKEN} and more"]\n[models]\nphishing = ["{TOKEN}"]\n', encoding="utf-8")
        given: dict[str, Any] = {"rate_per_s": 0.0, "batch": 10**6}
        registry = Registry(Settings(data=None, tokens=tokens, **(given | settings)))
        await registry.open()
        await registry.create(make_task())
        await check(Both(Service(registry)))
        await registry.close()

    asyncio.run(in_loop())


def head(line: str, **headers: str) -> str:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([line, "Host: x", *lines, "", ""])


def requests(version: str, size: int = 12) -> list[str]:
    """Requests that are as they should be, and those that differ from them in one thing."""
    body = "\0" * size
    sent = {
        "Authorization": f"Bearer {TOKEN}",
        "Content_Type": "application/octet-stream",
        "Blindsight_Version": version,
        "Blindsight_Ticket": "TICKET",
        "Content_Length": str(size),
    }
    draw, update = (
        head(f"GET {DRAW} HTTP/1.1", Authorization=f"Bearer {TOKEN}"),
        head(f"POST {UPDATE} HTTP/1.1", **sent),
    )
    found = [draw, update + body, draw * 20, draw + update + body + draw]
    found.append(head(f"GET {DRAW} HTTP/1.0", Authorization=f"Bearer {TOKEN}", Connection="keep-alive"))
    found.append(head(f"GET {DRAW} HTTP/1.1", Authorization=f"Bearer {TOKEN}", Connection="upgrade", Upgrade="h2c"))
    others = {"Connection": "close", "Expect": "100-continue", "Upgrade": "websocket", "Origin": "https://page.example"}
    for name, value in others.items():
        found.append(draw[:-2] + f"{name}: {value}\r\n\r\n")
        found.append(update[:-2] + f"{name}: {value}\r\n\r\n" + body)
    for line in (
        *(f"{method} {path} HTTP/1.1" for method in ("GET", "HEAD", "OPTIONS", "PUT") for path in (DRAW, UPDATE)),
        *(
            f"GET {path} HTTP/1.1"
            for path in (f"{DRAW}?x=1", f"{DRAW}/", "/v1/models/ph%69shing/draw", f"http://x{DRAW}")
        ),
        *(f"GET {path} HTTP/1.1" for path in ("/v1/models/none/draw", "/v1/models/phishing/task", "/healthz", "/")),
        *(f"GET {DRAW} HTTP/{http}" for http in ("1.0", "0.9", "1.2", "2.0")),
        f"GET {DRAW}\xe4 HTTP/1.1",
        f"POST {DRAW} HTTP/1.1",
        f"get {DRAW} HTTP/1.1",
    ):
        found.append(head(line, Authorization=f"Bearer {TOKEN}"))
    for name, values in {
        "Authorization": ["", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN} and more"],
        "Content_Type": ["", "application/json", "application/octet-stream; x=y"],
        "Blindsight_Version": ["", "0" * 16],
        "Blindsight_Ticket": ["", "zz", "0" * 64, "USED", "TICKETTICKET"],
        "Content_Length": ["0", "11", "13", "012", "99999999999", "-1", "x"],
    }.items():
        without = {key: value for key, value in sent.items() if key != name}
        found.append(head(f"POST {UPDATE} HTTP/1.1", **without) + body)
        found += [head(f"POST {UPDATE} HTTP/1.1", **(sent | {name: value})) + body for value in values]
        found.append(update[:-2] + f"{name}: {sent[name]}\r\n\r\n".replace("_", "-") + body)  # twice
    chunked = {key: value for key, value in sent.items() if key != "Content_Length"} | {"Transfer_Encoding": "chunked"}
    found.append(head(f"POST {UPDATE} HTTP/1.1", **chunked) + f"c\r\n{body}\r\n0\r\n\r\n")
    found.append(head(f"GET {DRAW} HTTP/1.1", Authorization=f"Bearer {TOKEN}", Content_Length="3") + "abc")
    found.append(
        head(f"GET {DRAW} HTTP/1.1", Authorization=f"Bearer {TOKEN}", Transfer_Encoding="chunked") + "0\r\n\r\n"
    )
    found += [f"\r\n\r\n{draw}", draw.replace("\r\n", "\n"), f" {draw}", draw[:-2], draw + "rubbish\r\n\r\n"]
    return found


def test_the_same_bytes_get_the_same_answer_in_both_ways(tmp_path, make_task):
    """Whole requests, requests in parts, several in one part, and what is none."""

    async def check(both: Both) -> None:
        chance = random.Random(0)
        cases = requests(both.pool.version.decode())
        for request in cases:
            one, other = await both.answers(request)
            assert is_same(one, other), (request, one, other)
        assert both.at_once >= 25
        for _ in range(300):
            request = "".join(chance.choices(cases, k=chance.randint(1, 3)))
            cuts = sorted(chance.sample(range(1, 600), chance.randint(0, 3)))
            is_hurried = chance.random() < 0.3
            one, other = await both.answers(request, cuts, hurried=is_hurried)
            assert is_same(one, other), (request, cuts, one, other)
        assert both.at_once >= 100
        late, draw = next(case for case in cases if "0" * 64 in case), cases[0]  # refused before its body is there
        one, other = await both.answers(late + draw, [len(late) - 4, len(late)])
        assert one == other

    run(tmp_path, make_task, check, origins=("https://page.example",))


def test_large_bodies_get_the_same_answers_too(tmp_path, make_task):
    """Longer than a head may be: they are parsed in pieces."""

    async def check(both: Both) -> None:
        draw, update, *_ = requests(both.pool.version.decode(), both.pool.length)
        for request in (draw, update, update + draw, update + update, draw + update):
            for cuts in ([], [30], [300], [17_000], [16_384, 20_100], [24_000]):
                one, other = await both.answers(request, cuts)
                assert one == other, (request[:20], cuts)
                assert one[0].count(b"HTTP/1.1 ") == request.count("HTTP/1.1")
        assert both.at_once >= 10

    run(tmp_path, lambda: make_task(family="custom", features=None, response=None, weights=5000), check)


def test_refusals_that_depend_on_the_service_are_the_same_too(tmp_path, make_task):
    """A frozen model, load, bodies of others, a model that is gone, a fault."""

    async def check(both: Both) -> None:
        draw, update = requests(both.pool.version.decode())[:2]
        causes = list[str]()

        async def ask(request: str) -> None:
            one, other = await both.answers(request)
            assert one == other
            causes.append(one[0].partition(b'"cause": "')[2].partition(b'"')[0].decode())

        both.service.shedding = 1.0
        await ask(draw)
        await ask(update)
        both.service.shedding = 0.0
        both.service._receiving = both.service._bodies_bytes
        await ask(update)
        both.service._receiving = 0
        await both.service.registry.freeze("phishing", True)
        await ask(draw)
        await ask(update)
        await both.service.registry.freeze("phishing", False)
        both.pool._store._instances[both.pool.record.life].clear()
        both.pool._shown = None
        await ask(draw)
        both.pool.offer_now = None  # a fault, which reveals nothing
        await ask(update)
        assert causes == ["busy", "", "bodies", "frozen", "frozen", "unavailable", "fault"]
        assert both.at_once == 7
        refused = both.service.totals.refused
        assert [refused[cause] for cause in ("busy", "bodies", "frozen", "unavailable", "fault")] == [2, 2, 4, 2, 2]

    run(tmp_path, make_task, check)


def test_each_update_is_taken_with_its_own_body_however_it_arrives(tmp_path, make_task, monkeypatch):
    """A proxy may send those of many clients over one connection."""
    monkeypatch.setattr("blindsight.service.pool._SETTLE_S", 1e6)

    async def check(both: Both) -> None:
        update = requests(both.pool.version.decode())[1].partition("\r\n\r\n")[0] + "\r\n\r\n"
        connection, _, _ = both.connect(both.service)
        bodies = [bytes([number]) * 12 for number in range(1, 7)]
        for number, body in enumerate(bodies):
            data = update.replace("TICKET", both.ticket()).encode() + body
            cut = (len(data), len(data) - 5, 40)[number % 3]  # whole, its body in parts, its head in parts
            for part in (data[:cut], data[cut:]):
                connection.data_received(part)
                for _ in range(6):
                    await asyncio.sleep(0)
        assert both.pool._waiting == bodies
        assert both.at_once == 4

    run(tmp_path, make_task, check)


def test_silence_between_requests_ends_the_connection_after_either_answer(tmp_path, make_task):
    """Each request begins the time anew. It is no fault of the client's, so it is not counted."""

    async def check(both: Both) -> None:
        draw = head(f"GET {DRAW} HTTP/1.1", Authorization=f"Bearer {TOKEN}").encode()
        for service in (both.service, Patient()):
            connection, wire, listener = both.connect(service)
            for number in range(5):
                connection.data_received(draw)
                await asyncio.sleep(0.001)
                for later in (0.0, 4.9):
                    listener.sweep(10 * number + later)
                    assert not wire.is_closed
            assert wire.sent.count(b"HTTP/1.1 200 ") == 5
            listener.sweep(45.1)
            assert wire.is_closed
            assert listener.closed.total() == 0

    run(tmp_path, make_task, check)
