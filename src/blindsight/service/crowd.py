"""Simulated clients for the demo: each holds fifty addresses and takes part once; a few are spammers."""

import asyncio
import dataclasses
from collections.abc import Callable

import numpy as np

from blindsight.algorithms.draw_and_discard import Task, client_update
from blindsight.keys import root
from blindsight.service.addresses import Addresses
from blindsight.service.client import AsyncClient, ServiceError

__all__ = ["Crowd"]

_HELD = 50  # addresses on each client
_LINES = 8  # concurrent requests


@dataclasses.dataclass
class Crowd:
    """Clients that arrive at `per_s` per second; a share of `spam_share` sends spam instead of an honest update."""

    task: Task
    addresses: Addresses
    per_s: float = 150.0
    spam_share: float = 0.02
    spam: int = 0

    async def take_part(self, address: str, token: str) -> None:
        """Simulate clients until cancelled."""
        async with asyncio.TaskGroup() as lines:
            for line in range(_LINES):
                lines.create_task(self._come(address, token, line))

    async def _come(self, address: str, token: str, line: int) -> None:
        random, clock = np.random.default_rng(), asyncio.get_running_loop().time
        due = clock() + line / self.per_s
        # many clients in sequence over one connection; each is new, so no budget is counted here
        async with AsyncClient(address, self.task.model, token, unprotected=True, http={"trust_env": False}) as client:
            while True:
                await asyncio.sleep(max(0.0, due - clock()))
                due = max(due, clock() - 1.0) + _LINES / self.per_s  # after a busy spell, catch up by at most a second
                try:
                    if random.random() < self.spam_share:
                        await client.contribute(_spam(random))
                        self.spam += 1
                    else:
                        await client.contribute(self._honest(random.integers(len(self.addresses.x), size=_HELD)))
                except ServiceError:  # for example frozen by an administrator
                    await asyncio.sleep(1.0)

    def _honest(self, held: np.ndarray) -> Callable[[Task, np.ndarray], np.ndarray]:
        x, y = self.addresses.x[held], self.addresses.y[held]
        return lambda task, weights: client_update(task, weights, x, y, key=root().derive("update"))


def _spam(random: np.random.Generator) -> Callable[[Task, np.ndarray], np.ndarray]:
    """One of three: random weights, the model with flipped signs, a step that is far too long."""

    def spam(task: Task, weights: np.ndarray) -> np.ndarray:
        kind = random.integers(3)
        if kind == 0:
            return random.normal(0.0, 5.0, task.weights)
        if kind == 1:
            return -2.0 * weights
        return weights + random.choice([-1.0, 1.0], task.weights) * 1000 * task.learning_rate * task.clip

    return spam
