"""The Python client: fetch the task, draw an instance, train one step on local data, send it back with noise.

The protocol is `conversation`; `Client` and `AsyncClient` only send its requests.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import numpy as np

from blindsight.algorithms.draw_and_discard import Budget, Task, client_update
from blindsight.codings.specs import ClientRows
from blindsight.keys import root
from blindsight.service.conversation import Conversation, Prepared, ServiceError, Talk, UpdateLost, UpdateWaiting, Wait
from blindsight.service.outbox import Outbox

if TYPE_CHECKING:
    from blindsight.service.wallet import Wallet

__all__ = ["AsyncClient", "Client", "ServiceError", "UpdateLost", "UpdateWaiting"]

Update = Callable[[Task, np.ndarray], np.ndarray]
"""(task, weights drawn) to the weights to send: clips and adds noise."""


class Client:
    """A client of one model.

    `budget` limits everything this client will ever reveal (`Budget`), whatever tasks ask for. Only an `unprotected`
    client, for example with synthetic data, may go without a budget and answer a task without noise. `http` holds
    further arguments of `httpx2.Client`, such as `verify` or `transport`. Only the return value of `train` is sent.

    `token` is the model's token, or a `Wallet` of admission tokens. `outbox` is a file for an update that is paid for
    and not delivered: with it, one survives a restart of the app and of the service, while its ticket lives.
    """

    def __init__(
        self,
        address: str,
        model: str,
        token: "str | Wallet",
        *,
        budget: Budget | None = None,
        outbox: str | Path | None = None,
        unprotected: bool = False,
        retries: int = 4,
        timeout_s: float = 10.0,
        http: Mapping[str, Any] | None = None,
    ) -> None:
        self._talk = _conversation(model, token, budget, retries, unprotected, outbox)
        self._http = httpx.Client(**_options(address, model, token, timeout_s), **(http or {}))

    def task(self) -> Task:
        """The service's current task."""
        return self._run(self._talk.task())

    def train(self, rows: ClientRows) -> np.ndarray:
        """Train the model one step on `rows`; returns the noisy weights that were sent.

        A row that cannot be encoded counts as absent: staying silent would reveal its contents. To see what is wrong
        with rows, call `client.task().encode(rows)`, which refuses the first invalid one and sends nothing.
        """
        return self._run(self._talk.contribute(_training_on(rows)))

    def contribute(self, update: Update) -> np.ndarray:
        """The same with any `update(task, weights)`, which must clip and add noise itself.

        It must not fail, whatever the client's data: its cost is already paid by then, and silence would leak.
        """
        return self._run(self._talk.contribute(lambda task: functools.partial(update, task)))

    def deliver(self) -> bool:
        """Send the update that waits in the outbox; returns whether there was one."""
        return self._run(self._talk.deliver())

    def _run(self, talk: Talk) -> Any:
        answer: httpx.Response | Exception | None = None
        while True:
            try:
                said = talk.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(said, Wait):
                time.sleep(said.seconds)
                answer = None
                continue
            try:
                answer = self._http.request(said.method, said.action, headers=said.headers, content=said.body)
            except httpx.TransportError as error:
                answer = error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """`Client` for asynchronous programs: the same methods, awaited."""

    def __init__(
        self,
        address: str,
        model: str,
        token: "str | Wallet",
        *,
        budget: Budget | None = None,
        outbox: str | Path | None = None,
        unprotected: bool = False,
        retries: int = 4,
        timeout_s: float = 10.0,
        http: Mapping[str, Any] | None = None,
    ) -> None:
        self._talk = _conversation(model, token, budget, retries, unprotected, outbox)
        self._http = httpx.AsyncClient(**_options(address, model, token, timeout_s), **(http or {}))

    async def task(self) -> Task:
        """The service's current task."""
        return await self._run(self._talk.task())

    async def train(self, rows: ClientRows) -> np.ndarray:
        """Train the model one step on `rows`; returns the noisy weights that were sent."""
        return await self._run(self._talk.contribute(_training_on(rows)))

    async def contribute(self, update: Update) -> np.ndarray:
        """The same with any `update(task, weights)`, which must clip and add noise itself."""
        return await self._run(self._talk.contribute(lambda task: functools.partial(update, task)))

    async def deliver(self) -> bool:
        """Send the update that waits in the outbox; returns whether there was one."""
        return await self._run(self._talk.deliver())

    async def _run(self, talk: Talk) -> Any:
        answer: httpx.Response | Exception | None = None
        while True:
            try:
                said = talk.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(said, Wait):
                await asyncio.sleep(said.seconds)
                answer = None
                continue
            try:
                answer = await self._http.request(said.method, said.action, headers=said.headers, content=said.body)
            except httpx.TransportError as error:
                answer = error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _training_on(rows: ClientRows) -> Prepared:
    def prepare(task: Task) -> Callable[[np.ndarray], np.ndarray]:
        x, y = task.encode(rows, strict=False)
        return lambda weights: client_update(task, weights, x, y, key=root().derive("update"))

    return prepare


def _conversation(
    model: str,
    token: "str | Wallet",
    budget: Budget | None,
    retries: int,
    unprotected: bool,
    outbox: str | Path | None,
) -> Conversation:
    wallet = None if isinstance(token, str) else token
    return Conversation(model, budget, retries, unprotected, Outbox(outbox) if outbox else None, wallet)


def _options(address: str, model: str, token: "str | Wallet", timeout_s: float) -> dict[str, Any]:
    bearer = {"Authorization": f"Bearer {token}"} if isinstance(token, str) else {}
    return {
        "base_url": f"{address.rstrip('/')}/v1/models/{model}/",
        "headers": {"User-Agent": "blindsight"} | bearer,
        "timeout": timeout_s,
    }
