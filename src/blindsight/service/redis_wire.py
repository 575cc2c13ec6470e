"""One pipelined connection to a Redis: commands are sent without waiting for earlier answers.

Python's usual client costs three times as much for small models (docs/service.md), and the needed part of the protocol
fits on this page; hiredis does the parsing.

A server that starts again may have lost its last seconds, and used tickets with them. So every new connection asks for
the server's run, and commands other than `look` pass only if the store trusts that run (`trust`).
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Set
from typing import Any

import hiredis

from blindsight.errors import InvalidInput
from blindsight.service.redis_address import RedisAddress
from blindsight.service.redis_fitness import RedisInfo
from blindsight.service.store import StoreUnreachable

__all__ = ["Command", "Redis"]

_CONNECT_S = 3.0
_ANSWER_S = 5.0
_TRY_AGAIN_S = 0.2

Command = tuple[bytes | str | int, ...]


class Redis:
    """The Redis at `address`, if need be through its sentinels; connects on the first command, and again after a loss.

    With `is_raw` the answers include errors; otherwise the first one is raised.
    """

    def __init__(self, address: str | RedisAddress, *, is_raw: bool = False) -> None:
        self._address = RedisAddress.parse(address) if isinstance(address, str) else address
        self._is_raw = is_raw
        self._wire: _Wire | None = None
        self._connecting = asyncio.Lock()
        self._failed = -1e9
        self._trusted: Set[str] | None = None  # runs; before the first is named, all are

    def ask(self, *commands: Command) -> Awaitable[list[Any]]:
        """The answers to `commands`, which are sent together; raises if Redis refuses one."""
        wire = self._wire
        if wire is None or wire.is_lost or not wire.is_trusted:
            return self._ask_anew(commands)
        return wire.ask(commands)

    async def look(self, *commands: Command) -> list[Any]:
        """`ask`, whether the server is trusted or not."""
        return await (await self._connect()).ask(commands)

    async def infos(self) -> list[RedisInfo]:
        """What the server says about itself now; raises if it may not hold the models."""
        wire = await self._connect()
        info = RedisInfo.parse(*await wire.ask((("INFO",),), is_raw=False))
        if (fault := info.fault) is not None:
            wire.is_trusted = False
            if info.role != "master":  # find the new one
                wire.lose()
            raise fault
        return [info]

    def trust(self, runs: Set[str]) -> None:
        """Let commands pass to servers with these runs only."""
        self._trusted = runs
        if self._wire is not None:
            self._wire.is_trusted = self._wire.run in runs

    async def _ask_anew(self, commands: tuple[Command, ...]) -> list[Any]:
        wire = await self._connect()
        if not wire.is_trusted:
            raise StoreUnreachable("Redis has started again, or is not fit, and is being checked")
        return await wire.ask(commands)

    async def close(self) -> None:
        """Hang up."""
        if self._wire is not None:
            self._wire.lose()
            self._wire = None

    async def _connect(self) -> "_Wire":
        async with self._connecting:
            if self._wire is not None and not self._wire.is_lost:
                return self._wire
            if time.monotonic() - self._failed < _TRY_AGAIN_S:
                raise StoreUnreachable("Redis is unreachable")
            try:
                async with asyncio.timeout(_CONNECT_S):  # `wait_for` of Python 3.11 forgets that it was cancelled
                    host, port = await self._find() if self._address.kind == "sentinel" else self._address.hosts[0]
                    self._wire = await self._open(host, port)
            except (OSError, TimeoutError) as error:
                self._failed = time.monotonic()
                where = " or ".join(f"{host}, port {port}" for host, port in self._address.hosts)
                raise StoreUnreachable(f"Redis at {where}, cannot be reached: {error}") from error
            return self._wire

    async def _find(self) -> tuple[str, int]:
        """The master that the first sentinel to answer names."""
        why: object = "no answer"
        for host, port in self._address.hosts:
            try:
                wire = await self._dial(host, port)
                command: Command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.name)
                try:
                    (found,) = await wire.ask((command,), is_raw=False)
                finally:
                    wire.lose()
            except (OSError, StoreUnreachable) as error:
                why = error
                continue
            if found is not None:
                return found[0].decode(), int(found[1])
            why = f"it knows no master {self._address.name}"
        raise OSError(f"no sentinel names a master ({why})")

    async def _dial(self, host: str, port: int) -> "_Wire":
        context = ssl.create_default_context() if self._address.is_secure else None
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(lambda: _Wire(self._is_raw), host, port, ssl=context)
        return wire

    async def _open(self, host: str, port: int) -> "_Wire":
        wire, address = await self._dial(host, port), self._address
        hello: list[Command] = [("AUTH", address.user, address.password)] if address.password else []
        hello += [("SELECT", address.database)] if address.database else []
        try:
            *_, answer = await wire.ask([*hello, ("INFO",)], is_raw=False)
        except _Refused as error:
            wire.lose()
            raise _Denied(
                f"Redis refused the connection ({error.__cause__}): check the password and database number in store"
            ) from error
        info = RedisInfo.parse(answer)
        wire.run = info.run
        wire.is_trusted = self._trusted is None or (info.run in self._trusted and info.fault is None)
        return wire


class _Denied(StoreUnreachable, InvalidInput):
    """Redis does not let us in."""


class _Refused(StoreUnreachable):
    """Redis refused a command."""

    def __init__(self, why: Exception) -> None:
        super().__init__(f"Redis refused a command: {why}")
        self.__cause__ = why


class _Wire(asyncio.Protocol):
    """Commands out, answers in, in the same order."""

    def __init__(self, is_raw: bool) -> None:
        self.is_lost = False
        self.is_trusted = True
        self.run = ""
        self._is_raw = is_raw
        self._reader = hiredis.Reader()
        self._pending: deque[tuple[asyncio.Future[list[Any]], int, float, bool]] = deque()
        self._answers: list[Any] = []
        self._unsent: list[bytes] = []
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._loop = asyncio.get_running_loop()
        self._check_age()

    def ask(
        self, commands: "list[Command] | tuple[Command, ...]", is_raw: bool | None = None
    ) -> asyncio.Future[list[Any]]:
        """A future of the answers."""
        loop = self._loop
        future: asyncio.Future[list[Any]] = loop.create_future()
        if self.is_lost:
            future.set_exception(StoreUnreachable("Redis went away"))
            return future
        if not self._unsent:
            loop.call_soon(self._flush)
        for command in commands:
            self._unsent.append(hiredis.pack_command(command))  # pyright: ignore[reportArgumentType]
        self._pending.append((future, len(commands), loop.time(), self._is_raw if is_raw is None else is_raw))
        return future

    def _flush(self) -> None:
        """One write for all commands of a turn of the event loop: system calls are the main cost."""
        unsent, self._unsent = self._unsent, []
        if not self.is_lost:
            self._transport.writelines(unsent)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        while self._pending:
            answer = reader.gets()
            if answer is False:
                return
            self._answers.append(answer)
            future, count, _, is_raw = self._pending[0]
            if len(self._answers) == count:
                self._pending.popleft()
                answers, self._answers = self._answers, []
                if future.done():
                    continue  # the caller has given up
                refused = [] if is_raw else [one for one in answers if isinstance(one, Exception)]
                if refused:
                    future.set_exception(_Refused(refused[0]))
                    if str(refused[0]).startswith("READONLY"):  # a master no more
                        self.lose()
                        return
                else:
                    future.set_result(answers)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose()

    def lose(self) -> None:
        """Give up: all outstanding commands fail."""
        self.is_lost = True
        if self._watch is not None:
            self._watch.cancel()
        self._transport.abort()
        while self._pending:
            future = self._pending.popleft()[0]
            if not future.done():
                future.set_exception(StoreUnreachable("Redis went away"))

    def _check_age(self) -> None:
        """Treat a Redis that hangs as lost: one timer per connection, none per command."""
        loop = asyncio.get_running_loop()
        if self._pending and loop.time() - self._pending[0][2] > _ANSWER_S:
            self.lose()
        elif not self.is_lost:
            self._watch = loop.call_later(1.0, self._check_age)
