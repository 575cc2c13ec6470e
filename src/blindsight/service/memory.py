"""The embedded store: instances as bytes in this process, with periodic snapshots on disk and one at exit.

A crash loses the updates since the last snapshot; clients do not have to react.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from blindsight.errors import BlindsightError, InvalidInput
from blindsight.service import snapshots
from blindsight.service.randomness import random_index
from blindsight.service.store import Record
from blindsight.service.tickets import Spent

__all__ = ["MemoryStore"]

_log = logging.getLogger(__name__)


class MemoryStore:
    """Models in memory; with a `folder` they are saved every `snapshot_s` seconds and survive a restart."""

    shared = False

    def __init__(self, folder: Path | None, snapshot_s: float = 30.0) -> None:
        self._folder = folder
        self._every = snapshot_s
        self._records: dict[str, Record] = {}
        self._instances: dict[str, list[bytes]] = {}  # by life
        self._counts: dict[str, int] = {}
        self._written: dict[str, tuple[Record, int]] = {}
        self.spend_now = Spent().spend  # marks a ticket as used; returns whether it was unused
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
                record, instances = snapshots.read(self._folder, model)
                self._keep(record, instances)
                self._written[model] = (record, 0)
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
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    async def secret(self) -> bytes:
        """Always the same: this store ends with its process."""
        return self._secret

    async def records(self) -> dict[str, Record]:
        """All models by name."""
        return dict(self._records)

    async def put(self, record: Record, instances: Sequence[bytes] | None = None) -> None:
        """Create or change a model, on disk when this returns."""
        if instances is not None:
            self._forget(record.model)
            self._keep(record, list(instances))
        elif record.life in self._instances:
            self._records[record.model] = record
        await self.snapshot()

    async def delete(self, model: str) -> None:
        """Delete a model, in memory and on disk."""
        self._forget(model)
        async with self._writing:
            self._written.pop(model, None)
            if self._folder is not None:
                snapshots.forget(self._folder, model)

    def draw_now(self, record: Record) -> bytes | None:
        """A random instance; methods with `now` in their names never wait."""
        instances = self._instances.get(record.life)
        return instances[random_index(len(instances))] if instances else None

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

    async def instances(self, record: Record) -> tuple[list[bytes], int]:
        """All instances, and the number of accepted updates."""
        return list(self.instances_now(record)), self.count_now(record)

    async def spend(self, record: Record, nonce: bytes, ends: int) -> tuple[bool, int]:
        """Mark a ticket as used."""
        return self.spend_now(nonce, ends), self.count_now(record)

    async def replace(self, record: Record, update: bytes) -> bool:
        """Overwrite a random instance with the update."""
        return self.replace_now(record, update)

    async def decline(self, record: Record, update: bytes) -> None:
        """Take as long as `replace`, without effect."""
        self.decline_now(record)

    async def snapshot(self) -> None:
        """Write every model that has changed."""
        if self._folder is None:
            return
        async with self._writing:
            for model in list(self._records):
                record = self._records.get(model)  # may have been deleted while another was written
                if record and self._written.get(model) != (state := (record, self._counts[record.life])):
                    instances = list(self._instances[record.life])
                    await asyncio.to_thread(snapshots.write, self._folder, record, instances)
                    self._written[model] = state

    async def _write_every_so_often(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.snapshot()
            except BlindsightError as error:
                _log.error("%s", error)

    def _keep(self, record: Record, instances: list[bytes]) -> None:
        self._records[record.model] = record
        self._instances[record.life] = instances
        self._counts[record.life] = 0

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
