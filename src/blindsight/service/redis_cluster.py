"""A Redis Cluster: every command goes to the node that has its key, and redirections are followed.

A node that hangs up makes its commands fail, as with a single Redis, because nobody knows whether they were carried
out; the next ones ask the cluster who has its slots now.
"""

import asyncio
from binascii import crc_hqx
from collections.abc import Set
from typing import Any

from blindsight.service.redis_address import RedisAddress
from blindsight.service.redis_fitness import RedisInfo
from blindsight.service.redis_wire import Command, Redis
from blindsight.service.store import StoreUnreachable

__all__ = ["Cluster", "connect", "slot"]

_SLOTS = 16384
_TRIES = 20  # of a command that is redirected, or whose slot is moving
_WAIT_S = 0.1

Host = tuple[str, int]


def connect(address: str) -> "Redis | Cluster":
    """The Redis at an address of any kind; it is dialled with the first command."""
    parsed = RedisAddress.parse(address)
    return Cluster(parsed) if parsed.kind == "cluster" else Redis(parsed)


def slot(key: bytes | str | int) -> int:
    """The slot of a key without {tags}.

    >>> slot("123456789")
    12739
    """
    return crc_hqx(str(key).encode() if not isinstance(key, bytes) else key, 0) % _SLOTS


class Cluster:
    """The cluster that the nodes in `address` belong to; the same calls as `Redis`."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._nodes: dict[Host, Redis] = {}
        self._owners: list[tuple[int, Host]] = []  # last slot of each range, ascending
        self._trusted: Set[str] | None = None
        self._mapping = asyncio.Lock()

    async def ask(self, *commands: Command) -> list[Any]:
        """The answers to `commands`, in order."""
        return await self._ask(commands, must_trust=True)

    async def look(self, *commands: Command) -> list[Any]:
        """`ask`, whether the nodes are trusted or not."""
        return await self._ask(commands, must_trust=False)

    async def infos(self) -> list[RedisInfo]:
        """What every master says about itself; raises if one may not hold the models."""
        await self._map()
        masters = [self._node(host) for host in dict.fromkeys(host for _, host in self._owners)]
        try:
            return [info for found in await asyncio.gather(*(node.infos() for node in masters)) for info in found]
        except StoreUnreachable:
            self._owners = []
            raise

    def trust(self, runs: Set[str]) -> None:
        """Let commands pass to nodes with these runs only."""
        self._trusted = runs
        for node in self._nodes.values():
            node.trust(runs)

    async def close(self) -> None:
        """Hang up."""
        for node in self._nodes.values():
            await node.close()

    async def _ask(self, commands: tuple[Command, ...], *, must_trust: bool) -> list[Any]:
        answers: list[Any] = [None] * len(commands)
        targets: dict[int, Host | None] = dict.fromkeys(range(len(commands)))  # None: the owner of the slot
        asking = set[int]()  # commands about keys that are being moved
        for _ in range(_TRIES):
            if not self._owners:
                await self._map()
            await self._send(commands, targets, asking, answers, must_trust)
            targets, asking = await self._redirected(answers, targets)
            if not targets:
                return answers
        raise StoreUnreachable(f"the cluster redirects without end: {next(iter(answers))}")

    async def _send(
        self,
        commands: tuple[Command, ...],
        targets: dict[int, Host | None],
        asking: set[int],
        answers: list[Any],
        must_trust: bool,
    ) -> None:
        """Ask every node for its part, and put the answers in their places."""
        parts: dict[Host, list[int]] = {}
        for number, target in targets.items():
            parts.setdefault(target or self._owner(_key_of(commands[number])), []).append(number)

        async def ask(host: Host, numbers: list[int]) -> None:
            sent: list[Command] = []
            for number in numbers:
                sent += [("ASKING",), commands[number]] if number in asking else [commands[number]]
            node = self._node(host)
            found = await (node.ask(*sent) if must_trust else node.look(*sent))
            kept = [answer for answer, command in zip(found, sent, strict=True) if command != ("ASKING",)]
            for number, answer in zip(numbers, kept, strict=True):
                answers[number] = answer

        results = await asyncio.gather(*(ask(host, part) for host, part in parts.items()), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                self._owners = []  # another node may have these slots by now
                raise result

    async def _redirected(
        self, answers: list[Any], targets: dict[int, Host | None]
    ) -> tuple[dict[int, Host | None], set[int]]:
        """The commands to send again, to which nodes, and which of them about keys that are being moved."""
        again: dict[int, Host | None] = {}
        asking = set[int]()
        for number in targets:
            error = answers[number]
            if not isinstance(error, Exception):
                continue
            word, *rest = str(error).split()
            if word in ("MOVED", "ASK"):
                host, _, port = rest[1].rpartition(":")
                again[number] = (host, int(port)) if host else None
                if word == "ASK":
                    asking.add(number)
                else:
                    self._owners = []
            elif word in ("TRYAGAIN", "CLUSTERDOWN", "LOADING"):
                again[number] = None
                self._owners = []
                await asyncio.sleep(_WAIT_S)
            else:
                raise StoreUnreachable(f"Redis refused a command: {error}") from error
        return again, asking

    async def _map(self) -> None:
        """Ask any node which node has which slots."""
        async with self._mapping:
            if self._owners:
                return
            why: Exception | None = None
            for host in dict.fromkeys([*self._nodes, *self._address.hosts]):
                try:
                    (ranges,) = await self._node(host).look(("CLUSTER", "SLOTS"))
                except StoreUnreachable as error:
                    why = error
                    continue
                if isinstance(ranges, Exception) or not ranges:
                    why = ranges if isinstance(ranges, Exception) else StoreUnreachable("it has no slots")
                    continue
                self._owners = sorted(
                    (last, ((master[0] or b"").decode() or host[0], master[1])) for _, last, master, *_ in ranges
                )
                return
            raise StoreUnreachable(f"no node of the cluster says where its slots are: {why}")

    def _owner(self, key: bytes | str | int) -> Host:
        wanted = slot(key)
        for last, host in self._owners:
            if wanted <= last:
                return host
        raise StoreUnreachable("no node has some of the cluster's slots")

    def _node(self, host: Host) -> Redis:
        node = self._nodes.get(host)
        if node is None:
            node = self._nodes[host] = Redis(self._address.at(*host), is_raw=True)
            if self._trusted is not None:
                node.trust(self._trusted)
        return node


def _key_of(command: Command) -> bytes | str | int:
    if command[0] == "EVAL":
        return command[3]
    return command[1] if len(command) > 1 else ""
