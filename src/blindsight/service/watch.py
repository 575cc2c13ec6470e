"""The data of the demo's live page, measured once a second with admin calls."""

import asyncio
import contextlib
import time
from typing import Any

import httpx2 as httpx
import numpy as np

from blindsight.algorithms.draw_and_discard import Task, guarantee
from blindsight.codings.specs import CategoryField
from blindsight.models import glm
from blindsight.service.addresses import Addresses
from blindsight.service.crowd import Crowd
from blindsight.service.shown import expected_spread

__all__ = ["Watch"]

_EVERY_S = 1.0
_KEPT = 900  # points of history; older ones are thinned out


class Watch:
    """A crowd and the history of its model. Losses are on public addresses, which no client holds."""

    def __init__(self, task: Task, addresses: Addresses, *, per_s: float) -> None:
        self.task, self.addresses, self.crowd = task, addresses, Crowd(task, addresses, per_s=per_s)
        self.history: list[dict[str, float]] = []
        self.weights = np.zeros(task.weights)
        self._began = time.monotonic()
        self._fixed = _constants(task, addresses)  # computed now, because requests must not wait for it

    async def run(self, address: str, admin: str, token: str) -> None:
        """The crowd, and a measurement every second, until cancelled."""
        options: dict[str, Any] = {"headers": {"Authorization": f"Bearer {admin}"}, "trust_env": False}
        one = f"{address}/v1/admin/models/{self.task.model}/"
        async with httpx.AsyncClient(base_url=one, **options) as http, asyncio.TaskGroup() as both:
            both.create_task(self.crowd.take_part(address, token))
            both.create_task(self._measure(http))

    async def _measure(self, http: httpx.AsyncClient) -> None:
        while True:
            with contextlib.suppress(httpx.HTTPError):  # a busy machine: try again next second
                average = (await http.get("average")).raise_for_status()
                statistics = (await http.get("statistics")).raise_for_status()
                self.note(np.array(average.json()["weights"]), statistics.json())
            await asyncio.sleep(_EVERY_S)

    def note(self, weights: np.ndarray, statistics: dict[str, float]) -> None:
        """Add a point to the history."""
        self.weights = weights
        x, y = self.addresses.public_x, self.addresses.public_y
        self.history.append(
            {
                "seconds": round(time.monotonic() - self._began, 1),
                "updates": int(statistics["taken"] + statistics["spam"]),
                "loss": round(glm.loss(self.task.family, weights, x, y), 4),
                "accuracy": round(_accuracy(weights, x, y), 4),
                "spread": round(statistics["spread"], 6),
                "rejected": int(statistics["spam"]),
                "spam": self.crowd.spam,
            }
        )
        if len(self.history) > _KEPT:
            self.history = self.history[: _KEPT // 2 : 2] + self.history[_KEPT // 2 :]

    def state(self) -> dict[str, Any]:
        """Everything that the live page shows."""
        return self._fixed | {"history": self.history, "weights": [round(float(weight), 4) for weight in self.weights]}


def _constants(task: Task, addresses: Addresses) -> dict[str, Any]:
    """The part of the state that does not change."""
    promise, best, share = guarantee(task, 1), _without_privacy(addresses), float(np.mean(addresses.public_y))
    return {
        "task": task.to_dict(),
        "origin": addresses.origin,
        "public": len(addresses.public_y),
        "guarantee": str(promise),
        "assumptions": list(promise.assumptions),
        "expected_spread": round(expected_spread(task, 1), 6),
        "names": _names(task),
        "deviations": [round(float(one), 4) for one in addresses.public_x.std(axis=0)],
        "guessing": {"loss": round(_entropy(share), 4), "accuracy": round(max(share, 1 - share), 4)},
        "simulation_only": {
            "loss": round(glm.loss(task.family, best, addresses.public_x, addresses.public_y), 4),
            "accuracy": round(_accuracy(best, addresses.public_x, addresses.public_y), 4),
        },
    }


def _names(task: Task) -> list[str]:
    """The name of each weight."""
    names = ["always"]
    for field in task.features.fields if task.features else ():
        names += [f".{one}" for one in field.categories] if isinstance(field, CategoryField) else [field.name]
    return names


def _accuracy(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean((x @ weights > 0) == (y == 1)))


def _entropy(share: float) -> float:
    """The loss of the best constant prediction."""
    return float(-sum(chance * np.log(chance) for chance in (share, 1 - share) if chance > 0))


def _without_privacy(addresses: Addresses, *, steps: int = 12) -> np.ndarray:
    """The same model trained centrally on all clients' addresses, by Newton's method: `simulation_only`."""
    x, y = addresses.x, addresses.y
    weights = np.zeros(x.shape[1])
    for _ in range(steps):
        chance = glm.predict("logistic", weights, x)
        slope = x.T @ (chance - y) / len(x) + 1e-5 * weights
        curve = (x * (chance * (1 - chance))[:, None]).T @ x / len(x) + 1e-5 * np.eye(x.shape[1])
        weights = weights - np.linalg.solve(curve, slope)
    return weights
