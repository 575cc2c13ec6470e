"""Snapshots of models in a Redis, in a folder that several processes of a host may share: one writes at a time."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Generator, Sequence
from pathlib import Path

from blindsight.errors import InvalidInput
from blindsight.service import snapshots
from blindsight.service.redis_cluster import Cluster
from blindsight.service.redis_keys import STONES
from blindsight.service.redis_wire import Redis
from blindsight.service.store import NotSaved, Record
from blindsight.service.tombstones import Tombstones, read_tombstones, write_tombstones

__all__ = ["SharedSnapshots"]


class SharedSnapshots:
    """The snapshots in `folder`; call `alone` before writing."""

    def __init__(self, redis: Redis | Cluster, folder: Path) -> None:
        self._redis = redis
        self._folder = folder
        self._written: dict[str, tuple[Record, int]] = {}

    def names(self) -> list[str]:
        """The models that have one."""
        return snapshots.names(self._folder)

    def forget(self, model: str) -> None:
        """Delete that of a model."""
        snapshots.forget(self._folder, model)

    def sweep(self) -> None:
        """Delete partial files left by a crash, unless another process is writing."""
        with self.alone():
            pass

    @contextlib.contextmanager
    def alone(self) -> Generator[bool]:
        """Whether no other process of this host is writing; what a dead one left half-written is deleted."""
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            snapshots.sweep(self._folder)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(lock)

    async def write(self, record: Record, instances: Sequence[bytes], updates: int) -> str:
        """Write a model if it has changed and is complete. Returns what went wrong."""
        if instances and self._written.get(record.model) != (record, updates):
            try:
                await asyncio.to_thread(snapshots.write, self._folder, record, instances, updates)
            except NotSaved as error:
                return str(error)
            self._written[record.model] = (record, updates)
        return ""

    async def bury(self, present: set[str], shared: Tombstones) -> str:
        """Share tombstones with Redis, and delete snapshots that have one. Returns what went wrong."""
        own = read_tombstones(self._folder)
        for created in set(own) - set(shared):
            await self._redis.ask(("HSETNX", STONES, created, own[created]))
        stones = {**shared, **own}
        for model in set(self.names()) - present:
            with contextlib.suppress(InvalidInput):
                if snapshots.read(self._folder, model).record.created in stones:
                    self.forget(model)
                    self._written.pop(model, None)
        try:
            if set(shared) - set(own):
                write_tombstones(self._folder, stones)
        except OSError as error:
            return f"cannot write to {self._folder} ({error.strerror})"
        return ""
