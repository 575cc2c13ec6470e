"""The shared store: several processes or hosts use one Redis, with one key for each instance.

::

    blindsight:models          a hash of records
    blindsight:LIFE:NUMBER     an instance, float32; no {tag}, so that the instances of a model spread over slots
    blindsight:LIFE:count      number of accepted updates plus one; if it is missing, this life is over
    blindsight:spent:NONCE     a used ticket, until it would have expired
    blindsight:secret          signs tickets; if it is missing, Redis has lost its data

Nothing heavy runs inside Redis: a replacement is one write, and the processes refresh the window for spam. An instance
is overwritten only where one exists (XX), so an update to a life that is over leaves nothing behind.

A restarted Redis is refilled from the snapshots that the processes write. The models then begin a new life, because
Redis no longer knows which tickets were used.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from blindsight.errors import BlindsightError
from blindsight.service import snapshots
from blindsight.service.randomness import random_index
from blindsight.service.redis_wire import Redis
from blindsight.service.store import Record, StoreUnreachable
from blindsight.service.tickets import SKEW_S

__all__ = ["RedisStore"]

_log = logging.getLogger(__name__)
_MODELS, _SECRET, _FILLING = "blindsight:models", "blindsight:secret", "blindsight:filling"
_FILL_WITHIN_S = 30
_KNOWN_FOR_S = 1.0
_UNKNOWN = 0, -1e9


class RedisStore:
    """Models in a Redis; with a `folder` they survive its restart, as of the last snapshot."""

    shared = True

    def __init__(self, address: str, folder: Path | None, snapshot_s: float = 30.0) -> None:
        self._redis = Redis(address)
        self._folder = folder
        self._every = snapshot_s
        self._written: dict[str, tuple[Record, int]] = {}
        self._parsed: dict[bytes, Record] = {}
        self._counts: dict[str, tuple[int, float]] = {}  # by life: accepted updates, and when that was read
        self._writer: asyncio.Task[None] | None = None

    async def open(self) -> bytes:
        """Fill the Redis if it is empty, and start writing snapshots."""
        secret = await self.secret()
        if self._folder is not None:
            with _alone(self._folder) as is_alone:
                if is_alone:
                    snapshots.sweep(self._folder)
            self._writer = asyncio.create_task(self._write_every_so_often())
        return secret

    async def close(self) -> None:
        """Write a last snapshot; the data in Redis stay there."""
        if self._writer is not None:
            self._writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writer
        with contextlib.suppress(StoreUnreachable):
            await self.snapshot()
        await self._redis.close()

    async def secret(self) -> bytes:
        """The secret that signs tickets; if Redis has lost it, the models are restored first."""
        (secret,) = await self._redis.ask(("GET", _SECRET))
        return secret or await self._fill()

    async def records(self) -> dict[str, Record]:
        """All models by name."""
        (stored,) = await self._redis.ask(("HGETALL", _MODELS))
        return self._parse(stored)

    async def put(self, record: Record, instances: Sequence[bytes] | None = None) -> None:
        """Create or change a model; instances first, since the record makes them visible."""
        (before,) = await self._redis.ask(("HGET", _MODELS, record.model))
        if instances is not None:
            for number, instance in enumerate(instances):
                await self._redis.ask(("SET", _key(record, number), instance))
            await self._redis.ask(("SET", _count(record), 1))
        await self._redis.ask(("HSET", _MODELS, record.model, record.to_json()))
        if before is not None and (old := Record.from_json(before)).life != record.life:
            await self._drop(old)
        await self.snapshot()

    async def delete(self, model: str) -> None:
        """Delete a model; other hosts delete their snapshots of it with their next snapshot."""
        (stored,) = await self._redis.ask(("HGET", _MODELS, model))
        await self._redis.ask(("HDEL", _MODELS, model))
        if stored is not None:
            await self._drop(Record.from_json(stored))
        await self.snapshot()

    async def draw(self, record: Record) -> bytes | None:
        """A random instance."""
        (instance,) = await self._redis.ask(("GET", _key(record, random_index(record.task.instances))))
        return instance

    async def instances(self, record: Record) -> tuple[list[bytes], int]:
        """All instances, and the number of accepted updates."""
        keys = [("GET", _key(record, number)) for number in range(record.task.instances)]
        count, *instances = await self._redis.ask(("GET", _count(record)), *keys)
        return ([], 0) if None in instances else (instances, _taken(count))

    async def spend(self, record: Record, nonce: bytes, ends: int) -> tuple[bool, int]:
        """Mark a ticket as used, for all processes; the count may be up to a second old."""
        now, (count, heard_at) = time.time(), self._counts.get(record.life, _UNKNOWN)
        left = max(1, ends + SKEW_S - int(now)) + SKEW_S
        use = ("SET", f"blindsight:spent:{nonce.hex()}", b"", "NX", "EX", left)
        if 0 <= now - heard_at < _KNOWN_FOR_S:
            (unused,) = await self._redis.ask(use)
        else:
            unused, stored = await self._redis.ask(use, ("GET", _count(record)))
            count = self._know(record, stored)
        return unused is not None, count

    async def replace(self, record: Record, update: bytes) -> bool:
        """One pipelined write."""
        return await self._write(record, _key(record, random_index(record.task.instances)), update, 1)

    async def decline(self, record: Record, update: bytes) -> None:
        """Exactly the same write, to a key that never exists."""
        place = _key(record, random_index(record.task.instances))
        await self._write(record, place.replace(f"{record.life}:", f"{record.life}."), update, 0)

    async def _write(self, record: Record, place: str, update: bytes, taken: int) -> bool:
        is_there, count = await self._redis.ask(("SET", place, update, "XX"), ("INCRBY", _count(record), taken))
        if count == taken:  # the count of a life that is over was restarted
            await self._redis.ask(("DEL", _count(record)))
        else:
            self._know(record, count)
        return is_there is not None

    def _know(self, record: Record, count: bytes | int | None) -> int:
        taken = _taken(count)
        self._counts[record.life] = taken, time.time()
        return taken

    async def snapshot(self) -> None:
        """Write every model that has changed, unless another process of this host is doing it."""
        if self._folder is None:
            return
        with _alone(self._folder) as is_alone:
            secret, stored = await self._redis.ask(("GET", _SECRET), ("HGETALL", _MODELS))
            if secret is None or not is_alone:  # do not trust a Redis that has lost its data
                return
            snapshots.sweep(self._folder)  # another process of this host may have died meanwhile
            records = self._parse(stored)
            for model in set(snapshots.names(self._folder)) - set(records):
                snapshots.forget(self._folder, model)
            for model, record in records.items():
                instances, count = await self.instances(record)
                if instances and self._written.get(model) != (record, count):
                    await asyncio.to_thread(snapshots.write, self._folder, record, instances)
                    self._written[model] = (record, count)

    async def _write_every_so_often(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.snapshot()
            except StoreUnreachable:
                pass  # the registry reports it
            except BlindsightError as error:
                _log.error("%s", error)

    async def _fill(self) -> bytes:
        """Load the snapshots into an empty Redis; one process does it, the others wait."""
        for _ in range(10 * _FILL_WITHIN_S):
            secret, mine = await self._redis.ask(("GET", _SECRET), ("SET", _FILLING, b"", "NX", "EX", _FILL_WITHIN_S))
            if secret is not None:
                return secret
            if mine is not None:
                break
            await asyncio.sleep(0.1)
        else:
            raise StoreUnreachable("another process was expected to fill this Redis and did not")
        for model in snapshots.names(self._folder) if self._folder is not None else []:
            record, instances = snapshots.read(self._folder or Path(), model)
            renewed = record.renewed()
            for number, instance in enumerate(instances):
                await self._redis.ask(("SET", _key(renewed, number), instance))
            await self._redis.ask(("SET", _count(renewed), 1), ("HSET", _MODELS, model, renewed.to_json()))
            _log.info("restored %s from its snapshot", model)
        _, secret, _ = await self._redis.ask(
            ("SET", _SECRET, secrets.token_bytes(32), "NX"), ("GET", _SECRET), ("DEL", _FILLING)
        )
        return secret

    async def _drop(self, record: Record) -> None:
        keys = [_key(record, number) for number in range(record.task.instances)]
        await self._redis.ask(*(("DEL", key) for key in [*keys, _count(record)]))

    def _parse(self, stored: list[bytes]) -> dict[str, Record]:
        texts = stored[1::2]
        self._parsed = {text: self._parsed.get(text) or Record.from_json(text) for text in texts}
        lives = {record.life for record in self._parsed.values()}
        self._counts = {life: count for life, count in self._counts.items() if life in lives}
        return {record.model: record for record in self._parsed.values()}


def _key(record: Record, number: int) -> str:
    return f"blindsight:{record.life}:{number}"


def _count(record: Record) -> str:
    return f"blindsight:{record.life}:count"


def _taken(count: bytes | int | None) -> int:
    """The number of updates represented by the value at `_count`."""
    return max(int(count or 0) - 1, 0)


@contextlib.contextmanager
def _alone(folder: Path) -> Generator[bool]:
    """Whether no other process of this host is writing to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(lock)
