"""The shared store: several processes or hosts use one Redis, with one key for each instance (`redis_keys`).

Nothing heavy runs inside Redis: a replacement is one write, and the processes refresh the window for spam. An instance
is overwritten only where one exists (XX), so an update to a life that is over leaves nothing behind.

The registry calls `secret` every second. It looks at every server: whether it may hold the models, whether it has
started again, whether it takes writes, what is missing. `redis_recovery` puts things back.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.service.randomness import random_index
from blindsight.service.redis_cluster import connect
from blindsight.service.redis_keys import (
    ALIVE,
    MODELS,
    RUNS,
    SECRET,
    STONES,
    count_key,
    instance_key,
    life_keys,
    shown_key,
    spend_command,
    swap,
    taken,
)
from blindsight.service.redis_recovery import Recovery
from blindsight.service.redis_snapshots import SharedSnapshots
from blindsight.service.shown import random_indices
from blindsight.service.store import DELETED, NotSaved, Record, StoreUnreachable
from blindsight.service.tickets import SKEW_S, filter_words
from blindsight.service.tombstones import new_tombstone
from blindsight.service.used import Admission

__all__ = ["RedisStore"]

_log = logging.getLogger(__name__)
_KNOWN_FOR_S = 1.0
_UNKNOWN = 0, -1e9
_CARE_EVERY_S = 60.0
_CLOSE_WITHIN_S = 1.5  # for a Redis that hangs
_TRIES = 100


class RedisStore:
    """Models in a Redis; with a `folder` they survive its restart, as of the last snapshot."""

    shared = True

    def __init__(self, address: str, folder: Path | None, snapshot_s: float = 30.0, ticket_s: float = 600.0) -> None:
        self._redis = connect(address)
        self._snapshots = None if folder is None else SharedSnapshots(self._redis, folder)
        self._every = snapshot_s
        self._words, self._ticket_s = filter_words(ticket_s), int(ticket_s)
        self._recovery = Recovery(self._redis, folder)
        self.faults = self._recovery.faults
        self.saved_at = 0.0
        self.failures = 0
        self._unfit: StoreUnreachable | None = None
        self._checking: asyncio.Future[list[Any]] | None = None
        self._skew: float | None = None  # from this process's clock that never jumps to that of Redis
        self._known_secret: bytes | None = None
        self._cared_at = -1e9
        self._gaps = False  # whether an instance was missing
        self._lasting: set[str] = set()  # filters of used tickets whose end is set
        self._parsed: dict[bytes, Record] = {}
        self._counts: dict[str, tuple[int, float]] = {}  # by life: accepted updates, and when that was read
        self._writer: asyncio.Task[None] | None = None

    async def open(self) -> bytes:
        """Fill the Redis if it is empty, and start writing snapshots."""
        try:
            secret = await self.secret()
        except BlindsightError:
            await self._redis.close()
            raise
        if self._snapshots is not None:
            self._snapshots.sweep()
            self._writer = asyncio.create_task(self._write_every_so_often())
        return secret

    async def close(self) -> None:
        """Write a last snapshot; the data in Redis stay there."""
        if self._writer is not None:
            self._writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writer
        try:
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await self.snapshot()
        except (StoreUnreachable, TimeoutError) as error:
            raise NotSaved(f"the last snapshot could not be taken: {error or 'Redis does not answer'}") from error
        finally:
            await self._redis.close()

    async def secret(self) -> bytes:
        """The secret that signs tickets, after a look at the Redis; what is missing is restored first."""
        try:
            secret = await self._looked_after()
        except StoreUnreachable as error:
            self._unfit = error
            self._redis.trust(frozenset())  # no draws either: clients would pay for updates that nobody can take
            raise
        self._unfit = None
        return secret

    async def _looked_after(self) -> bytes:
        infos = await self._redis.infos()
        runs = frozenset(info.run for info in infos)
        if any(info.is_nearly_full for info in infos):
            _log.warning("Redis has used nine tenths of its memory: raise maxmemory")
        secret, trusted, clock, _ = await self._redis.look(
            ("GET", SECRET), ("SMEMBERS", RUNS), ("TIME",), ("SET", ALIVE, b"", "EX", 3600)
        )
        has_jumped = self._set_clock(int(clock[0]) + int(clock[1]) / 1e6)
        if has_jumped or secret is None or not runs <= {run.decode() for run in trusted}:
            secret = await self._recovery.fill(runs, known=self._known_secret if has_jumped else None)
            self._lasting.clear()
        self._known_secret = secret
        self._redis.trust(runs)
        if self._gaps or time.monotonic() - self._cared_at > _CARE_EVERY_S:
            self._gaps, self._cared_at = False, time.monotonic()
            self._lasting.clear()  # once more, in case a server was replaced
            await self._recovery.mend(await self.records())
        return secret

    def now(self) -> float:
        """Redis's clock when this process first asked, and from then on without jumps."""
        return time.monotonic() + (self._skew or 0.0)

    def _set_clock(self, reported: float) -> bool:
        """Whether Redis's clock has jumped: used tickets are forgotten by it."""
        skew = reported - time.monotonic()
        if self._skew is not None and abs(skew - self._skew) <= SKEW_S:
            return False
        has_jumped, self._skew = self._skew is not None, skew
        if has_jumped:
            _log.error("Redis's clock has jumped: all tickets are void")
        return has_jumped

    async def check(self) -> None:
        """Raise what was wrong with the Redis at the last look, or if it does not answer now."""
        if self._unfit is not None:
            raise self._unfit
        if self._checking is None or self._checking.done():
            self._checking = asyncio.ensure_future(self._redis.ask(("HLEN", MODELS)))
        await asyncio.shield(self._checking)  # an answer that is on its way is one to whoever asks meanwhile, too

    async def records(self) -> dict[str, Record]:
        """All models by name that this version can read."""
        (stored,) = await self._redis.ask(("HGETALL", MODELS))
        return self._parse(stored)

    async def put(self, record: Record, instances: Sequence[bytes] | None = None) -> bool:
        """Create or change a model; instances first, since the record makes them visible."""
        (stored,) = await self._redis.ask(("HGET", MODELS, record.model))
        before = None if stored is None else Record.from_json(stored)
        if not record.follows(before) or await self._is_only_missing(record, before):
            return False
        if instances is not None:
            await self._recovery.begin(record, list(instances))
        (done,) = await self._redis.ask(swap(record.model, stored, record.to_json()))
        over = before if done else record
        if instances is not None and over is not None:
            await self._recovery.drop(over.life, over.task.instances)
        if done:
            await self._snapshot_or_log()
        return bool(done)

    async def _is_only_missing(self, record: Record, before: Record | None) -> bool:
        """Whether a model to be created has a snapshot here, and no tombstone: then it is restored instead."""
        if before is not None or self._snapshots is None or record.model not in self._snapshots.names():
            return False
        await self._recovery.mend(await self.records())
        (is_back,) = await self._redis.ask(("HEXISTS", MODELS, record.model))
        return bool(is_back)

    async def delete(self, model: str, reason: str = DELETED) -> None:
        """Delete a model; other hosts delete their snapshots of it with their next snapshot."""
        for _ in range(_TRIES):
            (stored,) = await self._redis.ask(("HGET", MODELS, model))
            created, life, instances = _outline(stored)
            if created:
                await self._redis.ask(("HSET", STONES, created, new_tombstone(model, reason)))
            (done,) = await self._redis.ask(swap(model, stored, ""))
            if done:
                break
        else:
            raise StoreUnreachable(f"other processes keep changing {model}: try again")
        if life:
            await self._recovery.drop(life, instances)
        if self.faults.pop(model, None) is not None and self._snapshots is not None:
            self._snapshots.forget(model)  # unreadable, so its tombstone cannot be found
        await self._snapshot_or_log()

    async def sample(self, record: Record) -> tuple[list[bytes], int]:
        """Random different instances to mix, and the number of accepted updates."""
        keys = [("GET", instance_key(record, number)) for number in random_indices(record.task.instances)]
        count, *instances = await self._redis.ask(("GET", count_key(record)), *keys)
        if None in instances:
            self._gaps = True
            return [], 0
        return instances, taken(count)

    async def share(self, record: Record, shown: bytes | None, after: str, most: int) -> list[tuple[str, bytes]]:
        """Tell the other processes what draws show here, and learn what they have shown since `after`."""
        key = shown_key(record.life)
        told = [("XADD", key, "MAXLEN", most, "*", "shown", shown or b""), ("EXPIRE", key, self._ticket_s)]
        *_, found = await self._redis.ask(*(told if shown is not None else ()), ("XRANGE", key, after, "+"))
        return [(f"({number.decode()}", fields[1]) for number, fields in found]

    async def instances(self, record: Record) -> tuple[list[bytes], int]:
        """All instances, and the number of accepted updates."""
        keys = life_keys(record.life, record.task.instances)
        *instances, count = await self._redis.ask(*(("GET", key) for key in keys))
        self._gaps |= None in instances
        return ([], 0) if None in instances else (instances, taken(count))

    async def draw(self, record: Record) -> bytes | None:
        """A random instance."""
        (instance,) = await self._redis.ask(("GET", instance_key(record, random_index(record.task.instances))))
        self._gaps |= instance is None
        return instance

    async def spend(self, record: Record, nonce: bytes, ends: int) -> tuple[bool, int]:
        """Mark a ticket as used, for all processes; the count may be up to a second old."""
        now, (count, heard_at) = time.monotonic(), self._counts.get(record.life, _UNKNOWN)
        key, use = spend_command(nonce, ends, self._words)
        more = [] if key in self._lasting else [("EXPIRE", key, self._left(ends))]
        more += [] if 0 <= now - heard_at < _KNOWN_FOR_S else [("GET", count_key(record))]
        were, *rest = await self._redis.ask(use, *more)
        self._lasting.add(key)
        if more and more[-1][0] == "GET":
            count = self._know(record, rest[-1])
        return 0 in were, count

    def _left(self, ends: int) -> int:
        """Seconds that the filter of tickets that end then is kept."""
        return max(1, ends - int(self.now())) + 2 * SKEW_S

    async def use(self, admission: Admission) -> bool:
        """Mark an admission token as used, for all processes, in one atomic command."""
        key = f"blindsight:admission:{admission.key_id[:32]}"
        marks = [word for place in admission.marks for word in ("SET", "u1", place, 1)]
        before, _ = await self._redis.ask(("BITFIELD", key, *marks), ("EXPIREAT", key, admission.ends))
        return not all(before)

    async def replace(self, record: Record, update: bytes) -> bool:
        """One pipelined write."""
        return await self._write(record, instance_key(record, random_index(record.task.instances)), update, 1)

    async def decline(self, record: Record, update: bytes) -> None:
        """Exactly the same write, to a key that never exists."""
        place = instance_key(record, random_index(record.task.instances))
        await self._write(record, place.replace(f"{record.life}:", f"{record.life}."), update, 0)

    async def _write(self, record: Record, place: str, update: bytes, more: int) -> bool:
        is_there, count = await self._redis.ask(("SET", place, update, "XX"), ("INCRBY", count_key(record), more))
        self._gaps |= is_there is None and more > 0
        if count == more:  # the count of a life that is over was restarted
            await self._redis.ask(("DEL", count_key(record)))
        else:
            self._know(record, count)
        return is_there is not None

    def _know(self, record: Record, count: bytes | int | None) -> int:
        updates = taken(count)
        self._counts[record.life] = updates, time.monotonic()
        return updates

    async def snapshot(self) -> None:
        """Write every model that has changed, unless another process of this host is doing it."""
        if self._snapshots is None:
            return
        with self._snapshots.alone() as is_alone:
            secret, stored = await self._redis.ask(("GET", SECRET), ("HGETALL", MODELS))
            if secret is None or not is_alone:  # do not trust a Redis that has lost its data
                return
            unsaved = await self._snapshots.bury({name.decode() for name in stored[::2]}, await self.tombstones())
            for record in self._parse(stored).values():
                unsaved = await self._snapshots.write(record, *await self.instances(record)) or unsaved
        if unsaved:
            self.failures += 1
            raise NotSaved(unsaved)
        self.saved_at = time.time()

    async def tombstones(self) -> dict[str, str]:
        """The tombstones of deleted models, by creation."""
        (stored,) = await self._redis.ask(("HGETALL", STONES))
        return {key.decode(): stone.decode() for key, stone in zip(stored[::2], stored[1::2], strict=True)}

    async def _snapshot_or_log(self) -> None:
        """After an admin call, which is done whether its snapshot is written or not."""
        try:
            await self.snapshot()
        except NotSaved as error:
            _log.error("%s", error)

    async def _write_every_so_often(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.snapshot()
            except StoreUnreachable:
                pass  # the registry reports it
            except BlindsightError as error:
                _log.error("%s", error)

    def _parse(self, stored: list[bytes]) -> dict[str, Record]:
        parsed: dict[bytes, Record] = {}
        for name, text in zip(stored[::2], stored[1::2], strict=True):
            model = name.decode()
            try:
                parsed[text] = self._parsed.get(text) or Record.from_json(text)
                if text not in self._parsed:
                    self.faults.pop(model, None)
            except InvalidInput as error:
                if self.faults.get(model) != str(error):
                    _log.error("%s: %s; the other models are not affected", model, error)
                self.faults[model] = str(error)
        self._parsed = parsed
        lives = {record.life for record in parsed.values()}
        self._counts = {life: count for life, count in self._counts.items() if life in lives}
        return {record.model: record for record in parsed.values()}


def _outline(stored: bytes | None) -> tuple[str, str, int]:
    """Creation, life and number of instances of a record, also of one that this version cannot read."""
    try:
        fields = json.loads(stored or b"{}")
        life = str(fields.get("life", ""))
        return str(fields.get("created", life)), life, int(fields["task"]["instances"]) if life else 0
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", "", 0
