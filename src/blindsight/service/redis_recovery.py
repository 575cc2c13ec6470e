"""What is missing from a Redis is put back: after a restart, an eviction, a deleted list, or a crash of a process.

Absence is never deletion. A model is deleted if a tombstone says so, in Redis or in the folder of snapshots; whatever
else is missing is restored from what is left in Redis, or from a snapshot.

After a restart of Redis nobody knows which tickets were used since it last wrote to disk. So all models begin a new
life, from Redis or from the snapshot, whichever is newer, and the secret that signs tickets is replaced.
"""

import asyncio
import logging
import secrets
from collections.abc import Set
from pathlib import Path

from blindsight.errors import InvalidInput
from blindsight.service import snapshots
from blindsight.service.randomness import random_index
from blindsight.service.redis_cluster import Cluster
from blindsight.service.redis_keys import (
    FILLING,
    LIVES,
    MODELS,
    RUNS,
    SECRET,
    STONES,
    count_key,
    instance_key,
    life_keys,
    shown_key,
    swap,
    taken,
)
from blindsight.service.redis_wire import Redis
from blindsight.service.snapshots import Snapshot
from blindsight.service.store import Record, StoreUnreachable
from blindsight.service.tombstones import read_tombstones

__all__ = ["Recovery"]

_log = logging.getLogger(__name__)
_FILL_WITHIN_S = 30


class Recovery:
    """Restores models of a Redis, with the snapshots in `folder`."""

    def __init__(self, redis: Redis | Cluster, folder: Path | None) -> None:
        self.faults: dict[str, str] = {}
        """Models that cannot be restored, and why."""
        self._redis = redis
        self._folder = folder
        self._adrift: set[str] = set()  # lives without a record at the last look

    async def fill(self, runs: Set[str], known: bytes | None = None) -> bytes:
        """Begin new lives and a new secret; one process does it, the others wait. The secret `known` is void."""
        for _ in range(10 * _FILL_WITHIN_S):
            secret, trusted, mine = await self._redis.look(
                ("GET", SECRET), ("SMEMBERS", RUNS), ("SET", FILLING, b"", "NX", "EX", _FILL_WITHIN_S)
            )
            if secret is not None and secret != known and runs <= {run.decode() for run in trusted}:
                if mine is not None:
                    await self._redis.look(("DEL", FILLING))
                return secret
            if mine is not None:
                break
            await asyncio.sleep(0.1)
        else:
            raise StoreUnreachable("another process was expected to fill this Redis and did not")
        stored, stones = await self._redis.look(("HGETALL", MODELS), ("HKEYS", STONES))
        for model in sorted({name.decode() for name in stored[::2]} | set(self._names())):
            await self._redis.look(("EXPIRE", FILLING, _FILL_WITHIN_S))
            await self._renew(model, {stone.decode() for stone in stones} | set(self._stones()))
        fresh = secrets.token_bytes(32)
        await self._redis.look(("SET", SECRET, fresh))
        await self._redis.look(("SADD", RUNS, *sorted(runs)), ("DEL", FILLING))
        return fresh

    async def mend(self, records: dict[str, Record]) -> None:
        """Restore what is missing of `records`, and records of which only snapshots are left."""
        stones, present = await self._redis.ask(("HKEYS", STONES), ("HKEYS", MODELS))
        deleted = {stone.decode() for stone in stones} | set(self._stones())
        for model, record in records.items():
            if record.created in deleted:  # it came back with an old copy of Redis, or its deletion was interrupted
                await self._renew(model, deleted)
            else:
                await self._complete(record)
        for model in sorted(set(self._names()) - {name.decode() for name in present}):
            await self._return(model, deleted)
        await self._clear(records)

    async def drop(self, life: str, instances: int) -> None:
        """Delete the keys of a life that is over."""
        await self._redis.look(*(("DEL", key) for key in [*life_keys(life, instances), shown_key(life)]))
        await self._redis.look(("HDEL", LIVES, life))

    async def begin(self, record: Record, instances: list[bytes], updates: int = 0) -> None:
        """Write a new life, which nobody sees before a record names it."""
        await self._redis.look(("HSET", LIVES, record.life, len(instances)))
        for number, instance in enumerate(instances):
            await self._redis.look(("SET", instance_key(record, number), instance))
        await self._redis.look(("SET", count_key(record), updates + 1))

    async def held(self, record: Record) -> tuple[list[bytes | None], int | None]:
        """What Redis has of a life: its instances, and the number of updates."""
        keys = life_keys(record.life, record.task.instances)
        *instances, count = await self._redis.look(*(("GET", key) for key in keys))
        return instances, None if count is None else taken(count)

    async def _renew(self, model: str, deleted: Set[str]) -> None:
        """A new life for a model, from the newer of Redis and snapshot; or its end, if it was deleted."""
        (stored,) = await self._redis.look(("HGET", MODELS, model))
        record = self._parse(model, stored)
        if stored is not None and record is None:
            return  # of a newer version, which knows what to do
        if record is not None and record.created in deleted:
            await self._end(record, stored)
            record = stored = None
        kept = self._kept(model, deleted, is_all=record is None)
        if record is not None and not (kept and kept.record.revision > record.revision):
            instances, count = await self.held(record)
            updates = -1 if kept is None or kept.record.life != record.life else kept.updates
            if None not in instances and (count or 0) >= updates:
                kept = Snapshot(record, [one for one in instances if one is not None], count or 0)
        if kept is not None:
            await self._restore(kept, record, stored)
        elif record is not None:
            await self._complete(record)

    async def _complete(self, record: Record) -> None:
        """Put missing instances back: single ones in place, and a model of which most are lost as a whole."""
        instances, count = await self.held(record)
        lost = [number for number, instance in enumerate(instances) if instance is None]
        if not lost and count is not None:
            self.faults.pop(record.model, None)
            return
        kept, left = self._kept(record.model, set(), is_all=not any(instances)), [one for one in instances if one]
        same = kept is not None and kept.record.created == record.created
        if kept is not None and same and 2 * len(left) <= len(instances):
            (stored,) = await self._redis.look(("HGET", MODELS, record.model))
            await self._restore(kept, self._parse(record.model, stored), stored)
        elif left:
            spare = kept.instances if kept is not None and kept.record.life == record.life else None
            for number in lost:
                instance = spare[number] if spare else left[random_index(len(left))]
                await self._redis.look(("SET", instance_key(record, number), instance, "NX"))
            updates = kept.updates if spare and kept else 0
            await self._redis.look(("SET", count_key(record), (count or updates) + 1, "NX"))
            origin = "its snapshot" if spare else "copies of others, since no snapshot has them"
            _log.error("Redis had lost %d instances of %s: replaced by %s", len(lost), record.model, origin)
        else:
            self._fault(record.model, f"Redis has lost all instances of {record.model}, and there is no snapshot")

    async def _return(self, model: str, deleted: Set[str]) -> None:
        """Put back a model whose record is missing: with its instances if Redis still has them."""
        kept = self._kept(model, deleted, is_all=True)
        if kept is None:
            return
        instances, _ = await self.held(kept.record)
        if 2 * sum(one is not None for one in instances) > len(instances):
            (done,) = await self._redis.look(swap(model, None, kept.record.to_json()))
            if done:
                _log.error("Redis had lost the record of %s: restored", model)
                await self._complete(kept.record)
        else:
            await self._restore(kept, None, None)

    async def _restore(self, kept: Snapshot, before: Record | None, stored: bytes | None) -> None:
        """Replace what is stored of a model by a new life of `kept`."""
        newer = kept.record if before is None or before.revision <= kept.record.revision else before
        renewed = newer.renewed(task=kept.record.task)
        await self.begin(renewed, kept.instances, kept.updates)
        (done,) = await self._redis.look(swap(kept.record.model, stored, renewed.to_json()))
        ends = (before or kept.record) if done else renewed
        await self.drop(ends.life, ends.task.instances)
        if done:
            self.faults.pop(kept.record.model, None)
            _log.info("restored %s", kept.record.model)

    async def _end(self, record: Record, stored: bytes | None) -> None:
        await self._redis.look(swap(record.model, stored, ""))
        await self.drop(record.life, record.task.instances)

    async def _clear(self, records: dict[str, Record]) -> None:
        """Delete lives that a crash left without a record, if they were so at the last look too."""
        (stored,) = await self._redis.look(("HGETALL", LIVES))
        lives = {life.decode(): int(count) for life, count in zip(stored[::2], stored[1::2], strict=True)}
        used = {record.life for record in records.values()}
        adrift = set(lives) - used if not self.faults else set[str]()
        for life in adrift & self._adrift:
            await self.drop(life, lives[life])
        self._adrift = adrift

    def _parse(self, model: str, stored: bytes | None) -> Record | None:
        try:
            return None if stored is None else Record.from_json(stored)
        except InvalidInput as error:
            self._fault(model, str(error))
            return None

    def _kept(self, model: str, deleted: Set[str], *, is_all: bool) -> Snapshot | None:
        """A model's snapshot, if there is one and the model was not deleted since; whether it `is_all` that is left."""
        if self._folder is None or model not in self._names():
            return None
        try:
            kept = snapshots.read(self._folder, model)
        except InvalidInput as error:
            if is_all:
                self._fault(model, str(error))
            return None
        return None if kept.record.created in deleted else kept

    def _fault(self, model: str, sentence: str) -> None:
        if self.faults.get(model) != sentence:
            _log.error("%s; the other models are not affected", sentence)
        self.faults[model] = sentence

    def _names(self) -> list[str]:
        return snapshots.names(self._folder) if self._folder is not None else []

    def _stones(self) -> dict[str, str]:
        return read_tombstones(self._folder) if self._folder is not None else {}
