"""Backup and restore: all models of a service in one folder, as snapshots.

**What it means for privacy.** A backup shows what a snapshot shows: the current instances, and no ticket, client or
history. Two backups show what changed between them, and a series would show single updates. So a backup replaces the
one before it, model by model, and a model that was deleted is deleted from the backup too.

A restored model begins a new life, with the tokens it had. Nothing that exists is ever replaced.
"""

from collections.abc import AsyncIterator
from pathlib import Path

from blindsight.errors import InvalidInput
from blindsight.service import snapshots
from blindsight.service.registry import make_store
from blindsight.service.settings import Settings
from blindsight.service.snapshots import Snapshot
from blindsight.service.tombstones import Tombstones, read_tombstones, write_tombstones

__all__ = ["back_up", "restore"]


async def back_up(settings: Settings, folder: Path) -> list[str]:
    """Copy the models of a service, running or not, to `folder`. Returns what was done, in sentences."""
    if settings.data is not None and folder.resolve() == settings.data.resolve():
        raise InvalidInput(f"{folder} holds the service's own snapshots: choose another folder for the backup")
    done = list[str]()
    async for kept in _of_redis(settings) if settings.store != "memory" else _of_folder(settings):
        snapshots.write(folder, *kept)
        done.append(f"copied {kept.record.model}, {kept.updates} updates")
    folder.mkdir(parents=True, exist_ok=True)
    stones = await _tombstones(settings)
    for model in snapshots.names(folder):
        if snapshots.read(folder, model).record.created in stones:
            snapshots.forget(folder, model)
            done.append(f"deleted {model} from the backup, since it was deleted from the service")
    write_tombstones(folder, read_tombstones(folder) | dict(stones))
    return done


async def restore(settings: Settings, folder: Path) -> list[str]:
    """Create the models in `folder` that a service lacks. A service with the memory store must not be running."""
    models = [snapshots.read(folder, model) for model in snapshots.names(folder)]
    if not models:
        raise InvalidInput(f"there is no backup in {folder}: name the folder that --backup wrote")
    store, done = make_store(settings), list[str]()
    await store.open()
    try:
        for kept in models:
            model = kept.record.model
            if model not in store.faults and await store.put(kept.record.restored(), kept.instances):
                done.append(f"restored {model} as of {kept.updates} updates")
            else:
                done.append(f"left {model} as it is, since it exists: delete it first to restore it")
    finally:
        await store.close()
    return done


async def _of_folder(settings: Settings) -> AsyncIterator[Snapshot]:
    if settings.data is None:
        raise InvalidInput("a service without a data folder has nothing to back up")
    for model in snapshots.names(settings.data):
        yield snapshots.read(settings.data, model)


async def _of_redis(settings: Settings) -> AsyncIterator[Snapshot]:
    from blindsight.service.redis_store import RedisStore

    store = RedisStore(settings.store, None)  # never opened: a backup changes nothing
    try:
        for record in (await store.records()).values():
            instances, updates = await store.instances(record)
            if not instances:
                raise InvalidInput(f"{record.model} is being replaced or repaired: try again")
            yield Snapshot(record, instances, updates)
        if store.faults:
            raise InvalidInput(next(iter(store.faults.values())))
    finally:
        await store.close()


async def _tombstones(settings: Settings) -> Tombstones:
    stones = read_tombstones(settings.data) if settings.data is not None else {}
    if settings.store == "memory":
        return stones
    from blindsight.service.redis_store import RedisStore

    store = RedisStore(settings.store, None)
    try:
        return stones | await store.tombstones()
    finally:
        await store.close()
