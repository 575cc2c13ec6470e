"""One model in service: Algorithm 2 of Draw and Discard over a store, with a spam check before each update.

`draw` and `offer` work over any store. If the store is in this process there is nothing to wait for, and `draw_now` and
`offer_now` do the same in fewer steps; where they cannot, they leave it to the former. A sender does not learn whether
its update is accepted, so it need not wait for that either: updates that arrive in one turn of the event loop are
processed together at its end (`settle`), which takes half as long as one at a time between other work.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence

import numpy as np

from blindsight.algorithms.draw_and_discard import average, initial_instances
from blindsight.keys import root
from blindsight.service.memory import MemoryStore
from blindsight.service.protocol import OCTETS, VERSION, Refusal, decode, encode, fault_of
from blindsight.service.spam import REFRESH_EVERY, Window
from blindsight.service.store import Record, Store

__all__ = ["Pool", "first_instances"]

_log = logging.getLogger(__name__)


def first_instances(record: Record, start: np.ndarray | None = None) -> list[bytes]:
    """Initial instances around `start` or zeros, from secret randomness."""
    return [encode(row) for row in initial_instances(record.task, key=root().derive("start"), start=start)]


class Pool:
    """Draws and updates of one life of a model. It counts events and records nothing about clients."""

    def __init__(self, record: Record, store: Store) -> None:
        self.record = record
        self.model = record.model
        self.length = 4 * record.task.weights
        self.length_stated = b"%d" % self.length
        self.scope = f"{record.model} {record.task.version} {record.life}".encode()
        self.version = record.task.version.encode()
        self.headers = (
            (b"content-type", OCTETS.encode()),
            (b"content-length", self.length_stated),
            (b"cache-control", b"no-store"),
            (VERSION.lower().encode(), self.version),
        )
        self.task_body = json.dumps(record.task.to_dict(), allow_nan=False).encode()
        self.draws = self.taken = self.spam = self.replays = 0
        self._store = store
        self._here = store if isinstance(store, MemoryStore) and not store.shared else None
        self._too_old = (
            20 * REFRESH_EVERY if store.shared else REFRESH_EVERY
        )  # age at which a window must be renewed first
        self._window: Window | None = None
        self._waiting: list[bytes] = []
        self._seen = 0  # updates processed, accepted or not
        self._refreshing = asyncio.Lock()
        self._background: asyncio.Task[None] | None = None

    def draw_now(self) -> bytes | None:
        """A random instance; None if that requires waiting or there is none."""
        instance = self._here.draw_now(self.record) if self._here is not None else None
        if instance is not None:
            self.draws += 1
        return instance

    def offer_now(self, update: bytes, nonce: bytes, ends: int) -> bool:
        """`offer`, but `settle` processes the update later; False, without effect, if it requires waiting."""
        here = self._here
        if here is None:
            return False
        if not here.spend_now(nonce, ends):
            raise self._replayed()
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.settle)
        self._waiting.append(update)
        return True

    def settle(self) -> None:
        """Apply the pending updates in order, except spam; a deleted model accepts none."""
        waiting, self._waiting = self._waiting, []
        for update in waiting:
            try:
                self._take(update)
            except Exception as error:  # nobody waits for the result, and the next update may succeed
                _log.error("an update: %s", fault_of(error))

    def _take(self, update: bytes) -> None:
        here, window, seen = self._here, self._window, self._seen
        if here is None or not (instances := here.instances_now(self.record)):
            return
        # counts all updates, not only accepted ones: reading all instances takes long enough for a sender to notice
        self._seen += 1
        if window is None or seen >= window.due:
            window = self._look(instances, seen)
        if not window.admits(update, seen):
            self.spam += 1
            here.decline_now(self.record)
        elif here.replace_now(self.record, update):
            self.taken += 1

    async def draw(self) -> bytes:
        """A random instance."""
        instance = await self._store.draw(self.record)
        if instance is None:
            raise Refusal(503, "the model is being replaced: draw again", headers={"Retry-After": "1"})
        self.draws += 1
        return instance

    async def offer(self, update: bytes, nonce: bytes, ends: int) -> None:
        """Apply an update unless its ticket was used or it looks like spam; only the former is reported."""
        unused, count = await self._store.spend(self.record, nonce, ends)
        if not unused:
            raise self._replayed()
        window, seen = self._window, count + self.spam  # all updates count, accepted or not: reading takes long
        if window is None or seen >= window.due:
            window = await self._renewed(window, seen)
        if not window.admits(update, seen):
            self.spam += 1
            await self._store.decline(self.record, update)
        elif await self._store.replace(self.record, update):
            self.taken += 1

    async def average(self) -> np.ndarray:
        """The average of the instances, for prediction."""
        self.settle()
        instances, _ = await self._store.instances(self.record)
        if not instances:
            raise Refusal(503, "the model is being replaced: ask again", headers={"Retry-After": "1"})
        return average(np.stack([decode(instance) for instance in instances]))

    async def spread(self) -> tuple[float, int]:
        """The current standard deviation over instances, and the number of accepted updates."""
        self.settle()
        instances, count = await self._store.instances(self.record)
        if not instances:
            return 0.0, count
        window = Window(self.record.task)
        window.refresh(instances, count)
        return window.spread, count

    async def close(self) -> None:
        """Apply pending updates and stop background tasks."""
        self.settle()
        if self._background is not None:
            self._background.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._background

    def _replayed(self) -> Refusal:
        self.replays += 1
        return Refusal(410, "the ticket was already used: draw again")

    async def _renewed(self, window: Window | None, count: int) -> Window:
        """A window for an update that arrives when the current one is due for renewal."""
        if window is None or window.age(count) >= self._too_old:
            return await self._refresh()
        if self._background is None or self._background.done():
            self._background = asyncio.create_task(self._refresh_later())
        return window  # wider, but still correct

    async def _refresh_later(self) -> None:
        with contextlib.suppress(Exception):  # the store is unreachable: the next update reports it
            await self._refresh()

    async def _refresh(self) -> Window:
        async with self._refreshing:
            instances, count = await self._store.instances(self.record)
            if not instances:
                raise Refusal(503, "the model is being replaced: draw again", headers={"Retry-After": "1"})
            return self._look(instances, count + self.spam)

    def _look(self, instances: Sequence[bytes], count: int) -> Window:
        window = self._window = self._window or Window(self.record.task)
        window.refresh(instances, count)
        return window
