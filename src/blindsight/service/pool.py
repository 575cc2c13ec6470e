"""One model in service: Algorithm 2 of Draw and Discard over a store, with a guard before each update (`spam`).

Draws show mixtures of instances that change with each batch of updates (`shown`), or instances if the batch is one.

`draw` and `offer` work over any store. If the store is in this process there is nothing to wait for, and `draw_now` and
`offer_now` do the same in fewer steps; where they cannot, they leave it to the former. A sender does not learn whether
its update is accepted, so it need not wait for that either: updates are processed together (`settle`), as soon as they
complete the batch that draws show, or after ten milliseconds. That takes a fifth as long as one at a time. Over a store
that is shared they are answered only once they are stored, and those that arrive in one turn are measured together.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

import numpy as np

from blindsight.algorithms.draw_and_discard import average, initial_instances
from blindsight.keys import root
from blindsight.service.answers import Head
from blindsight.service.canary import INSPECT_EVERY, Canary
from blindsight.service.each_turn import EachTurn
from blindsight.service.memory import MemoryStore
from blindsight.service.protocol import OCTETS, VERSION, Refusal, decode, encode, fault_of
from blindsight.service.shown import MIXED, mixture, of_batch
from blindsight.service.spam import Guard, recent_draws, spread_of
from blindsight.service.store import Record, Store

__all__ = ["Pool", "first_instances", "replaced"]

_log = logging.getLogger(__name__)
_CONFIRM_S = 1.0
_SETTLE_S = 0.01  # the longest that an update waits for others

Retreat = Callable[[Record, np.ndarray], Awaitable[None]]
"""Freezes a model and restarts it from an average."""


def first_instances(record: Record, start: np.ndarray | None = None) -> list[bytes]:
    """Initial instances around `start` or zeros, from secret randomness."""
    return [encode(row) for row in initial_instances(record.task, key=root().derive("start"), start=start)]


def replaced(verb: str) -> Refusal:
    """The refusal of a life that is over."""
    return Refusal(503, f"the model is being replaced: {verb} again")


class Pool:
    """Draws and updates of one life of a model. It counts events and records nothing about clients."""

    def __init__(
        self,
        record: Record,
        store: Store,
        batch: int = 1,
        canary: Canary | None = None,
        retreat: Retreat | None = None,
    ) -> None:
        self.record = record
        self.model = record.model
        self.length = 4 * record.task.weights
        self.length_stated = b"%d" % self.length
        self.scope = f"{record.model} {record.task.version} {record.life}".encode()
        self.version = record.task.version.encode()
        self.head = Head(
            200,
            (b"content-type", OCTETS.encode()),
            (b"content-length", self.length_stated),
            (b"cache-control", b"no-store"),
            (VERSION.lower().encode(), self.version),
        )
        self.task_body = json.dumps(record.task.to_dict(), allow_nan=False).encode()
        self.draws = self.taken = self.spam = self.replays = 0
        self._store = store
        self._here = store if isinstance(store, MemoryStore) and not store.shared else None
        self.is_here = self._here is not None
        """Whether draws and updates never wait, because the store is in this process."""
        self.guard = Guard(record.task)
        self._measured = EachTurn(self._measure, self.guard.at_once)
        self.canary = canary
        self.spread_seen = 0.0
        """The standard deviation over instances at the last inspection."""
        self._retreat = retreat
        self._waiting: list[bytes] = []
        self._is_due = False  # whether they will be processed later anyway
        self._seen = 0  # updates processed, accepted or not
        self.batch = of_batch(record.task, batch)
        self._shown: bytes | None = None  # to all draws until the batch is complete
        self._shown_until = 0  # in updates processed
        self._shown_count, self._shown_at = 0, 0.0  # accepted updates, and when the store last confirmed them
        self._showing = asyncio.Lock()
        self._recent: list[bytes] = []  # what was shown lately, which updates start from
        self._shows, self._after = 0, "-"
        self._most_recent = recent_draws(record.task.weights) if self.batch > 1 else record.task.instances
        self._inspect_at = INSPECT_EVERY
        self._background: asyncio.Task[None] | None = None

    def draw_now(self) -> bytes | None:
        """What a draw gets; None if that requires waiting or there is nothing."""
        here = self._here
        if here is None:
            return None
        if self.batch == 1:
            if self._waiting:  # a draw after an update shows its effect
                self.settle()
            instance = here.draw_now(self.record)
        elif self._shown is None or self._seen >= self._shown_until:
            instance = self._show(here.sample_now(self.record))
        else:
            instance = self._shown
        if instance is not None:
            self.draws += 1
        return instance

    def _show(self, instances: Sequence[bytes]) -> bytes | None:
        """Show what these instances make, until the next batch is complete."""
        made = mixture(instances) if len(instances) == MIXED else next(iter(instances), None)
        self._shown = None if made is None else self.guard.anchored(made)
        self._shown_until = self._seen + self.batch
        if self._shown is not None:
            self._remember(self._shown)
        return self._shown

    def _remember(self, instance: bytes) -> None:
        if len(self._recent) < self._most_recent:
            self._recent.append(instance)
        else:
            self._recent[self._shows % self._most_recent] = instance
        self._shows += 1

    def offer_now(self, update: bytes, nonce: bytes, ends: int) -> bool:
        """`offer`, but `settle` processes the update later; False, without effect, if it requires waiting."""
        here = self._here
        if here is None:
            return False
        if not here.spend_now(nonce, ends):
            raise self._replayed()
        self._waiting.append(update)
        if len(self._waiting) >= self._enough():
            self.settle()
        elif not self._is_due:
            self._is_due = True
            loop = asyncio.get_running_loop()
            if self.batch == 1:
                loop.call_soon(self._settle_due)
            else:
                loop.call_later(_SETTLE_S, self._settle_due)
        return True

    def _enough(self) -> int:
        """Updates to process at once: what the batch lacks, so that no draw shows the next one late; few large ones."""
        at_once = self.guard.at_once
        if self.batch == 1:
            return at_once
        return min(at_once, (self._shown_until - self._seen) if self._shown_until > self._seen else self.batch)

    def _settle_due(self) -> None:
        self._is_due = False
        self.settle()

    def settle(self) -> None:
        """Apply the pending updates in order, except spam; a deleted model accepts none."""
        waiting, self._waiting = self._waiting, []
        at_once = self.guard.at_once
        for first in range(0, len(waiting), at_once):
            self._settle(waiting[first : first + at_once])

    def _settle(self, updates: list[bytes]) -> None:
        try:
            self._take(updates)
        except Exception as error:  # nobody waits for the result, and the other updates may succeed
            if len(updates) == 1:
                _log.error("an update: %s", fault_of(error))
            else:
                for update in updates:
                    self._settle([update])

    def _take(self, updates: list[bytes]) -> None:
        here = self._here
        if here is None or not (instances := here.instances_now(self.record)):
            return
        if self.batch > 1 and not self._recent:
            self._show(here.sample_now(self.record))
        near = instances if self.batch == 1 else self._recent
        for is_known, instance in self.guard.measure(updates, near, self._shown):
            if not is_known:
                self.spam += 1
                here.decline_now(self.record)
            elif here.replace_now(self.record, instance):
                self.taken += 1
        self._processed(len(updates))

    async def draw(self) -> bytes:
        """What a draw gets."""
        instance = await (self._store.draw(self.record) if self.batch == 1 else self._shown_by_others())
        if instance is None:
            raise replaced("draw")
        if self.batch == 1:
            self._remember(instance)
        self.draws += 1
        return instance

    async def _shown_by_others(self) -> bytes | None:
        """The mixture of a shared store: renewed after a batch here, or of other processes.

        The store is asked before every draw, because one from a store that is gone leads to a paid update that nobody
        can take.
        """
        await self._store.check()
        async with self._showing:
            if self._seen >= self._shown_until or monotonic() - self._shown_at >= _CONFIRM_S:
                instances, count = await self._store.sample(self.record)
                if self._seen >= self._shown_until or abs(count - self._shown_count) >= self.batch or not instances:
                    shown = self._show(instances)
                    self._shown_count = count
                    await self._exchange(shown)
                self._shown_at = monotonic()
            return self._shown

    async def _exchange(self, shown: bytes | None = None) -> None:
        """Learn what draws show in other processes, and tell them what they show here: updates start from both."""
        for after, instance in await self._store.share(self.record, shown, self._after, self._most_recent):
            self._after = after
            if instance not in self._recent:
                self._remember(instance)

    async def offer(self, update: bytes, nonce: bytes, ends: int) -> None:
        """Apply an update unless its ticket was used or it looks like spam; only the former is reported."""
        unused, _ = await self._store.spend(self.record, nonce, ends)
        if not unused:
            raise self._replayed()
        is_known, instance = await self._measured.result(update)
        if not is_known:
            self.spam += 1
            await self._store.decline(self.record, instance)
        elif await self._store.replace(self.record, instance):
            self.taken += 1
        self._processed(1)

    async def _measure(self, updates: list[bytes]) -> list[tuple[bool, bytes]]:
        if not self._recent and await self.draw():  # another process has shown what these updates start from
            self.draws -= 1
        differences = self.guard.compare(updates, self._recent)
        if self.batch > 1 and self._store.shared and self.guard.are_far(differences):
            await self._exchange()
            differences = self.guard.compare(updates, self._recent)
        return self.guard.judge(differences, self._shown)

    async def average(self) -> np.ndarray:
        """The average of the instances, for prediction."""
        self.settle()
        instances, _ = await self._store.instances(self.record)
        if not instances:
            raise replaced("ask")
        return average(np.stack([decode(instance) for instance in instances]))

    async def spread(self) -> tuple[float, int]:
        """The current standard deviation over instances, and the number of accepted updates."""
        self.settle()
        instances, count = await self._store.instances(self.record)
        return (spread_of(instances) if instances else 0.0), count

    async def close(self) -> None:
        """Apply pending updates and stop background tasks."""
        self.settle()
        if self._background is not None and self._background is not asyncio.current_task():  # it may replace this pool
            self._background.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._background

    def _replayed(self) -> Refusal:
        self.replays += 1
        return Refusal(410, "the ticket was already used: draw again", cause="ticket_used")

    @property
    def alarm(self) -> bool:
        """Whether the model was rolled back and is frozen, or its spread is more than noise and k explain."""
        rolled_back = self.canary is not None and self.canary.rollbacks > 0 and self.record.frozen
        return rolled_back or self.spread_seen > self.guard.bounds.largest_spread

    def _processed(self, count: int) -> None:
        """Count updates, accepted or not, and inspect the model every so often."""
        self._seen += count
        if self._seen >= self._inspect_at and (self._background is None or self._background.done()):
            self._inspect_at = self._seen + INSPECT_EVERY
            self._background = asyncio.get_running_loop().create_task(self._inspect_later())

    async def _inspect_later(self) -> None:
        try:
            await self.inspect()
        except Exception as error:  # the store is unreachable, for example: the next update reports that
            _log.error("%s could not be inspected: %s", self.model, fault_of(error))

    async def begin(self) -> None:
        """Measure a life before it is served. It is never rolled back for how it begins: somebody wanted it so."""
        instances, _ = await self._store.instances(self.record)
        if not instances:
            return
        self.spread_seen = await asyncio.to_thread(spread_of, instances)
        if self.canary is not None:
            mean = average(np.stack([decode(instance) for instance in instances]))
            self.guard.shield = await asyncio.to_thread(self.canary.begin, mean)

    async def inspect(self) -> None:
        """Measure the spread, score the average on public examples, and retreat if the score has fallen."""
        instances, _ = await self._store.instances(self.record)
        if not instances or self.record.frozen:
            return
        self.spread_seen = await asyncio.to_thread(spread_of, instances)
        if self.canary is None:
            return
        mean = average(np.stack([decode(instance) for instance in instances]))
        self.guard.shield, good = await asyncio.to_thread(self.canary.inspect, mean)
        if good is not None and self._retreat is not None:
            await self._retreat(self.record, good)
