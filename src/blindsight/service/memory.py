"""The embedded store: instances as bytes in this process, with periodic snapshots on disk and one at exit.

A crash loses the updates since the last snapshot; clients do not have to react. An admin call changes the file first
and memory after it: if the disk is full, it has no effect. A snapshot that cannot be read stops only its own model, and
is kept.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from blindsight.errors import InvalidInput
from blindsight.service import snapshots
from blindsight.service.randomness import random_index
from blindsight.service.shown import random_indices
from blindsight.service.store import DELETED, NotSaved, Record, StoreUnfit
from blindsight.service.tickets import Spent
from blindsight.service.tombstones import new_tombstone, read_tombstones, write_tombstones
from blindsight.service.used import Admission, Used

__all__ = ["MemoryStore"]

_log = logging.getLogger(__name__)


class MemoryStore:
    """Models in memory; with a `folder` they are saved every `snapshot_s` seconds and survive a restart."""

    shared = False

    def __init__(self, folder: Path | None, snapshot_s: float = 30.0, ticket_s: float = 600.0) -> None:
        self.faults: dict[str, str] = {}
        self.saved_at = 0.0
        self.failures = 0
        self._folder = folder
        self._every = snapshot_s
        self._records: dict[str, Record] = {}
        self._instances: dict[str, list[bytes]] = {}  # by life
        self._counts: dict[str, int] = {}
        self._written: dict[str, tuple[Record, int]] = {}
        self._used = Used(folder)
        self._unsaved = ""  # why the last snapshot failed
        self._skew = time.time() - time.monotonic()  # fixed: from here on the machine's clock may jump
        self.spend_now = Spent(self.now, ticket_s).spend  # marks a ticket as used; returns whether it was unused
        self._secret = secrets.token_bytes(32)  # a restart invalidates every ticket, used or not
        self._lock: int | None = None
        self._writer: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    async def open(self) -> bytes:
        """Read the snapshots and lock them against other processes."""
        if self._folder is not None:
            self._lock = _only_process(self._folder)
            snapshots.sweep(self._folder)
            for model in snapshots.names(self._folder):
                try:
                    record, instances, updates = snapshots.read(self._folder, model)
                except InvalidInput as error:
                    self.faults[model] = str(error)
                    _log.error("%s; the other models are not affected", error)
                else:
                    self._keep(record, instances, updates)
                    self._written[model] = (record, updates)
            self._writer = asyncio.create_task(self._write_every_so_often())
        return self._secret

    async def close(self) -> None:
        """Write everything that has changed since the last snapshot."""
        if self._writer is not None:
            self._writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writer
        try:
            await self.snapshot()
        finally:
            self._used.close()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def now(self) -> float:
        """Seconds since 1970 by the clock at the start, and from then on without jumps."""
        return self._skew + time.monotonic()

    async def check(self) -> None:
        """Raise `StoreUnfit` if the last snapshot could not be written."""
        if self._unsaved:
            raise StoreUnfit(self._unsaved)

    async def secret(self) -> bytes:
        """Always the same: this store ends with its process."""
        return self._secret

    async def records(self) -> dict[str, Record]:
        """All models by name."""
        return dict(self._records)

    async def put(self, record: Record, instances: Sequence[bytes] | None = None) -> bool:
        """Create or change a model, on disk when this returns."""
        async with self._writing:
            before = self._records.get(record.model)
            if record.model in self.faults or not record.follows(before):
                return False
            if instances is not None:
                await self._write(record, list(instances), 0)
                self._forget(record.model)
                self._keep(record, list(instances), 0)
            else:
                await self._write(record, list(self._instances[record.life]), self._counts[record.life])
                self._records[record.model] = record
        return True

    async def delete(self, model: str, reason: str = DELETED) -> None:
        """Delete a model, in memory and on disk."""
        async with self._writing:
            if self._folder is not None:
                snapshots.forget(self._folder, model)
            record = self._records.get(model)
            self._forget(model)
            self._written.pop(model, None)
            self.faults.pop(model, None)
            if record is not None and self._folder is not None:
                stones = read_tombstones(self._folder) | {record.created: new_tombstone(model, reason)}
                try:
                    write_tombstones(self._folder, stones)
                except OSError as error:  # the model is gone; only backups of it do not learn why
                    _log.error("cannot note that %s was deleted (%s)", model, error.strerror)

    def draw_now(self, record: Record) -> bytes | None:
        """A random instance; methods with `now` in their names never wait."""
        instances = self._instances.get(record.life)
        return instances[random_index(len(instances))] if instances else None

    def sample_now(self, record: Record) -> list[bytes]:
        """Random different instances to mix."""
        instances = self._instances.get(record.life)
        return [instances[place] for place in random_indices(len(instances))] if instances else []

    def instances_now(self, record: Record) -> Sequence[bytes]:
        """All instances; read them before anything else changes them."""
        return self._instances.get(record.life, ())

    def count_now(self, record: Record) -> int:
        """The number of accepted updates."""
        return self._counts.get(record.life, 0)

    def replace_now(self, record: Record, update: bytes) -> bool:
        """Overwrite a random instance with the update."""
        instances = self._instances.get(record.life)
        if not instances:
            return False
        instances[random_index(len(instances))] = update
        self._counts[record.life] += 1
        return True

    def decline_now(self, record: Record) -> None:
        """The steps of `replace_now`, without effect."""
        instances = self._instances.get(record.life)
        if instances:
            place = random_index(len(instances))
            instances[place] = instances[place]
            self._counts[record.life] += 0

    async def draw(self, record: Record) -> bytes | None:
        """A random instance."""
        return self.draw_now(record)

    async def sample(self, record: Record) -> tuple[list[bytes], int]:
        """Random different instances to mix, and the number of accepted updates."""
        return self.sample_now(record), self.count_now(record)

    async def share(self, record: Record, shown: bytes | None, after: str, most: int) -> list[tuple[str, bytes]]:
        """Nothing: there is no other process."""
        return []

    async def instances(self, record: Record) -> tuple[list[bytes], int]:
        """All instances, and the number of accepted updates."""
        return list(self.instances_now(record)), self.count_now(record)

    async def spend(self, record: Record, nonce: bytes, ends: int) -> tuple[bool, int]:
        """Mark a ticket as used."""
        return self.spend_now(nonce, ends), self.count_now(record)

    async def use(self, admission: Admission) -> bool:
        """Mark an admission token as used."""
        return self._used.use(admission)

    async def replace(self, record: Record, update: bytes) -> bool:
        """Overwrite a random instance with the update."""
        return self.replace_now(record, update)

    async def decline(self, record: Record, update: bytes) -> None:
        """Take as long as `replace`, without effect."""
        self.decline_now(record)

    async def snapshot(self) -> None:
        """Write every model that has changed; one that cannot be written does not stop the others."""
        if self._folder is None:
            return
        unsaved = ""
        async with self._writing:
            for model, record in list(self._records.items()):
                count = self._counts[record.life]
                if self._written.get(model) != (record, count):
                    try:
                        await self._write(record, list(self._instances[record.life]), count)
                    except NotSaved as error:
                        unsaved = str(error)
        self._unsaved = unsaved
        if unsaved:
            raise NotSaved(unsaved)
        self.saved_at = time.time()

    async def _write(self, record: Record, instances: list[bytes], count: int) -> None:
        if self._folder is None:
            return
        try:
            await asyncio.to_thread(snapshots.write, self._folder, record, instances, count)
        except NotSaved as error:
            self.failures += 1
            self._unsaved = str(error)
            raise
        self._written[record.model] = (record, count)

    async def _write_every_so_often(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            self._used.sweep(time.time())
            try:
                await self.snapshot()
            except NotSaved as error:
                _log.error("%s", error)

    def _keep(self, record: Record, instances: list[bytes], count: int) -> None:
        self._records[record.model] = record
        self._instances[record.life] = instances
        self._counts[record.life] = count

    def _forget(self, model: str) -> None:
        record = self._records.pop(model, None)
        if record is not None:
            del self._instances[record.life], self._counts[record.life]


def _only_process(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InvalidInput(f"cannot use the folder {folder} ({error.strerror}): name another with --data") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise InvalidInput(
            f"another service uses {folder}: stop it, choose another folder, or share a Redis"
        ) from error
    return lock
