"""Work that takes hardly longer for several items than for one: what is asked for in one turn is done together."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["EachTurn"]

Given = TypeVar("Given")
Made = TypeVar("Made")


class EachTurn(Generic[Given, Made]):
    """`work` on the items of one turn of the event loop, `most` of them at a time."""

    def __init__(self, work: Callable[[list[Given]], Awaitable[list[Made]]], most: int) -> None:
        self._work, self._most = work, most
        self._waiting: list[tuple[Given, asyncio.Future[Made]]] = []
        self._tasks = set[asyncio.Task[None]]()  # kept, or they could be collected

    def result(self, item: Given) -> "asyncio.Future[Made]":
        """A future of what the work makes of an item. If the work on its part fails, so do all items of that part."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            task = loop.create_task(self._do())  # begins after all that is ready now
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        future: asyncio.Future[Made] = loop.create_future()
        self._waiting.append((item, future))
        return future

    async def _do(self) -> None:
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), self._most):
            part = waiting[first : first + self._most]
            try:
                results = await self._work([item for item, _ in part])
            except Exception as error:
                for _, future in part:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (_, future), result in zip(part, results, strict=True):
                    if not future.done():  # nobody waits for it any more
                        future.set_result(result)
