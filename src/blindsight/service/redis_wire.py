"""One pipelined connection to a Redis: commands are sent without waiting for earlier answers.

Python's usual client costs three times as much for small models (docs/service.md), and the needed part of the protocol
fits on this page; hiredis does the parsing.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Awaitable
from typing import Any
from urllib.parse import unquote, urlsplit

import hiredis

from blindsight.errors import InvalidInput, PrivacyError
from blindsight.service.store import StoreUnreachable

__all__ = ["Redis"]

_CONNECT_S = 3.0
_ANSWER_S = 5.0
_TRY_AGAIN_S = 0.2

Command = tuple[bytes | str | int, ...]


class Redis:
    """The Redis at `address`; connects on the first command, and again after a loss."""

    def __init__(self, address: str) -> None:
        parsed = urlsplit(address)
        self._host, self._secure = parsed.hostname or "localhost", parsed.scheme == "rediss"
        self._user, self._password = unquote(parsed.username or "default"), unquote(parsed.password or "")
        try:
            self._port, self._database = parsed.port or 6379, int(parsed.path.strip("/") or 0)
        except ValueError as error:
            raise InvalidInput("store must look like redis://:password@host:6379/0") from error
        self._wire: _Wire | None = None
        self._connecting = asyncio.Lock()
        self._failed = -1e9

    def ask(self, *commands: Command) -> Awaitable[list[Any]]:
        """The answers to `commands`, which are sent together; raises if Redis refuses one."""
        wire = self._wire
        if wire is None or wire.is_lost:
            return self._ask_anew(commands)
        return wire.ask(commands)

    async def _ask_anew(self, commands: tuple[Command, ...]) -> list[Any]:
        wire = await self._connect()
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
                    self._wire = await self._open()
            except (OSError, TimeoutError) as error:
                self._failed = time.monotonic()
                raise StoreUnreachable(
                    f"Redis at {self._host}, port {self._port}, cannot be reached: {error}"
                ) from error
            return self._wire

    async def _open(self) -> "_Wire":
        _, wire = await asyncio.get_running_loop().create_connection(
            _Wire, self._host, self._port, ssl=ssl.create_default_context() if self._secure else None
        )
        hello: list[Command] = [("AUTH", self._user, self._password)] if self._password else []
        try:
            *_, persistence = await wire.ask([*hello, ("SELECT", self._database), ("INFO", "persistence")])
        except _Refused as error:
            wire.lose()
            raise InvalidInput(
                f"Redis refused the connection ({error.__cause__}): check the password and database number in store"
            ) from error
        if b"aof_enabled:0" not in persistence:
            wire.lose()
            raise PrivacyError(
                "this Redis keeps an append-only file, which records every update clients sent, in "
                "order: set appendonly no and delete the file"
            )
        return wire


class _Refused(StoreUnreachable):
    """Redis refused a command."""

    def __init__(self, why: Exception) -> None:
        super().__init__(f"Redis refused a command: {why}")
        self.__cause__ = why


class _Wire(asyncio.Protocol):
    """Commands out, answers in, in the same order."""

    def __init__(self) -> None:
        self.is_lost = False
        self._reader = hiredis.Reader()
        self._pending: deque[tuple[asyncio.Future[list[Any]], int, float]] = deque()
        self._answers: list[Any] = []
        self._unsent: list[bytes] = []
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._loop = asyncio.get_running_loop()
        self._check_age()

    def ask(self, commands: "list[Command] | tuple[Command, ...]") -> asyncio.Future[list[Any]]:
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
        self._pending.append((future, len(commands), loop.time()))
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
            future, count, _ = self._pending[0]
            if len(self._answers) == count:
                self._pending.popleft()
                answers, self._answers = self._answers, []
                if future.done():
                    continue  # the caller has given up
                refused = [one for one in answers if isinstance(one, Exception)]
                if refused:
                    future.set_exception(_Refused(refused[0]))
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
